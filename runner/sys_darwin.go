package runner

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openDirFlags opens a directory that may be entered but perhaps not read.
const openDirFlags = unix.O_SEARCH | unix.O_DIRECTORY | unix.O_CLOEXEC

// closeOnExec marks every descriptor from first up.
func closeOnExec(first int) { closeListed("/dev/fd", first) }

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

// catchUnused has nothing to do: there are no such signals.
func catchUnused() {}

// waitAll: wait4 sees every child as it is.
const waitAll = 0

// lastSignal is the highest signal number.
const lastSignal = 31

// limits is how many resources have one.
const limits = 9

// becomeSubreaper: macOS has none, orphans go to launchd.
func becomeSubreaper() bool { return false }
