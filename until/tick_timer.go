package until

import (
	"sync"
	"time"
)

// timerTicks are those of Go's own timers.
type timerTicks struct {
	t    *time.Ticker
	done chan struct{}
	once sync.Once
}

func newTimerTicks(d time.Duration) *timerTicks {
	return &timerTicks{t: time.NewTicker(d), done: make(chan struct{})}
}

func (t *timerTicks) each(do func()) {
	for {
		select {
		case <-t.done:
			return
		case <-t.t.C:
			do()
		}
	}
}

func (t *timerTicks) close() {
	t.once.Do(func() {
		t.t.Stop()
		close(t.done)
	})
}
