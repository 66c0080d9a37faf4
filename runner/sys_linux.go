package runner

import (
	"io/fs"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openDirFlags opens a directory that may be entered but perhaps not read.
const openDirFlags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC

// closeOnExec marks every descriptor from first up.
func closeOnExec(first int) {
	if unix.CloseRange(uint(first), ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	closeListed("/proc/self/fd", first)
}

// handOver puts h where the runner finds it: in memory that only descriptors
// reach. Without memfd a pipe serves; what does not fit is sent by finish.
func handOver(h *handover) (int, error) {
	b := h.encode()
	fd, err := unix.MemfdCreate("space-job", unix.MFD_CLOEXEC)
	if err != nil {
		return h.openPipe(b)
	}
	for off := 0; off < len(b); {
		n, err := unix.Pwrite(fd, b[off:], int64(off))
		if err != nil && err != unix.EINTR {
			unix.Close(fd)
			return -1, &fs.PathError{Op: "write", Path: "hand-over", Err: err}
		}
		off += max(n, 0)
	}
	return fd, nil
}

// makeFIFO makes the FIFO path, whose directory is open as dir.
func makeFIFO(dir int, path string, mode uint32) error {
	return unix.Mknodat(dir, path[strings.LastIndexByte(path, '/')+1:], unix.S_IFIFO|mode, 0)
}

type signalMask = unix.Sigset_t

func fullMask() (m signalMask) {
	for i := range m.Val {
		m.Val[i] = ^m.Val[i]
	}
	return m
}

// blockAllSignals blocks every signal for the calling thread.
func blockAllSignals() (old signalMask) {
	all := fullMask()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &all, &old)
	return old
}

func setSignalMask(m signalMask) { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &m, nil) }

// sigaction is the kernel's, for calls beside the Go runtime.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

const (
	sigDefault = 0
	sigIgnore  = 1
)

func getHandler(sig int) uintptr {
	var sa sigaction
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), 0, uintptr(unsafe.Pointer(&sa)), 8, 0, 0)
	return sa.handler
}

func setHandler(sig int, handler uintptr) {
	sa := sigaction{handler: handler}
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&sa)), 0, 8, 0, 0)
}

// catchUnused gives the signals that a C library would keep for itself, if none
// has taken them, a handler that does nothing. The Go runtime has none for them
// and leaves them unblocked, so they would end the process. Ignored, they would
// be so for the command, too: a handler is what an exec takes away.
func catchUnused() {
	var sa sigaction // as the Go runtime has it for one of its own
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGURG), 0, uintptr(unsafe.Pointer(&sa)), 8, 0, 0)
	f := nothing
	sa.handler = **(**uintptr)(unsafe.Pointer(&f)) // the code of nothing
	for _, sig := range []int{32, 34} {
		if getHandler(sig) == sigDefault {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&sa)), 0, 8, 0, 0)
		}
	}
}

// nothing is called by the kernel, with no goroutine: it is one return.
//
//go:nosplit
//go:noinline
//go:norace
func nothing() {}

// waitAll makes wait4 see children of every kind.
const waitAll = unix.WALL

// lastSignal is the highest signal number.
const lastSignal = 64

// limits is how many resources have one.
const limits = 16

// becomeSubreaper makes the orphans of the job this process's children.
func becomeSubreaper() bool {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil
}
