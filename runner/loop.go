package runner

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// blindLook is how often the cancel file is looked at where there is no /proc: a
// canceller cannot prove there whom it would signal.
const blindLook = 500 * time.Millisecond

// loop supervises the job until its end is recorded and nobody can write to
// its pipe any more; then it ends the process. Every turn of it is bounded: a
// flood delays neither a cancel nor the end.
func (r *supervisor) loop() {
	r.log.init(r.h.maxLog)
	var deadline time.Time
	if r.h.timeout > 0 {
		deadline = r.started.Add(r.h.timeout) // monotonic: a suspended Space does not time out
	}
	var stop *stopper
	var reason record.State
	ended := false
	// The first turn does not wait, and looks at everything: what rang before is
	// not rung again, and signals that came around the fork were not heard.
	now := time.Now()
	woken := ready{reaped: true, look: true}
	for {
		if status := r.status.Load(); !ended && stop == nil && status&leaderEnded != 0 {
			r.end(record.Exited, nil)
			ended = true
		}
		if !ended && stop == nil {
			switch {
			case woken.stop, woken.look && r.asked():
				stop, reason = r.stopTree(now), record.Cancelled
			case !deadline.IsZero() && !now.Before(deadline):
				stop, reason = r.stopTree(now), record.TimedOut
			}
		}
		if stop != nil && !ended && (woken.reaped || !now.Before(stop.next)) {
			if stop.turn(now) {
				r.end(reason, stop)
				ended = true
			}
		}
		if woken.pipe || woken.hungUp || ended || r.log.resting {
			r.log.turn()
		}
		r.log.tick(now)
		if ended && r.log.hungUp {
			r.log.settle()
			r.leave()
		}

		timeout := r.log.timeout(now)
		if !ended && !deadline.IsZero() && stop == nil {
			timeout = sooner(timeout, deadline.Sub(now))
		}
		if stop != nil && !ended {
			timeout = sooner(timeout, stop.next.Sub(now))
		}
		if r.blind && !ended {
			timeout = sooner(timeout, blindLook)
		}
		woken = r.ev.wait(r.log.pollFD(), timeout)
		woken.look = woken.look || r.blind
		now = time.Now()
	}
}

// sooner is the smaller of two timeouts, of which a negative a is never.
func sooner(a, b time.Duration) time.Duration {
	b = max(b, 0)
	if a < 0 {
		return b
	}
	return min(a, b)
}

// stopTree prepares to end every process of the job.
func (r *supervisor) stopTree(now time.Time) *stopper {
	r.wantReaps.Store(true)
	r.stuck = stuck{}
	return newStopper(now, r.tree)
}

// end records how the job ended, with what its pipe held by then in the log.
func (r *supervisor) end(state record.State, stop *stopper) {
	unix.Close(fdOut) // from here on a hung-up pipe means that nobody can write
	r.log.drain()
	e := record.ExitRecord{State: state, LogBytes: r.log.size()}
	switch {
	case stop != nil:
		e.Left, e.Error = len(stop.rest), stop.complaint()
	case r.childless.Load():
	default:
		rest, _ := r.tree()
		e.Left = len(rest)
	}
	if state == record.Exited {
		ws := unix.WaitStatus(uint32(r.status.Load()))
		code := ws.ExitStatus()
		if ws.Signaled() {
			code = 128 + int(ws.Signal())
			e.Signal = signalName(ws.Signal())
		}
		e.ExitCode = &code
	}
	r.record(e)
}

// leave ends the runner, when nobody can write to the pipe any more; the kernel
// frees the lock.
func (r *supervisor) leave() {
	_ = unix.Unlinkat(fdDir, record.Pipe, 0)
	syscall.Exit(0)
}
