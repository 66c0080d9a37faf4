package notify

import (
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// watcher gathers what the kernel reports: of the outbox, of the wakes to be
// run, and of the ends of jobs. Reports are hints: what they name is looked at,
// and everything is looked at once in a while.
type watcher struct {
	events        *fsnotify.Watcher // nil: the kernel has no more to give
	outbox, wakes string
	hint          chan struct{} // something was reported since the last take
	drain         sync.WaitGroup

	mu   sync.Mutex
	seen sighting // guarded by mu
}

// sighting is what was reported.
type sighting struct {
	entries map[jobdir.ID]bool
	ended   map[jobdir.ID]bool
	wakes   bool
	all     bool // some reports were lost
}

func newWatcher(outbox, wakes string) *watcher {
	w := &watcher{outbox: outbox, wakes: wakes, hint: make(chan struct{}, 1)}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		return w
	}
	if events.Add(outbox) != nil || events.Add(wakes) != nil {
		_ = events.Close()
		return w
	}
	w.events = events
	w.drain.Go(w.run)
	return w
}

func (w *watcher) run() {
	for {
		select {
		case e, ok := <-w.events.Events:
			if !ok {
				return
			}
			if e.Op == fsnotify.Chmod {
				continue
			}
			w.mu.Lock()
			w.seen.add(w, e.Name)
			w.mu.Unlock()
		case _, ok := <-w.events.Errors: // the queue overflowed
			if !ok {
				return
			}
			w.mu.Lock()
			w.seen.all = true
			w.mu.Unlock()
		}
		select {
		case w.hint <- struct{}{}:
		default:
		}
	}
}

func (s *sighting) add(w *watcher, path string) {
	dir, name := filepath.Split(path)
	dir = filepath.Clean(dir)
	set := &s.ended
	switch {
	case dir == w.wakes:
		s.wakes = true
		return
	case dir == w.outbox:
		set = &s.entries
	case name == record.ReservedExit:
		name = filepath.Base(dir)
	}
	if id, ok := record.ParseID(name); ok {
		if *set == nil {
			*set = map[jobdir.ID]bool{}
		}
		(*set)[id] = true
	}
}

// take returns what was reported since the last call.
func (w *watcher) take() sighting {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seen
	w.seen = sighting{}
	return s
}

// follow watches for the end of a job: the reserved record is renamed when it
// comes. It reports false where the kernel will not say.
func (w *watcher) follow(j *jobdir.Job) bool {
	return w.events != nil && w.events.Add(filepath.Join(j.Dir(), record.ReservedExit)) == nil
}

// leave stops watching a job.
func (w *watcher) leave(j *jobdir.Job) {
	if w.events != nil {
		_ = w.events.Remove(filepath.Join(j.Dir(), record.ReservedExit)) // gone by itself in most cases
	}
}

// refresh watches the two directories again, should they have been replaced.
func (w *watcher) refresh() {
	if w.events != nil {
		_ = w.events.Add(w.outbox)
		_ = w.events.Add(w.wakes)
	}
}

func (w *watcher) close() {
	if w.events != nil {
		_ = w.events.Close()
		w.drain.Wait()
	}
}
