package runner

import (
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// openDirFlags opens a directory that may be entered but perhaps not read.
const openDirFlags = unix.O_SEARCH | unix.O_DIRECTORY | unix.O_CLOEXEC

// closeOnExec marks every descriptor from first up.
func closeOnExec(first int) {
	if dir, err := record.Open(unix.AT_FDCWD, "/dev/fd", unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
		defer unix.Close(dir)
		err = record.EachName(dir, func(name []byte) {
			if fd, err := strconv.Atoi(string(name)); err == nil && fd >= first {
				unix.CloseOnExec(fd)
			}
		})
		if err == nil {
			return
		}
	}
	var lim unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
	for fd := first; fd < int(min(lim.Cur, 1<<14)); fd++ {
		unix.CloseOnExec(fd)
	}
}

// handOver puts h where the runner finds it: a pipe. What does not fit is sent
// by finish.
func handOver(h *handover) (int, error) { return h.openPipe(h.encode()) }

// makeFIFO makes the FIFO path, whose directory is open as dir.
func makeFIFO(_ int, path string, mode uint32) error { return unix.Mkfifo(path, mode) }

// System calls for which neither the standard library nor x/sys has a wrapper.
const (
	sysSigaction = 46  // SYS_sigaction
	sysSigmask   = 329 // SYS___pthread_sigmask
)

type signalMask uint32

// blockAllSignals blocks every signal for the calling thread.
func blockAllSignals() (old signalMask) {
	all := ^signalMask(0)
	_, _, _ = syscall.RawSyscall(sysSigmask, 3 /* SIG_SETMASK */, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)))
	return old
}

func setSignalMask(m signalMask) {
	_, _, _ = syscall.RawSyscall(sysSigmask, 3, uintptr(unsafe.Pointer(&m)), 0)
}

const (
	sigDefault = 0
	sigIgnore  = 1
)

func getHandler(sig int) uintptr {
	var old struct {
		handler     uintptr
		mask, flags uint32
	}
	_, _, _ = syscall.RawSyscall(sysSigaction, uintptr(sig), 0, uintptr(unsafe.Pointer(&old)))
	return old.handler
}

// setHandler is for the two dispositions that need no trampoline.
func setHandler(sig int, handler uintptr) {
	sa := struct {
		handler, trampoline uintptr
		mask, flags         uint32
	}{handler: handler}
	_, _, _ = syscall.RawSyscall(sysSigaction, uintptr(sig), uintptr(unsafe.Pointer(&sa)), 0)
}

// waitAll: wait4 sees every child as it is.
const waitAll = 0

// lastSignal is the highest signal number.
const lastSignal = 31

// becomeSubreaper: macOS has none, orphans go to launchd.
func becomeSubreaper() bool { return false }

// raiseLimits raises every soft limit to its hard one: the caller's soft limits
// are the job's.
func raiseLimits() {
	for what := range 9 {
		var lim unix.Rlimit
		if unix.Getrlimit(what, &lim) == nil && lim.Cur < lim.Max {
			lim.Cur = lim.Max
			_ = unix.Setrlimit(what, &lim)
		}
	}
}
