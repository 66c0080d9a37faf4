package runner

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// events is what a runner sleeps on: its pipe, the two signals it takes, and
// the reaper.
type events struct {
	kq int // signals, which it reports although they are blocked, and the reaper's ring
}

func newEvents() (e events, err error) {
	if e.kq, err = unix.Kqueue(); err != nil {
		return e, err
	}
	unix.CloseOnExec(e.kq)
	changes := make([]unix.Kevent_t, 3)
	unix.SetKevent(&changes[0], int(sigLook), unix.EVFILT_SIGNAL, unix.EV_ADD|unix.EV_CLEAR)
	unix.SetKevent(&changes[1], int(sigStop), unix.EVFILT_SIGNAL, unix.EV_ADD|unix.EV_CLEAR)
	unix.SetKevent(&changes[2], 0, unix.EVFILT_USER, unix.EV_ADD|unix.EV_CLEAR)
	_, err = unix.Kevent(e.kq, changes, nil, nil)
	return e, err
}

// wait sleeps until something is ready or the timeout passes; a negative one
// never does. The pipe is looked at only when asked for.
func (e *events) wait(pipe int, timeout time.Duration) (r ready) {
	fds := []unix.PollFd{
		{Fd: int32(e.kq), Events: unix.POLLIN},
		{Fd: int32(pipe), Events: unix.POLLIN},
	}
	if pipe < 0 {
		fds = fds[:1]
	}
	ms := -1
	if timeout >= 0 {
		ms = int(min((timeout+time.Millisecond-1)/time.Millisecond, math.MaxInt32))
	}
	if n, err := unix.Poll(fds, ms); err != nil || n == 0 {
		return r
	}
	if fds[0].Revents != 0 {
		var got [8]unix.Kevent_t
		n, _ := unix.Kevent(e.kq, nil, got[:], &unix.Timespec{})
		for _, ev := range got[:max(n, 0)] {
			switch {
			case ev.Filter == unix.EVFILT_USER:
				r.reaped = true
			case ev.Ident == uint64(sigLook):
				r.look = true
			case ev.Ident == uint64(sigStop):
				r.stop = true
			}
		}
	}
	if pipe >= 0 {
		r.pipe = fds[1].Revents&unix.POLLIN != 0
		r.hungUp = fds[1].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	}
	return r
}

// ring wakes wait up; it is called from the reaper's thread.
func (e *events) ring() {
	change := make([]unix.Kevent_t, 1)
	unix.SetKevent(&change[0], 0, unix.EVFILT_USER, 0)
	change[0].Fflags = unix.NOTE_TRIGGER
	_, _ = unix.Kevent(e.kq, change, nil, nil)
}
