package daemon

import (
	"context"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link"
	"space-job/notify"
	"space-job/notify/thread"
)

// How often is looked at a link that nobody tells of, and the time between two
// tries to reach a parent. A waker that tries tells all others when it is back.
const (
	lookEvery = 30 * time.Second
	minPause  = 250 * time.Millisecond
	maxPause  = 15 * time.Second
	maxKnock  = 2 * time.Second        // of a waker, where a try is a connection and no program
	refused   = 5 * time.Minute        // of a waker whose token opens nothing any more: who joins anew has another waker
	askAgain  = 500 * time.Millisecond // whether a member was woken
	keepWakes = 256                    // of items that were answered, for who asks
)

// parent is the way of the messages of ended jobs to the thread that the root has
// joined.
func (c *child) parent() (*notify.Parent, error) {
	part, err := c.actions.Joined()
	if err != nil || len(part.Members) == 0 {
		return nil, err
	}
	return &notify.Parent{
		Space: part.Space,
		Has:   part.Has,
		JobEnd: func(ctx context.Context, e notify.JobEnd) (notify.JobTold, error) {
			done, err := c.calls.begin(ctx)
			if err != nil {
				return notify.JobTold{}, err
			}
			defer done()
			m := &e.Message
			res, err := c.actions.JobEndAbove(ctx, link.JobEndArgs{
				Job: string(m.Job), Text: m.Text, State: string(m.State), ExitCode: m.ExitCode, Offset: m.Offset,
				Starter: e.Starter, Wake: e.Wake, Hops: e.Hops, After: e.After,
			})
			told := notify.JobTold{Seq: res.Seq, Targets: map[string]notify.Target{}}
			for name, t := range res.Items {
				told.Targets[name] = targetOf(t, part.Has(name))
			}
			if api.Refused(err) {
				err = &refusedEnd{err}
			}
			return told, err
		},
		Woken: c.woken,
	}, nil
}

// calls are the calls that are under way for others, so that they can be waited for.
type calls struct {
	mu    sync.Mutex
	group sync.WaitGroup
	over  bool // there are no more
}

// begin fails when ctx is done.
func (c *calls) begin(ctx context.Context) (done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || ctx.Err() != nil {
		return nil, context.Canceled
	}
	c.group.Add(1)
	return c.group.Done, nil
}

// wait returns when all have ended, and lets none begin any more.
func (c *calls) wait() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.group.Wait()
}

// refusedEnd is the error of the end of a job that the parent does not take.
type refusedEnd struct{ error }

func (e *refusedEnd) Is(target error) bool { return target == notify.ErrRefused }

