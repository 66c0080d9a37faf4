package runner

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

const rlimitNPROC = unix.RLIMIT_NPROC

func init() {
	roles["pipes"] = pipesRole
	roles["bomb"] = bombRole
	if os.Getenv(roleEnv) == "headless" {
		headless() // an init runs on the main thread
	}
}

// headless is a process that lives on after its main thread.
func headless() {
	runtime.LockOSThread()
	ready := make(chan bool)
	go func() {
		fmt.Println("ready")
		close(ready)
		time.Sleep(10 * time.Minute)
	}()
	<-ready
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

// pipesRole makes pipes until its stdin ends, and says how many were made, and
// how many of them had less than the usual size.
func pipesRole([]string) int {
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	made, small := 0, 0
	for last := false; !last; {
		last = over.Load()
		var pipes [4][2]int
		for i := range pipes {
			if err := unix.Pipe(pipes[i][:]); err != nil {
				fmt.Println(err)
				return 1
			}
			made++
			if n, err := unix.FcntlInt(uintptr(pipes[i][0]), unix.F_GETPIPE_SZ, 0); err != nil || n < pipeSmall {
				small++
			}
		}
		for _, p := range pipes {
			unix.Close(p[0])
			unix.Close(p[1])
		}
		time.Sleep(5 * time.Millisecond) // leaves the processors to the jobs
	}
	fmt.Println(made, small)
	return 0
}

// bombRole forks for ever, and so does all that it forks, each in a session of its
// own and deaf to all but KILL. Unlike a shell it tries again, soon, when there are
// no more processes.
func bombRole([]string) int {
	runtime.LockOSThread()
	for sig := 1; sig <= lastSignal; sig++ {
		setHandler(sig, sigIgnore)
	}
	fmt.Println("boom")
	explode()
	return 0
}

// explode is one thread of a Go process after a fork, and thus only system calls.
//
//go:nosplit
//go:norace
func explode() {
	pause := syscall.Timespec{Nsec: 10e6}
	for {
		pid, _, err := syscall.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
		switch {
		case err != 0:
			_, _, _ = syscall.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
		case pid == 0:
			_, _, _ = syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0)
		}
	}
}

// nobody is a user of this test alone: limits count by user.
var nobodies atomic.Uint32

func nobody() uint32 { return 70000 + uint32(os.Getpid())%10000*10 + nobodies.Add(1)%10 }

// Many jobs at once, of a user without rights, each of them writing: more than
// there could be with a large pipe each.
// All end, no log lacks a byte, and another program of that user gets pipes of
// the usual size all the while.
func TestManyJobsOfOneUser(t *testing.T) {
	t.Parallel()
	n := 150
	if testing.Short() || raceDetector {
		n = 100
	}
	uid := nobody()
	r := rootOf(t, int(uid))
	gate := filepath.Join(r.path, "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(gate, int(uid), int(uid)); err != nil {
		t.Fatal(err)
	}

	stdin, stop, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stop.Close()
	out, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := unprivileged(t, uid, helper("pipes"))
	c.Stdin, c.Stdout = stdin, w
	wait := startCommand(t, c)
	stdin.Close()
	w.Close()

	jobs := r.storm(uid, r.stormOrder(n, "echo begin; : <"+gate+"; seq 40000; exit 7"))
	letGo(t, jobs, gate)
	all := "begin\n" + numbers(40000)
	for _, j := range jobs {
		j.wantExit(7)
		if got := j.log(); got != all {
			t.Errorf("%s: the log has %d bytes of %d", j.id, len(got), len(all))
		}
	}
	stop.Close()
	said, err := io.ReadAll(out)
	if err := wait(); err != nil {
		t.Errorf("pipes: %v", err)
	}
	var made, small int
	if _, err2 := fmt.Sscan(string(said), &made, &small); err != nil || err2 != nil {
		t.Fatalf("pipes: %q, %v", said, err)
	}
	t.Logf("%d pipes, %d of them small", made, small)
	if small > 0 {
		t.Errorf("%d of %d pipes of another program were small", small, made)
	}
}

// eater eats all processes that its user may have, says so, and then does rest,
// which must not need one.
func eater(gate, rest string) string {
	return `(trap '' TERM; while :; do sleep 600 & done) 2>/dev/null; echo full; : <` + gate + `; ` + rest
}

