package runner

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// readProcess looks at one process.
func readProcess(pid int) (process, bool) {
	var buf [1024]byte
	b, err := record.ReadFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return process{}, false
	}
	return parseStat(b)
}

// parseStat reads a line of /proc/PID/stat. The name may hold anything, spaces
// and brackets included: it ends at the last bracket.
func parseStat(b []byte) (p process, ok bool) {
	i, j := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if i < 1 || j < i {
		return p, false
	}
	f := strings.Fields(string(b[j+1:]))
	if len(f) < 20 {
		return p, false
	}
	var err [4]error
	p.pid, err[0] = strconv.Atoi(strings.TrimSpace(string(b[:i])))
	p.ppid, err[1] = strconv.Atoi(f[1])
	p.sid, err[2] = strconv.Atoi(f[3])
	p.start, err[3] = strconv.ParseUint(f[19], 10, 64)
	p.comm = string(b[i+1 : j])
	// A process whose main thread has ended looks like a zombie, but for its
	// other threads.
	p.zombie = (f[0] == "Z" || f[0] == "X" || f[0] == "x") && (f[17] == "0" || f[17] == "1")
	return p, err == [4]error{}
}

// signal sends sig to exactly this process, never to a later one that has its
// number.
func (p process) signal(sig unix.Signal) error {
	if p.group {
		return unix.Kill(-p.pid, sig)
	}
	return p.send(sig, nil, func() error { return unix.Kill(p.pid, sig) })
}

// send sends a signal through a pidfd, checked after it was opened; by number,
// as otherwise does, where there are none.
func (p process) send(sig unix.Signal, info *unix.Siginfo, otherwise func() error) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err == unix.ESRCH {
		return err
	}
	if err == nil {
		defer unix.Close(fd)
	}
	if now, ok := readProcess(p.pid); !ok || now.start != p.start {
		return unix.ESRCH
	}
	if err == nil {
		if err = unix.PidfdSendSignal(fd, sig, info, 0); err != unix.ENOSYS {
			return err
		}
	}
	return otherwise()
}

// siQueue is the code of a signal that carries a value.
const siQueue = -1

// queue is signal with a value.
func (p process) queue(sig unix.Signal, value int32) error {
	info := struct {
		signo, errno, code, _ int32
		pid, uid              uint32
		value                 int64
		_                     [96]byte
	}{signo: int32(sig), code: siQueue, pid: uint32(unix.Getpid()), uid: uint32(unix.Getuid()), value: int64(value)}
	return p.send(sig, (*unix.Siginfo)(unsafe.Pointer(&info)), func() error {
		_, _, err := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(p.pid), uintptr(sig), uintptr(unsafe.Pointer(&info)))
		if err != 0 {
			return err
		}
		return nil
	})
}

// tree is every live process below this one, except other jobs, the daemon and
// what is below them. Where orphans do not come to this process, it is what can be found.
func (r *supervisor) tree() (live []process, sure bool) {
	if r.blind {
		return r.group()
	}
	if !r.subreaper {
		return r.treeByMarks()
	}
	s := search{id: r.id, root: r.root, stuck: r.stuck}
	return below(unix.Getpid(), func(p process) membership { return s.of(p, markOf(p.pid)) })
}

// group is what can be reached where there is no /proc: the command's process
// group, as one. What has left it is beyond reach, and whether anything has is
// known only where orphans come to the runner.
func (r *supervisor) group() (live []process, sure bool) {
	if r.child != 0 && unix.Kill(-r.child, 0) != unix.ESRCH {
		return []process{{pid: r.child, comm: "the process group", group: true}}, true
	}
	return nil, r.childless.Load()
}

// below is every live process below a process, in no order, without those that
// are apart and what is below them. It is sure of that unless somebody ended
// during the look: what such a process left has another parent by now, whose
// children may have been listed before. A chain of processes that each fork the
// next and go would otherwise be overlooked.
func below(pid int, of func(process) membership) (live []process, sure bool) {
	kids, ok := childrenOf(pid)
	if !ok {
		return belowByScan(pid, of)
	}
	sure = true
	for len(kids) > 0 {
		next := kids[len(kids)-1]
		kids = kids[:len(kids)-1]
		p, ok := readProcess(next)
		if !ok || p.zombie {
			sure = false
			continue
		}
		switch of(p) {
		case apart:
			continue
		case expiring:
			sure = false
			continue
		}
		live = append(live, p)
		more, _ := childrenOf(p.pid)
		kids = append(kids, more...)
	}
	return live, sure
}

