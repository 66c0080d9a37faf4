package api

import (
	"context"
	"math/rand/v2"
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

// Arrivals calls arrived whenever the inbox of a member gets an unread item that
// was not there before, until ctx is done.
func (a *Actions) Arrivals(ctx context.Context, member string, arrived func()) error {
	who, err := a.asMember(member)
	if err != nil {
		return err
	}
	if p, err := a.above(who.Member); err != nil {
		return err
	} else if p != nil {
		return p.arrivals(ctx, who.Member, arrived)
	}
	known := make(map[string]bool)
	items, err := a.thread().Inbox(who.Member)
	if err != nil {
		return fault(err)
	}
	for _, it := range items {
		known[it.ID] = true
	}
	for {
		news, err := a.thread().WaitInbox(ctx, who.Member, known)
		if err != nil || ctx.Err() != nil {
			return fault(err)
		}
		if news {
			arrived()
		}
	}
}

// arrivals is Arrivals of a member that has joined. It waits for a parent that
// cannot be reached.
func (p *parent) arrivals(ctx context.Context, member string, arrived func()) error {
	first := true
	known := []string{}
	for failed := 0; ; {
		wait := int64(MaxFollowMS)
		if first {
			wait = 0
		}
		res, err := p.arrivalsAbove(ctx, member, known, wait)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !retried(err):
			return err
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
		if !first && len(res.Items) > 0 {
			arrived()
		}
		first = false
	}
}
