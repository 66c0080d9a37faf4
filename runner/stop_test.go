package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// wantGone fails the test if one of these processes lives.
func wantGone(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if alive(pid) {
			p, _ := readProcess(pid)
			t.Errorf("process %d (%s) is alive", pid, p.comm)
		}
	}
}

// becomes waits until a process executes a program. While it begins to, its
// environment cannot be read, by which it is found where the runner adopts no orphans.
func becomes(t testing.TB, pid int, program string) {
	t.Helper()
	waitFor(t, "process "+strconv.Itoa(pid)+" to be "+program, func() bool {
		p, ok := readProcess(pid)
		return ok && p.comm == program
	})
}

func TestS1EscapedGrandchild(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec("/bin/sh", "-c", `setsid sh -c "setsid sleep 777 & echo \$! >gc; sleep 777" & sleep 777`)
	s.Cwd = r.path
	j := r.start(s)
	grandchild := pidIn(t, filepath.Join(r.path, "gc"))
	becomes(t, grandchild, "sleep")
	child := j.process().ChildPID
	began := time.Now()
	if e := j.cancel(); e.State != record.Cancelled || e.ExitCode != nil || e.Left != 0 || e.Error != "" {
		t.Errorf("exit is %s", j.read(record.Exit))
	}
	if took := time.Since(began); took >= grace {
		t.Errorf("a tree that obeys took %v: it was not asked", took)
	}
	wantGone(t, grandchild, child)
	if left := r.processes(); len(left) > 1 { // the runner may be on its way out
		t.Errorf("left: %v", left)
	}
}

// An orphan of an orphan, whose parents are long gone.
func TestS1Orphan(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec("/bin/sh", "-c", `(setsid sh -c '(sleep 777 & echo $! >gc) & exit' &) ; sleep 777`)
	s.Cwd = r.path
	j := r.start(s)
	orphan := pidIn(t, filepath.Join(r.path, "gc"))
	becomes(t, orphan, "sleep")
	j.ask()
	j.wantState(record.Cancelled)
	wantGone(t, orphan)
}

func TestS2SiblingIgnoresTERM(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec("/bin/sh", "-c", `trap "exit 0" TERM; (trap "" TERM; echo >ready; exec sleep 777)& echo $! >sib; wait`)
	s.Cwd = r.path
	j := r.start(s)
	sibling := pidIn(t, filepath.Join(r.path, "sib"))
	waitFor(t, "the sibling", func() bool { _, err := os.Stat(filepath.Join(r.path, "ready")); return err == nil })
	began := time.Now()
	j.ask()
	took := time.Since(began)
	j.wantState(record.Cancelled)
	if took < grace-100*time.Millisecond {
		t.Errorf("it took %v, want %v", took, grace)
	}
	wantGone(t, sibling)
}

// The grace ends when the tree is empty.
func TestS2SiblingIsSlow(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec("/bin/sh", "-c", `trap "exit 0" TERM; (trap "sleep 0.3; echo saved; exit" TERM; echo >ready; sleep 777& wait)& wait`)
	s.Cwd = r.path
	j := r.start(s)
	waitFor(t, "the sibling", func() bool { _, err := os.Stat(filepath.Join(r.path, "ready")); return err == nil })
	began := time.Now()
	j.ask()
	took := time.Since(began)
	j.wantState(record.Cancelled)
	if took >= grace {
		t.Errorf("it took %v: the grace does not end with the tree", took)
	}
	if got := j.log(); got != "saved\n" && !strings.HasSuffix(got, "saved\n") {
		t.Errorf("log is %q: the sibling was not given its time", got)
	}
}

func TestS2StoppedJob(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.sh(`kill -STOP $$; sleep 777`)
	child := j.process().ChildPID
	began := time.Now()
	j.ask()
	j.wantState(record.Cancelled)
	if took := time.Since(began); took >= grace {
		t.Errorf("a stopped job took %v: it was not continued", took)
	}
	wantGone(t, child)
}

