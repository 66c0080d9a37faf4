//go:build !linux || race || !(amd64 || arm64)

package until

import (
	"net/netip"
	"syscall"
	"time"
)

// call is what is asked.
type call struct{ do func() syscall.Errno }

func newAsker(pace time.Duration, questions []*question) asker {
	return newTimerAsker(pace, questions)
}

func settle() {}

// askPath asks whether a path leads to something: 0 where it does.
func askPath(path string) *question {
	return &question{call: call{func() syscall.Errno {
		var st syscall.Stat_t
		errno, _ := syscall.Stat(path, &st).(syscall.Errno)
		return errno
	}}}
}

// A port has no cheaper question here than the usual try.
type knocker struct{ question }

func canKnock(netip.Addr) bool                   { return false }
func newKnocker(netip.AddrPort) (*knocker, bool) { return nil, false }
func (*knocker) isItself() bool                  { return false }
func (*knocker) renew() bool                     { return false }
func (*knocker) close()                          {}
