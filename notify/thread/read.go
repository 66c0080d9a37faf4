package thread

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"space-job/jobdir"
)

// Limits of a read.
const (
	DefaultRead = 50
	MaxRead     = 1000
)

// Range says which entries to read: those after one, those before one, or with
// neither the newest.
type Range struct {
	After  *int64
	Before *int64
	N      int // most; 0: DefaultRead
}

// Read is a piece of the thread, oldest first.
type Read struct {
	Entries       []Entry `json:"entries"`
	Cursor        int64   `json:"cursor"` // what comes next is after it
	HasMoreBefore bool    `json:"has_more_before"`
}

// Read reads entries. It costs what is read, however long the thread is.
func (t *Thread) Read(r Range) (Read, error) {
	res := Read{Entries: []Entry{}}
	for _, bound := range []struct {
		field string
		seq   *int64
	}{{"after", r.After}, {"before", r.Before}} {
		if bound.seq != nil && *bound.seq < 0 {
			return res, &InvalidError{bound.field, strconv.FormatInt(*bound.seq, 10), "is below zero"}
		}
	}
	switch {
	case r.After != nil && r.Before != nil:
		return res, &InvalidError{"before", strconv.FormatInt(*r.Before, 10), "is given beside an after: one of them"}
	case r.N < 0 || r.N > MaxRead:
		return res, &InvalidError{"n", strconv.Itoa(r.N), "is not within 1.." + strconv.Itoa(MaxRead)}
	case r.N == 0:
		r.N = DefaultRead
	}
	if r.After != nil {
		res.Cursor = *r.After
	}
	f, size, err := t.openLog()
	if f == nil || err != nil {
		return res, err
	}
	defer f.Close()
	if r.After != nil {
		return res, t.readAfter(&res, f, size, *r.After, r.N)
	}
	end := size
	if r.Before != nil {
		at, err := search(f, size, *r.Before, t.limit(size))
		if err != nil {
			return res, err
		}
		end = at.at
	}
	return res, t.readBefore(&res, f, end, r.N)
}

func (t *Thread) readAfter(res *Read, f *os.File, size, after int64, n int) error {
	from, err := search(f, size, after+1, t.limit(size))
	if err != nil {
		return err
	}
	res.HasMoreBefore = from.at > 0
	w := newWalk(f, from, size, t.limit(size))
	for len(res.Entries) < n {
		l, seq, err := w.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		e, ok := parseLine(l.b)
		switch {
		case !ok || seq == 0:
			t.warnLine(f, l)
		case seq > after:
			res.Entries = append(res.Entries, e)
			res.Cursor = seq
		}
	}
	return nil
}

func (t *Thread) readBefore(res *Read, f *os.File, end int64, n int) error {
	back := newBackward(f, end)
	for more := n; ; {
		from, err := before(back, more)
		if err != nil {
			return err
		}
		var entries []Entry
		var damaged, lines []line // lines are those of the entries
		for w := newWalk(f, from, end, t.limit(end)); ; {
			l, seq, err := w.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			if e, ok := parseLine(l.b); ok && seq > 0 {
				entries, lines = append(entries, e), append(lines, line{at: l.at})
			} else {
				damaged = append(damaged, line{at: l.at, next: l.next})
			}
		}
		if len(entries) < n && from.at > 0 { // some of them were out of their place
			more = n - len(entries)
			continue
		}
		var first int64
		if over := len(entries) - n; over >= 0 && n > 0 {
			entries, first = entries[over:], lines[over].at
		}
		for _, l := range damaged {
			if l.at >= first {
				t.warnLine(f, l)
			}
		}
		res.HasMoreBefore = first > 0
		if res.Entries = append(res.Entries, entries...); len(entries) > 0 {
			res.Cursor = entries[len(entries)-1].Seq
		}
		return nil
	}
}

func (t *Thread) warnLine(f *os.File, l line) {
	t.warn("%s: bytes %d to %d are no entry: passed over", f.Name(), l.at, l.next)
}

// Follow is Read that waits, until ctx is done, for the first entry that is
// there to be read: without a bound, for one that is posted after the call.
func (t *Thread) Follow(ctx context.Context, r Range) (Read, error) {
	if r.Before != nil {
		return Read{Entries: []Entry{}}, &InvalidError{"before", strconv.FormatInt(*r.Before, 10), "is in the past: there is nothing to wait for"}
	}
	w := t.watchLog()
	defer w.close()
	if r.After == nil {
		end, err := t.End()
		if err != nil {
			return Read{Entries: []Entry{}}, err
		}
		r.After = &end
	}
	for {
		res, err := t.Read(r)
		if err != nil || len(res.Entries) > 0 || w.wait(ctx) != nil {
			return res, err
		}
	}
}