func TestS3ForkStorm(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.sh(`i=0; while [ $i -lt 500 ]; do sleep 100 & i=$((i+1)); done; wait`)
	waitFor(t, "the storm", func() bool { return len(r.processes()) > 30 })
	j.ask()
	j.wantState(record.Cancelled)
	j.gone()
	if left := r.processes(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestS4CancelMeetsTheEnd(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	const jobs, workers = 96, 8
	var wg sync.WaitGroup
	var mu sync.Mutex
	states := map[record.State]int{}
	// However slow the machine makes the jobs: each worker goes on until the
	// two have met.
	deadline := time.Now().Add(patience)
	met := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(states) == 2 || time.Now().After(deadline)
	}
	for w := range workers {
		wg.Go(func() {
			after := time.Duration(43+2*w) * time.Millisecond
			for i := 0; i < jobs/workers || !met(); i++ {
				id, err := lockedStart(r.spec("sleep", "0.05"))
				if err != nil {
					t.Error(err)
					return
				}
				j := &testJob{t, id, filepath.Join(r.path, record.Jobs, string(id))}
				// Around the end, which is what the test is about.
				time.Sleep(time.Until(j.process().StartedAt.Add(after)))
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				err = Cancel(ctx, j.dir, record.CancelRecord{At: time.Now()})
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				first, err := os.ReadFile(j.file(record.Exit))
				if err != nil {
					t.Errorf("cancel returned before the end: %v", err)
					return
				}
				if !eventually(patience, func() bool { return !j.held() }) {
					t.Errorf("the runner of %s stays", id)
					return
				}
				last, err := os.ReadFile(j.file(record.Exit))
				if err != nil || string(first) != string(last) {
					t.Errorf("exit changed from %q to %q, %v", first, last, err)
				}
				var e record.ExitRecord
				if err := json.Unmarshal(last, &e); err != nil {
					t.Error(err)
				}
				switch {
				case e.State == record.Exited && e.ExitCode != nil && *e.ExitCode == 0 && e.Signal == "":
				case e.State == record.Cancelled && e.ExitCode == nil && e.Signal == "":
				default:
					t.Errorf("exit is %s", last)
				}
				mu.Lock()
				states[e.State]++
				mu.Unlock()
				after = aroundTheEnd(after, e.State)
			}
		})
	}
	wg.Wait()
	t.Logf("%v", states)
	if len(states) < 2 {
		t.Errorf("%v: they never met", states)
	}
}

// aroundTheEnd moves the time after which a job is cancelled towards that of
// its end, wherever the machine's load puts that: both kinds of end come up.
func aroundTheEnd(after time.Duration, last record.State) time.Duration {
	step := after/6 + time.Millisecond
	if last == record.Cancelled {
		return after + step
	}
	return max(after-step, 0)
}

func TestS4TimeoutMeetsTheEnd(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	var jobs []*testJob
	for i := range 24 {
		s := r.spec("sleep", "0.1")
		s.Timeout = time.Duration(96+i/3) * time.Millisecond
		jobs = append(jobs, r.start(s))
	}
	for _, j := range jobs {
		switch e := j.ended(); {
		case e.State == record.Exited && e.ExitCode != nil && *e.ExitCode == 0:
		case e.State == record.TimedOut && e.ExitCode == nil:
		default:
			t.Errorf("exit is %s", j.read(record.Exit))
		}
	}
}

func TestS4TrapsTERM(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	const script = `trap "echo bye; exit 0" TERM; echo ready; sleep 777 & wait`
	s := r.spec("/bin/sh", "-c", script)
	s.Timeout = 500 * time.Millisecond
	timed := r.start(s)
	asked := r.sh(script)
	asked.logHas("ready")
	asked.ask()
	for j, want := range map[*testJob]record.State{asked: record.Cancelled, timed: record.TimedOut} {
		j.wantState(want)
		if got := j.log(); got != "ready\nbye\n" {
			t.Errorf("%s: log is %q", want, got)
		}
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec("/bin/sh", "-c", "sleep 777 & sleep 777")
	s.Timeout = 300 * time.Millisecond
	j := r.start(s)
	e := j.wantState(record.TimedOut)
	if e.Left != 0 || e.Error != "" {
		t.Errorf("exit is %+v", e)
	}
	var timing record.TimingRecord
	if err := json.Unmarshal([]byte(j.read(record.Timing)), &timing); err != nil {
		t.Fatal(err)
	}
	if timing.DurationMS < 300 || timing.DurationMS >= grace.Milliseconds() {
		t.Errorf("timing is %+v, want 300 ms and not the grace", timing)
	}

	s = r.spec("/bin/sh", "-c", "exit 3")
	s.Timeout = time.Hour
	r.start(s).wantExit(3)
}

func TestS5CancellingTheOuterJob(t *testing.T) {
	t.Parallel()
	r, other := newRoot(t), newRoot(t)
	for _, inner := range []*testRoot{r, other} {
		file := filepath.Join(inner.path, "inner")
		argv := helperArgv("start", inner.order("sleep", "777").json())
		s := r.spec(append([]string{"/bin/sh", "-c", `"$@" >"$0.new" && mv "$0.new" "$0"; sleep 777`, file}, argv...)...)
		j := r.start(s)
		waitFor(t, "the inner job", func() bool { _, err := os.Stat(file); return err == nil })
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		id, ok := record.ParseID(strings.TrimSpace(string(b)))
		if !ok {
			t.Fatalf("the inner start printed %q", b)
		}
		in := inner.job(id)
		child := in.process().ChildPID
		j.ask()
		if e := j.wantState(record.Cancelled); e.Left != 0 {
			t.Errorf("exit of the outer job is %s", j.read(record.Exit))
		}
		if left, err := Left(j.dir); len(left) != 0 || err != nil {
			t.Errorf("left of the outer job: %v, %v", left, err)
		}
		if n, left, err := StopLeft(context.Background(), j.dir); n != 0 || len(left) != 0 || err != nil {
			t.Errorf("stopped of the outer job: %d, %v, %v", n, left, err)
		}
		if _, ok := in.exit(); ok || !in.held() || !alive(child) {
			t.Error("the inner job has ended")
		}
		in.ask()
		in.wantState(record.Cancelled)
		wantGone(t, child)
		if err := os.Remove(file); err != nil {
			t.Error(err)
		}
	}
}

func TestCancelOfAnEndedJob(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	gate := newGate(t)
	j := r.run("/bin/sh", "-c", `(read x <"$0"; echo never) & exit 3`, gate.path)
	e := j.wantExit(3)
	if e.Left != 1 {
		t.Errorf("exit is %s, want 1 left", j.read(record.Exit))
	}
	before := j.read(record.Exit)
	j.ask()
	if got := j.read(record.Exit); got != before {
		t.Errorf("a cancel after the end changed exit to %q", got)
	}
	if got := j.read(record.Cancel); !record.IsBlank([]byte(got)) {
		t.Errorf("a cancel after the end wrote %q", got)
	}
	left, err := Left(j.dir)
	if len(left) != 1 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	n, remaining, err := StopLeft(context.Background(), j.dir)
	if n != 1 || len(remaining) != 0 || err != nil {
		t.Errorf("stopped: %d, %v, %v", n, remaining, err)
	}
	j.gone()
	if got := j.read(record.Exit); got != before {
		t.Errorf("StopLeft changed exit to %q", got)
	}
	if n, remaining, err := StopLeft(context.Background(), j.dir); n != 0 || len(remaining) != 0 || err != nil {
		t.Errorf("stopped again: %d, %v, %v", n, remaining, err)
	}
}

// A request that is there before the runner looks: nothing is started.
func TestCancelBeforeTheFork(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec("touch", filepath.Join(r.path, "ran"))
	s.Describe = func(id record.ID, created time.Time) []byte {
		hidden := filepath.Join(r.path, record.Jobs, record.BuildPrefix+string(id)+"-"+strconv.Itoa(os.Getpid()))
		b := record.CancelRecord{At: time.Now(), By: "test"}.Append(nil)
		if err := os.WriteFile(filepath.Join(hidden, record.Cancel), b, 0o600); err != nil {
			t.Error(err)
		}
		return describe(id, created, s.Argv)
	}
	j := r.start(s)
	j.wantState(record.Cancelled)
	j.gone()
	if _, err := os.Stat(filepath.Join(r.path, "ran")); err == nil {
		t.Error("the command ran")
	}
	if got := j.read(record.Timing); got == "" {
		t.Error("timing is empty")
	}
}

// Cancels of a job at any moment from its first on end it as cancelled, or
// meet its end.
func TestCancelAtOnce(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for i := range 20 {
		j := r.run("sleep", "777")
		if i%2 == 1 {
			j.process()
		}
		j.ask()
		j.wantState(record.Cancelled)
	}
}

func TestSignalAloneCancels(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.run("sleep", "777")
	p := j.process()
	waitFor(t, "the end", func() bool {
		_ = process{pid: p.RunnerPID, start: p.RunnerStart}.queue(sigStop, stopValue) // it is deaf around its fork
		_, ok := j.exit()
		return ok
	})
	j.wantState(record.Cancelled)
	wantGone(t, p.ChildPID)
}

// A plain USR2, of the job itself or of anybody, is no request.
func TestStraySignalsCancelNothing(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.run("/bin/sh", "-c", `for s in USR2 USR1 TERM HUP INT QUIT ALRM 32 34 63; do kill -$s $PPID; done; exit 3`)
	j.wantExit(3)
}

// A job can stop its runner; a cancel wakes it.
func TestStoppedRunnerIsWoken(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	// Not before the runner has said who it is.
	j := r.run("/bin/sh", "-c", `while ! [ -s "$0/$SPACE_JOB/pid" ]; do sleep 0.01; done; kill -STOP $PPID; exec sleep 777`, filepath.Join(r.path, record.Jobs))
	runner := j.process().RunnerPID
	waitFor(t, "the stopped runner", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", runner))
		return strings.Contains(string(b), ") T ")
	})
	j.ask()
	j.wantState(record.Cancelled)
}

// So does a cancel of a runner that was stopped before it had said who it is.
func TestStoppedRunnerWithoutPid(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.sh(`sleep 777`)
	runner := j.process()
	me := process{pid: runner.RunnerPID, start: runner.RunnerStart}
	if err := me.signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the stopped runner", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", runner.RunnerPID))
		return strings.Contains(string(b), ") T ")
	})
	if err := os.Truncate(filepath.Join(j.dir, record.Pid), 0); err != nil {
		t.Fatal(err)
	}
	j.ask()
	j.wantState(record.Cancelled)
}

