package jobdir

import (
	"context"
	"syscall"
	"time"

	"space-job/jobdir/record"
)

// How long a Watch waits without a word from the kernel. After a change it
// looks again soon, then less and less often: what was reported may have been
// the write into the pipe, a moment before the bytes are in the log.
const (
	soonest  = time.Millisecond
	slowPoll = 200 * time.Millisecond
	restPoll = time.Second           // the slowest look where the kernel reports what happens
	blind    = 16 * time.Millisecond // the slowest look where the kernel reports nothing
)

// Watch waits for changes of one job directory.
type Watch struct {
	job   *Job
	hints *Hints // nil: the kernel has no more to give
	delay time.Duration
	rest  time.Duration // the slowest look with hints
	blind time.Duration // ... and without
	seen  sight         // without hints: what the last look saw
}

// Watch starts to watch: a change after it returns is not missed by the next
// Wait. Where the kernel has no more watches to give, it polls. The job need
// not exist.
func (j *Job) Watch() *Watch { return j.watch(j.Dir()) }

func (j *Job) watch(path string) *Watch {
	w := &Watch{job: j, hints: NewHints(path), delay: soonest, rest: restPoll, blind: blind}
	if w.hints == nil {
		w.seen = j.glance()
	}
	return w
}

// Wait returns nil after something may have changed, at the latest after a
// slow poll: the caller looks, and waits again. It returns ctx.Err() when ctx
// is done. It is for one goroutine at a time.
func (w *Watch) Wait(ctx context.Context) error {
	var hint <-chan struct{}
	if w.hints != nil {
		hint = w.hints.C
	}
	for waited := time.Duration(0); ; {
		timer := time.NewTimer(w.delay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-hint:
			timer.Stop()
			w.delay = soonest
			return nil
		case <-timer.C:
		}
		waited += w.delay
		if w.hints != nil {
			w.delay = min(2*w.delay, w.rest)
			return nil
		}
		if now := w.job.glance(); now != w.seen {
			w.seen, w.delay = now, soonest
			return nil
		}
		w.delay = min(2*w.delay, w.blind)
		if waited >= slowPoll {
			return nil
		}
	}
}

// Close frees everything the watch holds. It may be called twice.
func (w *Watch) Close() error {
	if w.hints == nil {
		return nil
	}
	return w.hints.Close()
}

// sight is what changes when a job does something.
type sight struct {
	size       int64
	modified   time.Time
	exit, gone bool
}

func (j *Job) glance() sight {
	var st syscall.Stat_t
	var s sight
	if syscall.Lstat(j.path(record.Log), &st) == nil {
		s.size, s.modified = st.Size, modTime(&st)
	}
	s.exit = syscall.Lstat(j.path(record.Exit), &st) == nil
	s.gone = syscall.Lstat(j.Dir(), &st) != nil
	return s
}

// WaitEnd waits until the job has ended, and returns how. A runner that was
// killed is noticed within about 250 ms.
func (j *Job) WaitEnd(ctx context.Context) (State, error) {
	// Only the end counts: the reserved record is renamed when it comes, and
	// nothing of what the job writes reaches this watch.
	w := j.watch(j.path(record.ReservedExit))
	defer w.Close()
	w.rest = slowPoll  // that a runner is gone is not reported
	w.blind = slowPoll // one end among hundreds of jobs waited for may be seen a little late
	for {
		state, err := j.State()
		if err != nil || state != Running {
			return state, err
		}
		if err := w.Wait(ctx); err != nil {
			return state, err
		}
	}
}
