package notify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// each calls do for all of them, several at a time.
func each(list []*followed, do func(*followed)) {
	if len(list) == 1 {
		do(list[0])
		return
	}
	var wg sync.WaitGroup
	next := make(chan *followed)
	for range min(together, len(list)) {
		wg.Go(func() {
			for fd := range next {
				do(fd)
			}
		})
	}
	for _, fd := range list {
		next <- fd
	}
	close(next)
	wg.Wait()
}

// failed notes an attempt that failed, and when the next one is due.
func (f *follower) failed(t *Target, err error, now time.Time) {
	t.Attempts++
	t.Error = err.Error()
	at := now.Add(f.backoff(t.Attempts)).UTC().Truncate(time.Millisecond)
	t.NextAt = &at
}

func (t *Target) delivered() {
	t.Attempts++
	t.State, t.Error, t.NextAt = Delivered, "", nil
}

// delivery is one pass over a message.
type delivery struct {
	*followed
	message Message
	err     error // the message cannot be made
}

// deliver brings messages of jobs that have ended on: into the thread, then into
// inboxes. What is left then, sinks and wakers, takes its own time. Each step
// finds what an earlier pass has done, so that it may be cut short anywhere.
func (f *follower) deliver(ctx context.Context, list []*followed, now time.Time) {
	if len(list) == 0 {
		return
	}
	passes := make(map[*followed]*delivery, len(list))
	var made []*followed
	for _, fd := range list {
		passes[fd] = &delivery{followed: fd}
	}
	each(list, func(fd *followed) {
		if !fd.needsMessage() {
			return
		}
		d := passes[fd]
		d.message, d.err = MessageOf(fd.job)
		if d.err == nil && fd.entry.Thread.State == Pending {
			d.err = jobdir.SyncDir(fd.job.Dir()) // nothing is said of an end that a power failure could take back
		}
	})
	unposted := false
	for _, fd := range list {
		switch d := passes[fd]; {
		case errors.Is(d.err, jobdir.ErrNotFound), errors.Is(d.err, ErrNotEnded):
			fd.ended, fd.due = false, now.Add(100*time.Millisecond)
		case d.err != nil:
			f.failed(&fd.entry.Thread, d.err, now)
			fd.due = *fd.entry.Thread.NextAt
			f.complain(fd, d.err)
			f.save(fd, false)
		default:
			made = append(made, fd)
			unposted = unposted || fd.entry.Thread.State == Pending
		}
	}
	if unposted {
		if err := jobdir.SyncDir(filepath.Join(f.root.Path(), record.Jobs)); err != nil {
			f.sayOnce("%v", err)
		}
		made = f.post(ctx, made, passes, now)
	}
	if len(made) == 0 {
		return
	}
	for _, fd := range made {
		f.address(fd.entry, now)
	}
	each(made, func(fd *followed) { f.tell(passes[fd], now) })
	crash("follow.put")
	var done, rest []*followed
	for _, fd := range made {
		if fd.entry.state() == Pending || fd.keepsFailed() {
			rest = append(rest, fd)
		} else {
			done = append(done, fd)
		}
	}
	each(rest, func(fd *followed) { f.save(fd, true) })
	crash("follow.marked")
	each(done, f.finish)
	for _, fd := range done {
		if fd.entry == nil {
			f.forget(fd)
		}
	}
	for _, fd := range rest {
		for _, t := range append([]Target{fd.entry.Inbox}, slices.Collect(maps.Values(fd.entry.Wakes))...) {
			if t.State == Pending && t.NextAt != nil && (fd.due.IsZero() || t.NextAt.Before(fd.due)) {
				fd.due = *t.NextAt
			}
		}
	}
}

// needsMessage: not where only sinks are left.
func (fd *followed) needsMessage() bool {
	e := fd.entry
	if e.Thread.State == Pending || e.Inbox.State == Pending {
		return true
	}
	for _, t := range e.Wakes {
		if t.State == Pending {
			return true
		}
	}
	return false
}

// stuck: there is something to do, and nothing that will report it.
func (fd *followed) stuck() bool {
	if fd.entry.state() != Pending {
		return !fd.keepsFailed()
	}
	return fd.needsMessage() || fd.entry.Sinks == nil
}

