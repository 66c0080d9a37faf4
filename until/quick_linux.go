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
// 290 us with a timer, 100 us like this, 50 us in C without any runtime).

const clockMonotonic = 1

// kernelTicks are those of a timerfd.
type kernelTicks struct {
	f    *os.File
	conn syscall.RawConn
	n    uint64
	read func(fd uintptr) bool
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
	t.read = func(fd uintptr) bool {
		_, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&t.n)), unsafe.Sizeof(t.n))
		return errno != syscall.EAGAIN
	}
	return t
}

func (t *kernelTicks) wait() bool { return t.conn.Read(t.read) == nil }
func (t *kernelTicks) close()     { _ = t.f.Close() }

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

// knock connects to an address of this machine and hangs up. The answer is
// there at once: 0 where somebody accepts, ECONNREFUSED where nobody does.
func knock(a netip.AddrPort) syscall.Errno {
	var sa syscall.RawSockaddrAny // room for both
	port := a.Port()<<8 | a.Port()>>8
	family, size := uintptr(syscall.AF_INET), uintptr(syscall.SizeofSockaddrInet4)
	if ip := a.Addr().Unmap(); ip.Is4() {
		*(*syscall.RawSockaddrInet4)(unsafe.Pointer(&sa)) = syscall.RawSockaddrInet4{Family: syscall.AF_INET, Port: port, Addr: ip.As4()}
	} else {
		family, size = syscall.AF_INET6, syscall.SizeofSockaddrInet6
		*(*syscall.RawSockaddrInet6)(unsafe.Pointer(&sa)) = syscall.RawSockaddrInet6{Family: syscall.AF_INET6, Port: port, Addr: ip.As16()}
	}
	fd, _, errno := syscall.RawSyscall(syscall.SYS_SOCKET, family, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0)
	if errno != 0 {
		return errno
	}
	_, _, errno = syscall.RawSyscall(syscall.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&sa)), size)
	if errno == syscall.EINPROGRESS {
		errno = answer(fd)
	}
	if errno == 0 && isItself(int(fd)) {
		errno = syscall.ECONNREFUSED
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	return errno
}

// answer waits for an answer that a busy kernel is late with.
func answer(fd uintptr) syscall.Errno {
	const late = 20 * time.Millisecond
	writable := struct {
		fd              int32
		events, revents int16
	}{fd: int32(fd), events: 4} // POLLOUT
	limit := syscall.NsecToTimespec(int64(late))
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&writable)), 1, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 || n == 0 {
		return syscall.EINPROGRESS
	}
	var value int32
	size := uint32(unsafe.Sizeof(value))
	_, _, errno = syscall.RawSyscall6(syscall.SYS_GETSOCKOPT, fd, syscall.SOL_SOCKET, syscall.SO_ERROR, uintptr(unsafe.Pointer(&value)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return syscall.Errno(value)
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

// canKnock reports whether knock has an answer at once.
func canKnock(a netip.Addr) bool { return a.IsLoopback() }
