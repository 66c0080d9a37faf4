package runner

import (
	"io/fs"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// LockError is Start's error for a root whose file system does not keep the
// lock that proves a job alive.
type LockError struct{ Root string }

func (e *LockError) Error() string {
	return "lock " + e.Root + ": the file system does not keep locks, so no job there could be told from a lost one"
}

// HoleError is Start's error for MaxLog on a file system without holes.
type HoleError struct{ Root string }

func (e *HoleError) Error() string {
	return "punch hole in log: the file system of " + e.Root + " has no holes, so no log can be kept short"
}

// LimitError is Start's error for a user who may have too few processes: a
// runner that cannot have its threads would be gone before it could say so.
type LimitError struct{ Limit, Used, Needed uint64 }

func (e *LimitError) Error() string {
	n := func(n uint64) string { return strconv.FormatUint(n, 10) }
	return "start runner: this user may have " + n(e.Limit) + " processes and threads (ulimit -u) and has " + n(e.Used) +
		"; a job needs " + n(e.Needed) + " to begin with"
}

// Start makes a job and returns its id once the runner is executing. It waits
// for nothing that the runner does, except where an environment has to pass
// through a pipe. It marks every descriptor of the calling process from 3 up
// close-on-exec, sets the umask for a moment, and gives ignored signals their
// default disposition: it belongs into a process that does little else. Errors are *fs.PathError with the path
// that failed, *LockError, *HoleError or *LimitError.
func Start(s Spec) (record.ID, error) {
	closeOnExec(3)
	if err := unix.Faccessat(unix.AT_FDCWD, s.Runner, unix.X_OK, 0); err != nil {
		return "", &fs.PathError{Op: "find", Path: s.Runner, Err: err}
	}
	if err := checkProcesses(); err != nil {
		return "", err
	}
	var b builder
	defer b.close()
	var err error
	if b.cwd, err = openCwd(s.Cwd); err != nil {
		return "", err
	}
	h := handover{argv: s.Argv, env: withoutJob(s.Env), timeout: s.Timeout, maxLog: s.MaxLog}
	h.path, h.found, h.denied = lookPath(b.cwd, s.Argv[0], s.Env)
	defer h.close()
	if b.null, err = record.Open(unix.AT_FDCWD, "/dev/null", unix.O_RDWR, 0); err != nil {
		return "", err
	}
	if b.spec, err = handOver(&h); err != nil {
		return "", err
	}
	crash("start.handover")
	if err := b.build(&s); err != nil {
		return "", err
	}
	if err := b.publish(&s); err != nil {
		b.discard()
		return "", err
	}
	crash("start.visible")
	unix.Close(b.cmd) // descriptors can be few
	b.cmd = 0
	pid, err := b.launch(&s)
	if err != nil {
		b.discard()
		return "", err
	}
	crash("start.launched")
	unix.Close(b.spec) // or a runner that goes leaves this end open, and finish waiting
	b.spec = 0
	h.finish()
	if err := b.prove(&s, pid); err != nil {
		return "", err
	}
	return b.id, nil
}

// builder holds the descriptors of a job in the making.
type builder struct {
	null, cwd, spec     int
	jobs, dir, pid, log int
	pipe, out, cmd      int
	id                  record.ID
	hidden, name        string // the job's directory in jobs: as built, and now
	created             time.Time
}

func (b *builder) close() {
	for _, fd := range []int{b.null, b.cwd, b.spec, b.jobs, b.dir, b.pid, b.log, b.pipe, b.out, b.cmd} {
		if fd > 2 {
			unix.Close(fd)
		}
	}
}

// build makes the job's directory under a hidden name, with all its files.
func (b *builder) build(s *Spec) (err error) {
	if b.jobs, err = record.Open(unix.AT_FDCWD, s.Root+"/"+record.Jobs, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return err
	}
	// The modes below are meant exactly. The umask is the caller's again before
	// the runner is made, because the job inherits it from there.
	umask := unix.Umask(0)
	defer unix.Umask(umask)

	b.created = time.Now()
	if b.id, err = nextID(b.jobs, b.created); err != nil {
		return err
	}
	b.hidden = record.BuildPrefix + string(b.id) + "-" + strconv.Itoa(unix.Getpid())
	if err := unix.Mkdirat(b.jobs, b.hidden, 0o700); err != nil {
		return b.fault(s, "mkdir", "", err)
	}
	b.name = b.hidden
	crash("start.mkdir")
	defer func() {
		if err != nil {
			b.discard()
		}
	}()
	if b.dir, err = record.Open(b.jobs, b.hidden, unix.O_RDONLY|unix.O_DIRECTORY, 0); err != nil {
		return b.fault(s, "open", "", err)
	}
	// The lock comes first: a hidden directory that nobody holds is garbage.
	if b.pid, err = b.reserve(s, record.Pid); err != nil {
		return err
	}
	if err := record.Lock(b.pid); err != nil {
		return b.fault(s, "lock", record.Pid, err)
	}
	if held, err := heldAt(b.dir); !held {
		if err != nil {
			return b.fault(s, "look at the lock of", record.Pid, err)
		}
		return &LockError{s.Root}
	}
	crash("start.locked")
	for _, name := range []string{record.Cancel, record.Dropped, record.ReservedTiming, record.ReservedExit} {
		fd, err := b.reserve(s, name)
		if err != nil {
			return err
		}
		unix.Close(fd)
		crash("start." + name)
	}
	if b.log, err = b.create(s, record.Log); err != nil {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(b.log), unix.F_SETFL, unix.O_APPEND); err != nil { // somebody may cut it at any moment
		return b.fault(s, "append to", record.Log, err)
	}
	if s.MaxLog > 0 {
		if err := record.Punch(b.log, 0, 4096); err != nil {
			if err == unix.ENOTSUP || err == unix.EOPNOTSUPP {
				return &HoleError{s.Root}
			}
			return b.fault(s, "punch hole in", record.Log, err)
		}
	}
	// 0622: a child of the job that runs as another user must be able to open
	// /dev/stderr again. The root, 0700, keeps everybody else away.
	if err := makeFIFO(b.dir, s.Root+"/"+record.Jobs+"/"+b.hidden+"/"+record.Pipe, 0o622); err != nil {
		return b.fault(s, "mkfifo", record.Pipe, err)
	}
	if b.pipe, err = record.Open(b.dir, record.Pipe, unix.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return b.fault(s, "open", record.Pipe, err)
	}
	if b.out, err = record.Open(b.dir, record.Pipe, unix.O_RDWR, 0); err != nil {
		return b.fault(s, "open", record.Pipe, err)
	}
	crash("start.pipe")
	if b.cmd, err = b.create(s, record.Cmd); err != nil {
		return err
	}
	if err := record.Write(b.cmd, s.Describe(b.id, b.created)); err != nil {
		return b.fault(s, "write", record.Cmd, err)
	}
	crash("start.cmd")
	return nil
}

func (b *builder) create(s *Spec, name string) (int, error) {
	fd, err := record.Open(b.dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return -1, b.fault(s, "create", name, err)
	}
	return fd, nil
}

func (b *builder) reserve(s *Spec, name string) (int, error) {
	fd, err := b.create(s, name)
	if err != nil {
		return -1, err
	}
	if err := record.Reserve(fd); err != nil {
		unix.Close(fd)
		return -1, b.fault(s, "reserve", name, err)
	}
	return fd, nil
}

// fault names the path as its user knows it.
func (b *builder) fault(s *Spec, op, name string, err error) error {
	if e, ok := err.(*fs.PathError); ok {
		err = e.Err
	}
	path := s.Root + "/" + record.Jobs + "/" + string(b.id)
	if name != "" {
		path += "/" + name
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// publish gives the directory its id as a name, or the next free one.
func (b *builder) publish(s *Spec) error {
	for {
		if s.Claim != nil {
			if err := s.Claim(b.id); err != nil {
				return err
			}
			crash("start.claimed")
		}
		err := record.RenameNoReplace(b.jobs, b.hidden, string(b.id))
		if err == nil {
			b.name = string(b.id)
			return nil
		}
		if err != unix.EEXIST && err != unix.ENOTEMPTY {
			return b.fault(s, "rename", "", err)
		}
		next := b.id.Next()
		if next <= b.id { // the clock is at the end of what an id holds
			return b.fault(s, "rename", "", err)
		}
		b.id = next
		if err := record.Write(b.cmd, s.Describe(b.id, b.created)); err != nil {
			return b.fault(s, "write", record.Cmd, err)
		}
	}
}

// launch executes the runner with the job's descriptors. That its exec
// succeeded is all the readiness there is to wait for.
func (b *builder) launch(s *Spec) (pid int, err error) {
	// The runner inherits a full signal mask from this thread, and default
	// dispositions. An ignored HUP is reset here and not in the runner, whose
	// runtime would keep it ignored for the command too.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old := blockAllSignals()
	defer setSignalMask(old)
	resetIgnoredSignals()

	id := string(b.id)
	pid, err = syscall.ForkExec(s.Runner, []string{"space-runner", id}, &syscall.ProcAttr{
		Dir: "/",
		Env: []string{
			"GOMAXPROCS=1", // a waiting runner is one thread's work, and smaller
			// What the Go runtime would look up for a number of processors, and keep
			// open, is not asked for, nor room for profiles on every thread.
			"GODEBUG=containermaxprocs=0,updatemaxprocs=0,profstackdepth=0",
			record.EnvJob + "=" + id,
			record.EnvHome + "=" + s.Root,
		},
		Files: []uintptr{
			fdNull: uintptr(b.null), 1: uintptr(b.null), 2: uintptr(b.null),
			fdSpec: uintptr(b.spec), fdDir: uintptr(b.dir), fdPid: uintptr(b.pid), fdLog: uintptr(b.log),
			fdPipe: uintptr(b.pipe), fdOut: uintptr(b.out), fdCwd: uintptr(b.cwd),
		},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, &fs.PathError{Op: "start", Path: s.Runner, Err: err}
	}
	started.add(pid)
	return pid, nil
}

// prove lets go of the lock and looks whether the runner has it, on an open
// file of its own. A runner that is alive without it means a file system that
// does not keep locks over an exec: the job is stopped, and taken back.
func (b *builder) prove(s *Spec, pid int) error {
	unix.Close(b.pid)
	b.pid = 0
	// The runner is this process's child, so its number is its own until it is
	// waited for. One that is about to go has let go of the lock a moment before.
	for range 100 {
		held, err := heldAt(b.dir)
		if held || err != nil || exists(b.dir, record.Exit) {
			return nil // or pruned already, or out of descriptors: nothing is disproved
		}
		if started.reap(pid) {
			return nil // what its files say is true
		}
		time.Sleep(time.Millisecond)
	}
	_ = fillCancel(b.dir, record.CancelRecord{At: time.Now(), Reason: "the lock is not kept"})
	for range int((grace + lastChance) / askEvery) {
		_ = unix.Kill(pid, sigLook)
		if started.reap(pid) {
			break
		}
		time.Sleep(askEvery)
	}
	b.discard()
	return &LockError{s.Root}
}

// heldAt reports whether the lock of a job is seen to be held by who looks at it
// from outside.
func heldAt(dir int) (bool, error) {
	fd, err := record.Open(dir, record.Pid, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	return record.Held(fd)
}

// discard removes a job that nobody was told of.
func (b *builder) discard() {
	if b.name == "" {
		return
	}
	if b.name != b.hidden { // out of sight first, whole
		if unix.Renameat(b.jobs, b.name, b.jobs, b.hidden) == nil {
			b.name = b.hidden
		}
	}
	for _, name := range []string{
		record.Cmd, record.Pipe, record.Log, record.Dropped, record.Cancel,
		record.ReservedTiming, record.ReservedExit, record.Timing, record.Exit, record.Pid,
	} {
		_ = unix.Unlinkat(b.dir, name, 0)
	}
	_ = unix.Unlinkat(b.jobs, b.name, unix.AT_REMOVEDIR)
	b.name = ""
}

func exists(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// nextID is the id for a job created now. Only when the clock has been set back
// (jobs was last changed in the future) are the ids there looked at, to stay
// above the newest. The new job then changes jobs in the present: that the newest
// is of the future is remembered in the time of the root, which nothing changes.
func nextID(jobs int, now time.Time) (record.ID, error) {
	id := record.NewID(now)
	past := true
	for _, dir := range []string{".", ".."} {
		var st unix.Stat_t
		if err := unix.Fstatat(jobs, dir, &st, 0); err != nil {
			return "", &fs.PathError{Op: "stat", Path: record.Jobs, Err: err}
		}
		past = past && !time.Unix(st.Mtim.Unix()).After(now)
	}
	if past {
		return id, nil
	}
	next := id
	err := record.EachName(jobs, func(name []byte) {
		if other, ok := record.ParseID(string(name)); ok && other >= next && other.Next() > other {
			next = other.Next()
		}
	})
	if next != id {
		until, _ := unix.TimeToTimespec(next.Time().Add(time.Second)) // some file systems keep whole seconds
		_ = unix.UtimesNanoAt(jobs, "..", []unix.Timespec{until, until}, 0)
	}
	return next, err
}

// openCwd opens the directory that the command is to run in, and checks that
// it may be entered.
func openCwd(path string) (int, error) {
	fd, err := unix.Open(path, openDirFlags, 0)
	if err != nil {
		return -1, &fs.PathError{Op: "enter", Path: path, Err: err}
	}
	if err := unix.Faccessat(fd, ".", unix.X_OK, 0); err != nil {
		unix.Close(fd)
		return -1, &fs.PathError{Op: "enter", Path: path, Err: err}
	}
	return fd, nil
}

// lookPath finds a program as execvp does, in the PATH of the command's own
// environment and from its own directory. Not found is no failure of the start:
// the job ends with 127, or 126 where something was found that may not be run.
func lookPath(cwd int, prog string, env []string) (path string, found, denied bool) {
	if strings.Contains(prog, "/") {
		return prog, true, false
	}
	dirs := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			dirs = v
		}
	}
	for dir := range strings.SplitSeq(dirs, ":") {
		if dir == "" {
			dir = "."
		}
		p := dir + "/" + prog
		var st unix.Stat_t
		if unix.Fstatat(cwd, p, &st, 0) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if unix.Faccessat(cwd, p, unix.X_OK, 0) == nil {
			return p, true, false
		}
		denied = true
	}
	return "", false, denied
}

// withoutJob drops the SPACE_JOB of a job that Start was called from.
func withoutJob(env []string) []string {
	out := make([]string, 0, len(env))
	for _, kv := range env {
		if !strings.HasPrefix(kv, record.EnvJob+"=") {
			out = append(out, kv)
		}
	}
	return out
}
