package until

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quick makes tries follow each other soon.
func quick(w *watcher) {
	w.commandSoon, w.commandSlow = 5*time.Millisecond, 5*time.Millisecond
	w.killGrace = 50 * time.Millisecond
}

// gone waits until none of the processes whose ids a file holds runs.
func gone(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil || len(b) == 0 {
		t.Fatalf("no ids in %s: %v", file, err)
	}
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		within(t, "end of process "+f, func() bool { return !runs(pid) })
	}
}

func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(b), ") Z ")
}

func TestU3HoldsAtTheStart(t *testing.T) {
	t.Parallel()
	w := begin(t, newRoot(t), Condition{Command: "echo one; echo two"}, nil)
	w.ends(0, "exited with 0: two")
	few(t, w, 2)
}

func TestU3HoldsLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := begin(t, newRoot(t), Condition{Command: "test -s " + dir + "/report || { echo none yet >&2; exit 9; }"}, quick)
	w.says("not yet: it exits with 9: none yet")
	time.Sleep(50 * time.Millisecond) // several tries
	write(t, filepath.Join(dir, "report"), "x")
	w.ends(0, "exited with 0")
	few(t, w, 3)
}

// TestU3Hangs: a try without a limit of its own goes on until the watch is
// stopped, which takes it along though it ignores TERM.
func TestU3Hangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := begin(t, newRoot(t), Condition{Command: "trap '' TERM; echo $$ >" + dir + "/pid; sleep 777 & echo $! >>" + dir + "/pid; wait; sleep 777"}, func(w *watcher) {
		w.stillRuns = 10 * time.Millisecond
	})
	w.says("a try has been running for 10ms")
	within(t, "second pid", func() bool { b, _ := os.ReadFile(dir + "/pid"); return strings.Count(string(b), "\n") == 2 })
	few(t, w, 2)
	w.stop()
	began := time.Now()
	<-w.done
	if took := time.Since(began); w.err == nil || took > 3*time.Second {
		t.Errorf("%+v, %v after %v", w.end, w.err, took)
	}
	gone(t, dir+"/pid")
}

// TestU3TryTimeout: a try that takes too long is stopped, also where it ignores
// TERM, and one that obeys by exiting with 0 has not succeeded.
func TestU3TryTimeout(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"obeys":   "trap 'exit 0' TERM; echo $$ >>DIR/pid; sleep 777 & wait",
		"ignores": "trap '' TERM; echo $$ >>DIR/pid; while :; do sleep 777; done",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := begin(t, newRoot(t), Condition{Command: "if test -e DIR/go; then exit 0; fi; " + command, TryTimeout: 100 * time.Millisecond}, func(w *watcher) {
				quick(w)
				w.Command = strings.ReplaceAll(w.Command, "DIR", dir)
			})
			w.says("not yet: a try took longer than 100ms")
			within(t, "second try", func() bool { b, _ := os.ReadFile(dir + "/pid"); return strings.Count(string(b), "\n") >= 2 })
			w.goesOn()
			write(t, dir+"/go", "")
			w.ends(0, "exited with 0")
			gone(t, dir+"/pid")
			few(t, w, 3)
		})
	}
}

// TestU3LeavesChildren: what a try leaves behind is killed, whether it failed or
// not; and a leftover that holds the output keeps nobody waiting.
func TestU3LeavesChildren(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := begin(t, newRoot(t), Condition{Command: "sleep 777 & echo $! >>" + dir + "/pid; test $(wc -l <" + dir + "/pid) -ge 3"}, quick)
	w.ends(0, "exited with 0")
	gone(t, dir+"/pid")
}

// TestU3LargeOutput: of an output only its last line is of use.
func TestU3LargeOutput(t *testing.T) {
	t.Parallel()
	w := begin(t, newRoot(t), Condition{Command: "yes 0123456789 | head -c 10000000; echo; echo the end; exit 3"}, quick)
	w.says("not yet: it exits with 3: the end")
	if n := len(w.log.String()); n > 1000 {
		t.Errorf("%d bytes", n)
	}
	few(t, w, 2)
}

func TestU3NotFound(t *testing.T) {
	t.Parallel()
	w := begin(t, newRoot(t), Condition{Command: "exec /nope/nope"}, quick)
	w.says("not yet: it exits with 127 (not found)")
	time.Sleep(50 * time.Millisecond) // several tries
	w.goesOn()
	few(t, w, 2)
}

// TestU3Killed: a try that is killed has not succeeded.
func TestU3Killed(t *testing.T) {
	t.Parallel()
	w := begin(t, newRoot(t), Condition{Command: "kill -9 $$"}, quick)
	w.says("not yet: it was killed by signal 9 (killed)")
}

// TestU3LastWords: what a try said is shown as a terminal would, without colours
// and with what was drawn over gone.
func TestU3LastWords(t *testing.T) {
	t.Parallel()
	w := begin(t, newRoot(t), Condition{Command: `printf 'one\n50%%\r\033[31mnot \033[1mup\033[0m\r\n\n'; exit 3`}, quick)
	w.says("not yet: it exits with 3: not up")
}

// TestU3OneTryAtATime: and none is begun before the pause is over.
func TestU3OneTryAtATime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := begin(t, newRoot(t), Condition{Command: "mkdir " + dir + "/lock || touch " + dir + "/two; sleep 0.02; rmdir " + dir + "/lock; echo >>" + dir + "/n; test $(wc -l <" + dir + "/n) -ge 5"}, func(w *watcher) {
		w.commandSoon, w.commandSlow = time.Millisecond, time.Millisecond
	})
	w.ends(0, "")
	if _, err := os.Stat(dir + "/two"); err == nil {
		t.Error("two tries at a time")
	}
}

// TestNotes: what changes all the time does not fill the log.
func TestNotes(t *testing.T) {
	t.Parallel()
	var log lines
	now := time.Unix(0, 0)
	n := notes{w: &log, now: func() time.Time { return now }}
	for i := range 100_000 {
		now = now.Add(time.Second)
		n.see(strconv.Itoa(i % 2))
	}
	got := strings.Count(log.String(), "\n")
	if most := allChanges + 100_000/60 + 1; got > most || got < allChanges {
		t.Errorf("%d lines, at most %d", got, most)
	}
	if !strings.Contains(log.String(), "(after 59 changes that are not shown)") {
		t.Errorf("%.2000s", log.String())
	}
}
