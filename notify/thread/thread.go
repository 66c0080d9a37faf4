package thread

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// Directories of the root, and the files of the first.
const (
	threadDir  = "thread"
	membersDir = "members"
	inboxDir   = "inbox"

	logName     = "log"
	lockName    = "lock"
	stateName   = "state"
	claimsName  = "claims"
	wakesName   = "wakes"
	damagedName = "damaged"
)

// Thread is the thread of a root, with its members and inboxes. Its methods may
// be called from several goroutines.
type Thread struct {
	// Warn is told what was found damaged, and where: one line, without a
	// newline. It may be nil. It is set before the first call.
	Warn func(line string)

	root *jobdir.Root
	now  func() time.Time
	keys *keyCache
	line *queue
}

// Open is the thread of a root. It does no I/O: directories are made when
// something is first written.
func Open(root *jobdir.Root) *Thread {
	return &Thread{root: root, now: time.Now, keys: new(keyCache), line: new(queue)}
}

// Again is the same thread with a Warn of its own. The two share what they
// remember of it, so that a process that lives on reads no key twice, and what is
// posted at once is written at once.
func (t *Thread) Again() *Thread {
	return &Thread{root: t.root, now: t.now, keys: t.keys, line: t.line}
}

func (t *Thread) path(elem ...string) string {
	return filepath.Join(append([]string{t.root.Path()}, elem...)...)
}

func (t *Thread) warn(format string, args ...any) {
	if t.Warn != nil {
		t.Warn(fmt.Sprintf(format, args...))
	}
}

// End is the seq of the newest entry, 0 while there is none.
func (t *Thread) End() (int64, error) {
	f, size, err := t.openLog()
	if f == nil || err != nil {
		return 0, err
	}
	defer f.Close()
	seq, _, err := lastSeq(f, size, t.limit(size))
	return seq, err
}

