package api

import (
	"context"
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
