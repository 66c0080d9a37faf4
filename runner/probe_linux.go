package runner

import (
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Probe looks which of the kernel's helps are there, by using each once. What
// depends on a file system is tried in memory: a start tries it on the root.
func Probe() []Help {
	var helps []Help
	add := func(name string, err error, without string) {
		h := Help{Name: name, OK: err == nil}
		if err != nil {
			h.Note = without
		}
		helps = append(helps, h)
	}
	mem, err := unix.MemfdCreate("space-job-probe", unix.MFD_CLOEXEC)
	add("memory files", err, "the environment is handed to the runner through a pipe")
	if err == nil {
		defer unix.Close(mem)
		add("open-file-description locks", unix.FcntlFlock(uintptr(mem), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}),
			"flock is used instead")
	}
	fd, err := unix.PidfdOpen(unix.Getpid(), 0)
	if err == nil {
		unix.Close(fd)
	}
	add("pidfds", err, "processes are told apart by start time only")
	var on int
	add("subreaper", unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&on)), 0, 0, 0),
		"orphans of a job are found by session and environment only")
	me := strconv.Itoa(unix.Getpid())
	err = unix.Access("/proc/"+me+"/task/"+me+"/children", unix.R_OK)
	add("lists of children in /proc", err, "the whole of /proc is searched instead")
	in, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err == nil {
		unix.Close(in)
	}
	add("inotify", err, "readers that wait look every so often")
	add("renameat2", noSuch(unix.Renameat2(-1, "a", -1, "b", unix.RENAME_NOREPLACE)), "a name is looked at before it is taken")
	add("close_range", noSuch(unix.CloseRange(^uint(0)>>1, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)), "descriptors are closed one by one")
	return helps
}

// noSuch keeps the errors that mean that there is no such call.
func noSuch(err error) error {
	if err == unix.ENOSYS || err == unix.EPERM {
		return err
	}
	return nil
}