// testOnlyNoChildren makes childrenOf fail as on a kernel without these lists.
var testOnlyNoChildren bool

// childrenOf reads the children of all threads of a process. It reports false
// where the kernel does not list them.
func childrenOf(pid int) (kids []int, ok bool) {
	if testOnlyNoChildren {
		return nil, false
	}
	buf := make([]byte, 4096)
	eachThread("/proc/"+strconv.Itoa(pid), func(thread string) bool {
		for { // a list longer than the buffer is read whole, or it could be cut
			b, err := record.ReadFile(unix.AT_FDCWD, thread+"/children", buf)
			if err != nil {
				return true
			}
			ok = true
			if len(b) == len(buf) {
				buf = make([]byte, 4*len(buf))
				continue
			}
			for _, f := range strings.Fields(string(b)) {
				if n, err := strconv.Atoi(f); err == nil {
					kids = append(kids, n)
				}
			}
			return true
		}
	})
	return kids, ok
}

// belowByScan is below for a kernel without /proc/PID/task/*/children.
func belowByScan(root int, of func(process) membership) (live []process, sure bool) {
	all, sure := everyProcess()
	sure = sure && withParents(all)
	kids := map[int][]process{}
	for _, p := range all {
		kids[p.ppid] = append(kids[p.ppid], p)
	}
	queue := kids[root]
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if p.zombie {
			sure = false
			continue
		}
		switch of(p) {
		case expiring:
			sure = false
		case ours:
			live = append(live, p)
			queue = append(queue, kids[p.pid]...)
		}
	}
	return live, sure
}

// everyProcess is all that /proc shows. It reports false where there is none.
func everyProcess() (all []process, ok bool) {
	dir, err := record.Open(unix.AT_FDCWD, "/proc", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(dir)
	_ = record.EachName(dir, func(name []byte) {
		pid, err := strconv.Atoi(string(name))
		if err != nil {
			return
		}
		ok = true
		if p, found := readProcess(pid); found {
			all = append(all, p)
		}
	})
	return all, ok
}

// findRunner is the runner of a job whose pid file does not say who that is: the
// process that has that file and the pipe open where a runner has them. The
// command, until it is executed, has them too, and is its child.
func findRunner(dir int, _ string) (runner process, ok bool) {
	all, _ := everyProcess()
	for _, p := range all {
		if hasOpen(p.pid, fdPid, dir, record.Pid) && hasOpen(p.pid, fdPipe, dir, record.Pipe) && (!ok || p.pid == runner.ppid) {
			runner, ok = p, true
		}
	}
	return runner, ok
}

// hasOpen reports whether a descriptor of a process is this file of a directory.
func hasOpen(pid, fd, dir int, name string) bool {
	var has, want unix.Stat_t
	return unix.Stat("/proc/"+strconv.Itoa(pid)+"/fd/"+strconv.Itoa(fd), &has) == nil &&
		unix.Fstatat(dir, name, &want, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		has.Dev == want.Dev && has.Ino == want.Ino
}

// runnerNeeds is how many processes and threads a job has at its beginning: the
// runner's eight threads, the command, and room for what the Go runtime of the
// starter may still ask for.
const runnerNeeds = 13

// checkProcesses refuses a start for which the user's limit leaves no room. The
// user's own are counted only when everybody's together come near the limit.
func checkProcesses() error {
	var lim unix.Rlimit
	if unix.Geteuid() == 0 || unix.Getrlimit(unix.RLIMIT_NPROC, &lim) != nil || lim.Cur > 1<<31 {
		return nil
	}
	var buf [128]byte
	if b, err := record.ReadFile(unix.AT_FDCWD, "/proc/loadavg", buf[:]); err == nil { // 0.00 0.00 0.00 running/all last
		if f := strings.Fields(string(b)); len(f) > 3 {
			_, all, _ := strings.Cut(f[3], "/")
			if n, err := strconv.ParseUint(all, 10, 64); err == nil && n+runnerNeeds <= lim.Cur {
				return nil
			}
		}
	}
	used := threadsOf(unix.Getuid())
	if used+runnerNeeds > lim.Cur {
		return &LimitError{Limit: lim.Cur, Used: used, Needed: runnerNeeds}
	}
	return nil
}

// threadsOf counts the processes and threads of a user, as the limit does.
func threadsOf(uid int) (n uint64) {
	all, _ := everyProcess()
	buf := make([]byte, 4096)
	for _, p := range all {
		b, err := record.ReadFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(p.pid)+"/status", buf)
		if err != nil {
			continue
		}
		var owner, threads string
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 1 {
				switch f[0] {
				case "Uid:":
					owner = f[1]
				case "Threads:":
					threads = f[1]
				}
			}
		}
		if owner == strconv.Itoa(uid) {
			t, _ := strconv.ParseUint(threads, 10, 64)
			n += max(t, 1)
		}
	}
	return n
}

