package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

func init() { roles["blocked"], roles["fat"] = blockedRole, fatRole }

// blockedRole executes a command with every signal blocked.
func blockedRole(args []string) int {
	runtime.LockOSThread()
	blockAllSignals()
	fmt.Fprintln(os.Stderr, unix.Exec(args[0], args, os.Environ()))
	return 1
}

// procFile reads a file of a process.
func procFile(t testing.TB, pid int, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// TestStuck: who is about to end for too long counts, and nobody for another of its number.
func TestStuck(t *testing.T) {
	var never stuck
	s := stuck{}
	p := process{pid: 7, start: 1}
	now := time.Now()
	for i, step := range []struct {
		p    process
		at   time.Duration
		want bool
	}{
		{p, 0, false},
		{p, endsWithin, false},
		{process{pid: 8, start: 1}, endsWithin + 1, false},
		{p, endsWithin + 1, true},
		{process{pid: 7, start: 2}, endsWithin + 2, false}, // the same number, somebody else
		{process{pid: 7, start: 2}, 2*endsWithin + 3, true},
	} {
		if got := s.add(step.p, now.Add(step.at)); got != step.want || never.add(step.p, now.Add(step.at)) {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

// What the runner is, and what it holds on to.
func TestRunnerProcess(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	o := r.order("/bin/sh", "-c", "echo ready; sleep 777; : secretive")
	c := starter(o)
	c.Env = append(c.Env, "GOMAXPROCS=3", "GODEBUG=madvdontneed=1", "GOGC=50", "LD_X=secretive")
	c.Dir = t.TempDir()
	j := r.started(c)
	p := j.process()
	waitFor(t, "the runner at rest", func() bool { return statusField(procFile(t, p.RunnerPID, "status"), "State") == "S (sleeping)" })

	j.logHas("ready")

	if got, want := procFile(t, p.RunnerPID, "cmdline"), "space-runner\x00"+string(j.id)+"\x00"; got != want {
		t.Errorf("argv of the runner is %q, want %q", got, want)
	}
	if got := procFile(t, p.RunnerPID, "comm"); got != "space-runner\n" {
		t.Errorf("comm is %q", got)
	}
	want := []string{"GOMAXPROCS=1", "GODEBUG=containermaxprocs=0,updatemaxprocs=0,profstackdepth=0", "SPACE_JOB=" + string(j.id), "SPACE_JOB_HOME=" + r.path}
	if got := strings.Split(strings.TrimSuffix(procFile(t, p.RunnerPID, "environ"), "\x00"), "\x00"); !slices.Equal(got, want) {
		t.Errorf("environment of the runner is %q, want %q", got, want)
	}
	env := strings.Split(procFile(t, p.ChildPID, "environ"), "\x00")
	for _, kv := range []string{"GOMAXPROCS=3", "GODEBUG=madvdontneed=1", "GOGC=50"} {
		if !slices.Contains(env, kv) {
			t.Errorf("the job's environment does not have the caller's %s", kv)
		}
	}

	for pid, name := range map[int]string{p.RunnerPID: "runner", p.ChildPID: "command"} {
		stat := procFile(t, pid, "stat")
		f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
		if pgrp, session, tty := f[2], f[3], f[4]; pgrp != strconv.Itoa(pid) || session != strconv.Itoa(pid) || tty != "0" {
			t.Errorf("%s: group %s, session %s, terminal %s of process %d", name, pgrp, session, tty, pid)
		}
	}
	if cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", p.RunnerPID)); cwd != "/" {
		t.Errorf("the runner's directory is %s", cwd)
	}
	for fd, to := range fdsOf(t, p.RunnerPID) {
		if to != "/dev/null" && !strings.HasPrefix(to, j.dir) && !strings.HasPrefix(to, "anon_inode:") {
			t.Errorf("the runner holds %s: %s", fd, to)
		}
	}
	pipe := j.file(record.Pipe)
	if fds := fdsOf(t, p.ChildPID); len(fds) != 3 || fds["0"] != "/dev/null" || fds["1"] != pipe || fds["2"] != pipe {
		t.Errorf("the command's descriptors are %v", fds)
	}
}

// fdsOf are the open files of a process.
func fdsOf(t testing.TB, pid int) map[string]string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	fds := map[string]string{}
	for _, e := range entries {
		fds[e.Name()], _ = os.Readlink(filepath.Join(dir, e.Name()))
	}
	return fds
}

// The command starts with nothing ignored and nothing blocked, whatever its
// caller had.
func TestSignalsAtTheStart(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	o := r.order("cat", "/proc/self/status")
	ignoring := starter(o)
	ignoring.Args = append([]string{"sh", "-c", `trap "" HUP INT QUIT PIPE USR1 USR2 TERM ALRM TSTP TTIN TTOU CHLD; exec "$0" "$@"`, ignoring.Path}, ignoring.Args[1:]...)
	ignoring.Path = "/bin/sh"
	blocked := helper("blocked", "/usr/bin/env", roleEnv+"=start", testBinary, o.json())
	for name, j := range map[string]*testJob{"ignoring": r.started(ignoring), "blocking": r.started(blocked)} {
		j.wantExit(0)
		status := j.log()
		for _, field := range []string{"SigIgn", "SigBlk", "SigCgt"} {
			if got := statusField(status, field); got != "0000000000000000" {
				t.Errorf("a caller %s signals: %s of the job is %s", name, field, got)
			}
		}
	}
}

// Signals that arrive as soon as the runner has had a chance to ignore them, and
// from then on, neither end it nor its job, and without a request they cancel
// nothing.
func TestTERMStorm(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	signals := []unix.Signal{
		unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGALRM, unix.SIGPIPE, unix.SIGXFSZ, unix.SIGXCPU,
		unix.SIGCHLD, unix.SIGCONT, unix.SIGTSTP, unix.SIGABRT, unix.SIGWINCH, unix.SIGIO, unix.SIGVTALRM, sigLook,
	}
	for round := range 12 {
		gate := newGate(t)
		j := r.run("/bin/sh", "-c", `read x <"$0"; exit 4`, gate.path)
		var runner process
		waitFor(t, "the runner", func() bool {
			all, _ := everyProcess()
			for _, p := range all {
				if p.ppid == os.Getpid() && strings.HasSuffix(runnersID(p.pid), string(j.id)) {
					runner = p
					return ignores(p.pid, unix.SIGTERM)
				}
			}
			return false
		})
		asks := round >= 10 // a request is heard all the same
		if asks {
			b := record.CancelRecord{At: time.Now()}.Append(nil)
			if err := os.WriteFile(j.file(record.Cancel), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for i := 0; ; i++ {
			_ = runner.signal(signals[i%len(signals)])
			if i == 500 && !asks {
				gate.open()
			}
			if _, over := j.exit(); over || !alive(runner.pid) {
				break
			}
		}
		if asks {
			j.wantState(record.Cancelled)
		} else {
			j.wantExit(4)
		}
	}
}

func ignores(pid int, sig unix.Signal) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	mask, _ := strconv.ParseUint(statusField(string(b), "SigIgn"), 16, 64)
	return mask>>(sig-1)&1 != 0
}

// runnersID is the last argument of a space-runner.
func runnersID(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
	if args[0] != "space-runner" {
		return ""
	}
	return args[len(args)-1]
}

// ticks is the CPU time of a process, in ticks of 10 ms.
func ticks(t testing.TB, pid int) int {
	t.Helper()
	stat := procFile(t, pid, "stat")
	f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	user, _ := strconv.Atoi(f[11])
	sys, _ := strconv.Atoi(f[12])
	return user + sys
}

// A job that has closed its output, or sent it elsewhere, costs its runner
// nothing.
func TestClosedOutputDoesNotSpin(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for _, script := range []string{
		`exec >/dev/null 2>&1; read x <"$0"; sleep 0.7; read x <"$1"; exit 3`,
		`exec >&- 2>&-; read x <"$0"; sleep 0.7; read x <"$1"; exit 3`,
	} {
		gate, second := newGate(t), newGate(t)
		j := r.run("/bin/sh", "-c", script, gate.path, second.path)
		runner := j.process().RunnerPID
		gate.open()
		before := ticks(t, runner)
		second.open()
		if got := ticks(t, runner) - before; got > 1 {
			t.Errorf("%s: the runner used %d ticks in 0.7 s", script, got)
		}
		j.wantExit(3)
		j.gone()
	}
}

// A flood is given a larger pipe, which goes back after a second of quiet.
func TestPipeGrownAndGivenBack(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	orders := filepath.Join(t.TempDir(), "orders")
	if err := unix.Mkfifo(orders, 0o600); err != nil {
		t.Fatal(err)
	}
	order, err := os.OpenFile(orders, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer order.Close()
	j := r.run("/bin/sh", "-c", `exec 3<>"$0"; while read x <&3 && [ "$x" != end ]; do head -c 65536 /dev/zero; done`, orders)
	fd, err := unix.Open(j.file(record.Pipe), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	size := func() int {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := size(); got != pipeSmall {
		t.Errorf("an idle pipe has %d bytes", got)
	}
	runner, ok := readProcess(j.process().RunnerPID)
	if !ok {
		t.Fatal("no runner")
	}
	// A runner that keeps up needs no larger pipe: it is made to fall behind.
	rounds := int64(0)
	waitFor(t, "a larger pipe", func() bool {
		_ = runner.signal(unix.SIGSTOP)
		waitFor(t, "a runner that has stopped", func() bool { return allStopped(t, runner.pid) })
		_, _ = order.WriteString("more\n")
		rounds++
		waitFor(t, "a full pipe", func() bool { return pending(fd) == pipeSmall })
		_ = runner.signal(unix.SIGCONT)
		waitFor(t, "an empty pipe", func() bool { return pending(fd) == 0 })
		return size() == pipeLarge
	})
	waitFor(t, "a small pipe again", func() bool { return size() == pipeSmall })
	_, _ = order.WriteString("end\n")
	if e := j.wantExit(0); e.LogBytes != rounds*pipeSmall {
		t.Errorf("after %d rounds exit is %+v", rounds, e)
	}
}

// allStopped reports whether no thread of a process runs: a STOP takes its time.
func allStopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v, %v", pid, threads, err)
	}
	return !slices.ContainsFunc(threads, func(path string) bool {
		b, err := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(b), ") ")
		return err == nil && !strings.HasPrefix(rest, "T")
	})
}

func TestParseStat(t *testing.T) {
	t.Parallel()
	const rest = " S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7"
	for _, comm := range []string{"sh", "", " ", ")", "(", ") S 1 2 3", "a) (b", "((()))", "new\nline", "\xff\x01", ") Z 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 99 ("} {
		p, ok := parseStat([]byte("42 (" + comm + ")" + rest))
		if want := (process{pid: 42, ppid: 7, sid: 9, start: 12345, comm: comm}); !ok || p != want {
			t.Errorf("%q: %+v, %v, want %+v", comm, p, ok, want)
		}
	}
	if p, ok := parseStat([]byte("42 (x) Z" + rest[2:])); !ok || !p.zombie {
		t.Errorf("a zombie is %+v, %v", p, ok)
	}
	for _, bad := range []string{"", "42", "42 (", "42 )", ") (", "42 (x)", "(x)" + rest, "x (x)" + rest, "42 (x) S 7 8 9", "42 (x) S a 8 9" + rest[8:]} {
		if p, ok := parseStat([]byte(bad)); ok {
			t.Errorf("%q: %+v", bad, p)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sh) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 6 7"))
	f.Add([]byte(")("))
	f.Fuzz(func(_ *testing.T, b []byte) { parseStat(b) })
}

// A process may call itself anything.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	dir := t.TempDir()
	name := filepath.Join(dir, ") Z 1 (\n")
	if err := os.Symlink("/bin/sleep", name); err != nil {
		t.Fatal(err)
	}
	j := r.run("/bin/sh", "-c", `"$0" 777 & setsid "$0" 777 & wait`, name)
	waitFor(t, "both", func() bool {
		n := 0
		for _, p := range r.processes() {
			if p.comm == filepath.Base(name) {
				n++
			}
		}
		return n == 2
	})
	j.ask()
	j.wantState(record.Cancelled)
	j.gone()
	if left := r.processes(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// The two ways to find a tree agree.
func TestBelowByScan(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.sh(`(sleep 777 & sleep 777 & wait) & setsid sleep 777 & wait`)
	runner := j.process().RunnerPID
	none := func(process) membership { return ours }
	var a, b []process
	waitFor(t, "the tree", func() bool {
		a, _ = below(runner, none)
		b, _ = belowByScan(runner, none)
		return len(a) == 5 && len(b) == 5
	})
	for _, l := range [][]process{a, b} {
		slices.SortFunc(l, func(x, y process) int { return x.pid - y.pid })
	}
	for i := range a {
		if a[i].pid != b[i].pid {
			t.Errorf("by children %v, by scan %v", a, b)
			break
		}
	}
}

// A process that belongs elsewhere is not taken for the job's own when it ends:
// long before it is a zombie it has no environment any more. The more memory it
// has, the longer that takes.
func TestApartWhileItEnds(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	other := r.sh("true")
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), roleEnv+"=fat", record.EnvHome+"="+r.path, record.EnvJob+"="+string(other.id))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	s := search{id: string(record.NewID(time.Now())), root: r.path}
	var looks, late int
	of := func(p process) membership {
		if p.pid != c.Process.Pid {
			return apart
		}
		looks++
		m := markOf(p.pid)
		if m.blank {
			late++
		}
		return s.of(p, m)
	}
	look := func() (live []process) {
		live, _ = below(os.Getpid(), of)
		return live
	}
	// Where others end at that moment, the kernel may leave it out.
	for end := time.Now().Add(patience); looks == 0 && time.Now().Before(end); {
		if live := look(); len(live) > 0 || looks > 1 {
			t.Fatalf("before: %v, seen %d times", live, looks)
		}
	}
	if looks == 0 {
		t.Fatal("it is not seen")
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for {
		if live := look(); len(live) > 0 {
			t.Errorf("taken for the job's: %v", live)
			break
		}
		if p, ok := readProcess(c.Process.Pid); !ok || p.zombie {
			break
		}
	}
	t.Logf("%d looks, %d of them while it ended", looks, late)
	_ = c.Wait()
}

// fatRole takes memory, says so, and stays.
func fatRole([]string) int {
	const size = 128 << 20
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_POPULATE)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	b[0] = 1
	fmt.Println("fat")
	for { // not select {}, which the runtime takes for a deadlock
		_ = unix.Pause()
	}
}

// TestEnvironmentDuringExec: a process that executes one program after another
// has an environment at every moment.
func TestEnvironmentDuringExec(t *testing.T) {
	t.Parallel()
	again := filepath.Join(t.TempDir(), "again")
	writeProgram(t, again, []byte("#!/bin/sh\nexec \"$0\"\n"), 0o700)
	c := exec.Command(again)
	c.Env = []string{"SPACE_JOB=j0123456789ab"}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	for range 3000 {
		if e := firstEnvironment(c.Process.Pid); !strings.Contains(e, "SPACE_JOB=j0123456789ab") {
			t.Fatalf("the environment is %q", e)
		}
	}
}
