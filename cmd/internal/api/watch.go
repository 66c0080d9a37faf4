package api

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"space-job/notify"
)

// Ended calls done once when a job has ended, also where it had before, and
// returns then. Its error is that of ctx, or says that there is no such job.
func (a *Actions) Ended(ctx context.Context, job string, done func()) error {
	if _, err := a.Wait(ctx, WaitRequest{Jobs: []string{job}}); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	done()
	return nil
}

// lookAtLink is how often is looked at whether a Space has joined or left.
const lookAtLink = time.Second

// Arrivals calls arrived whenever the inbox of a member gets an unread item that
// was not there before, until ctx is done. When its Space joins the thread of
// another, or leaves it, the inbox is another one, and what is unread there is new.
func (a *Actions) Arrivals(ctx context.Context, member string, arrived func()) error {
	who, err := a.asMember(member)
	if err != nil {
		return err
	}
	for before := true; ; before = false {
		turn, stop := context.WithCancel(ctx)
		go a.untilLinked(turn, a.linkStamp(), stop)
		p, err := a.above(who.Member)
		switch {
		case err != nil:
		case p != nil:
			err = p.arrivals(turn, who.Member, before, arrived)
		default:
			err = a.arrivalsHere(turn, who.Member, before, arrived)
		}
		over := turn.Err() == nil || ctx.Err() != nil
		stop()
		if over {
			return err
		}
	}
}

// linkStamp is another one when the Space has joined or left.
func (a *Actions) linkStamp() (s linkStamp) {
	var st syscall.Stat_t
	if err := syscall.Lstat(a.path(joinFile), &st); err == nil {
		s = linkStamp{st.Ino, changeTime(&st)}
	}
	return s
}

type linkStamp struct {
	ino uint64
	at  syscall.Timespec
}

// untilLinked calls changed when the Space has joined or left since was.
func (a *Actions) untilLinked(ctx context.Context, was linkStamp, changed func()) {
	tick := time.NewTicker(lookAtLink)
	defer tick.Stop()
	for a.linkStamp() == was {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	changed()
}

// arrivalsHere is Arrivals of a member whose inbox is in this root. What was there
// before is new unless before is set.
func (a *Actions) arrivalsHere(ctx context.Context, member string, before bool, arrived func()) error {
	known := make(map[string]bool)
	if before {
		items, err := a.thread().Inbox(member)
		if err != nil {
			return fault(err)
		}
		for _, it := range items {
			known[it.ID] = true
		}
	}
	for {
		news, err := a.thread().WaitInbox(ctx, member, known)
		if err != nil || ctx.Err() != nil {
			return fault(err)
		}
		if news {
			arrived()
		}
	}
}

// arrivals is arrivalsHere of a member that has joined. It waits for a parent that
// cannot be reached, or does not know the member now.
func (p *parent) arrivals(ctx context.Context, member string, before bool, arrived func()) error {
	known := []string{}
	for failed := 0; ; {
		wait := int64(MaxFollowMS)
		if before {
			wait = 0
		}
		res, err := p.arrivalsAbove(ctx, member, known, wait)
		switch {
		case ctx.Err() != nil:
			return nil
		case TokenRefused(err): // until it joins anew
			<-ctx.Done()
			return nil
		case err != nil:
			failed++
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(min(notify.Backoff(failed, rand.Float64), 15*time.Second)):
			}
			continue
		}
		failed = 0
		known = res.Open
		if !before && len(res.Items) > 0 {
			arrived()
		}
		before = false
	}
}
