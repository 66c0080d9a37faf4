//go:build (amd64 || arm64) && !race

package until

import (
	"net/netip"
	"syscall"
	"testing"
)

// bound is a socket that has a port, where nobody listens yet.
func bound(t *testing.T, family int, at syscall.Sockaddr) (fd int, address netip.AddrPort) {
	t.Helper()
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, at); err != nil {
		t.Skip(err)
	}
	got, err := syscall.Getsockname(fd)
	switch a := got.(type) {
	case *syscall.SockaddrInet4:
		return fd, netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *syscall.SockaddrInet6:
		return fd, netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port))
	}
	t.Fatal(err)
	return 0, address
}

// TestKnocker: one socket is refused again and again, is accepted once there is
// somebody, and is another one afterwards.
func TestKnocker(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]syscall.Sockaddr{
		"IPv4": &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}},
		"IPv6": &syscall.SockaddrInet6{Addr: [16]byte{15: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			family := syscall.AF_INET
			if name == "IPv6" {
				family = syscall.AF_INET6
			}
			fd, address := bound(t, family, at)
			k, ok := newKnocker(address)
			if !ok || !canKnock(address.Addr()) {
				t.Fatalf("no knocks at %s", address)
			}
			defer k.close()
			for i := range 100 {
				if errno := k.do(); errno != syscall.ECONNREFUSED {
					t.Fatalf("knock %d: %v", i, errno)
				}
			}
			if err := syscall.Listen(fd, 5); err != nil {
				t.Fatal(err)
			}
			if errno := k.do(); errno != 0 || k.isItself() {
				t.Errorf("%v, itself %v", errno, k.isItself())
			}
			k.renew()
			if errno := k.do(); errno != 0 {
				t.Errorf("anew: %v", errno)
			}
		})
	}
}

// TestKnocksAtItself: a connection of a port with itself is nobody's answer.
func TestKnocksAtItself(t *testing.T) {
	t.Parallel()
	fd, address := bound(t, syscall.AF_INET, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	k, ok := newKnocker(address)
	if !ok {
		t.Fatal("no socket")
	}
	defer k.close()
	syscall.Close(k.fd)
	k.fd, _ = syscall.Dup(fd)
	if errno := k.do(); errno != 0 || !k.isItself() {
		t.Errorf("%v, itself %v", errno, k.isItself())
	}
}
