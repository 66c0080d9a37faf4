package runner

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// events is what a runner sleeps on: its pipe, the two signals it takes, and
// the reaper.
type events struct {
	signals int // a signalfd: the signals are blocked in every thread
	reaped  int // an eventfd, rung by the reaper
}

func newEvents() (e events, err error) {
	e = events{-1, -1}
	var set unix.Sigset_t
	for _, sig := range []unix.Signal{sigLook, sigStop} {
		set.Val[(sig-1)/64] |= 1 << ((sig - 1) % 64)
	}
	if e.signals, err = unix.Signalfd(-1, &set, unix.SFD_CLOEXEC|unix.SFD_NONBLOCK); err != nil {
		return e, err
	}
	e.reaped, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return e, err
}

// wait sleeps until something is ready or the timeout passes; a negative one
// never does. The pipe is looked at only when asked for.
func (e *events) wait(pipe int, timeout time.Duration) (r ready) {
	if pipe < 0 {
		pipe = -1 // ignored by poll
	}
	fds := [...]unix.PollFd{
		{Fd: int32(e.signals), Events: unix.POLLIN},
		{Fd: int32(e.reaped), Events: unix.POLLIN},
		{Fd: int32(pipe), Events: unix.POLLIN},
	}
	var ts *unix.Timespec
	if timeout >= 0 {
		t := unix.NsecToTimespec(int64(timeout))
		ts = &t
	}
	n, err := unix.Ppoll(fds[:], ts, nil)
	if err != nil || n == 0 {
		return r
	}
	if fds[0].Revents != 0 {
		var info unix.SignalfdSiginfo
		b := (*[unsafe.Sizeof(info)]byte)(unsafe.Pointer(&info))[:]
		for range 2 { // signals, each pending once; a storm of them is not for one turn
			n, err := unix.Read(e.signals, b)
			if err != nil || n != len(b) {
				break
			}
			r.look = r.look || info.Signo == uint32(sigLook)
			r.stop = r.stop || info.Signo == uint32(sigStop) && info.Code == siQueue && info.Int == stopValue
		}
	}
	if fds[1].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(e.reaped, b[:])
		r.reaped = true
	}
	r.pipe = fds[2].Revents&unix.POLLIN != 0
	r.hungUp = fds[2].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	return r
}

// ring wakes wait up; it is called from the reaper's thread.
func (e *events) ring() {
	one := [8]byte{1} // of either byte order: it only has to be other than 0
	_, _ = unix.Write(e.reaped, one[:])
}
