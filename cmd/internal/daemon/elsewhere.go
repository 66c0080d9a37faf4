package daemon

import (
	"context"
	"errors"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link"
	"space-job/jobdir"
	"space-job/notify"
	"space-job/notify/thread"
)

const (
	waitAtOnce   = time.Minute        // of one wait over there: what is lost without a word is noticed then
	maxAwayPause = time.Minute        // between two tries to reach a Space
	givenUpAfter = 9 * 24 * time.Hour // no root keeps a job that long after its end
	findAgain    = 2 * time.Second    // a job whose start may be under way still
)

// undoneAfter is how long after a start was asked for its job may appear: more than
// a call takes that is waited for. Tests have less.
var undoneAfter = 2 * time.Minute

// elsewhere is what the daemon of a root does about jobs of other Spaces that
// somebody here is to be told of: it waits for them over there, one wait for each
// Space, and tells those.
type elsewhere struct {
	actions *api.Actions
	root    *jobdir.Root
	thread  *thread.Thread
	hooks   notify.Hooks
	log     *log.Logger
}

// run goes on until ctx is done and no call is under way any more. Something in news
// says that there may be another job.
func (e *elsewhere) run(ctx context.Context, news <-chan os.Signal) {
	type worker struct {
		changed chan []notify.Wait
		ids     string
	}
	workers := map[string]*worker{} // by Space
	var all sync.WaitGroup
	defer all.Wait()
	for {
		waits, err := notify.Waits(e.root, func(line string) { e.log.Printf("outbox: %s", line) })
		if err != nil {
			e.log.Printf("outbox: %v", err)
		}
		bySpace := map[string][]notify.Wait{}
		for _, w := range waits {
			bySpace[w.Space] = append(bySpace[w.Space], w)
		}
		for space := range bySpace {
			if workers[space] == nil {
				w := &worker{changed: make(chan []notify.Wait, 1)}
				workers[space] = w
				all.Go(func() { e.follow(ctx, space, w.changed) })
			}
		}
		for space, w := range workers {
			ids := ""
			for _, wait := range bySpace[space] {
				ids += string(wait.ID) + string(wait.Job)
			}
			if ids == w.ids && err == nil {
				continue
			}
			w.ids = ids
			select { // what it has not taken yet is out of date
			case <-w.changed:
			default:
			}
			w.changed <- bySpace[space]
		}
		timer := time.NewTimer(lookEvery)
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

// follow waits for the jobs of one Space, as changed says which they are.
func (e *elsewhere) follow(ctx context.Context, space string, changed <-chan []notify.Wait) {
	var waits []notify.Wait
	failed, said := 0, ""
	over := map[jobdir.ID]bool{} // what changed may have from before it was
	for {
		if len(waits) == 0 {
			select {
			case <-ctx.Done():
				return
			case next := <-changed:
				waits = merge(nil, next, over)
			}
			continue
		}
		round, cancel := context.WithCancel(ctx)
		var next []notify.Wait
		news := make(chan bool, 1)
		go func() { // another job: the wait begins anew, with it
			select {
			case next = <-changed:
				cancel()
				news <- true
			case <-round.Done():
				news <- false
			}
		}()
		left, err := e.round(round, space, waits)
		cancel()
		for _, w := range waits {
			over[w.ID] = !slices.ContainsFunc(left, func(l notify.Wait) bool { return l.ID == w.ID })
		}
		if waits = left; <-news {
			waits = merge(waits, next, over)
			err = nil
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failed, said = 0, ""
			continue
		}
		failed++
		why := api.AsError(err).Message
		if why != said {
			said = why
			e.log.Printf("jobs elsewhere: %d: %s", len(waits), why)
		}
		for i := range waits {
			if err := waits[i].Note(e.root, why); err != nil {
				e.log.Printf("outbox: %v", err)
			}
		}
		timer := time.NewTimer(min(notify.Backoff(failed, rand.Float64), maxAwayPause))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case next := <-changed: // somebody has just been there
			timer.Stop()
			waits = merge(waits, next, over)
		case <-timer.C:
		}
	}
}

// merge is what is still waited for of next, with what is known of it.
func merge(known, next []notify.Wait, over map[jobdir.ID]bool) []notify.Wait {
	next = slices.DeleteFunc(next, func(w notify.Wait) bool { return over[w.ID] })
	for i, w := range next {
		if at := slices.IndexFunc(known, func(k notify.Wait) bool { return k.ID == w.ID }); at >= 0 && w.Job == "" {
			next[i] = known[at]
		}
	}
	return next
}

// round waits until a job has ended, tells of those that have, and returns the
// others.
func (e *elsewhere) round(ctx context.Context, name string, waits []notify.Wait) (left []notify.Wait, err error) {
	there, err := e.actions.In(name, api.Elsewhere{Version: Version(), Context: ctx})
	if err != nil {
		return e.old(ctx, waits, err)
	}
	waits, left, err = e.find(there, waits)
	if err != nil {
		return e.old(ctx, append(waits, left...), err)
	}
	if len(waits) == 0 {
		if len(left) > 0 && !sleep(ctx, findAgain) {
			err = ctx.Err()
		}
		return left, err
	}
	ids := make([]string, len(waits))
	for i, w := range waits {
		ids[i] = string(w.Job)
	}
	began := time.Now()
	res, err := there.Wait(ctx, api.WaitRequest{Jobs: ids, Any: true, Timeout: waitAtOnce})
	if err != nil && (ctx.Err() != nil || api.NoAnswer(err)) {
		return e.old(ctx, append(left, waits...), err)
	}
	untold := error(nil)
	ended := map[jobdir.ID]bool{}
	for _, j := range res.Jobs {
		ended[j.Job] = j.State != jobdir.Running
	}
	for i, w := range waits {
		var m notify.Message
		var unknown *api.Error
		if err != nil { // one of them is not there, or cannot be read: which is in the way of no other
			m, ended[w.Job], unknown = e.lookAt(there, w)
		} else if ended[w.Job] {
			var sure bool
			if m, sure, unknown = e.lookAt(there, w); unknown == nil && !sure {
				unknown = &api.Error{Code: api.IO, Message: "space " + name + ": job " + string(w.Job) + " has ended, and what is to be said of it cannot be read"}
			}
		}
		if unknown != nil && (ctx.Err() != nil || api.NoAnswer(unknown)) {
			return append(left, waits[i:]...), unknown
		}
		if unknown != nil {
			kept, why := e.old(ctx, []notify.Wait{w}, unknown)
			left, untold = append(left, kept...), why
			err = unknown // a wait for any tells of the first only: the others are looked at
			continue
		}
		if !ended[w.Job] {
			if err := w.Note(e.root, ""); err != nil {
				e.log.Printf("outbox: %v", err)
			}
			left = append(left, w)
			continue
		}
		if err := e.tell(ctx, w, m); err != nil { // which is in the way of no other
			untold = err
			left = append(left, w)
		}
	}
	if untold != nil {
		return left, untold
	}
	none := !slices.ContainsFunc(waits, func(w notify.Wait) bool { return ended[w.Job] })
	if none && time.Since(began) < waitAtOnce/2 { // else the next round would begin at once, for ever
		return left, &api.Error{Code: api.IO, Message: "space " + name + ": a wait there was over, and none of its jobs has ended"}
	}
	return left, nil
}

// lookAt is the message of a job, if it has ended.
func (e *elsewhere) lookAt(there *api.Actions, w notify.Wait) (m notify.Message, ended bool, fault *api.Error) {
	m, err := there.EndMessage(w.Job)
	switch {
	case err == nil:
		return m, true, nil
	case errors.Is(err, notify.ErrNotEnded):
		return m, false, nil
	}
	if e := api.AsError(err); e.Code != api.NotFound {
		return m, false, e
	}
	return w.Unknown("the Space " + w.Space + " has no such job any more"), true, nil
}

// find asks for the jobs of starts whose answer never came. One that has none is
// asked for again, as it may be on its way still; after undoneAfter it was not done.
func (e *elsewhere) find(there *api.Actions, waits []notify.Wait) (known, pending []notify.Wait, err error) {
	var list []api.Entry
	for i, w := range waits {
		if w.Job != "" {
			known = append(known, w)
			continue
		}
		if list == nil {
			res, err := there.List(api.ListRequest{All: true})
			if err != nil {
				return known, append(pending, waits[i:]...), err
			}
			list = res.Jobs
		}
		at := slices.IndexFunc(list, func(j api.Entry) bool { return j.Key != nil && *j.Key == w.Key })
		switch {
		case at >= 0:
			err = w.Found(e.root, list[at].Job)
			known = append(known, w)
		case time.Since(w.CreatedAt) < undoneAfter:
			pending = append(pending, w)
		default:
			e.log.Printf("jobs elsewhere: a start in the Space %s was not done: no job there has its key %s", w.Space, w.Key)
			err = w.Over(e.root)
		}
		if err != nil {
			return known, append(pending, waits[i+1:]...), err
		}
	}
	return known, pending, nil
}

// old gives up those of waits that no answer can be expected of any more, and passes
// why on.
func (e *elsewhere) old(ctx context.Context, waits []notify.Wait, why error) (left []notify.Wait, err error) {
	for i, w := range waits {
		if why == nil || ctx.Err() != nil || time.Since(w.CreatedAt) < givenUpAfter {
			left = append(left, w)
			continue
		}
		e.log.Printf("jobs elsewhere: job %s of the Space %s (key %s) is given up: %v", w.Job, w.Space, w.Key, why)
		if w.Job == "" {
			err = w.Over(e.root)
		} else {
			err = e.tell(ctx, w, w.Unknown(api.AsError(why).Message))
		}
		if err != nil {
			return append(left, waits[i:]...), err
		}
	}
	return left, why
}

// tell brings the message of a job to those who are to have it: here, or in the
// thread that this Space has joined, if they take part in that.
func (e *elsewhere) tell(ctx context.Context, w notify.Wait, m notify.Message) error {
	told, err := e.tellAbove(ctx, w, m)
	if err != nil {
		return err
	}
	it, err := w.Tell(e.thread, m, func(member string) bool { return told[member] })
	if err != nil {
		return err
	}
	if it != nil && w.Kind == thread.Person && it.State == thread.Unread && it.Wake.State == thread.WakeNone {
		if err := e.hooks.Desktop(ctx, m); err != nil {
			e.log.Printf("desktop notification: %v", err) // it is in the inbox
		}
	}
	crash("elsewhere.told")
	return w.Over(e.root)
}

// tellAbove has the parent tell those who take part in its thread, and returns whom.
func (e *elsewhere) tellAbove(ctx context.Context, w notify.Wait, m notify.Message) (told map[string]bool, err error) {
	p, err := e.hooks.Parent()
	if err != nil || p == nil || !slices.ContainsFunc(append([]string{w.Member}, w.Wake...), p.Has) {
		return nil, err
	}
	args := link.JobEndArgs{
		Job: string(m.Job), In: w.Space, Text: m.In(p.Space + "/" + w.Space), State: string(m.State), ExitCode: m.ExitCode, Offset: m.Offset,
		Wake: w.Wake, Hops: w.Hops, After: w.After,
	}
	if p.Has(w.Member) {
		args.Starter = w.Member
	}
	res, err := e.actions.JobEndAbove(ctx, args)
	told = map[string]bool{}
	for name, t := range res.Items {
		told[name] = t.Item != ""
	}
	return told, err
}
