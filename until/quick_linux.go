//go:build amd64 || arm64

package until

import (
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

// A timer of Go's wakes two threads, one of which then watches the other for a
// while, and so does a system call after a long sleep. A timer of the kernel
// that is read through the poller wakes one, and system calls that cannot block
// are made without telling the scheduler. That is a third of the cost (measured:
// 290 us with a timer, 100 us like this, 50 us in C without any runtime). What is
// left is the kernel's, whose caches are cold when a look comes: every system
// call that a look does without counts.

const clockMonotonic = 1

// kernelTicks are those of a timerfd.
type kernelTicks struct {
	f    *os.File
	conn syscall.RawConn
}

// newTicks are ticks every d from now on. All watchers of a machine at the same
// moment would wake it up less often, and each of them would take a third more:
// they push each other out of the caches.
func newTicks(d time.Duration) ticks {
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return newTimerTicks(d)
	}
	spec := [2]syscall.Timespec{syscall.NsecToTimespec(int64(d)), syscall.NsecToTimespec(int64(d))}
	_, _, errno = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	t := &kernelTicks{f: os.NewFile(fd, "timer")}
	var err error
	if t.conn, err = t.f.SyscallConn(); errno != 0 || err != nil {
		_ = t.f.Close()
		return newTimerTicks(d)
	}
	return t
}

func (t *kernelTicks) each(do func()) {
	var n uint64 // how many ticks came: one, or more after a stop
	_ = t.conn.Read(func(fd uintptr) bool {
		// The kernel makes the next tick when this one is read, and the poller
		// keeps it if it comes meanwhile.
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&n)), unsafe.Sizeof(n))
		if errno == 0 {
			do()
		}
		return false
	})
}

func (t *kernelTicks) close() { _ = t.f.Close() }

// settle tells the runtime that this process is going to wait: without it, it
// would look every second whether the machine has got another processor.
func settle() { runtime.GOMAXPROCS(2) }

// glance says, at little cost, what a look at a path would: 0 where it leads to
// something.
type glance struct{ path []byte }

func newGlance(path string) glance { return glance{append([]byte(path), 0)} }

func (g glance) look() syscall.Errno {
	at := -0x64 // AT_FDCWD
	_, _, errno := syscall.RawSyscall(syscall.SYS_FACCESSAT, uintptr(at), uintptr(unsafe.Pointer(&g.path[0])), 0)
	return errno
}

// knocker tries an address of this machine again and again.
type knocker struct {
	to   syscall.RawSockaddrAny // room for both families
	size uintptr
	fd   int // of a socket that was refused, or -1: it can be used again
}

func newKnocker(a netip.AddrPort) *knocker {
	k := &knocker{fd: -1}
	port := a.Port()<<8 | a.Port()>>8
	if ip := a.Addr().Unmap(); ip.Is4() {
		k.size = syscall.SizeofSockaddrInet4
		*(*syscall.RawSockaddrInet4)(unsafe.Pointer(&k.to)) = syscall.RawSockaddrInet4{Family: syscall.AF_INET, Port: port, Addr: ip.As4()}
	} else {
		k.size = syscall.SizeofSockaddrInet6
		*(*syscall.RawSockaddrInet6)(unsafe.Pointer(&k.to)) = syscall.RawSockaddrInet6{Family: syscall.AF_INET6, Port: port, Addr: ip.As16()}
	}
	return k
}

// late is how long a busy kernel may take for an answer that is there at once
// otherwise.
const late = 20 * time.Millisecond

// knock connects and hangs up: 0 where somebody accepts, ECONNREFUSED where
// nobody does, and anything else where it takes a try in full to tell.
//
// A refused socket of Linux can connect again, which saves two thirds of the
// cost (making and closing one). It blocks, as the refusal is there before the
// call returns, and has a limit where it is not.
func (k *knocker) knock() syscall.Errno {
	if k.fd < 0 {
		fd, _, errno := syscall.RawSyscall(syscall.SYS_SOCKET, uintptr(k.to.Addr.Family), syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if errno != 0 {
			return errno
		}
		k.fd = int(fd)
		limit := syscall.NsecToTimeval(int64(late))
		if syscall.SetsockoptTimeval(k.fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &limit) != nil {
			k.close()
			return syscall.ENOTSUP
		}
	}
	_, _, errno := syscall.RawSyscall(syscall.SYS_CONNECT, uintptr(k.fd), uintptr(unsafe.Pointer(&k.to)), k.size)
	if errno == syscall.ECONNREFUSED {
		return errno
	}
	if errno == 0 && isItself(k.fd) {
		errno = syscall.ECONNREFUSED
	}
	k.close()
	return errno
}

func (k *knocker) close() {
	if k.fd >= 0 {
		_ = syscall.Close(k.fd)
		k.fd = -1
	}
}

// isItself: the kernel happened to pick the port itself for our end.
func isItself(fd int) bool {
	us, err := syscall.Getsockname(fd)
	if err != nil {
		return false
	}
	them, err := syscall.Getpeername(fd)
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

// canKnock reports whether a knock at an address has an answer at once.
func canKnock(a netip.Addr) bool { return a.IsLoopback() }
