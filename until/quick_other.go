//go:build !linux || !(amd64 || arm64)

package until

import (
	"net/netip"
	"syscall"
	"time"
)

func newTicks(d time.Duration) ticks { return newTimerTicks(d) }

func settle() {}

// glance says what a look at a path would: 0 where it leads to something.
type glance struct{ path string }

func newGlance(path string) glance { return glance{path} }

func (g glance) look() syscall.Errno {
	var st syscall.Stat_t
	errno, _ := syscall.Stat(g.path, &st).(syscall.Errno)
	return errno
}

// There is no cheaper way to try a port here than the usual one.
func canKnock(netip.Addr) bool { return false }

type knocker struct{}

func newKnocker(netip.AddrPort) *knocker { return &knocker{} }
func (*knocker) knock() syscall.Errno    { return syscall.ENOTSUP }
func (*knocker) close()                  {}
