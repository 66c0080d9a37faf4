package notify

import (
	"context"
	"errors"
	"slices"
	"time"

	"space-job/notify/thread"
)

// Parent is the way to the thread of another Space, which a root has joined: the
// messages of its jobs go there, and into the inboxes of those who take part in it.
type Parent struct {
	Space string                   // what this root is called there
	Has   func(member string) bool // whether a member of this root takes part

	// JobEnd posts the end of a job, once however often it is called, and tells its
	// starter and those who are to be woken. An error says that it has to be called
	// again: later, where it is an ErrRefused.
	JobEnd func(context.Context, JobEnd) (JobTold, error)

	// Woken is what has become of waking a member of this root for an item that it
	// has over there, which is done beside Follow.
	Woken func(member, item string) Target
}

// ErrRefused is the error of a message that the parent was reached for, and does
// not take. It may some day: of who has joined anew.
var ErrRefused = errors.New("the parent refuses it")

// JobEnd is the end of a job for another thread.
type JobEnd struct {
	Message Message
	Starter string // "": nobody who takes part in that thread
	Wake    []string
	Hops    int   // those of the starter
	After   int64 // the newest entry there when the job began, as far as is known
}

// JobTold is what became of it.
type JobTold struct {
	Seq     int64
	Targets map[string]Target // by member. One that is not told has failed
}

// maxParentPause is the longest time between two attempts to reach a parent, which
// comes back when its daemon does.
const maxParentPause = 15 * time.Second

// parent is the thread that messages go to, nil for that of the root.
func (f *follower) parent() (*Parent, error) {
	if f.hooks.Parent == nil {
		return nil, nil
	}
	return f.hooks.Parent()
}

// tellParent brings messages to the parent, one after the other, beside the loop.
// Those that come meanwhile wait until it is through.
func (f *follower) tellParent(ctx context.Context, p *Parent, list []*followed, passes map[*followed]*delivery) {
	if f.telling {
		f.behind = append(f.behind, list...)
		return
	}
	f.telling = true
	ends := make([]JobEnd, len(list))
	for i, fd := range list {
		e := fd.entry
		ends[i] = JobEnd{Message: passes[fd].message, Wake: slices.Clone(e.Wake), Hops: e.Hops, After: e.ThreadAfter}
		ends[i].Message.Text = ends[i].Message.In(p.Space)
		if e.Member != "" && p.Has(e.Member) {
			ends[i].Starter = e.Member
		}
	}
	f.begin(ctx, func(ctx context.Context) func() {
		told, failed := make([]JobTold, len(ends)), make([]error, len(ends))
		var away error // the parent is: the others need not try
		for i, end := range ends {
			if failed[i] = away; away != nil {
				continue
			}
			told[i], failed[i] = p.JobEnd(ctx, end)
			switch {
			case failed[i] == nil:
				crash("parent.told")
			case !errors.Is(failed[i], ErrRefused):
				away = failed[i]
			}
		}
		return func() {
			f.telling = false
			now := time.Now()
			for i, fd := range list {
				switch {
				case f.jobs[fd.job.ID()] != fd:
				case failed[i] == nil:
					f.toldParent(fd, ends[i].Starter, told[i])
					fd.due = soon
				default:
					f.notTold(fd, failed[i], now)
				}
			}
			for _, fd := range f.behind {
				fd.due = soon
			}
			f.behind = nil
		}
	})
}

// notTold notes an attempt to reach the parent that failed.
func (f *follower) notTold(fd *followed, err error, now time.Time) {
	t := &fd.entry.Thread
	f.failed(t, err, now)
	if at := now.Add(maxParentPause).UTC().Truncate(time.Millisecond); t.NextAt.After(at) && !errors.Is(err, ErrRefused) {
		t.NextAt = &at
	}
	fd.due = *t.NextAt
	f.complain(fd, err)
	f.save(fd, false)
}

// parentBack has what waits for the parent brought at once.
func (f *follower) parentBack() {
	for _, fd := range f.jobs {
		if t := &fd.entry.Thread; fd.ended && t.State == Pending && t.Attempts > 0 {
			fd.due = soon
		}
	}
}

// toldParent notes what the parent has done. Who does not take part in its thread
// is told here.
func (f *follower) toldParent(fd *followed, starter string, told JobTold) {
	e := fd.entry
	e.Thread.delivered()
	e.Seq, e.Above = told.Seq, true
	for name, t := range told.Targets {
		_, err := f.thread.Member(name)
		switch {
		case name == starter && t.State == Failed:
			e.Inbox = t
		case name == starter:
			e.Inbox.delivered()
			e.Wakes[name] = t
		case t.State == Failed && !errors.Is(err, thread.ErrNoMember): // somebody of this root
		default:
			e.Wakes[name] = t
		}
	}
}
