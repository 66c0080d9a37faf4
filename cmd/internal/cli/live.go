package cli

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"space-job/cmd/internal/api"
)

// live is one line at the bottom of a terminal, on stderr, that says how a job
// stands. A nil live says nothing.
type live struct {
	s *session

	mu     sync.Mutex
	text   string // what the line says
	drawn  bool
	fresh  bool // the cursor is at the start of a line
	closed bool
}

func newLive(s *session) *live { return &live{s: s, fresh: true} }

// follow keeps the line up to date until ctx is done or the line is closed.
// withOutput: the last line of the log is part of it.
func (l *live) follow(ctx context.Context, a *api.Actions, ids []string, withOutput bool) {
	var before time.Duration
	beforeOf := ""
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	left := ids
	for {
		var res api.StatusResult
		var err error
		for len(left) > 0 { // the first that still runs
			if res, err = a.Status(left[0]); err == nil && res.State == "running" {
				break
			}
			left = left[1:]
		}
		if len(left) == 0 {
			return
		}
		if beforeOf != left[0] {
			beforeOf = left[0]
			before, _ = a.Before(beforeOf)
		}
		text := liveText(&res, before, withOutput, time.Now())
		if n := len(ids); n > 1 {
			text = "(" + strconv.Itoa(n-len(left)+1) + " of " + strconv.Itoa(n) + ") " + text
		}
		if !l.set(text) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// liveText is the line: name, state, elapsed, how long the command took before,
// size of the log, its last line.
func liveText(r *api.StatusResult, before time.Duration, withOutput bool, now time.Time) string {
	text := string(r.Job) + " " + cut(oneLine(r.Line), 40) + " | " + string(r.State)
	if d, ok := r.Elapsed(now); ok {
		text += " " + api.FormatDuration(d.Truncate(time.Second))
	}
	if before > 0 {
		text += " (before: " + api.FormatDuration(before) + ")"
	}
	text += " | log " + api.FormatSize(r.LogBytes)
	if last := lastLine(r.Tail); withOutput && last != "" {
		text += " | " + last
	}
	return text
}

func lastLine(tail string) string {
	tail = strings.TrimRight(tail, "\n ")
	return strings.ReplaceAll(tail[strings.LastIndexByte(tail, '\n')+1:], "\t", " ")
}

// set shows another text. It reports false when the line is closed.
func (l *live) set(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
	l.draw()
	return !l.closed
}

// above runs f, which writes to the terminal, with the line out of the way. f
// says whether the cursor is at the start of a line after it.
func (l *live) above(f func() bool) {
	if l == nil {
		f()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	l.fresh = f()
	l.draw()
}

// atLineStart is for the f of above.
func (l *live) atLineStart() bool { return l == nil || l.fresh }

// close takes the line away for good.
func (l *live) close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	l.closed = true
}

func (l *live) draw() {
	if l.closed || !l.fresh || l.text == "" {
		return
	}
	l.s.talk("\r\x1b[K" + cut(oneLine(l.text), max(width(l.s.stderr)-1, 1)))
	l.drawn = true
}

func (l *live) erase() {
	if l.drawn {
		l.s.talk("\r\x1b[K")
		l.drawn = false
	}
}
