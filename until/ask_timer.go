package until

import (
	"syscall"
	"time"
)

// timerAsker asks whenever a timer of Go's has run out.
type timerAsker struct {
	questions []*question
	t         *time.Ticker
	done      chan struct{}
	more      int // ticks until it returns anyway
	rounds    int
}

func newTimerAsker(pace time.Duration, questions []*question) *timerAsker {
	rounds := int(max(anyway/pace, 1))
	return &timerAsker{questions: questions, t: time.NewTicker(pace), done: make(chan struct{}), more: rounds, rounds: rounds}
}

func (a *timerAsker) wait() (int, syscall.Errno, bool) {
	for {
		select {
		case <-a.done:
			return 0, 0, false
		case <-a.t.C:
		}
		for i, q := range a.questions {
			if errno := q.do(); errno != syscall.Errno(q.usual.Load()) {
				return i, errno, true
			}
		}
		if a.more--; a.more <= 0 {
			a.more = a.rounds
			return -1, 0, true
		}
	}
}

func (a *timerAsker) stop()  { close(a.done) }
func (a *timerAsker) close() { a.t.Stop() }
