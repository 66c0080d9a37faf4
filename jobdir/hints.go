package jobdir

import (
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Hints is what the kernel reports of a path, brought down to one word: that
// something may have changed. A hint can be lost, so whoever waits for one also
// looks every so often.
type Hints struct {
	C <-chan struct{} // holds at most one hint: something was reported since the last receive

	events *fsnotify.Watcher
	drain  sync.WaitGroup
}

// NewHints watches a file, or the entries of a directory. It returns nil where
// the path is not there, or the kernel has no more watches to give.
func NewHints(path string) *Hints {
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	if events.Add(path) != nil {
		_ = events.Close()
		return nil
	}
	c := make(chan struct{}, 1)
	h := &Hints{C: c, events: events}
	// There can be more events than a reader has use for: fsnotify is never left
	// waiting.
	h.drain.Go(func() {
		for {
			var ok bool
			select {
			case _, ok = <-events.Events:
			case _, ok = <-events.Errors: // the queue overflowed: something changed
			}
			if !ok {
				return
			}
			select {
			case c <- struct{}{}:
			default:
			}
		}
	})
	return h
}

// Close frees everything. It may be called twice.
func (h *Hints) Close() error {
	err := h.events.Close()
	h.drain.Wait()
	return err
}
