package thread

import (
	"io"
	"os"
)

// The entries of a thread have the numbers 1, 2, 3, ... in that order. A line whose
// number has been damaged is an entry to look at, and would lead astray whoever
// goes by it: a reader would take it for how far it has read. So a line is an
// entry only in its place: behind the one before, or, where there is a gap (lines
// were lost), with the next going on from it.

// place is a place between two lines.
type place struct {
	at   int64 // where the next line begins
	last int64 // the seq of the line before: what is no entry is presumed to have had the next
	sure int64 // the seq of the last entry before
}

// walk reads lines in order and tells which are entries in their place.
type walk struct {
	place
	r     *forward
	limit func() int64 // how high the seq of the last line can be: asked for where there is a gap before it
	ahead line         // the line after, a copy
	err   error        // why there is none
	begun bool
}

// newWalk walks from a place up to an offset.
func newWalk(f *os.File, from place, to int64, limit func() int64) *walk {
	return &walk{place: from, r: newForward(f, from.at, to), limit: limit}
}

func (w *walk) read() {
	l, err := w.r.next()
	l.b = append([]byte(nil), l.b...)
	w.ahead, w.err = l, err
}

// next is the next line and its seq, which is 0 if it is no entry in its place.
// The place is behind it then.
func (w *walk) next() (l line, seq int64, err error) {
	if !w.begun {
		w.begun = true
		w.read()
	}
	if w.err != nil {
		return line{}, 0, w.err
	}
	l = w.ahead
	seq, _ = seqOf(l.b)
	w.read()
	switch {
	case seq == 0:
	case seq == w.last+1:
	case seq > w.sure && w.err == nil && follows(w.ahead.b, seq):
	case seq > w.sure && w.err == io.EOF && seq <= w.limit():
	default:
		seq = 0
	}
	w.at = l.next
	if w.last++; seq > 0 {
		w.last, w.sure = seq, seq
	}
	return l, seq, nil
}

// follows reports whether a line is the entry after one.
func follows(b []byte, seq int64) bool {
	n, ok := seqOf(b)
	return ok && n == seq+1
}

// search is the place before the first line of at least this seq, also if it is
// the one that it is presumed to have had; the end, if there is none. It is a
// binary search, as seqs rise, which goes by pairs of lines alone that follow one
// another.
func search(f *os.File, size, seq int64, limit func() int64) (place, error) {
	var from place
	for high := size; from.at < high; {
		mid := from.at + (high-from.at)/2
		l, n, err := pair(f, mid, size)
		switch {
		case err == io.EOF || err == nil && l.at >= high:
			high = mid
		case err != nil:
			return place{}, err
		case n >= seq || n <= from.sure:
			high = mid
		default:
			from = place{l.next, n, n}
		}
	}
	for w := newWalk(f, from, size, limit); ; {
		before := w.place
		_, n, err := w.next()
		if err == io.EOF {
			return before, nil
		}
		if err != nil {
			return place{}, err
		}
		if max(n, w.last) >= seq {
			return before, nil
		}
	}
}

// before is a place before an offset with so many lines behind it that look like
// entries, and where seqs are certain: at a pair, or at the beginning.
func before(r *backward, lines int) (place, error) {
	var next line
	var after int64
	for n := 0; ; {
		l, err := r.prev()
		if err == io.EOF {
			return place{}, nil
		}
		if err != nil {
			return place{}, err
		}
		seq, ok := seqOf(l.b)
		if ok {
			n++
		}
		if n > lines && seq > 0 && seq+1 == after && l.next == next.at {
			return place{l.at, seq - 1, seq - 1}, nil
		}
		next, after = line{at: l.at}, seq
	}
}

// pair is the first line that begins at an offset or after it and that the next
// one follows, or io.EOF.
func pair(f *os.File, from, size int64) (l line, seq int64, err error) {
	r := newForward(f, from, size)
	if from > 0 { // is it the beginning of a line?
		r = newForward(f, from-1, size)
		if _, err := r.next(); err != nil {
			return line{}, 0, err
		}
	}
	for {
		next, err := r.next()
		if err != nil {
			return line{}, 0, err
		}
		n, _ := seqOf(next.b)
		if seq > 0 && n == seq+1 {
			return l, seq, nil
		}
		l, seq = line{at: next.at, next: next.next}, n
	}
}
