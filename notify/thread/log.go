package thread

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
)

// maxLine is the longest line that can be an entry: 8 KiB of text are at most 48
// KiB of JSON.
const maxLine = 256 << 10

// maxSeq is the largest seq that is taken for one.
const maxSeq = 1 << 53

// block is how much of the file is read at once.
const block = 16 << 10

// parseLine reads a line of the file, without its newline.
func parseLine(b []byte) (Entry, bool) {
	var e Entry
	if len(b) > maxLine || json.Unmarshal(b, &e) != nil || e.Seq <= 0 || e.Seq > maxSeq {
		return Entry{}, false
	}
	return e, true
}

// seqOf is the seq of a line. All of ours begin with it.
func seqOf(b []byte) (int64, bool) {
	if rest, ok := bytes.CutPrefix(b, []byte(`{"seq":`)); ok {
		if digits, _, ok := bytes.Cut(rest, []byte{','}); ok {
			if n, err := strconv.ParseInt(string(digits), 10, 64); err == nil && n > 0 && n <= maxSeq {
				return n, true
			}
		}
	}
	e, ok := parseLine(b)
	return e.Seq, ok
}

// line is a line of the file, without its newline. One that is longer than any
// entry has no bytes.
type line struct {
	at, next int64 // where it begins, and where the one after it does
	b        []byte
}

// forward reads whole lines from an offset on, which must be that of a line.
type forward struct {
	in *bufio.Reader
	at int64
}

func newForward(f *os.File, from, to int64) *forward {
	return &forward{bufio.NewReaderSize(io.NewSectionReader(f, from, max(to-from, 0)), block), from}
}

// next is the next line, or io.EOF. What does not end in a newline is no line
// yet. The bytes are valid until the next call.
func (r *forward) next() (line, error) {
	l := line{at: r.at, next: r.at}
	long := false
	for {
		b, err := r.in.ReadSlice('\n')
		l.next += int64(len(b))
		if err == nil && l.b == nil && !long {
			l.b = b[:len(b)-1]
			r.at = l.next
			return l, nil
		}
		if long = long || len(l.b)+len(b) > maxLine; !long {
			l.b = append(l.b, b...)
		}
		switch {
		case err == nil:
			if long {
				l.b = nil
			} else {
				l.b = l.b[:len(l.b)-1]
			}
			r.at = l.next
			return l, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line{at: r.at, next: l.next}, err
		}
	}
}

// backward reads whole lines from the end to the beginning.
type backward struct {
	f   *os.File
	at  int64  // where buf begins in the file
	buf []byte // not read yet: ends with a newline, or is empty
}

// newBackward starts at an offset that must be that of a line, or the end.
func newBackward(f *os.File, from int64) *backward { return &backward{f: f, at: from} }

// prev is the line before, or io.EOF.
func (r *backward) prev() (line, error) {
	end := r.at + int64(len(r.buf))
	if end == 0 {
		return line{}, io.EOF
	}
	long := false
	for {
		if len(r.buf) > 0 {
			if i := bytes.LastIndexByte(r.buf[:len(r.buf)-1], '\n'); i >= 0 || r.at == 0 {
				l := line{at: r.at + int64(i+1), next: end}
				if !long {
					l.b = r.buf[i+1 : len(r.buf)-1]
				}
				r.buf = r.buf[:i+1]
				return l, nil
			}
		}
		if len(r.buf) > maxLine { // of which one byte stands for the rest
			r.buf, long = r.buf[:1], true
		}
		n := min(max(int64(len(r.buf)), block), r.at)
		b := make([]byte, n, int(n)+len(r.buf))
		if _, err := r.f.ReadAt(b, r.at-n); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF // it was cut meanwhile
			}
			return line{}, err
		}
		r.buf = append(b, r.buf...)
		r.at -= n
	}
}

// wholeSize is where the last whole line of a file of this size ends.
func wholeSize(f *os.File, size int64) (int64, error) {
	buf := make([]byte, block)
	for end := size; end > 0; {
		b := buf[:min(int64(len(buf)), end)]
		if _, err := f.ReadAt(b, end-int64(len(b))); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			return end - int64(len(b)) + int64(i) + 1, nil
		}
		end -= int64(len(b))
	}
	return 0, nil
}
