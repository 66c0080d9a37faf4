//go:build (amd64 || arm64) && !race

package until

import (
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// A timer of Go's wakes two threads, one of which then watches the other for a
// while, and so does the return from a system call after a long sleep; the poller
// wakes one, which then asks it twice whether there is more. A thread that tells
// the runtime once that it is in a system call, and makes all of them from there,
// costs what it would in C (measured, for a look at a path: 290 us with a timer,
// 105 us through the poller, 70 us like this and in C: nearly all of it the
// kernel's, whose caches are cold by then).

// call is what is asked: faccessat or connect, which have arguments alike.
type call struct {
	trap uintptr
	fd   int
	ptr  unsafe.Pointer
	n    uintptr
}

//go:nosplit
func (c *call) do() syscall.Errno {
	_, _, errno := syscall.RawSyscall(c.trap, uintptr(c.fd), uintptr(c.ptr), c.n)
	return errno
}

// kernelAsker asks whenever a timerfd has run out.
type kernelAsker struct {
	questions []*question
	timer     int
	stopped   atomic.Bool
	more      int // ticks until it returns anyway
	rounds    int
}

func newAsker(pace time.Duration, questions []*question) asker {
	const clockMonotonic = 1
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return newTimerAsker(pace, questions)
	}
	rounds := int(max(anyway/pace, 1))
	a := &kernelAsker{questions: questions, timer: int(fd), more: rounds, rounds: rounds}
	if a.set(pace, pace) != 0 {
		a.close()
		return newTimerAsker(pace, questions)
	}
	return a
}

// set has the timer run out after first, and every so often from then on.
func (a *kernelAsker) set(first, pace time.Duration) syscall.Errno {
	spec := [2]syscall.Timespec{syscall.NsecToTimespec(int64(pace)), syscall.NsecToTimespec(int64(first))}
	_, _, errno := syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(a.timer), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	return errno
}

// These two are for packages that make system calls themselves (the runtime
// promises them to gVisor and others, go.dev/issue/67401). Between them there is
// no stack to grow, nothing to allocate and nobody to call but the kernel.

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

//go:nosplit
func (a *kernelAsker) wait() (int, syscall.Errno, bool) {
	var ticks uint64
	entersyscall()
	for {
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(a.timer), uintptr(unsafe.Pointer(&ticks)), unsafe.Sizeof(ticks))
		if a.stopped.Load() || errno != 0 && errno != syscall.EINTR {
			exitsyscall()
			return 0, 0, false
		}
		for i := 0; i < len(a.questions); i++ {
			q := a.questions[i]
			if errno := q.do(); errno != syscall.Errno(q.usual.Load()) {
				exitsyscall()
				return i, errno, true
			}
		}
		if a.more--; a.more <= 0 {
			a.more = a.rounds
			exitsyscall()
			return -1, 0, true
		}
	}
}

func (a *kernelAsker) stop() {
	a.stopped.Store(true)
	a.set(1, 1)
}

func (a *kernelAsker) close() { _ = syscall.Close(a.timer) }

// settle tells the runtime that this process is going to wait: without it, it
// would look every second whether the machine has got another processor.
func settle() { runtime.GOMAXPROCS(2) }

// askPath asks whether a path leads to something: 0 where it does.
func askPath(path string) *question {
	const atCwd = -0x64
	name := append([]byte(path), 0)
	return &question{call: call{trap: syscall.SYS_FACCESSAT, fd: atCwd, ptr: unsafe.Pointer(&name[0])}}
}

// knocker connects to an address of this machine, again and again: it is
// refused, which is usual, or accepted, or has an answer that takes a try in full
// to tell.
//
// A refused socket of Linux can connect again, which saves a third of the cost
// (making and closing one). It blocks, as the refusal is there before the call
// returns, and has a limit where it is not.
type knocker struct {
	question
	family int
	to     syscall.RawSockaddrAny // room for both families
}

// late is how long a busy kernel may take for an answer that is there at once
// otherwise.
const late = 20 * time.Millisecond

// canKnock reports whether an attempt at an address has an answer at once.
func canKnock(a netip.Addr) bool { return a.IsLoopback() }

func newKnocker(a netip.AddrPort) (*knocker, bool) {
	k := &knocker{family: syscall.AF_INET}
	k.trap, k.fd, k.ptr, k.n = syscall.SYS_CONNECT, -1, unsafe.Pointer(&k.to), syscall.SizeofSockaddrInet4
	k.usual.Store(uint32(syscall.ECONNREFUSED))
	port := a.Port()<<8 | a.Port()>>8
	if ip := a.Addr().Unmap(); ip.Is4() {
		*(*syscall.RawSockaddrInet4)(unsafe.Pointer(&k.to)) = syscall.RawSockaddrInet4{Family: syscall.AF_INET, Port: port, Addr: ip.As4()}
	} else {
		k.family, k.n = syscall.AF_INET6, syscall.SizeofSockaddrInet6
		*(*syscall.RawSockaddrInet6)(unsafe.Pointer(&k.to)) = syscall.RawSockaddrInet6{Family: syscall.AF_INET6, Port: port, Addr: ip.As16()}
	}
	return k, k.renew()
}

// renew takes a new socket.
func (k *knocker) renew() bool {
	k.close()
	fd, err := syscall.Socket(k.family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	k.fd = fd
	limit := syscall.NsecToTimeval(int64(late))
	return syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &limit) == nil
}

// isItself reports whether the kernel happened to pick the port itself for our
// end of the connection.
func (k *knocker) isItself() bool {
	us, err := syscall.Getsockname(k.fd)
	if err != nil {
		return false
	}
	them, err := syscall.Getpeername(k.fd)
	if err != nil {
		return false
	}
	switch us := us.(type) {
	case *syscall.SockaddrInet4:
		them, ok := them.(*syscall.SockaddrInet4)
		return ok && us.Port == them.Port && us.Addr == them.Addr
	case *syscall.SockaddrInet6:
		them, ok := them.(*syscall.SockaddrInet6)
		return ok && us.Port == them.Port && us.Addr == them.Addr
	}
	return false
}

func (k *knocker) close() {
	if k.fd >= 0 {
		_ = syscall.Close(k.fd)
		k.fd = -1
	}
}
