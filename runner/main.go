package runner

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// grace is how long the tree has between TERM and KILL, and lastChance how long
// KILL is repeated.
const (
	grace      = 5 * time.Second
	lastChance = 10 * time.Second
)

// A supervisor is the runner of one job.
type supervisor struct {
	id   string // of the job, "" when the environment does not say
	root string
	h    handover
	ev   events
	log  pump

	started   time.Time
	child     int    // the command's main process, 0 when it could not be started
	childFrom uint64 // when it started: tells it from a later one of the same number
	subreaper bool   // orphans of the job come to this process
	blind     bool   // there is no /proc: processes cannot be looked at
	stuck     stuck  // once the tree is to end

	// Written by the main goroutine before it rings, read by the loop.
	status    atomic.Uint64 // leaderEnded | the command's wait status
	childless atomic.Bool   // no process of the job was left after the command's end

	wantReaps atomic.Bool // the loop wants to hear of every process that ends
}

const leaderEnded = 1 << 32

// Main is the space-runner program: it takes over the descriptors that Start
// hands it, and never returns. The main goroutine must be locked to the main
// thread, which forks the command and then only waits.
func Main() {
	runtime.LockOSThread()
	ignoreTermination() // first of all: until then one of these ends the process
	blockAllSignals()   // they are already, unless somebody else started this
	closeOnExec(3)
	var r supervisor
	if !r.takeOver() {
		const text = "space-runner: error: this program is started by space-job and does nothing by itself\n"
		_, _ = unix.Write(2, []byte(text))
		syscall.Exit(2)
	}
	r.id, _ = syscall.Getenv(record.EnvJob)
	r.root, _ = syscall.Getenv(record.EnvHome)
	var err error
	if r.ev, err = newEvents(); err != nil {
		r.refuse(&startError{Op: "prepare", Err: err})
	}
	r.subreaper = becomeSubreaper()
	_, seen := readProcess(unix.Getpid())
	r.blind = !seen
	crash("run.armed")
	if r.asked() { // before the command ran: nothing is started any more
		r.started = time.Now()
		r.record(record.ExitRecord{State: record.Cancelled})
		r.leave()
	}
	spareThreads(spares)
	r.start()
	crash("run.pid")
	raiseLimits()
	go Roomy(r.loop)
	r.reap()
	select {} // the loop ends the process
}

// spares is how many threads a runner has besides those that it is known to need.
// The Go runtime wants an idle one whenever it takes the processor away from a
// thread that the kernel holds up, and ends the process if there is none and none
// can be made. Where a job keeps the machine busy with nothing but forks, those
// about to be idle are not so for a while: with one to spare such a job loses its
// runner nearly always, with two now and then, with three never in sixty tries.
const spares = 4

// spareThreads makes threads, n and the one that the loop needs, before there is
// a job: one that eats up the processes its user may have would otherwise leave
// the Go runtime without those it still needs, which ends it. A thread that was
// needed once stays, as the runtime ends none. A goroutine that waits on a thread
// of its own hands the processor to another one, at once: a wait in the kernel
// would be noticed only after a while. Each of n starts the next; the last hands
// it to one more, which brings it back to the main thread.
func spareThreads(n int) {
	var through sync.WaitGroup
	all, gate := make(chan struct{}), make(chan struct{})
	var wait func(n int)
	wait = func(n int) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if n > 1 {
			through.Go(func() { wait(n - 1) })
		} else {
			close(all)
		}
		<-gate
	}
	through.Go(func() { wait(n) })
	<-all
	close(gate)
	through.Wait()
}

// startError says why a command could not be executed.
type startError struct {
	Op, Path string
	Err      error
}

func (e *startError) Error() string {
	if e.Path == "" {
		return e.Op + ": " + e.Err.Error()
	}
	return e.Op + " " + e.Path + ": " + e.Err.Error()
}