// keepsFailed: what a sink has refused stays in the outbox, for somebody to ask
// for another attempt.
func (fd *followed) keepsFailed() bool {
	for _, t := range fd.entry.Sinks {
		if t.State == Failed {
			return true
		}
	}
	return false
}

// post puts the messages that are not in the thread there, all at once, and
// returns those that are. Where the thread is that of a parent, they come later.
func (f *follower) post(ctx context.Context, list []*followed, passes map[*followed]*delivery, now time.Time) (posted []*followed) {
	var fresh []*followed
	var ends []thread.JobEnd
	for _, fd := range list {
		if e := fd.entry; e.Thread.State == Pending {
			fresh = append(fresh, fd)
			ends = append(ends, thread.JobEnd{Job: e.Job, Text: passes[fd].message.Text, Hops: e.Hops, After: e.ThreadAfter})
		} else {
			posted = append(posted, fd)
		}
	}
	var done []thread.PostedJob
	parent, err := f.parent()
	switch {
	case err != nil || len(fresh) == 0:
	case parent != nil:
		f.tellParent(ctx, parent, fresh, passes)
		return posted
	default:
		done, err = f.thread.PostJobs(ends)
	}
	if err != nil {
		for _, fd := range fresh {
			t := &fd.entry.Thread
			f.failed(t, fmt.Errorf("post: %w", err), now)
			fd.due = *t.NextAt
			f.complain(fd, err)
			f.save(fd, false)
		}
		return posted
	}
	crash("follow.posted")
	for i, fd := range fresh {
		e := fd.entry
		e.Thread.delivered()
		e.Seq = done[i].Seq
		posted = append(posted, fd)
	}
	return posted
}

// address finds out which sinks are to have a message. Where that cannot be told,
// the next sweep tries again.
func (f *follower) address(e *Entry, now time.Time) {
	if e.Sinks != nil {
		return
	}
	sinks, err := f.sinks(now)
	if err != nil {
		f.sayOnce("sinks: %v", err)
		return
	}
	e.Sinks = make(map[string]Target, len(sinks))
	for name := range sinks {
		e.Sinks[name] = Target{State: Pending}
	}
}

// sinks are the sinks that messages go to, by name, as they are now; a file that
// was written in its place may be seen a moment late. One whose file is damaged is among them.
func (f *follower) sinks(now time.Time) (map[string]configured, error) {
	if f.hooks.Sink == nil {
		return nil, nil
	}
	var changed time.Time
	if info, err := os.Stat(filepath.Join(f.root.Path(), sinksDir)); err == nil {
		changed = info.ModTime()
	}
	// Whoever adds a sink and then starts a job has it told of the end, so an age
	// alone does not do. Nor does the time of a change so shortly before they were
	// read that another could have the same.
	const tick = 50 * time.Millisecond // no kernel's clock of files is coarser
	if f.configs != nil && changed.Equal(f.configsOf) && f.configsAt.Sub(changed) > tick &&
		now.Sub(f.configsAt) < blindSweep && !now.Before(f.configsAt) {
		return f.configs, nil
	}
	list, damaged, err := Sinks(f.root)
	if err != nil {
		return nil, err
	}
	f.configs, f.configsAt, f.configsOf = make(map[string]configured, len(list)+len(damaged)), now, changed
	for _, c := range list {
		f.configs[c.Name] = configured{SinkConfig: c}
	}
	for _, d := range damaged {
		if filepath.Base(d.Path) == d.Name || CheckSinkName(d.Name) != nil { // none that could be repaired
			f.sayOnce("%s is no sink: %v", d.Path, d.Err)
			continue
		}
		err := fmt.Errorf("%s is damaged: %w", d.Path, d.Err)
		f.sayOnce("sink %s: %v", d.Name, err)
		f.configs[d.Name] = configured{err: err}
	}
	return f.configs, nil
}

// tell puts the message into the inboxes of those who are to have it, and sees
// what has become of waking them.
func (f *follower) tell(d *delivery, now time.Time) {
	e := d.entry
	if e.Inbox.State == Pending && due(e.Inbox, now) {
		f.tellStarter(d, now)
	}
	for name, t := range e.Wakes {
		if t.State == Pending && due(t, now) && (name != e.Member || e.Inbox.State == Delivered) {
			e.Wakes[name] = f.wakeState(d, name, t, now)
		}
	}
	crash("follow.woken")
}