// firstEnvironment is what a process was executed with, "" where it may not be
// read. Its memory is that of all its threads: the main one may have ended alone,
// and is the first of them to lose it when all do.
func firstEnvironment(pid int) string {
	path := "/proc/" + strconv.Itoa(pid)
	for blank := 0; ; blank++ {
		environ, err := environOf(path)
		if environ != "" || err == unix.EACCES || err == unix.EPERM {
			return environ
		}
		memory := false
		eachThread(path, func(thread string) bool {
			if environ, _ = environOf(thread); environ != "" {
				return false
			}
			memory = memory || hasMemory(thread)
			return true
		})
		if environ != "" || !memory || blank == blankTries {
			return environ
		}
		if isExecuting(path) {
			time.Sleep(time.Millisecond)
		}
	}
}

// blankTries is how often it is looked whether an environment stays empty. It is
// for a moment in the middle of an execve, when the new program is there already,
// and neither its arguments nor its environment are: what a job has just forked
// would be missed then.
const blankTries = 10

// environOf reads the environment of a process or thread.
func environOf(path string) (string, error) {
	buf := make([]byte, 16<<10)
	for {
		b, err := record.ReadFile(unix.AT_FDCWD, path+"/environ", buf)
		if err != nil {
			return "", err
		}
		if len(b) < len(buf) || len(buf) >= 4<<20 {
			return string(b), nil
		}
		buf = make([]byte, 4*len(buf))
	}
}

// hasMemory reports whether a thread has not let go of its memory. That is the
// first thing it does when it ends, and long before it is a zombie if there is
// much.
func hasMemory(path string) bool {
	var buf [1024]byte
	b, err := record.ReadFile(unix.AT_FDCWD, path+"/stat", buf[:])
	if err != nil {
		return false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return len(f) > 20 && f[20] != "0"
}

// runsCode reports whether a process has not ended, and is not about to.
func (p process) runsCode() bool {
	now, ok := readProcess(p.pid)
	if !ok || now.start != p.start || now.zombie {
		return false
	}
	memory := false
	eachThread("/proc/"+strconv.Itoa(p.pid), func(thread string) bool {
		memory = hasMemory(thread)
		return !memory
	})
	return memory
}

// eachThread calls f with the directory of each thread of a process, until one
// call reports false.
func eachThread(path string, f func(path string) bool) {
	path += "/task"
	dir, err := record.Open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	on := true
	_ = record.EachName(dir, func(name []byte) {
		if on && name[0] >= '0' && name[0] <= '9' {
			on = f(path + "/" + string(name))
		}
	})
}

// isExecuting reports whether a process is in the middle of an execve, or has
// wiped its arguments.
func isExecuting(path string) bool {
	var b [1]byte
	args, err := record.ReadFile(unix.AT_FDCWD, path+"/cmdline", b[:])
	return err == nil && len(args) == 0
}
