package notify

import (
	"context"
	"errors"
	"time"

	"space-job/jobdir"
	"space-job/notify/thread"
)

// sendAll gives every sink that is free its next message, and shows the next
// desktop notification. It returns when to come again, zero for when something
// is reported.
func (f *follower) sendAll(ctx context.Context, now time.Time) (next time.Time) {
	var sinks map[string]configured
	var unknown error
	best := map[string]*followed{}
	var show *followed
	for _, fd := range f.jobs {
		for _, name := range fd.asked {
			*f.lane(name) = lane{busy: f.lane(name).busy}
		}
		fd.asked = nil
		if !fd.ended {
			continue
		}
		e := fd.entry
		if t := e.Wakes[e.Member]; e.Kind == thread.Person && t.State == Pending && e.Inbox.State == Delivered &&
			!f.notifying && (show == nil || e.Job < show.entry.Job) {
			if it, err := f.thread.Item(e.Member, string(e.Job)); err == nil && f.toShow(e, it) {
				show = fd
			}
		}
		for name, t := range e.Sinks {
			if t.State == Delivered || f.hooks.Sink == nil {
				continue
			}
			if sinks == nil && unknown == nil {
				if sinks, unknown = f.sinks(now); unknown != nil {
					f.sayOnce("sinks: %v", unknown)
				}
			}
			if unknown != nil {
				continue // the next sweep tries again
			}
			switch c, ok := sinks[name]; {
			case !ok: // removed: nobody is to have it there
				delete(e.Sinks, name)
				fd.due, next = now, now
				continue
			case c.err != nil: // until it is repaired
				if t.State == Pending && t.Error != c.err.Error() {
					t.Error = c.err.Error()
					e.Sinks[name] = t
					fd.due, next = now, now // to be written down
				}
				continue
			}
			l := f.lane(name)
			if t.State != Pending || l.busy {
				continue
			}
			at := l.notBefore
			if t.NextAt != nil && t.NextAt.After(at) {
				at = *t.NextAt
			}
			switch b := best[name]; {
			case notYet(at, now, MaxRetryAfter):
				if next.IsZero() || at.Before(next) {
					next = at
				}
			case b == nil || e.Job < b.entry.Job:
				best[name] = fd
			}
		}
	}
	for name, fd := range best {
		f.send(ctx, fd, sinks[name].SinkConfig)
	}
	if show != nil {
		f.show(ctx, show)
	}
	return next
}

func (f *follower) lane(name string) *lane {
	l := f.lanes[name]
	if l == nil {
		l = &lane{}
		f.lanes[name] = l
	}
	return l
}

// send makes one attempt to bring a message to a sink.
func (f *follower) send(ctx context.Context, fd *followed, c SinkConfig) {
	l := f.lane(c.Name)
	l.busy = true
	f.begin(ctx, func(ctx context.Context) func() {
		m, err := MessageOf(fd.job)
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, sinkWithin)
			err = f.hooks.Sink(c).Deliver(ctx, m)
			cancel()
		}
		crash("sink.asked")
		return func() { f.sent(fd, c.Name, l, err) }
	})
}

func (f *follower) sent(fd *followed, name string, l *lane, err error) {
	l.busy = false
	if f.jobs[fd.job.ID()] != fd {
		return
	}
	t, ok := fd.entry.Sinks[name]
	if !ok { // removed meanwhile
		return
	}
	now := time.Now()
	var permanent *PermanentError
	var later *RetryError
	switch {
	case err == nil:
		t.delivered()
		l.fails = 0
	case errors.As(err, &permanent):
		t.Attempts++
		t.State, t.Error, t.NextAt = Failed, err.Error(), nil
		l.fails = 0
		f.say("job %s: sink %s: given up: %v", fd.job.ID(), name, err)
	default:
		f.failed(&t, err, now)
		l.fails++
		l.notBefore = now.Add(f.backoff(l.fails))
		if errors.As(err, &later) && later.After > 0 {
			at := now.Add(later.After).UTC().Truncate(time.Millisecond)
			if t.NextAt == nil || t.NextAt.Before(at) { // it may ask to be spared, not to be hurried on
				t.NextAt = &at
			}
			if l.notBefore.Before(at) {
				l.notBefore = at
			}
		}
		if l.fails == 1 {
			f.say("job %s: sink %s: %v", fd.job.ID(), name, err)
		}
	}
	fd.entry.Sinks[name] = t
	if t.State == Pending {
		f.save(fd, false)
	} else {
		fd.due = now // it may be the last
	}
}