// wakeState is what has become of waking a member. One who did not start the job
// gets the item for that here.
func (f *follower) wakeState(d *delivery, name string, t Target, now time.Time) Target {
	e := d.entry
	if e.Above {
		if p, err := f.parent(); err != nil {
			f.failed(&t, err, now)
			return t
		} else if p != nil && p.Has(name) {
			return p.Woken(name, "e"+strconv.FormatInt(e.Seq, 10))
		}
	}
	it, err := f.thread.Item(name, string(e.Job))
	switch {
	case err == nil && name == e.Member && f.toShow(e, it):
		return t
	case err == nil:
		return wakeOf(it)
	case name == e.Member && errors.Is(err, thread.ErrNoItem): // it was answered long ago
		return Target{State: None}
	case name != e.Member: // not there, or damaged
		it, err = f.thread.WakeOther(thread.Author{Member: e.Member, Kind: e.Kind}, e.Hops, d.item(name))
	}
	switch {
	case err == nil:
		return wakeOf(it)
	case errors.Is(err, thread.ErrNoMember):
		return Target{State: Failed, Attempts: t.Attempts + 1, Error: err.Error()}
	}
	f.failed(&t, err, now)
	return t
}

// toShow: a person who has no waker and has not taken the item is shown a
// notification, once.
func (f *follower) toShow(e *Entry, it thread.Item) bool {
	return e.Kind == thread.Person && f.hooks.Desktop != nil && it.Wake.State == thread.WakeNone && it.State == thread.Unread
}

func due(t Target, now time.Time) bool { return t.NextAt == nil || !notYet(*t.NextAt, now, maxBackoff) }

func (f *follower) tellStarter(d *delivery, now time.Time) {
	e := d.entry
	it := d.item(e.Member)
	it.Hops = e.Hops
	member, err := f.thread.Member(e.Member)
	if err == nil && member.Wakeable() {
		it.Wake.State = thread.WakePending
	} else if err != nil && !errors.Is(err, thread.ErrNoMember) {
		f.failed(&e.Inbox, err, now)
		return
	}
	if it, err = f.thread.PutItem(it); err != nil {
		f.failed(&e.Inbox, err, now)
		return
	}
	e.Inbox.delivered()
	if wake := wakeOf(it); f.toShow(e, it) {
		e.Wakes[e.Member] = Target{State: Pending}
	} else {
		e.Wakes[e.Member] = wake
	}
}

// item is the message as an item of somebody.
func (d *delivery) item(to string) thread.Item {
	m := &d.message
	return thread.Item{
		ID: string(m.Job), Kind: thread.KindJobEnd, To: to, From: thread.Author{Member: "daemon", Kind: thread.Daemon}, Seq: d.entry.Seq, Text: m.Text,
		Job: string(m.Job), JobState: string(m.State), ExitCode: m.ExitCode, Offset: m.Offset,
	}
}

// wakeOf is what an item says of waking its member.
func wakeOf(it thread.Item) Target {
	w := it.Wake
	t := Target{Attempts: w.Attempts, Error: w.Error}
	switch w.State {
	case thread.WakePending:
		t.State = Pending
	case thread.WakeDone:
		t.State = Delivered
	case thread.WakeFailed:
		t.State = Failed
	case thread.WakeLimited:
		t.State, t.Limit, t.RetryAfterMS = Limited, w.Limit, w.RetryAfterMS
	default:
		t.State = None
	}
	return t
}

// finish leaves the receipt, and then takes the entry away.
func (f *follower) finish(fd *followed) {
	err := writeReceipt(fd.job, fd.entry.Targets, time.Now())
	if errors.Is(err, fs.ErrNotExist) { // the job is gone
		err = nil
	}
	crash("follow.receipt")
	if err == nil {
		err = os.Remove(entryPath(f.root, fd.job.ID()))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	crash("follow.removed")
	if err != nil {
		f.complain(fd, err) // the next sweep tries again
		return
	}
	fd.entry = nil
}
