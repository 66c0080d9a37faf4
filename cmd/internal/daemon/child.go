package daemon

import (
	"context"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link"
	"space-job/notify"
	"space-job/notify/thread"
)

// How often is looked at a link that nobody tells of, and the longest time between
// two tries to reach a parent: it is on the same machine, or a person waits.
const (
	lookEvery = 30 * time.Second
	maxPause  = 15 * time.Second
	minPause  = 250 * time.Millisecond
)

// parentOf is the way of the messages of ended jobs to the thread that the root
// has joined.
func parentOf(actions *api.Actions) func() (*notify.Parent, error) {
	return func() (*notify.Parent, error) {
		members, space, err := actions.Joined()
		if err != nil || len(members) == 0 {
			return nil, err
		}
		return &notify.Parent{
			Space: space,
			Has:   func(member string) bool { return slices.Contains(members, member) },
			JobEnd: func(ctx context.Context, e notify.JobEnd) (notify.JobTold, error) {
				m := &e.Message
				res, err := actions.JobEndAbove(ctx, link.JobEndArgs{
					Job: string(m.Job), Text: m.Text, State: string(m.State), ExitCode: m.ExitCode, Offset: m.Offset,
					Starter: e.Starter, Wake: e.Wake, Hops: e.Hops, After: e.After,
				})
				told := notify.JobTold{Seq: res.Seq, Targets: map[string]notify.Target{}}
				for name, t := range res.Items {
					told.Targets[name] = targetOf(t)
				}
				return told, err
			},
		}, nil
	}
}

// targetOf is what became of telling one member.
func targetOf(t link.Told) notify.Target {
	switch {
	case t.Item == "":
		return notify.Target{State: notify.Failed, Attempts: 1, Error: t.Error}
	case t.Wake == thread.WakeLimited:
		return notify.Target{State: notify.Limited, Limit: t.Limit, RetryAfterMS: t.RetryAfterMS}
	case t.Wake == thread.WakeNone:
		return notify.Target{State: notify.None} // by the daemon of its own Space, as that can
	}
	return notify.Target{State: notify.Delivered, Attempts: 1}
}

// child is what the daemon of a root does that has joined the thread of another: it
// sends the posts that wait, and wakes those of its members that have something
// new over there.
type child struct {
	actions *api.Actions
	hooks   notify.Hooks
	log     *log.Logger

	wakers sync.WaitGroup
	stop   map[string]context.CancelFunc // by member
}

// run goes on until ctx is done. Something in news says that a post waits, or that
// a member has joined or left.
func (c *child) run(ctx context.Context, news <-chan os.Signal) {
	c.stop = map[string]context.CancelFunc{}
	defer c.wakers.Wait()
	failed, said := 0, ""
	for {
		c.follow(ctx)
		left, err := c.actions.BringPosts(ctx, func(line string) { c.log.Print(line) })
		if ctx.Err() != nil {
			return
		}
		pause := lookEvery
		switch {
		case left == 0 && err == nil:
			failed, said = 0, ""
		default:
			failed++
			pause = backoff(failed)
			if err != nil && err.Error() != said {
				said = err.Error()
				c.log.Printf("posts that wait for the parent: %d: %v", left, err)
			}
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-news:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// backoff is how long to wait after so many failed tries.
func backoff(failed int) time.Duration {
	d := minPause << min(failed-1, 10)
	return min(d, maxPause) + time.Duration(rand.Int64N(int64(minPause)))
}

// follow has a waker for each member that has joined, and for nobody else.
func (c *child) follow(ctx context.Context) {
	members, _, err := c.actions.Joined()
	if err != nil {
		c.log.Printf("link: %v", err)
		return
	}
	for name, stop := range c.stop {
		if !slices.Contains(members, name) {
			stop()
			delete(c.stop, name)
		}
	}
	for _, name := range members {
		if c.stop[name] == nil {
			wctx, stop := context.WithCancel(ctx)
			c.stop[name] = stop
			c.wakers.Go(func() { c.wake(wctx, name) })
		}
	}
}

// wake runs the waker of a member once for each new item that it has in the
// parent, until ctx is done. Which these were is kept, so that a daemon that was
// killed in between runs one again rather than never, and others not at all.
func (c *child) wake(ctx context.Context, name string) {
	woken, err := c.actions.Woken(name)
	if err != nil {
		c.log.Printf("link: %s: %v", name, err)
	}
	passed := map[string]bool{} // what wakes nobody
	failed, said := 0, ""
	attempts := map[string]int{}
	wait := func(err error) bool {
		failed++
		if err.Error() != said {
			said = err.Error()
			c.log.Printf("link: %s: %v", name, err)
		}
		timer := time.NewTimer(backoff(failed))
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		}
	}
	for {
		known := slices.Clone(woken)
		for id := range passed {
			known = append(known, id)
		}
		if known == nil {
			known = []string{}
		}
		items, open, err := c.actions.ArrivalsAbove(ctx, name, known)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if !wait(err) {
				return
			}
			continue
		}
		failed, said = 0, ""
		for _, it := range items {
			if it.Wake.State == thread.WakeLimited {
				passed[it.ID] = true
				continue
			}
			ran, err := c.runWaker(ctx, name, it)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				attempts[it.ID]++
				c.log.Printf("waking %s for %s: %v", name, it.ID, err)
				timer := time.NewTimer(min(notify.Backoff(attempts[it.ID], rand.Float64), maxPause))
				select {
				case <-ctx.Done():
					timer.Stop()
					return
				case <-timer.C:
				}
				break // it is still new, and so are those behind it
			}
			crash("wake.run")
			delete(attempts, it.ID)
			if !ran {
				passed[it.ID] = true
				continue
			}
			woken = append(slices.DeleteFunc(woken, func(id string) bool { return !slices.Contains(open, id) }), it.ID)
			if err := c.actions.SetWoken(name, woken); err != nil {
				c.log.Printf("waking %s for %s: what came of it cannot be noted: %v", name, it.ID, err)
			}
		}
		for id := range passed {
			if !slices.Contains(open, id) {
				delete(passed, id)
			}
		}
	}
}

// runWaker runs what wakes a member, as it is now. It reports whether there is
// anything to run.
func (c *child) runWaker(ctx context.Context, name string, it thread.Item) (ran bool, err error) {
	m, err := c.actions.LocalMember(name)
	if err != nil || !m.Wakeable() {
		return false, err
	}
	return true, c.hooks.Wake(ctx, m, it)
}
