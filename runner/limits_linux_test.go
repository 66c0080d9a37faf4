package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

func init() { roles["crowded"] = crowdedRole }

// withShell makes a command start after a few words of shell.
func withShell(c *exec.Cmd, words string) *exec.Cmd {
	c.Args = append([]string{"sh", "-c", words + `; exec "$0" "$@"`, c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
	return c
}

// The caller's limits are the job's, soft and hard.
func TestLimitsReachTheJob(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	const show = `for l in -c -d -f -l -m -n -p -r -s -t -v -w; do echo $l $(ulimit -S $l 2>&1) $(ulimit -H $l 2>&1); done; grep processes /proc/self/limits`
	const set = `ulimit -S -c 0; ulimit -S -f 4000; ulimit -S -n 200; ulimit -S -t 1000; ulimit -H -n 300; ulimit -S -s 4096`
	want, err := runCommand(t, exec.Command("/bin/sh", "-c", set+"; "+show))
	if err != nil {
		t.Fatal(err)
	}
	j := r.started(withShell(starter(r.order("/bin/sh", "-c", show)), set))
	j.wantExit(0)
	if got := j.log(); got != want {
		t.Errorf("the job's limits are\n%s\nwant\n%s", got, want)
	}
}

func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.started(withShell(starter(r.order("/bin/sh", "-c", "echo hello; ulimit -n; exit 3")), "ulimit -n 16"))
	j.wantExit(3)
	if got := j.log(); got != "hello\n16\n" {
		t.Errorf("log is %q", got)
	}
}

// A lowered hard limit on the size of files binds the runner: the log is cut,
// what is missing is counted, and the end is recorded.
func TestHardLimitOnFiles(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	// In units of 512 bytes in some shells and of 1024 in others.
	j := r.started(withShell(starter(r.order("/bin/sh", "-c", "head -c 300000 /dev/zero; exit 5")), "ulimit -f 64"))
	e := j.wantExit(5)
	j.gone()
	if e.LogBytes != 32<<10 && e.LogBytes != 64<<10 {
		t.Errorf("log has %d bytes", e.LogBytes)
	}
	u := j.dropped().Unwritten
	if u == nil || u.Bytes+e.LogBytes != 300000 || u.Error != "file too large" || u.FirstAt.IsZero() {
		t.Errorf("dropped is %q, and the log has %d bytes", j.read(record.Dropped), e.LogBytes)
	}
}

// mountRoot is a root on a file system of its own.
func mountRoot(t *testing.T, options string) *testRoot {
	t.Helper()
	r := newRoot(t)
	if err := unix.Mount("tmpfs", r.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Skipf("cannot mount a tmpfs (it needs root, or unshare -rm): %v", err)
	}
	// After the jobs have gone, before the directory is removed.
	t.Cleanup(func() {
		waitFor(t, "the unmount", func() bool { return unix.Unmount(r.path, 0) == nil })
	})
	r.make()
	return r
}

// unshared runs this test again where it may mount, if it may not here.
// It reports whether that was done.
func unshared(t *testing.T) bool {
	t.Helper()
	const env = "RUNNER_TEST_UNSHARED"
	if os.Getuid() == 0 || os.Getenv(env) != "" {
		return false
	}
	c := exec.Command("unshare", "-rm", testBinary, "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), env+"=1")
	out, err := runCommand(t, c)
	switch {
	case strings.Contains(out, "--- FAIL"):
		t.Errorf("%s", out)
	case err != nil || !strings.Contains(out, "--- PASS"):
		t.Skipf("cannot mount here, nor with unshare -rm: %v, %s", err, out)
	}
	return true
}

func TestR4FullDisk(t *testing.T) {
	t.Parallel()
	if unshared(t) {
		return
	}
	r := mountRoot(t, "size=512k,mode=0700")
	const size = 5 << 20
	j := r.sh("yes | head -c 5M; exit 7")
	e := j.wantExit(7)
	j.gone()
	u := j.dropped().Unwritten
	if u == nil || u.Bytes+e.LogBytes != size || u.Error != "no space left on device" || e.LogBytes < 256<<10 {
		t.Errorf("dropped is %q, and the log has %d bytes", j.read(record.Dropped), e.LogBytes)
	}
	if got := j.log(); int64(len(got)) != e.LogBytes || strings.Trim(got, "y\n") != "" {
		t.Errorf("the log has %d bytes, exit says %d", len(got), e.LogBytes)
	}
	if got := j.read(record.Timing); !strings.HasSuffix(got, "}\n") {
		t.Errorf("timing is %q", got)
	}

	// Nothing more can be started, and nothing is left of the attempt.
	fill(t, filepath.Join(r.path, "filler"))
	before := len(r.names())
	_, err := lockedStart(r.spec("true"))
	var pe *fs.PathError
	if !errors.As(err, &pe) || !errors.Is(err, unix.ENOSPC) || !strings.HasPrefix(pe.Path, r.path) {
		t.Errorf("start on a full disk: %v", err)
	}
	if got := len(r.names()); got != before {
		t.Errorf("a start on a full disk left something: %q", r.names())
	}
}

// fill takes what is left of a disk.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for b := make([]byte, 4096); err == nil; {
		_, err = f.Write(b)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// A disk that fills up while a job runs, and is made room on again.
func TestR4FullDiskForAWhile(t *testing.T) {
	t.Parallel()
	if unshared(t) {
		return
	}
	r := mountRoot(t, "size=512k,mode=0700")
	gate := newGate(t)
	j := r.run("/bin/sh", "-c", `echo one; read x <"$0"; echo two; i=0; while [ -e "$1" ]; do sleep 0.05; done; echo three; exit 7`, gate.path, filepath.Join(r.path, "filler"))
	j.logHas("one\n")
	fill(t, filepath.Join(r.path, "filler"))
	for f, err := os.OpenFile(j.file(record.Log), os.O_WRONLY|os.O_APPEND, 0); err == nil; { // the log's own block too
		if _, err = f.Write([]byte{'.'}); err != nil {
			f.Close()
		}
	}
	gate.open()
	waitFor(t, "output to be dropped", func() bool { u := j.dropped().Unwritten; return u != nil })
	if err := os.Remove(filepath.Join(r.path, "filler")); err != nil {
		t.Fatal(err)
	}
	e := j.wantExit(7)
	j.gone()
	if u := j.dropped().Unwritten; u == nil || u.Bytes < int64(len("two\n")) || u.Bytes > int64(len("two\nthree\n")) {
		t.Errorf("dropped is %q", j.read(record.Dropped))
	}
	if got := j.log(); int64(len(got)) != e.LogBytes {
		t.Errorf("log has %d bytes, exit says %d", len(got), e.LogBytes)
	}
}

// With any number of free inodes a start works or leaves nothing, and the end
// of a job that runs needs none.
func TestR4OutOfInodes(t *testing.T) {
	t.Parallel()
	if unshared(t) {
		return
	}
	r := mountRoot(t, "size=4m,nr_inodes=64,mode=0700")
	gate := newGate(t)
	running := r.run("/bin/sh", "-c", `read x <"$0"; echo out; exit 7`, gate.path)
	running.process()
	var fillers []string
	for {
		path := filepath.Join(r.path, fmt.Sprint("filler", len(fillers)))
		if err := unix.Mknod(path, unix.S_IFREG|0o600, 0); err != nil {
			if err != unix.ENOSPC {
				t.Fatal(err)
			}
			break
		}
		fillers = append(fillers, path)
	}
	gate.open()
	running.wantExit(7)
	running.gone()
	if got := running.log(); got != "out\n" {
		t.Errorf("log is %q", got)
	}
	started := false
	for _, path := range fillers {
		before := len(r.names())
		id, err := lockedStart(r.spec("true"))
		if err == nil {
			r.job(id).wantExit(0)
			started = true
			break
		}
		var pe *fs.PathError
		if !errors.As(err, &pe) || !errors.Is(err, unix.ENOSPC) || !strings.HasPrefix(pe.Path, r.path) {
			t.Errorf("start without inodes: %v", err)
		}
		if got := len(r.names()); got != before {
			t.Errorf("a start without inodes left something: %q", r.names())
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if !started {
		t.Error("no start worked")
	}
}

// A disk that takes no request: the signal is one. Here it is read-only for the
// canceller alone, since a mount that a runner writes to stays writable.
func TestCancelOnAReadOnlyDisk(t *testing.T) {
	t.Parallel()
	if unshared(t) {
		return
	}
	r := newRoot(t)
	view := filepath.Join(t.TempDir(), "view")
	if err := os.Mkdir(view, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(r.path, view, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("cannot bind a directory: %v", err)
	}
	defer func() {
		if err := unix.Unmount(view, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	if err := unix.Mount("", view, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	j := r.sh("sleep 777")
	child := j.process().ChildPID
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := Cancel(ctx, filepath.Join(view, record.Jobs, string(j.id)), record.CancelRecord{At: time.Now()}); err != nil {
		t.Errorf("cancel on a read-only disk: %v", err)
	}
	j.wantState(record.Cancelled)
	wantGone(t, child)
	if got := j.read(record.Cancel); !record.IsBlank([]byte(got)) {
		t.Errorf("cancel holds %q", got)
	}
}

// Processes of another user cannot be ended: they are counted and named, and
// waited for no longer than the grace.
func TestSurvivorsOfAnotherUser(t *testing.T) {
	t.Parallel()
	const uid, other = 60003, 60004
	r := rootOf(t, uid)
	setuid := filepath.Join(r.path, "..", "setuid-"+filepath.Base(r.path))
	b, err := os.ReadFile(testBinary)
	if err != nil {
		t.Fatal(err)
	}
	writeProgram(t, setuid, b, 0o755)
	if err := os.Chmod(setuid, 0o755|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	o := r.order("/bin/sh", "-c", `"$@" & wait`, "sh", "env", roleEnv+"=as", setuid, strconv.Itoa(other), "/bin/sleep", "777")
	j := r.started(unprivileged(t, uid, starter(o)))
	var survivor process
	waitFor(t, "the other user's process", func() bool {
		for _, p := range r.processes() {
			st, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
			if p.comm == "sleep" && strings.HasPrefix(statusField(string(st), "Uid"), strconv.Itoa(other)) {
				survivor = p
				return true
			}
		}
		return false
	})
	defer func() { _ = survivor.signal(unix.SIGKILL) }()
	began := time.Now()
	j.ask()
	took := time.Since(began)
	e := j.wantState(record.Cancelled)
	if want := fmt.Sprintf("still running: %d (sleep, not permitted)", survivor.pid); e.Left != 1 || e.Error != want {
		t.Errorf("exit is %s, want left 1 and %q", j.read(record.Exit), want)
	}
	if took > 3*grace {
		t.Errorf("it took %v", took)
	}
	if !alive(survivor.pid) || !j.held() {
		t.Error("the survivor or its runner has gone")
	}
	_ = survivor.signal(unix.SIGKILL)
	j.gone()
}

// crowdedRole starts a job when its user may have only so many more processes
// and threads: its first argument. It stays until its stdin ends.
func crowdedRole(args []string) int {
	more, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 2
	}
	mine, err := strconv.Atoi(statusField(string(b), "Threads"))
	if err != nil {
		return 2
	}
	n := uint64(mine + more)
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n}); err != nil {
		return 2
	}
	code := startRole(args[1:])
	_, _ = os.Stdin.Read(make([]byte, 1))
	return code
}

// At the edge of what its user may have, a job is refused by start, or runs, or
// is recorded as one that could not be forked; it is not lost.
func TestProcessesAtTheEdge(t *testing.T) {
	t.Parallel()
	outcomes := map[string]int{}
	for more := range 14 {
		uid := 60100 + more
		r := rootOf(t, uid)
		c := unprivileged(t, uint32(uid), helper("crowded", strconv.Itoa(more), r.order("/bin/sh", "-c", "exit 3").json()))
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		c.Stdout, c.Stderr = out, out
		wait := startCommand(t, c)
		var said string
		waitFor(t, "the starter", func() bool {
			b, _ := os.ReadFile(out.Name())
			said = strings.TrimSpace(string(b))
			return said != ""
		})
		id, ok := record.ParseID(said)
		if !ok {
			outcomes["start failed"]++
			if names := r.names(); len(names) != 0 && !strings.Contains(said, "runtime") {
				t.Errorf("%d more: start said %q and left %q", more, said, names)
			}
		} else {
			j := r.job(id)
			waitFor(t, "the end", func() bool { _, ok := j.exit(); return ok || !j.held() })
			e, ok := j.exit()
			switch {
			case !ok:
				outcomes["lost"]++
			case e.State == record.Exited && e.ExitCode != nil && *e.ExitCode == 3:
				outcomes["ran"]++
			case e.State == record.Exited && e.ExitCode != nil && *e.ExitCode == 126 && strings.HasPrefix(e.Error, "fork for /bin/sh: "):
				outcomes["not forked"]++
			default:
				t.Errorf("%d more: exit is %s", more, j.read(record.Exit))
			}
		}
		in.Close()
		_ = wait()
		out.Close()
	}
	t.Logf("%v", outcomes)
	if outcomes["lost"] > 0 || outcomes["ran"] == 0 || outcomes["start failed"] == 0 {
		t.Errorf("%v: a start near the limit has its job run, or says why there is none", outcomes)
	}
}