// show makes the one attempt at a desktop notification.
func (f *follower) show(ctx context.Context, fd *followed) {
	f.notifying = true
	f.begin(ctx, func(ctx context.Context) func() {
		m, err := MessageOf(fd.job)
		if err == nil {
			ctx, cancel := context.WithTimeout(ctx, desktopWithin)
			err = f.hooks.Desktop(ctx, m)
			cancel()
		}
		crash("desktop.shown")
		return func() {
			f.notifying = false
			t := Target{State: Delivered, Attempts: 1}
			if err != nil {
				t.State, t.Error = None, err.Error() // it is in the inbox
				f.sayOnce("desktop notification: %v", err)
			}
			if f.jobs[fd.job.ID()] == fd {
				fd.entry.Wakes[fd.entry.Member] = t
				fd.due = soon
			}
		}
	})
}

// wakeAll runs the wakers that are due, one at a time for each member.
func (f *follower) wakeAll(ctx context.Context, now time.Time) {
	if !f.wakesDirty && (f.wakesAt.IsZero() || f.wakesAt.After(now)) {
		return
	}
	f.wakesDirty, f.wakesAt = false, time.Time{}
	items, err := f.thread.PendingWakes()
	if err != nil {
		f.sayOnce("inbox: %v", err)
		return
	}
	pending := map[string]bool{}
	for _, it := range items {
		key := it.To + "/" + it.ID
		pending[key] = true
		at, run := it.Wake.NextAt, f.unnoted[key]
		if run != nil {
			at = run.noteAt
		}
		switch {
		case f.hooks.Wake == nil, f.waking[it.To]:
		case notYet(at, now, maxBackoff):
			if f.wakesAt.IsZero() || at.Before(f.wakesAt) {
				f.wakesAt = at
			}
		default:
			f.waking[it.To] = true
			f.begin(ctx, func(ctx context.Context) func() { return f.wake(ctx, it, run) })
		}
	}
	for key := range f.unnoted {
		if !pending[key] { // taken, or removed
			delete(f.unnoted, key)
		}
	}
	// What has been done about a wake, or taken up without one, is noted.
	for _, fd := range f.jobs {
		for name, t := range fd.entry.Wakes {
			if fd.ended && t.State == Pending && fd.due.IsZero() && !fd.entry.Above && fd.entry.Thread.State == Delivered && !pending[name+"/"+string(fd.entry.Job)] {
				if it, err := f.thread.Item(name, string(fd.entry.Job)); err != nil || name != fd.entry.Member || !f.toShow(fd.entry, it) {
					fd.due = soon
				}
			}
		}
	}
}

// wakeRun is what came of running a waker, until that is noted: on a full disk
// it cannot be, and a waker is not run again for that.
type wakeRun struct {
	err    error
	next   time.Time // when it is to be run again, zero for never
	tries  int       // to note it
	noteAt time.Time // the next one
}

// wake runs one waker, and notes what came of it. With a run it only notes that.
func (f *follower) wake(ctx context.Context, it thread.Item, run *wakeRun) func() {
	if run == nil {
		run = f.runWaker(ctx, it)
		crash("wake.run")
		if ctx.Err() != nil {
			return nil
		}
	}
	noted := f.thread.WakeResult(it, run.err, run.next)
	crash("wake.noted")
	return func() {
		delete(f.waking, it.To)
		f.wakesDirty = true
		if run.err != nil && run.tries == 0 {
			f.say("waking %s for %s: %v", it.To, it.ID, run.err)
		}
		key := it.To + "/" + it.ID
		if noted == nil || errors.Is(noted, thread.ErrNoItem) {
			delete(f.unnoted, key)
		} else {
			if run.tries == 0 {
				f.say("waking %s for %s: what came of it cannot be noted: %v", it.To, it.ID, noted)
			}
			run.tries++
			run.noteAt = time.Now().Add(min(f.backoff(run.tries), slowSweep))
			f.unnoted[key] = run
		}
		if fd := f.jobs[jobdir.ID(it.ID)]; fd != nil {
			fd.due = time.Now()
		}
	}
}

func (f *follower) runWaker(ctx context.Context, it thread.Item) *wakeRun {
	member, err := f.thread.Member(it.To)
	again := err != nil && !errors.Is(err, thread.ErrNoMember)
	if err == nil && !member.Wakeable() {
		err = errors.New("there is nothing to run any more")
	} else if err == nil {
		err = f.hooks.Wake(ctx, member, it)
		again = err != nil
	}
	run := &wakeRun{err: err}
	if again {
		run.next = time.Now().Add(f.backoff(it.Wake.Attempts + 1))
	}
	return run
}