// What has cleared its environment and left the session is still below the
// runner, while that is there.
func TestLeftBelowTheRunner(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.run("/bin/sh", "-c", `env -i setsid sleep 777 & exit 0`)
	j.wantExit(0)
	waitFor(t, "the survivor", func() bool {
		left, err := Left(j.dir)
		return err == nil && len(left) == 1 && left[0].Name == "sleep"
	})
	if n, left, err := StopLeft(t.Context(), j.dir); n != 1 || len(left) != 0 || err != nil {
		t.Errorf("stopped %d, left %v, %v", n, left, err)
	}
	j.gone()
}

func TestR1RunnerKilled(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec("/bin/sh", "-c", `setsid sleep 777 & echo $! >gc; sleep 777`)
	s.Cwd = r.path
	j := r.start(s)
	grandchild := pidIn(t, filepath.Join(r.path, "gc"))
	child := j.process().ChildPID
	waitFor(t, "the tree", func() bool { return len(r.processes()) == 4 })
	j.killRunner()
	if _, ok := j.exit(); ok {
		t.Errorf("exit is %s", j.read(record.Exit))
	}
	if !alive(child) || !alive(grandchild) {
		t.Error("the job went with its runner")
	}
	left, err := Left(j.dir)
	if err != nil || len(left) != 3 {
		t.Errorf("left: %v, %v, want 3", left, err)
	}
	j.ask() // returns: nobody holds the lock
	if !alive(child) {
		t.Error("Cancel alone stopped what a lost job left")
	}
	n, remaining, err := StopLeft(context.Background(), j.dir)
	if n != 3 || len(remaining) != 0 || err != nil {
		t.Errorf("stopped: %d, %v, %v", n, remaining, err)
	}
	wantGone(t, child, grandchild)
	if _, ok := j.exit(); ok {
		t.Errorf("somebody recorded %s", j.read(record.Exit))
	}
}