// takeOver reads the hand-over, and reports whether there is one.
func (r *supervisor) takeOver() bool {
	var st unix.Stat_t
	for _, fd := range []int{fdDir, fdPid, fdLog, fdPipe, fdOut, fdCwd} {
		if unix.Fstat(fd, &st) != nil {
			return false
		}
	}
	if unix.Fstat(fdSpec, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG && st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return false
	}
	b := make([]byte, 0, max(int(st.Size), 4096))
	for off := 0; ; {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := record.IgnoringEINTR(func() (int, error) {
			if st.Mode&unix.S_IFMT == unix.S_IFREG {
				return unix.Pread(fdSpec, b[off:cap(b)], int64(off))
			}
			return unix.Read(fdSpec, b[off:cap(b)])
		})
		if err != nil {
			return false
		}
		if n == 0 {
			break
		}
		off += n
		b = b[:off]
	}
	unix.Close(fdSpec)
	var ok bool
	r.h, ok = decode(b)
	return ok
}

// asked reports whether somebody has filled in the cancel file.
func (r *supervisor) asked() bool { return filled(fdDir, record.Cancel) }

func filled(dir int, name string) bool {
	var head [64]byte // a record begins with the file
	b, err := record.ReadFile(dir, name, head[:])
	return err == nil && !record.IsBlank(b)
}

// start forks the command, and writes down who is who.
func (r *supervisor) start() {
	r.h.env = append(r.h.env, record.EnvJob+"="+r.id)
	err := unix.Fchdir(fdCwd)
	r.started = time.Now()
	if err != nil {
		r.unstarted(126, &startError{Op: "enter the working directory", Err: err})
	} else if !r.h.found {
		what := unix.ENOENT
		code := 127
		if r.h.denied {
			what, code = unix.EACCES, 126
		}
		r.unstarted(code, &startError{Op: "execute", Path: r.h.argv[0], Err: what})
	}
	files := []uintptr{fdNull, fdOut, fdOut}
	attr := &syscall.ProcAttr{Env: r.h.env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	// An empty mask on this thread alone, and deaf as a whole: see ignoreTermination.
	var none signalMask
	setSignalMask(none)
	pid, err := syscall.ForkExec(r.h.path, r.h.argv, attr)
	if err == unix.ENOEXEC { // a script without #!, as execvp and every shell have it
		pid, err = syscall.ForkExec("/bin/sh", append([]string{"/bin/sh", r.h.path}, r.h.argv[1:]...), attr)
	}
	blockAllSignals()
	_ = unix.Chdir("/")
	unix.Close(fdCwd)
	if err != nil {
		code := 126
		if err == unix.ENOENT || err == unix.ENOTDIR {
			code = 127
		}
		op := "execute"
		if err == unix.EAGAIN || err == unix.ENOMEM {
			op = "fork for"
		}
		r.unstarted(code, &startError{Op: op, Path: r.h.argv[0], Err: err})
	}
	crash("run.forked")
	r.child = pid
	r.h = handover{timeout: r.h.timeout, maxLog: r.h.maxLog} // the rest was large, and is secret
	p := record.ProcessRecord{
		RunnerPID: unix.Getpid(), ChildPID: pid,
		BootID: record.BootID(), MachineID: record.MachineID(), StartedAt: r.started,
	}
	if me, ok := readProcess(p.RunnerPID); ok {
		p.RunnerStart = me.start
	}
	if c, ok := readProcess(pid); ok {
		p.ChildStart, r.childFrom = c.start, c.start
	}
	_ = record.Write(fdPid, p.Append(nil)) // without it the job is only harder to signal
}

// unstarted records that the command did not come to run.
func (r *supervisor) unstarted(code int, why *startError) {
	r.record(record.ExitRecord{State: record.Exited, ExitCode: &code, Error: why.Error()})
	r.leave()
}

// refuse records that this runner cannot watch anything.
func (r *supervisor) refuse(why *startError) {
	r.started = time.Now()
	r.unstarted(126, why)
}

// reap is the one owner of wait4 in this process. It returns when the process
// has no children left, after which it can get no more.
func (r *supervisor) reap() {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, waitAll, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil: // ECHILD
			r.childless.Store(r.subreaper)
			r.ev.ring()
			return
		case pid == r.child:
			// Who is already dead is collected first: often that is everybody.
			for err == nil && pid > 0 || err == unix.EINTR {
				pid, err = unix.Wait4(-1, nil, waitAll|unix.WNOHANG, nil)
			}
			r.childless.Store(err == unix.ECHILD && r.subreaper)
			r.status.Store(leaderEnded | uint64(uint32(ws)))
			r.ev.ring()
			if err == unix.ECHILD {
				return
			}
		case r.wantReaps.Load():
			r.ev.ring()
		}
	}
}