// openLog opens the file for reading. There is no file, and no error, before
// the first entry. The size is that of the whole lines.
func (t *Thread) openLog() (f *os.File, size int64, err error) {
	f, err = openRegular(t.path(threadDir, logName), os.O_RDONLY)
	if missing(err) {
		return nil, 0, nil
	}
	if errors.Is(err, errNotRegular) {
		t.warn("%v: the thread begins anew with the next post", err)
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil {
		size, err = wholeSize(f, info.Size())
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, size, nil
}

// lastSeq is the seq of the last line. A line that is damaged has one, too: what
// comes after it is above all that anybody has seen.
func lastSeq(f *os.File, size int64, limit func() int64) (seq int64, damaged []line, err error) {
	from, err := before(newBackward(f, size), 0)
	if err != nil {
		return 0, nil, err
	}
	for w := newWalk(f, from, size, limit); ; {
		l, seq, err := w.next()
		switch {
		case err == io.EOF:
			return w.last, damaged, nil
		case err != nil:
			return 0, nil, err
		case seq > 0:
			damaged = damaged[:0]
		default:
			damaged = append(damaged, line{at: l.at, next: l.next})
		}
	}
}

// anySeq is the limit of a thread of which nothing else is known: others can still
// follow it.
func anySeq() int64 { return maxSeq / 2 }

// limit is how high the seq of the last line in a file of this size can be.
func (t *Thread) limit(size int64) func() int64 {
	return func() int64 {
		b, err := readSmall(t.path(threadDir, stateName))
		if s, ok := parseState(b); ok && err == nil {
			if s.Offset < size {
				return s.Seq + 1
			}
			return s.Seq
		}
		return anySeq()
	}
}

// state is how far the thread has been worked through: every mention up to Seq
// has become an item, and every claim is known.
type state struct {
	Seq    int64 `json:"seq"`
	Offset int64 `json:"offset"` // where that entry ends
}

// writer is the thread, locked. Closing it unlocks it.
type writer struct {
	t    *Thread
	dir  string
	lock *os.File
	log  *os.File
	st   *os.File
	state
	unsure error // why it is not known that the disk has what was appended
}

// open takes the lock of the thread and brings up to date what a process that
// was killed has left undone.
func (t *Thread) open() (*writer, error) {
	dir, err := t.root.MakeDir(threadDir)
	if err != nil {
		return nil, err
	}
	w := &writer{t: t, dir: dir}
	if w.lock, err = openRegular(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE); err != nil {
		return nil, err
	}
	if err = record.LockWait(int(w.lock.Fd())); err != nil {
		err = &fs.PathError{Op: "lock", Path: w.lock.Name(), Err: err}
	}
	if err == nil {
		w.st, err = t.openFile(filepath.Join(dir, stateName), os.O_RDWR|os.O_CREATE)
	}
	if err == nil {
		err = w.openLog()
	}
	if err == nil {
		err = w.catchUp()
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// limit is the seq of the last line, as the thread has been caught up with.
func (w *writer) limit() int64 { return w.Seq }

func (w *writer) close() {
	for _, f := range []*os.File{w.log, w.st, w.lock} {
		if f != nil {
			f.Close()
		}
	}
}

// openLog opens the file for appending. What is no file is set aside.
func (w *writer) openLog() (err error) {
	w.log, err = w.t.openFile(filepath.Join(w.dir, logName), os.O_RDWR|os.O_APPEND|os.O_CREATE)
	return err
}

// catchUp repairs the end of the file, and works through what was appended and
// not worked through.
func (w *writer) catchUp() error {
	info, err := w.log.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	known := w.readState()
	if known && w.Offset == size {
		return nil
	}
	whole, err := wholeSize(w.log, size)
	if err != nil {
		return err
	}
	if whole < size {
		if err := w.cutTorn(whole, size); err != nil {
			return err
		}
		if known && w.Offset == whole {
			return nil
		}
	}
	limit := anySeq
	if known { // behind by a few lines at most, none of which is as short as that
		const shortest = 16
		limit = func() int64 { return w.Seq + max(whole-w.Offset, 0)/shortest + 1 }
	}
	last, damaged, err := lastSeq(w.log, whole, limit)
	if err != nil {
		return err
	}
	for _, l := range damaged {
		w.t.warn("%s: bytes %d to %d are no entry: passed over", w.log.Name(), l.at, l.next)
	}
	switch {
	case !known:
		if w.state, err = w.recent(whole); err != nil {
			return err
		}
	case w.Offset > whole || last < w.Seq: // cut from outside
		last = max(last, w.Seq)
		w.t.warn("%s was cut to %d bytes: the thread goes on after entry %d", w.log.Name(), whole, last)
		return w.setState(state{last, whole})
	}
	r := newWalk(w.log, place{w.Offset, w.Seq, w.Seq}, whole, limit)
	for {
		l, seq, err := r.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if e, ok := parseLine(l.b); ok && seq > 0 {
			if _, _, err := w.workThrough(&e); err != nil {
				return err
			}
			w.state = state{e.Seq, l.next}
		}
	}
	return w.setState(state{last, whole})
}

// recent is where the entries begin whose items may be missing when it is not
// known how far they were written: items that were answered are kept for longer.
func (w *writer) recent(size int64) (state, error) {
	oldest := w.t.now().Add(-redeliver).UnixMilli()
	r := newBackward(w.log, size)
	for at := size; ; {
		l, err := r.prev()
		if err == io.EOF {
			return state{0, at}, nil
		}
		if err != nil {
			return state{}, err
		}
		if e, ok := parseLine(l.b); ok && e.AtMS < oldest {
			return state{e.Seq, at}, nil
		}
		at = l.at
	}
}

// cutTorn sets aside what a killed poster left of a line.
func (w *writer) cutTorn(whole, size int64) error {
	torn := make([]byte, min(size-whole, maxLine))
	if _, err := w.log.ReadAt(torn, whole); err != nil {
		return err
	}
	if len(bytes.Trim(torn, "\x00 \n")) > 0 {
		note := struct {
			At     time.Time `json:"at"`
			File   string    `json:"file"`
			Offset int64     `json:"offset"`
			Text   string    `json:"text"`
		}{w.t.now().UTC(), w.log.Name(), whole, string(torn)}
		f, err := w.t.openFile(filepath.Join(w.dir, damagedName), os.O_WRONLY|os.O_APPEND|os.O_CREATE)
		if err == nil {
			_, err = f.Write(jobdir.Line(note))
			f.Close()
		}
		if err != nil {
			return err
		}
	}
	if err := w.log.Truncate(whole); err != nil {
		return err
	}
	w.t.warn("%s: a line was torn at byte %d: set aside in %s", w.log.Name(), whole, filepath.Join(w.dir, damagedName))
	return nil
}

func (w *writer) readState() bool {
	var b [256]byte
	n, err := w.st.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return false
	}
	s, ok := parseState(b[:n])
	if ok {
		w.state = s
	}
	return ok
}

func parseState(b []byte) (s state, ok bool) {
	ok = len(b) > 0 && json.Unmarshal(b, &s) == nil && s.Seq >= 0 && s.Seq <= maxSeq && s.Offset >= 0
	return s, ok
}

// setState is one write in place, and not synced: a state that is behind only
// means that entries are worked through again, which changes nothing.
func (w *writer) setState(s state) error {
	if err := record.Write(int(w.st.Fd()), jobdir.Line(s)); err != nil {
		var p *fs.PathError
		if errors.As(err, &p) {
			p.Path = w.st.Name()
		}
		return err
	}
	w.state = s
	crash("post.done")
	return nil
}

// append adds entries, and syncs. Their seq is given here. It returns how many of
// them are in the thread, and why the others are not.
//
// A whole line is an entry from the moment on that it is in the file: somebody may
// have read it. So what was written stays, and keeps its number, when there was
// no room for what came behind it, and when the disk fails to confirm it, which is
// said to its posters.
func (w *writer) append(entries ...*Entry) (posted int, err error) {
	w.unsure = nil
	var b []byte
	ends := make([]int, len(entries)) // in b
	for i, e := range entries {
		e.Seq = w.Seq + 1 + int64(i)
		b = append(b, jobdir.Line(e)...)
		ends[i] = len(b)
	}
	first := w.Offset == 0 // the file may be new, and so may its directory
	n, err := w.log.Write(b)
	for posted < len(ends) && ends[posted] <= n {
		posted++
	}
	whole := 0
	if posted > 0 {
		whole = ends[posted-1]
		w.Seq = entries[posted-1].Seq
		w.Offset += int64(whole)
	}
	if n > whole {
		_ = w.log.Truncate(w.Offset)
	}
	if posted == 0 {
		return 0, err
	}
	crash("post.appended")
	unsure := syncFile(w.log)
	if unsure == nil && first {
		if unsure = jobdir.SyncDir(w.dir); unsure == nil {
			unsure = jobdir.SyncDir(w.t.root.Path() + "/")
		}
	}
	if unsure != nil {
		w.unsure = fmt.Errorf("the disk has not confirmed it, and may lose it when the power fails: %w", unsure)
		return posted, err
	}
	crash("post.synced")
	return posted, err
}
