package until

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"space-job/jobdir"
)

// Codes that a watch ends with, besides those of a job.
const (
	CodeHolds = 0
	CodeNot   = 1 // a check failed; a job ended without the line
	CodeNever = 2 // it can never succeed
	CodeNone  = 3 // no check is required
)

// End is how a watch ended.
type End struct {
	Code int    // 0: the condition holds
	What string // what was seen, in one line
}

// Watch waits until a condition that was resolved holds, or can never hold, or
// timeout is over, unless that is 0: the end is then what it is for a job that
// has timed out. It writes a few lines to log. Its error is that of ctx.
//
// It is for a process that does nothing else: every child that this has after a
// try of a command is taken for what the try left behind, and killed.
func Watch(ctx context.Context, root *jobdir.Root, c Condition, timeout time.Duration, log io.Writer) (End, error) {
	w := newWatcher(root, c, log)
	w.alone = true
	settle()
	if timeout <= 0 {
		return w.watch(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	end, err := w.watch(limited)
	if err == nil || ctx.Err() != nil {
		return end, err
	}
	end = End{jobdir.CodeTimedOut, "it has not come within " + timeout.String()}
	w.log.say(end.What)
	return end, nil
}

// watcher is one watch, and the times that it keeps.
type watcher struct {
	Condition
	root  *jobdir.Root
	log   notes
	alone bool // all children of this process are of tries

	filePoll    time.Duration // a file, under the events
	portSoon    time.Duration // between two tries, at first
	portSlow    time.Duration // ... and at most
	portTry     time.Duration
	lookup      func(context.Context, string) ([]string, error) // the addresses of a name
	commandSoon time.Duration
	commandSlow time.Duration
	stillRuns   time.Duration // a try that takes so long is worth a line
	killGrace   time.Duration // between TERM and KILL of a try that takes too long
	quiet       time.Duration // an unfinished line that stays so long is looked at
	checks      checkTimes
	gh          func() (string, error) // where gh is
	environ     func() []string        // of gh
}

func newWatcher(root *jobdir.Root, c Condition, log io.Writer) *watcher {
	w := &watcher{
		Condition: c, root: root, log: notes{w: log, now: time.Now},
		filePoll: time.Second,
		portSoon: 50 * time.Millisecond, portSlow: 500 * time.Millisecond, portTry: time.Second,
		lookup:      net.DefaultResolver.LookupHost,
		commandSoon: time.Second, commandSlow: 5 * time.Second,
		stillRuns: time.Minute, killGrace: time.Second,
		quiet:   time.Second,
		checks:  defaultCheckTimes,
		gh:      func() (string, error) { return find("gh") },
		environ: os.Environ,
	}
	if c.Interval > 0 {
		w.filePoll = min(c.Interval, w.filePoll)
		w.portSoon, w.portSlow = c.Interval, c.Interval
		w.commandSoon, w.commandSlow = c.Interval, c.Interval
		w.checks.soon, w.checks.slow = c.Interval, c.Interval
	}
	if c.TryTimeout > 0 {
		w.portTry, w.checks.try = c.TryTimeout, c.TryTimeout
	}
	return w
}

func (w *watcher) watch(ctx context.Context) (End, error) {
	w.log.say("waiting for " + w.String())
	var end End
	var err error
	switch w.kind() {
	case kindFile:
		end, err = w.file(ctx)
	case kindPort:
		end, err = w.port(ctx)
	case kindCommand:
		end, err = w.command(ctx)
	case kindPRChecks:
		end, err = w.pullRequest(ctx)
	case kindJob:
		end, err = w.job(ctx)
	case kindLog:
		end, err = w.line(ctx)
	default:
		return End{CodeNever, "no condition is given"}, nil
	}
	if err == nil {
		w.log.say(end.What)
	}
	return end, err
}

func never(format string, args ...any) (End, error) {
	return End{CodeNever, fmt.Sprintf(format, args...)}, nil
}

// notes is the log of a watch.
type notes struct {
	w    io.Writer
	now  func() time.Time
	last string    // the state of things as it was last said
	said int       // how many changes were
	at   time.Time // when the last was
	held int       // changes since then that were not said
}

const (
	allChanges = 20 // so many are said as they come
	changePace = time.Minute
)

// say writes a line.
func (n *notes) say(text string) {
	fmt.Fprintf(n.w, "%s %s\n", n.now().Format(time.RFC3339), text)
}

// see says how things stand, if that is not what was said last.
func (n *notes) see(state string) {
	if state == n.last {
		return
	}
	n.last = state
	now := n.now()
	if n.said >= allChanges && now.Sub(n.at) < changePace {
		n.held++
		return
	}
	if n.held > 0 {
		state += fmt.Sprintf(" (after %d changes that are not shown)", n.held)
	}
	n.said, n.at, n.held = n.said+1, now, 0
	n.say(state)
}

// pause waits for d, with one timer for all its calls.
type pause struct{ t *time.Timer }

func (p *pause) wait(ctx context.Context, d time.Duration) error {
	if p.t == nil {
		p.t = time.NewTimer(d)
	} else {
		p.t.Reset(d)
	}
	select {
	case <-ctx.Done():
		p.t.Stop()
		return ctx.Err()
	case <-p.t.C:
		return nil
	}
}
