package jobdir

import (
	"path/filepath"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Hints is what the kernel reports of a path, brought down to one word: that
// something may have changed. A hint can be lost, so whoever waits for one also
// looks every so often.
//
// All Hints of a process share one source: the kernel gives few to each user, and
// a server watches hundreds of jobs.
type Hints struct {
	C <-chan struct{} // holds at most one hint: something was reported since the last receive

	c    chan struct{}
	path string
	from *source
}

// source is an open queue of events, and who is told of them.
type source struct {
	events *fsnotify.Watcher
	drain  sync.WaitGroup

	mu    sync.Mutex // never held while the kernel is asked for something
	hints []*Hints
}

// shared is the source that is open, if there is one.
var shared struct {
	mu sync.Mutex // held while paths are added and removed
	*source
}

// NewHints watches a file, or the entries of a directory. It returns nil where
// the path is not there, or the kernel has no more watches to give.
func NewHints(path string) *Hints {
	path = filepath.Clean(path)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.source == nil {
		events, err := fsnotify.NewWatcher()
		if err != nil {
			return nil
		}
		shared.source = &source{events: events}
		shared.drain.Go(shared.source.run)
	}
	c := make(chan struct{}, 1)
	h := &Hints{C: c, c: c, path: path, from: shared.source}
	h.from.mu.Lock()
	h.from.hints = append(h.from.hints, h)
	h.from.mu.Unlock()
	if h.from.events.Add(path) != nil { // also where it is watched: it can be another file by now
		_ = h.leave()
		return nil
	}
	return h
}

// run passes on what is reported. There can be more than a reader has use for:
// the queue is never left waiting.
func (s *source) run() {
	for {
		select {
		case e, ok := <-s.events.Events:
			if !ok {
				return
			}
			name := filepath.Clean(e.Name)
			s.tell(func(h *Hints) bool { return h.path == name || h.path == filepath.Dir(name) })
		case _, ok := <-s.events.Errors: // the queue overflowed: something changed
			if !ok {
				return
			}
			s.tell(func(*Hints) bool { return true })
		}
	}
}

func (s *source) tell(concerns func(*Hints) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hints {
		if !concerns(h) {
			continue
		}
		select {
		case h.c <- struct{}{}:
		default:
		}
	}
}

// Close frees everything. It may be called twice.
func (h *Hints) Close() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	return h.leave()
}

// leave is Close, with the lock held.
func (h *Hints) leave() error {
	s := h.from
	s.mu.Lock()
	i := slices.Index(s.hints, h)
	if i < 0 {
		s.mu.Unlock()
		return nil
	}
	s.hints = slices.Delete(s.hints, i, i+1)
	last := len(s.hints) == 0
	others := slices.ContainsFunc(s.hints, func(o *Hints) bool { return o.path == h.path })
	s.mu.Unlock()
	if last {
		shared.source = nil
		err := s.events.Close()
		s.drain.Wait()
		return err
	}
	if !others {
		_ = s.events.Remove(h.path) // it is gone by itself where the path is
	}
	return nil
}
