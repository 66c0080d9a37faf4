package thread

import (
	"encoding/json"
	"slices"
	"time"

	"space-job/jobdir"
)

// Limits of what agents may do to one another.
const (
	MaxHops    = 3  // agent to agent hops from what a person wrote
	MaxWakes   = 20 // agent to agent wakes of a Space in any window
	WakeWindow = 60 * time.Second
)

// What a wake was stopped by.
const (
	LimitHops = "hops" // it stays so: what a person writes starts at 0 again
	LimitRate = "rate" // it is over after a while
)

// mention is all that the rule looks at.
type mention struct {
	from, to string // kinds of the author and of who is mentioned
	hops     int    // of the post, without this mention: see baseHops
	recent   []time.Time
	now      time.Time
}

// verdict is what the rule says.
type verdict struct {
	hops       int  // of the item
	wake       bool // whether it may wake
	limit      string
	retryAfter time.Duration
}

// rule decides whether a mention may wake. It is the only place that does.
func rule(m mention) verdict {
	switch {
	case m.from != Agent: // a person starts at 0, and is never limited
		return verdict{wake: true}
	case m.to != Agent:
		return verdict{hops: m.hops, wake: true}
	}
	v := verdict{hops: m.hops + 1}
	if v.hops > MaxHops {
		v.limit = LimitHops
		return v
	}
	within := make([]time.Time, 0, len(m.recent))
	for _, at := range m.recent {
		if inWindow(at, m.now) {
			within = append(within, at)
		}
	}
	if len(within) >= MaxWakes {
		slices.SortFunc(within, time.Time.Compare)
		// That many must have left the window before there is room for one.
		v.limit, v.retryAfter = LimitRate, within[len(within)-MaxWakes].Add(WakeWindow).Sub(m.now)
		return v
	}
	v.wake = true
	return v
}

// inWindow: a wake that is in the future (the clock was set back) counts no more.
func inWindow(at, now time.Time) bool { return !at.After(now) && now.Sub(at) < WakeWindow }

// baseHops are the hops of what somebody posts: those of the newest item that
// its author has taken and not answered; with none, of the entry that it replies
// to; with neither, 0. -1 is none. A person starts at 0.
func baseHops(kind string, taken, reply int) int {
	switch {
	case kind != Agent:
		return 0
	case taken >= 0:
		return taken
	}
	return max(reply, 0)
}

// wakeRecord is one agent to agent wake.
type wakeRecord struct {
	AtMS int64  `json:"at_ms"`
	Item string `json:"item"` // <member>/<item>: it counts once
}

// recentWakes are the agent to agent wakes that still count. A file that cannot
// be read has none.
func (w *writer) recentWakes(now time.Time) []wakeRecord {
	var all []wakeRecord
	b, err := readSmall(w.t.path(threadDir, wakesName))
	if err != nil {
		return nil
	}
	if json.Unmarshal(b, &all) != nil {
		w.t.warn("%s is damaged: the wakes of the last minute are not known", w.t.path(threadDir, wakesName))
		return nil
	}
	return slices.DeleteFunc(all, func(r wakeRecord) bool { return !inWindow(time.UnixMilli(r.AtMS), now) })
}

// decide asks the rule about one mention, and counts the wake that it allows.
func (w *writer) decide(from, to string, hops int, item string) (verdict, error) {
	now := w.t.now()
	m := mention{from: from, to: to, hops: hops, now: now}
	if from != Agent || to != Agent {
		return rule(m), nil
	}
	records := w.recentWakes(now)
	counted := false
	for _, r := range records {
		if r.Item == item { // by a process that was killed before the item was there
			counted = true
		} else {
			m.recent = append(m.recent, time.UnixMilli(r.AtMS))
		}
	}
	v := rule(m)
	if !v.wake || counted {
		return v, nil
	}
	records = append(records, wakeRecord{now.UnixMilli(), item})
	path := w.t.path(threadDir, wakesName)
	err := w.t.clear(path)
	if err == nil {
		err = jobdir.ReplaceFile(path, jobdir.Line(records), false)
	}
	crash("wake.counted")
	return v, err
}
