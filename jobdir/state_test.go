package jobdir

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"space-job/jobdir/record"
)

func TestDerive(t *testing.T) {
	reads := []ExitRead{nil}
	for _, s := range []State{Exited, Cancelled, TimedOut, Lost} {
		reads = append(reads, &record.ExitRecord{State: s})
	}
	for _, first := range reads {
		for _, held := range []bool{false, true} {
			for _, again := range reads {
				want := Lost
				if again != nil {
					want = again.State
				}
				if held {
					want = Running
				}
				if first != nil {
					want = first.State
				}
				if got := Derive(first, held, again); got != want {
					t.Errorf("Derive(%v, %v, %v) = %s, want %s", first, held, again, got, want)
				}
			}
		}
	}
}

// TestEveryCombination makes a job by hand in every combination of files, lock
// and readability, and reads it in every way.
func TestEveryCombination(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	type variant struct {
		name, content string
		want          State // of an exit file that says something
		bad           bool  // of a cmd file that makes the job damaged
	}
	cmds := []variant{
		{name: "fits", content: cmdJSON(testID)},
		{name: "newer", content: `{"format":2,"argv":{"prog":"x"},"id":"` + string(testID) + `"}`},
		{name: "bare", content: `{"format":1}`},
		{name: "missing", content: missing, bad: true},
		{name: "empty", content: "", bad: true},
		{name: "half", content: `{"format":1,"id":`, bad: true},
		{name: "formatless", content: `{}`, bad: true},
		{name: "stranger", content: cmdJSON("j000000000001"), bad: true},
		{name: "directory", content: isDir, bad: true},
		{name: "fifo", content: isFIFO, bad: true},
		{name: "symlink", content: isSymlink, bad: true},
	}
	pids := []variant{
		{name: "missing", content: missing},
		{name: "empty", content: ""},
		{name: "good", content: string(record.ProcessRecord{RunnerPID: 7, ChildPID: 8, BootID: "b"}.Append(nil))},
		{name: "garbage", content: `{"runner_pid":"-1","child_pid":1}`},
		{name: "directory", content: isDir},
		{name: "fifo", content: isFIFO},
		{name: "symlink", content: isSymlink},
	}
	exits := []variant{
		{name: "missing", content: missing},
		{name: "empty", content: ""},
		{name: "blank", content: strings.Repeat(" ", 4096)},
		{name: "text", content: "x\n"},
		{name: "half", content: exitJSON(Exited, 0, at)[:30]},
		{name: "null", content: "null"},
		{name: "running", content: exitJSON(Running, "null", at)},
		{name: "unknown", content: exitJSON("done", 0, at)},
		{name: "code300", content: exitJSON(Exited, 300, at)},
		{name: "codenull", content: exitJSON(Exited, "null", at)},
		{name: "codetext", content: exitJSON(Exited, `"0"`, at)},
		{name: "lost0", content: exitJSON(Lost, 0, at)},
		{name: "long", content: exitJSON(Exited, 0, at) + strings.Repeat(" ", maxRecord)},
		{name: "directory", content: isDir},
		{name: "fifo", content: isFIFO},
		{name: "symlink", content: isSymlink},
		{name: "exited", content: exitJSON(Exited, 255, at), want: Exited},
		{name: "bare", content: `{"state":"exited","exit_code":0}`, want: Exited},
		{name: "cancelled", content: exitJSON(Cancelled, "null", at), want: Cancelled},
		{name: "timedout", content: exitJSON(TimedOut, "null", at), want: TimedOut},
		{name: "lost", content: exitJSON(Lost, "null", at), want: Lost},
	}
	// The other files decide nothing: all of them take the same turn.
	others := []string{missing, "", "x", `{"hole":{"from":-5,"to":3}}`, isDir, isFIFO, isSymlink}

	for _, cmd := range cmds {
		t.Run("cmd "+cmd.name, func(t *testing.T) {
			t.Parallel()
			r := newRoot(t)
			j := r.Job(testID)
			turn := 0
			for _, pid := range pids {
				for _, exit := range exits {
					for _, held := range []bool{false, true} {
						if held && (pid.content == missing || strings.HasPrefix(pid.content, "\x00")) {
							continue // nothing to hold
						}
						other := others[turn%len(others)]
						turn++
						files := map[string]string{record.Cmd: cmd.content, record.Pid: pid.content, record.Exit: exit.content}
						for _, name := range []string{record.Log, record.Dropped, record.Cancel, record.Timing, record.Pipe, record.ReservedExit} {
							files[name] = other
						}
						makeJob(t, r, testID, files)
						release := func() {}
						if held {
							release = hold(t, j.path(record.Pid))
						}

						want := exit.want
						switch {
						case want != "":
						case held:
							want = Running
						default:
							want = Lost
						}
						if cmd.bad {
							want = ""
						}
						name := fmt.Sprintf("pid %s, exit %s, held %v, others %.8q", pid.name, exit.name, held, other)
						checkReads(t, name, r.Job(testID), want)
						if t.Failed() {
							return
						}
						release()
						if err := os.RemoveAll(j.Dir()); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}

func checkReads(t *testing.T, name string, j *Job, want State) {
	t.Helper()
	info, err := j.Read()
	if err != nil {
		t.Errorf("%s: Read: %v", name, err)
		return
	}
	if info.State != want || (info.Damaged == "") != (want != "") || (info.Cmd == nil) != (want == "") {
		t.Errorf("%s: Read: state %q, damaged %q, cmd %v; want state %q", name, info.State, info.Damaged, info.Cmd, want)
	}
	if info.Exit != nil && (info.Exit.State == Exited) != (info.Exit.ExitCode != nil) {
		t.Errorf("%s: Read: an invented code: %+v", name, info.Exit)
	}
	state, err := j.State()
	if state != want || errors.As(err, new(*DamagedError)) != (want == "") {
		t.Errorf("%s: State: %q, %v; want %q", name, state, err, want)
	}
	if info.Cmd != nil {
		info.Cmd.Line()
	}
	if r, err := j.ReadLog(0, 100); err == nil && int64(len(r.Bytes)) > 100 {
		t.Errorf("%s: ReadLog: %+v", name, r)
	}
	_, _ = j.ReadText(0, 100, true)
	_, _ = j.TailOffset(10)
	if _, err := j.root.Check(); err != nil {
		t.Errorf("%s: Check: %v", name, err)
	}
}

func TestNoSuchJob(t *testing.T) {
	r := newRoot(t)
	for _, id := range []ID{testID, "", "../jobs", "j00000000000g"} {
		j := r.Job(id)
		if _, err := j.State(); err != ErrNotFound {
			t.Errorf("State of %q: %v", id, err)
		}
		if _, err := j.Read(); err != ErrNotFound {
			t.Errorf("Read of %q: %v", id, err)
		}
		if _, err := j.ReadLog(0, 1); err != ErrNotFound {
			t.Errorf("ReadLog of %q: %v", id, err)
		}
		if _, err := j.RecordLost(time.Now()); err != ErrNotFound {
			t.Errorf("RecordLost of %q: %v", id, err)
		}
	}
}

func TestNotADirectory(t *testing.T) {
	r := newRoot(t)
	elsewhere := makeJob(t, newRoot(t), testID, nil)
	for i, make := range []func(path string) error{
		func(p string) error { return os.WriteFile(p, nil, 0o600) },
		func(p string) error { return os.Symlink(elsewhere.Dir(), p) },
		func(p string) error { return os.Symlink("nowhere", p) },
	} {
		j := r.Job(testID)
		if err := make(j.Dir()); err != nil {
			t.Fatal(err)
		}
		checkReads(t, fmt.Sprint(i), j, "")
		if problems, err := r.Check(); err != nil || len(problems) != 1 {
			t.Errorf("Check: %v, %v", problems, err)
		}
		if report, err := r.Prune(0, time.Now().Add(time.Hour), nil); err != nil || len(report.Removed) != 0 || report.Kept != 1 || report.Errors != nil {
			t.Errorf("Prune: %+v, %v", report, err)
		}
		if err := os.Remove(j.Dir()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHere: what has no name proves nothing.
func TestHere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		theirs, ours string
		want         bool
	}{{"a", "a", true}, {"a", "b", false}, {"", "", false}, {"a", "", false}, {"", "a", false}} {
		if got := here(c.theirs, c.ours); got != c.want {
			t.Errorf("%q, %q: %v", c.theirs, c.ours, got)
		}
	}
}

// TestR3EndUnderReaders: readers look while the end is
// recorded; none sees lost, and none sees a code become another.
func TestR3EndUnderReaders(t *testing.T) {
	r := newRoot(t)
	at := time.Now()
	id := record.NewID(at)
	for range 100 {
		id = id.Next()
		j := makeJob(t, r, id, map[string]string{record.ReservedExit: ""})
		release := hold(t, j.path(record.Pid))
		done := make(chan error)
		for range 4 {
			go func() {
				ended := false
				for {
					info, err := r.Job(id).Read()
					switch {
					case err != nil:
						done <- err
						return
					case info.State == Exited && *info.Exit.ExitCode == 7:
						if ended {
							done <- nil
							return
						}
						ended = true
					case info.State != Running || ended:
						done <- fmt.Errorf("state %q, exit %+v, after the end: %v", info.State, info.Exit, ended)
						return
					}
				}
			}()
		}
		if err := os.WriteFile(j.path(record.ReservedExit), []byte(exitJSON(Exited, 7, at)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(j.path(record.ReservedExit), j.path(record.Exit)); err != nil {
			t.Fatal(err)
		}
		release()
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if t.Failed() {
			return
		}
	}
}

func TestForeign(t *testing.T) {
	here := record.ProcessRecord{RunnerPID: 7, BootID: record.BootID(), MachineID: record.MachineID()}
	rebooted, moved, nameless := here, here, here
	rebooted.BootID = "another"
	moved.BootID, moved.MachineID = "another", "another"
	nameless.BootID, nameless.MachineID = "another", ""
	old := record.NewID(time.Now().Add(-2 * time.Hour))
	for _, c := range []struct {
		name    string
		id      ID
		process string
		foreign bool // on a network file system
	}{
		{"this boot", old, string(here.Append(nil)), false},
		{"this machine, an earlier boot", old, string(rebooted.Append(nil)), false},
		{"another machine", old, string(moved.Append(nil)), true},
		{"a machine without a name", old, string(nameless.Append(nil)), true},
		{"not signed, old", old, "", false},
		{"not signed yet", record.NewID(time.Now()), "", true},
	} {
		for _, network := range []bool{false, true} {
			r := newRoot(t)
			r.network = func() bool { return network }
			j := makeJob(t, r, c.id, map[string]string{record.Pid: c.process})
			info, err := j.Read()
			if err != nil || info.State != Lost || info.Foreign != (c.foreign && network) {
				t.Errorf("%s, network %v: %+v, %v", c.name, network, info, err)
			}
			recorded, err := j.RecordLost(time.Now())
			if info.Foreign {
				if recorded || !errors.Is(err, ErrForeign) {
					t.Errorf("%s: recorded %v, %v", c.name, recorded, err)
				}
			} else if !recorded || err != nil {
				t.Errorf("%s: recorded %v, %v", c.name, recorded, err)
			}
		}
	}
}