// targetOf is what became of telling one member. One of this root is woken here.
func targetOf(t link.Told, here bool) notify.Target {
	switch {
	case t.Item == "":
		return notify.Target{State: notify.Failed, Attempts: 1, Error: t.Error}
	case t.Wake == thread.WakeLimited:
		return notify.Target{State: notify.Limited, Limit: t.Limit, RetryAfterMS: t.RetryAfterMS}
	case here:
		return notify.Target{State: notify.Pending}
	case t.Wake == thread.WakeNone: // by the daemon of its own Space, as that can
		return notify.Target{State: notify.None}
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

	calls  calls // beside those of run
	news   chan<- os.Signal
	back   chan struct{} // see notify.Hooks
	wakers sync.WaitGroup
	stop   map[api.PartMember]context.CancelFunc

	mu    sync.Mutex
	wakes map[string]wakes // by member. Guarded by mu
}

// wakes are what a member was woken for.
type wakes struct {
	known map[string]notify.Target // by item
	asked map[string]time.Time     // since when somebody asks for an item that is not known
	at    time.Time                // the beginning of the last look at its inbox
}

// woken is what has become of waking a member for an item.
func (c *child) woken(member, item string) notify.Target {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.wakes[member]
	now := time.Now()
	t, ok := w.known[item]
	if !ok {
		t = notify.Target{State: notify.Pending}
		since, before := w.asked[item]
		switch {
		case w.asked == nil: // its first look is still to come
		case !before:
			w.asked[item] = now
		case w.at.After(since): // it has answered it long ago
			delete(w.asked, item)
			return notify.Target{State: notify.None}
		}
	}
	if t.State == notify.Pending {
		at := now.Add(askAgain).UTC().Truncate(time.Millisecond)
		t.NextAt = &at
	} else {
		delete(w.asked, item)
	}
	return t
}

// note keeps what has become of waking a member.
func (c *child) note(member string, f func(w *wakes)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.wakes[member]
	if w.known == nil {
		w.known, w.asked = map[string]notify.Target{}, map[string]time.Time{}
	}
	f(&w)
	c.wakes[member] = w
}

// run goes on until ctx is done. Something in news says that a post waits, or that
// a member has joined or left.
func (c *child) run(ctx context.Context, news chan os.Signal) {
	c.news = news
	c.stop = map[api.PartMember]context.CancelFunc{}
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
	part, err := c.actions.Joined()
	if err != nil {
		c.log.Printf("link: %v", err)
		return
	}
	for m, stop := range c.stop {
		if !slices.Contains(part.Members, m) {
			stop()
			delete(c.stop, m)
			c.parentBack() // the thread is another one
		}
	}
	for _, m := range part.Members {
		if c.stop[m] == nil {
			wctx, stop := context.WithCancel(ctx)
			c.stop[m] = stop
			c.wakers.Go(func() { c.wake(wctx, m.Name) })
			c.parentBack() // it may take what it has refused
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
	for _, id := range woken {
		c.note(name, func(w *wakes) { w.known[id] = notify.Target{State: notify.Delivered, Attempts: 1} })
	}
	passed := map[string]bool{} // what wakes nobody
	attempts := map[string]int{}
	failed, said := 0, ""
	for {
		known := slices.Concat([]string{}, woken, slices.Collect(maps.Keys(passed)))
		begun := time.Now()
		items, open, err := c.actions.ArrivalsAbove(ctx, name, known)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if failed++; err.Error() != said {
				said = err.Error()
				c.log.Printf("link: %s: %v", name, err)
			}
			if !sleep(ctx, c.knockAfter(err, failed)) {
				return
			}
			continue
		}
		if failed > 0 {
			c.isBack()
		}
		failed, said = 0, ""
		gone := func(id string) bool { return !slices.Contains(open, id) }
		c.note(name, func(w *wakes) {
			w.at = begun
			if len(w.known) > keepWakes {
				maps.DeleteFunc(w.known, func(id string, _ notify.Target) bool { return gone(id) })
			}
			for _, id := range open { // what it took up before it was woken
				if _, ok := w.known[id]; !ok && !slices.ContainsFunc(items, func(it thread.Item) bool { return it.ID == id }) {
					w.known[id] = notify.Target{State: notify.None}
				}
			}
		})
		maps.DeleteFunc(passed, func(id string, _ bool) bool { return gone(id) })
		woken = slices.DeleteFunc(woken, gone)
		for _, it := range items {
			target := notify.Target{State: notify.None}
			if it.Wake.State == thread.WakeLimited {
				passed[it.ID] = true
				target = notify.Target{State: notify.Limited, Limit: it.Wake.Limit, RetryAfterMS: it.Wake.RetryAfterMS}
			} else {
				ran, err := c.runWaker(ctx, name, it)
				crash("wake.run")
				if ctx.Err() != nil {
					return
				}
				if err != nil { // it is still new, and so are those behind it
					attempts[it.ID]++
					c.log.Printf("waking %s for %s: %v", name, it.ID, err)
					c.note(name, func(w *wakes) {
						w.known[it.ID] = notify.Target{State: notify.Pending, Attempts: attempts[it.ID], Error: err.Error()}
					})
					if !sleep(ctx, min(notify.Backoff(attempts[it.ID], rand.Float64), maxPause)) {
						return
					}
					break
				}
				if ran {
					woken = append(woken, it.ID)
					target = notify.Target{State: notify.Delivered, Attempts: attempts[it.ID] + 1}
					if err := c.actions.SetWoken(name, woken); err != nil {
						c.log.Printf("waking %s for %s: what came of it cannot be noted: %v", name, it.ID, err)
					}
				} else {
					passed[it.ID] = true
				}
				delete(attempts, it.ID)
			}
			c.note(name, func(w *wakes) { w.known[it.ID] = target })
		}
	}
}

// knockAfter is when a waker tries again whose last tries have failed.
func (c *child) knockAfter(err error, failed int) time.Duration {
	if api.TokenRefused(err) {
		return refused
	}
	if part, e := c.actions.Joined(); e == nil && !part.Exec && !api.Astray(err) {
		return min(backoff(failed), maxKnock)
	}
	return backoff(failed)
}

// parentBack has messages that wait for the parent sent at once.
func (c *child) parentBack() {
	select {
	case c.back <- struct{}{}:
	default:
	}
}

// isBack is parentBack for posts that wait, too.
func (c *child) isBack() {
	c.parentBack()
	select {
	case c.news <- syscall.SIGHUP:
	default:
	}
}

// sleep reports whether ctx is not done by then.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
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