// Follower reads the thread as it grows, for one caller at a time. It costs what is
// new: it keeps its watch, and knows where it has read to.
type Follower struct {
	t     *Thread
	watch *watch
	after int64
	place             // what comes after that
	file  os.FileInfo // in which that is the place, nil: it has to be looked for
}

// Follower reads what comes after an entry. It is closed in the end.
func (t *Thread) Follower(after int64) *Follower {
	return &Follower{t: t, watch: t.watchLog(), after: after}
}

// Next waits, until ctx is done, for entries, MaxRead at most, that come after
// those that it has returned.
func (f *Follower) Next(ctx context.Context) ([]Entry, error) {
	if f.watch.hints == nil { // the directory may be there by now
		f.watch.close()
		f.watch = f.t.watchLog()
	}
	for {
		entries, err := f.read()
		if err != nil || len(entries) > 0 {
			return entries, err
		}
		if f.watch.wait(ctx) != nil {
			f.watch.close() // another directory may be in its place
			f.watch = f.t.watchLog()
			return f.read()
		}
	}
}

// Close frees what it holds.
func (f *Follower) Close() { f.watch.close() }

func (f *Follower) read() ([]Entry, error) {
	log, err := openRegular(f.t.path(threadDir, logName), os.O_RDONLY)
	if missing(err) || errors.Is(err, errNotRegular) { // no entry yet, or none any more
		f.file = nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, err
	}
	if f.file != nil && os.SameFile(f.file, info) && f.at <= info.Size() {
		entries, ok, err := f.from(log, info.Size(), true)
		if ok || err != nil {
			return entries, err
		}
	}
	whole, err := wholeSize(log, info.Size())
	if err == nil {
		f.place, err = search(log, whole, f.after+1, f.t.limit(whole))
	}
	if err != nil {
		return nil, err
	}
	f.file = info
	entries, _, err := f.from(log, whole, false)
	return entries, err
}

// from reads from where it is in a file of that size. With next it is to begin with
// the very next entry, or with none yet, and reports whether it does: the file may
// have been cut and have grown again.
func (f *Follower) from(log *os.File, size int64, next bool) (entries []Entry, ok bool, err error) {
	w := newWalk(log, f.place, size, f.t.limit(size))
	for len(entries) < MaxRead {
		l, seq, err := w.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return entries, false, err
		}
		if next && seq != f.last+1 {
			return nil, false, nil
		}
		next = false
		e, ok := parseLine(l.b)
		switch {
		case !ok || seq == 0:
			f.t.warnLine(log, l)
		case seq > f.after:
			entries = append(entries, e)
			f.after = seq
		}
		f.place = w.place
	}
	return entries, true, nil
}

// How long a watch waits without a word from the kernel.
const (
	slowPoll  = 500 * time.Millisecond
	blindPoll = 20 * time.Millisecond
)

// watch waits for changes below a directory. Where the kernel has no more
// watches to give, or the directory is not there, it polls.
type watch struct {
	dir   string        // what the hints are of
	path  string        // what is looked at
	hints *jobdir.Hints // nil: there are none
	grows bool          // path is a file that grows with whatever is waited for: other hints are of its neighbours
	seen  [2]int64
}

// newWatch starts to watch: a change after it returns is not missed by the next
// wait.
func newWatch(dir, path string) *watch {
	w := &watch{dir: dir, path: path}
	w.seen = w.glance()
	w.hints = jobdir.NewHints(dir)
	return w
}

// watchLog watches for entries.
func (t *Thread) watchLog() *watch {
	w := newWatch(t.path(threadDir), t.path(threadDir, logName))
	w.grows = true
	return w
}

// began is what the times are counted from at which watches look by themselves: all
// those of a process look at once, and wake it once.
var began = time.Now()

// untilLook is how long it is until the next of these times.
func untilLook(every time.Duration) time.Duration { return every - time.Since(began)%every }

func (w *watch) glance() [2]int64 {
	info, err := os.Lstat(w.path)
	if err != nil {
		return [2]int64{-1, 0}
	}
	return [2]int64{info.Size(), info.ModTime().UnixNano()}
}

// wait returns nil when something may have changed.
func (w *watch) wait(ctx context.Context) error {
	poll := blindPoll
	var hint <-chan struct{}
	if w.hints != nil {
		poll, hint = slowPoll, w.hints.C
	}
	tick := time.NewTimer(untilLook(poll))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hint:
			if !w.grows {
				return nil
			}
		case <-tick.C:
			tick.Reset(untilLook(poll))
		}
		if now := w.glance(); now != w.seen {
			w.seen = now
			return nil
		}
	}
}

func (w *watch) close() {
	if w.hints != nil {
		_ = w.hints.Close()
	}
}
