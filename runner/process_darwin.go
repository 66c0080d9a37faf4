package runner

import (
	"encoding/binary"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

func fromKinfo(k *unix.KinfoProc) process {
	const zombie = 5 // SZOMB
	p := process{
		pid: int(k.Proc.P_pid), ppid: int(k.Eproc.Ppid),
		start:  uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec),
		comm:   unix.ByteSliceToString(k.Proc.P_comm[:]),
		zombie: k.Proc.P_stat == zombie,
	}
	p.sid, _ = unix.Getsid(p.pid)
	return p
}

// readProcess looks at one process.
func readProcess(pid int) (process, bool) {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || int(k.Proc.P_pid) != pid {
		return process{}, false
	}
	return fromKinfo(k), true
}

// signal sends sig to this process. There are no pidfds: a process that ends
// between the look and the signal, and whose number is taken at once, would
// have it instead.
func (p process) signal(sig unix.Signal) error {
	if p.group {
		return unix.Kill(-p.pid, sig)
	}
	if now, ok := readProcess(p.pid); !ok || now.start != p.start {
		return unix.ESRCH
	}
	return unix.Kill(p.pid, sig)
}

// queue is signal: there are no values here.
func (p process) queue(sig unix.Signal, _ int32) error { return p.signal(sig) }

// everyProcess is the whole process table.
func everyProcess() ([]process, bool) {
	ks, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, false
	}
	all := make([]process, len(ks))
	for i := range ks {
		all[i] = fromKinfo(&ks[i])
	}
	return all, true
}

// findRunner is the runner of a job whose pid file does not say who that is.
func findRunner(_ int, dir string) (process, bool) {
	dir = path.Clean(dir)
	all, _ := everyProcess()
	for _, p := range all {
		if p.comm != "space-runner" {
			continue
		}
		if m := markOf(p.pid); m.job == path.Base(dir) && m.root == path.Dir(path.Dir(dir)) {
			return p, true
		}
	}
	return process{}, false
}

// tree is every live process of the job that can be found.
func (r *supervisor) tree() (live []process, sure bool) { return r.treeByMarks() }

// checkProcesses: threads do not count against the limit on macOS, and a fork
// that is refused is the runner's to record.
func checkProcesses() error { return nil }

// runsCode reports whether a process has not ended.
func (p process) runsCode() bool {
	now, ok := readProcess(p.pid)
	return ok && now.start == p.start && !now.zombie
}

// firstEnvironment is what a process was executed with, "" where it may not be
// read. The kernel's answer holds the number of arguments, the program's path,
// padding, the arguments and then the environment.
func firstEnvironment(pid int) string {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil || len(b) < 4 {
		return ""
	}
	argc := int(binary.LittleEndian.Uint32(b))
	_, s, _ := strings.Cut(string(b[4:]), "\x00")
	s = strings.TrimLeft(s, "\x00")
	for range argc {
		_, s, _ = strings.Cut(s, "\x00")
	}
	return s
}
