package sink

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"space-job/notify"
	"space-job/notify/thread"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// Environment variables that make this test binary another program.
const asCaller = "SPACE_JOB_TEST_CALLER" // runs the command that this names, for a minute

func TestMain(m *testing.M) {
	if shell := os.Getenv(asCaller); shell != "" {
		s := &commandSink{shell, time.Minute}
		_ = s.Deliver(context.Background(), notify.Message{})
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func message() notify.Message {
	code, ms := 7, int64(775000)
	return notify.Message{Key: "job/j6c1f0a2b9d3e", Job: "j6c1f0a2b9d3e", State: "exited", ExitCode: &code, DurationMS: &ms, LogBytes: 48210,
		Name: "unit tests", Text: "JOB j6c1f0a2b9d3e exited exit=7 12m55s log=48210B | unit tests\nEnd of the log:\n    a < b & c\n"}
}

// deliver runs a command as a sink with a limit.
func deliver(t *testing.T, shell string, limit time.Duration) error {
	t.Helper()
	return (&commandSink{shell, limit}).Deliver(t.Context(), message())
}

const (
	short = time.Second
	long  = 20 * time.Second // never reached
)

func TestCommandSink(t *testing.T) {
	t.Setenv("SPACE_JOB", "j000000000000")
	dir := t.TempDir()
	got := filepath.Join(dir, "got")
	if err := deliver(t, `cat >`+got+`; { pwd; env; } >`+got+`.env`, long); err != nil {
		t.Fatal(err)
	}
	if b := read(t, got); b != message().Text {
		t.Errorf("stdin %q", b)
	}
	env := "\n" + read(t, got+".env")
	for _, want := range []string{"\n/\n", "\nSPACE_JOB_KEY=job/j6c1f0a2b9d3e\n", "\nSPACE_JOB_STATE=exited\n", "\nSPACE_JOB_EXIT=7\n", "\nPATH="} {
		if !strings.Contains(env, want) {
			t.Errorf("no %q in%s", want, env)
		}
	}
	if strings.Contains(env, "\nSPACE_JOB=") {
		t.Error("the mark of a job's processes was passed on")
	}
	lost := message()
	lost.State, lost.ExitCode = "lost", nil
	if err := (&commandSink{`test -z "$SPACE_JOB_EXIT" -a "$SPACE_JOB_STATE" = lost`, long}).Deliver(t.Context(), lost); err != nil {
		t.Error(err)
	}
	// Nothing of ours is open in the command, and its stdin ends.
	if err := deliver(t, `cat >/dev/null; for fd in 3 4 5 6 7 8 9; do if { true <&$fd; } 2>/dev/null; then exit 9; fi; done`, long); err != nil {
		t.Errorf("a descriptor is open: %v", err)
	}
}

func TestCommandSinkFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, shell, want string }{
		{"exit code", `exit 3`, "it ended with exit code 3"},
		{"last line", `echo first; printf 'last\033[2J\n\n' >&2; exit 3`, "it ended with exit code 3: last [2J"},
		{"not found", `exec /nope/nope`, "exit code 127"},
		{"signal", `kill -9 $$`, "it ended with exit code 137"},
		{"syntax", `if`, "exit code 2"},
		{"kills its group", `kill -9 0; sleep 20`, "its shell was stopped: signal: killed"},
		{"a flood", `yes | head -c 10000000; echo end; exit 1`, "exit code 1: end"},
		{"a long line", `yes | head -c 100000 | tr -d '\n'; exit 1`, strings.Repeat("y", 200) + "..."},
		{"invalid bytes", `printf '\377\n'; exit 1`, "exit code 1: \ufffd"},
	} {
		err := deliver(t, c.shell, long)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	// Who does not read is no failure: a message longer than any pipe.
	m := message()
	m.Text = strings.Repeat("x", 1<<20)
	if err := (&commandSink{"true", long}).Deliver(t.Context(), m); err != nil {
		t.Errorf("stdin not read: %v", err)
	}
	if err := (&commandSink{"test $(wc -c) = 1048577", long}).Deliver(t.Context(), m); err != nil { // with a newline
		t.Errorf("stdin read: %v", err)
	}
}

// TestN1CommandHangs: a command that does not end is killed with everything in
// its process group.
func TestN1CommandHangs(t *testing.T) {
	t.Parallel()
	for name, shell := range map[string]string{
		"plain":            `echo waiting; echo $$ >DIR/a; sleep 100 & echo $! >DIR/b; wait`,
		"ignores TERM":     `trap '' TERM HUP; echo waiting; echo $$ >DIR/a; (trap '' TERM; sleep 100; sleep 100) & echo $! >DIR/b; sleep 100`,
		"stopped":          `echo waiting; echo $$ >DIR/a; sleep 100 & echo $! >DIR/b; kill -STOP $$`,
		"does not read":    `echo waiting; echo $$ >DIR/a; sleep 100 & echo $! >DIR/b; exec <&-; sleep 100`,
		"closes its pipes": `echo waiting; echo $$ >DIR/a; sleep 100 >/dev/null 2>&1 & echo $! >DIR/b; exec >/dev/null 2>&1; sleep 100`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			m := message()
			m.Text = strings.Repeat("x", 1<<20)
			start := time.Now()
			err := (&commandSink{strings.ReplaceAll(shell, "DIR", dir), short}).Deliver(t.Context(), m)
			if err == nil || err.Error() != "it did not end within 1 s and was killed: waiting" {
				t.Errorf("%v", err)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			gone(t, filepath.Join(dir, "a"), filepath.Join(dir, "b"))
		})
	}
}