func TestR2PidReuse(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	c := exec.Command("sleep", "777")
	wait := startCommand(t, c)
	defer func() {
		_ = c.Process.Kill()
		_ = wait()
	}()
	stranger, ok := readProcess(c.Process.Pid)
	if !ok {
		t.Fatal("no such process")
	}
	dir := filepath.Join(r.path, record.Jobs, string(record.NewID(time.Now())))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, record.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whose := record.ProcessRecord{
		RunnerPID: stranger.pid, ChildPID: stranger.pid, RunnerStart: stranger.start - 1, ChildStart: stranger.start - 1, BootID: record.BootID(),
	}
	later := whose
	later.BootID, later.RunnerStart, later.ChildStart = "another", stranger.start, stranger.start
	texts := []string{string(whose.Append(nil)), string(later.Append(nil)), "", "x", "\x00\x00", `{"runner_pid":`}
	for _, pid := range []string{"0", "1", "-1", "-" + strconv.Itoa(stranger.pid), "99999999999999999999", `"1"`, "null"} {
		texts = append(texts, `{"runner_pid":`+pid+`,"child_pid":`+pid+`,"runner_start":0,"child_start":0,"boot_id":"`+record.BootID()+`"}`)
	}
	for _, text := range texts {
		if err := os.WriteFile(f.Name(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, left, err := StopLeft(context.Background(), dir); n != 0 || len(left) != 0 || err != nil {
			t.Errorf("%q: stopped %d, %v, %v", text, n, left, err)
		}
		// Also while somebody holds the lock: a signal depends on every proof.
		waitFor(t, "the lock", func() bool { return record.Lock(int(f.Fd())) == nil }) // another test may just be forking
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if err := Cancel(ctx, dir, record.CancelRecord{At: time.Now()}); err != context.DeadlineExceeded {
			t.Errorf("%q: cancel of a job whose lock is held returned %v", text, err)
		}
		cancel()
		g, err := os.OpenFile(f.Name(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		f = g
		if !alive(stranger.pid) {
			t.Fatalf("%q: a stranger was signalled", text)
		}
	}
}

func TestR3TornExit(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for _, torn := range []string{"", "x", "\n", `{"state":"exited","exit_co`, "\x00\x00\x00"} {
		gate := newGate(t)
		j := r.run("/bin/sh", "-c", `read x <"$0"; exit 4`, gate.path)
		if err := os.WriteFile(j.file(record.Exit), []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		if over, err := endedIn(j.dir); over || err != nil {
			t.Errorf("%q counts as an end: %v", torn, err)
		}
		gate.open()
		j.gone()
		j.wantExit(4)
	}
}

// What is no file, in the place of a record, does not keep an end from being
// recorded.
func TestRecordsThatAreNoFiles(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for _, name := range []string{record.Exit, record.ReservedExit, record.ReservedTiming} {
		for what, put := range map[string]func(path string) error{
			"a link":                func(path string) error { return os.Symlink("/dev/null", path) },
			"a FIFO":                func(path string) error { return unix.Mkfifo(path, 0o600) },
			"a directory":           func(path string) error { return os.Mkdir(path, 0o700) },
			"a directory with more": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		} {
			gate := newGate(t)
			j := r.run("/bin/sh", "-c", `read x <"$0"; exit 4`, gate.path)
			if err := errors.Join(os.RemoveAll(j.file(name)), put(j.file(name))); err != nil {
				t.Fatal(err)
			}
			gate.open()
			waitFor(t, what+" as "+name, func() bool { over, err := endedIn(j.dir); return over || err != nil })
			j.gone()
			j.wantExit(4)
			if _, err := os.Stat(j.file(record.Timing)); err != nil {
				t.Errorf("%s as %s: %v", what, name, err)
			}
		}
	}
}

// endedIn is ended for a path.
func endedIn(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return ended(int(f.Fd()))
}

// An exit is there as a whole or not at all, whoever looks.
func TestR3ReadersAtFullSpeed(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for range 12 {
		j := r.sh("exit 6")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for end := time.Now().Add(patience); time.Now().Before(end); {
					b, err := os.ReadFile(j.file(record.Exit))
					if err != nil {
						continue
					}
					var e record.ExitRecord
					if err := json.Unmarshal(b, &e); err != nil || e.ExitCode == nil || *e.ExitCode != 6 {
						t.Errorf("exit is %q", b)
					}
					return
				}
				t.Error("no end")
			})
		}
		wg.Wait()
	}
}

// A gate is a FIFO that a job reads a line from, once, to wait for the test.
type gate struct {
	t    testing.TB
	path string
}

func newGate(t testing.TB) gate {
	t.Helper()
	g := gate{t, filepath.Join(t.TempDir(), "gate")}
	if err := unix.Mkfifo(g.path, 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// open lets the reader pass.
func (g gate) open() {
	g.t.Helper()
	var fd int
	waitFor(g.t, "a reader at the gate", func() (ok bool) {
		var err error
		fd, err = unix.Open(g.path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		return err == nil
	})
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte("\n")); err != nil {
		g.t.Fatal(err)
	}
}
