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
		which := ""
		if n := len(ids); n > 1 {
			which = "(" + strconv.Itoa(n-len(left)+1) + " of " + strconv.Itoa(n) + ") "
		}
		text := liveText(&res, which, before, withOutput, time.Now(), l.columns())
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
// size of the log, its last line. It fits into so many columns: where they are
// few, the last line and the name are shortened, and then one part after the
// other is left out; id, state and elapsed stay to the end.
func liveText(r *api.StatusResult, which string, before time.Duration, withOutput bool, now time.Time, columns int) string {
	state := " | " + string(r.State)
	if d, ok := r.Elapsed(now); ok {
		state += " " + liveDuration(d)
	}
	left := columns - len(r.Job) - len(state)
	fit := func(part string) string {
		if len(part) > left {
			return ""
		}
		left -= len(part)
		return part
	}
	log := fit(" | log " + api.FormatSize(r.LogBytes))
	which = fit(which)
	took := ""
	if before > 0 {
		took = fit(" (before: " + api.FormatDuration(before) + ")")
	}
	const least = 8 // of a name or a line: less says nothing
	name, last := "", lastLine(r.Tail)
	room := min(left-1, 40)
	if withOutput && last != "" {
		room = min(room, max(left/2, 20))
	} else {
		last = ""
	}
	if name = oneLine(r.Line); room >= least || columnsOf(name) <= room {
		name = " " + strings.TrimRight(cut(name, room), " ")
		left -= columnsOf(name)
	} else {
		name = ""
	}
	if left -= len(" | "); last != "" && left >= least {
		last = " | " + cut(last, left)
	} else {
		last = ""
	}
	return which + string(r.Job) + name + state + took + log + last
}

// liveDuration has no parts of a second: it is shown twice in one.
func liveDuration(d time.Duration) string {
	if d < time.Minute {
		return strconv.Itoa(int(d/time.Second)) + "s"
	}
	return api.FormatDuration(d)
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

// columns are those that the line may fill.
func (l *live) columns() int { return max(api.Columns(l.s.stderr)-1, 1) }

func (l *live) draw() {
	if l.closed || !l.fresh || l.text == "" {
		return
	}
	l.s.talk("\r\x1b[K" + cut(oneLine(l.text), l.columns()))
	l.drawn = true
}

func (l *live) erase() {
	if l.drawn {
		l.s.talk("\r\x1b[K")
		l.drawn = false
	}
}