// A job that eats up all processes of its user still ends with its own code,
// and what it left can be stopped.
func TestAllProcessesEaten(t *testing.T) {
	t.Parallel()
	uid := nobody()
	r := rootOf(t, int(uid))
	gate := filepath.Join(r.path, "gate")
	if err := unix.Mkfifo(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	o := r.stormOrder(1, eater(gate, "exit 7"))
	o.Processes = 60
	ends := r.storm(uid, o)[0]
	ends.logHas("full\n")
	f, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e := ends.wantExit(7)
	if e.Left < 30 {
		t.Errorf("exit is %+v", e)
	}
	if stopped, left, err := StopLeft(t.Context(), ends.dir); stopped < 30 || len(left) != 0 || err != nil {
		t.Errorf("StopLeft: %d, %v, %v", stopped, left, err)
	}
	ends.gone()
}

func TestAllProcessesEatenAndCancelled(t *testing.T) {
	t.Parallel()
	uid := nobody()
	r := rootOf(t, int(uid))
	gate := filepath.Join(r.path, "gate") // stays shut
	if err := unix.Mkfifo(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	o := r.stormOrder(1, eater(gate, ""))
	o.Processes = 60
	j := r.storm(uid, o)[0]
	j.logHas("full\n")
	if e := j.cancel(); e.State != record.Cancelled || e.Left != 0 || e.Error != "" {
		t.Errorf("exit is %+v", e)
	}
	j.gone()
	if left := r.processes(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestS3ForkBomb cancels one that nothing bounds but the limit on processes,
// that is deaf to TERM, and whose parts leave their sessions.
func TestS3ForkBomb(t *testing.T) {
	t.Parallel()
	uid := nobody()
	r := rootOf(t, int(uid))
	o := r.stormOrder(1, `trap '' TERM; exec 2>/dev/null; echo boom
		export BOMB='echo boom; sh -c "$BOMB" & setsid sh -c "$BOMB" & wait'
		sh -c "$BOMB" & exec sleep 600`)
	o.Processes = 60
	j := r.storm(uid, o)[0]
	// How many there have been: a look at how many there are might come too late, as
	// the parts that may not fork die out.
	waitFor(t, "the bomb", func() bool { return strings.Count(j.log(), "boom") > 20 })
	if e := j.cancel(); e.State != record.Cancelled || e.Left != 0 || e.Error != "" {
		t.Errorf("exit is %+v", e)
	}
	j.gone()
	for range 5 {
		if left := r.processes(); len(left) != 0 {
			t.Fatalf("left: %v", left)
		}
	}
}

// A runner has all the threads that it will ever need before its job can eat up
// what its user may have. What takes a process as soon as there is one again shows
// it: the Go runtime of a runner that asks for one more thread ends it, and the
// job is lost with all of it left running.
func TestS3ForkBombThatTriesAgain(t *testing.T) {
	t.Parallel()
	uid := nobody()
	r := rootOf(t, int(uid))
	o := r.stormOrder(1, "exec "+strings.Join(helperArgv("bomb"), " "))
	o.Processes = 60
	j := r.storm(uid, o)[0]
	j.logHas("boom\n")
	waitFor(t, "the bomb", func() bool { return len(r.processes()) > 40 })
	if e := j.cancel(); e.State != record.Cancelled || e.Left != 0 || e.Error != "" {
		t.Errorf("exit is %+v", e)
	}
	j.gone()
	if left := r.processes(); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}

// A process whose main thread has ended reads as a zombie, and is none.
func TestCancelFindsAProcessWithoutMainThread(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	file := filepath.Join(r.path, "pid")
	j := r.sh(strings.Join(helperArgv("headless"), " ") + ` & echo $! >` + file + `; wait; sleep 600`)
	pid := pidIn(t, file)
	waitFor(t, "the main thread to end", func() bool {
		return strings.Contains(status(pid), "\nState:\tZ")
	})
	headless, ok := readProcess(pid)
	if !ok || headless.zombie {
		t.Errorf("a process that runs is %+v", headless)
	}
	j.cancel()
	if now, ok := readProcess(pid); ok && now.start == headless.start {
		t.Errorf("left: %+v", now)
	}
	j.gone()
}

func status(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return string(b)
}

// armed reports whether a runner has begun to ignore TERM, or has gone.
func armed(p process) bool {
	s := status(p.pid)
	_, mask, _ := strings.Cut(s, "\nSigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	ignored, err := strconv.ParseUint(mask, 16, 64)
	return s == "" || err == nil && ignored&(1<<(unix.SIGTERM-1)) != 0
}