// TestCommandLeftovers: what a command leaves in its group is killed when it has
// ended; what has left the group is not, and is not waited for.
func TestCommandLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start := time.Now()
	if err := deliver(t, `sleep 100 & echo $! >`+dir+`/a`, long); err != nil {
		t.Error(err)
	}
	gone(t, filepath.Join(dir, "a"))
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("there is no setsid")
	}
	if err := deliver(t, `setsid sh -c 'echo $$ >`+dir+`/b; exec sleep 100' & until test -s `+dir+`/b; do :; done; exit 3`, long); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(read(t, filepath.Join(dir, "b"))))
	if !runs(pid) {
		t.Error("what had left the group was killed")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func TestCommandCancelled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		s := &commandSink{`echo $$ >` + dir + `/new; mv ` + dir + `/new ` + dir + `/a; sleep 100`, long}
		result <- s.Deliver(ctx, message())
	}()
	await(t, filepath.Join(dir, "a"))
	cancel()
	select {
	case err := <-result:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("goes on")
	}
	gone(t, filepath.Join(dir, "a"))
	if err := (&commandSink{`touch ` + dir + `/b`, long}).Deliver(ctx, message()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "b")); err == nil {
		t.Error("it was run though nobody waits")
	}
}

// TestCommandCallerKilled: with the caller killed, nothing goes on that nobody
// watches.
func TestCommandCallerKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shell := `trap '' TERM HUP; sleep 100 & echo $! >` + dir + `/b; echo $$ >` + dir + `/new; mv ` + dir + `/new ` + dir + `/a; sleep 100`
	caller, err := os.StartProcess(self, []string{self}, &os.ProcAttr{Env: append(os.Environ(), asCaller+"="+shell)})
	if err != nil {
		t.Fatal(err)
	}
	await(t, filepath.Join(dir, "a"))
	_ = caller.Kill()
	_, _ = caller.Wait()
	gone(t, filepath.Join(dir, "a"), filepath.Join(dir, "b"))
}

func TestWakeCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code := 7
	it := thread.Item{ID: "j6c1f0a2b9d3e", Kind: thread.KindJobEnd, To: "bob", Text: "a <b>\nc", Job: "j6c1f0a2b9d3e", JobState: "exited", ExitCode: &code, Offset: 12}
	m := thread.Member{Name: "bob", Kind: thread.Agent, WakeCommand: `cat >` + dir + `/item; echo "up, $SPACE_MEMBER"; printf 'a\033[2Jb\n\nc' >&2`}
	var out bytes.Buffer
	if err := Wake(t.Context(), m, it, &out); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "waker of bob, j6c1f0a2b9d3e: up, bob\nwaker of bob, j6c1f0a2b9d3e: a [2Jb\nwaker of bob, j6c1f0a2b9d3e: c\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	got := read(t, filepath.Join(dir, "item"))
	for _, want := range []string{`"item":"j6c1f0a2b9d3e"`, `"kind":"job_end"`, `"to":"bob"`, `"text":"a <b>\nc"`, `"exit_code":7`, `"offset":12`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 {
		t.Errorf("%q is not one line", got)
	}

	m.WakeCommand = `echo no; exit 4`
	out.Reset()
	if err := Wake(t.Context(), m, it, &out); err == nil || err.Error() != "it ended with exit code 4: no" {
		t.Error(err)
	}
	if !strings.Contains(out.String(), ": no\n") {
		t.Errorf("%q", out.String())
	}
	m.WakeCommand = `echo $$ >` + dir + `/a; echo hm; sleep 100`
	if err := wakeByCommand(t.Context(), m, it, &out, short); err == nil || err.Error() != "it did not end within 1 s and was killed: hm" {
		t.Error(err)
	}
	gone(t, filepath.Join(dir, "a"))

	m.WakeCommand = `yes | head -n 200000; exit 4` // what it says may not fill a disk
	out.Reset()
	if err := wakeByCommand(t.Context(), m, it, &out, 30*short); err == nil {
		t.Error("no error")
	}
	if n := out.Len(); n < 1000 || n > 64<<10*35 || !strings.HasSuffix(out.String(), "left out)\n") {
		t.Errorf("%d bytes of output, which end in %q", n, out.String()[max(n-100, 0):])
	}

	if err := Wake(t.Context(), thread.Member{Name: "bob", Kind: thread.Agent}, it, nil); err != nil {
		t.Errorf("nothing to run: %v", err)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   []string
		want string
	}{
		{nil, ""},
		{[]string{"a"}, "> a\n"},
		{[]string{"a", "b\nc\n"}, "> ab\n> c\n"},
		{[]string{"\n\n\n"}, ""},
		{[]string{"a\r\n"}, "> a\n"},
		{[]string{strings.Repeat("x", maxOutputLine+10), "y\nz\n"}, "> " + strings.Repeat("x", maxOutputLine) + "\n> y\n> z\n"},
	} {
		var b bytes.Buffer
		l := &lines{to: &b, prefix: "> ", left: maxOutput}
		for _, s := range c.in {
			if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		l.flush()
		if b.String() != c.want {
			t.Errorf("%.40q: %.80q, want %.80q", c.in, b.String(), c.want)
		}
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   []string
		want string
	}{
		{nil, ""},
		{[]string{"a"}, "a"},
		{[]string{"a\nb", "c\n \n"}, "bc"},
		{[]string{strings.Repeat("x", 5000), "\n", strings.Repeat("y", 4096), "\nz"}, "z"},
		{[]string{strings.Repeat("ä", 300)}, strings.Repeat("ä", 100) + "..."},
	} {
		var e tail
		for _, s := range c.in {
			if n, err := e.Write([]byte(s)); n != len(s) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		if got := e.line(); got != c.want || len(e.b) > 4<<10 {
			t.Errorf("%.40q: %q, want %q", c.in, got, c.want)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// await waits for a file.
func await(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not come", path)
		}
	}
}

// gone fails if a process whose number is in a file still runs.
func gone(t *testing.T, files ...string) {
	t.Helper()
	for _, f := range files {
		pid, err := strconv.Atoi(strings.TrimSpace(read(t, f)))
		if err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); runs(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				t.Fatalf("%s: process %d still runs", f, pid)
			}
		}
	}
}

// runs: a zombie does not.
func runs(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		if _, err := os.Stat("/proc/self"); err != nil {
			return syscall.Kill(pid, 0) == nil
		}
		return false
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}
