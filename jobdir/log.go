package jobdir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"syscall"
	"time"
	"unicode/utf8"

	"space-job/jobdir/record"
)

// MaxRead is the most that one read of a log returns.
const MaxRead = 1 << 20

// LogRange is a piece of a log. Offsets count the bytes that the job wrote,
// those of the hole included.
type LogRange struct {
	Offset    int64        // of the first byte of Bytes; after the hole when the read began in one
	Next      int64        // where to read on
	Size      int64        // of the log, when it was read
	Bytes     []byte       // what was written there; never a byte of the hole
	Dropped   *record.Hole // what was skipped just before Bytes, else nil
	Truncated bool         // the read began past the end: somebody cut the log. Next is its size
	More      bool         // bytes after Next existed when it was read

	Unwritten *record.Unwritten // output that the log has no bytes of, as known after the read
}

// ReadLog reads at most max bytes from offset on, and at most MaxRead. It
// costs the same wherever in a log it reads. A log that is no regular file is
// refused with ErrNotRegular.
func (j *Job) ReadLog(offset, max int64) (LogRange, error) {
	l, err := j.openLog()
	if err != nil {
		return LogRange{}, err
	}
	defer l.close()
	r, _, err := l.read(offset, max)
	return r, err
}

// LogText is a piece of a log as text.
type LogText struct {
	Offset    int64
	Next      int64
	Size      int64
	Text      string // valid UTF-8
	Dropped   *record.Hole
	Truncated bool
	More      bool // another read would return something now
	Unwritten *record.Unwritten
}

// ReadText is ReadLog as valid UTF-8. A character that is cut by max or, while
// the job is running, by the end of the log is left for the next read; a max
// below the length of a character is taken as that length, so that no read
// stalls. Bytes that are no UTF-8 become U+FFFD, one each, and Next counts the
// raw ones.
func (j *Job) ReadText(offset, max int64, running bool) (LogText, error) {
	l, err := j.openLog()
	if err != nil {
		return LogText{}, err
	}
	defer l.close()
	r, cut, err := l.read(offset, max)
	if err != nil {
		return LogText{}, err
	}
	text, used := Text(r.Bytes, (r.More || running) && !cut)
	if used == 0 && len(r.Bytes) > 0 && r.More {
		// Less than a character was asked for.
		dropped := r.Dropped
		if r, cut, err = l.read(r.Offset, utf8.UTFMax); err != nil {
			return LogText{}, err
		}
		if r.Dropped == nil {
			r.Dropped = dropped
		}
		if utf8.FullRune(r.Bytes) {
			_, used = utf8.DecodeRune(r.Bytes)
			text, _ = Text(r.Bytes[:used], false)
			r.More = r.More || used < len(r.Bytes)
		} else {
			text, used = Text(r.Bytes, (r.More || running) && !cut)
		}
	}
	t := LogText{r.Offset, r.Next, r.Size, text, r.Dropped, r.Truncated, r.More, r.Unwritten}
	if used < len(r.Bytes) {
		t.Next = r.Offset + int64(used)
	}
	return t, nil
}

// TailOffset is where the last n bytes of the log begin, moved on to the start
// of a line when one begins soon after, else to that of a character.
func (j *Job) TailOffset(n int64) (int64, error) {
	l, err := j.openLog()
	if err != nil {
		return 0, err
	}
	defer l.close()
	end, _, err := l.read(0, 0)
	if err != nil || n >= end.Size {
		return 0, err
	}
	if n <= 0 {
		return end.Size, nil
	}
	// The byte before tells whether the first one starts a line.
	r, _, err := l.read(end.Size-n-1, min(n+1, 64<<10))
	if err != nil || r.Truncated {
		return r.Next, err
	}
	at := max(end.Size-n, r.Offset) // the hole may reach further
	if i := bytes.IndexByte(r.Bytes, '\n') + 1; i > 0 && r.Offset+int64(i) < end.Size {
		at = r.Offset + int64(i)
	} else if at > r.Offset {
		for i := 1; i < min(utf8.UTFMax, len(r.Bytes)) && !utf8.RuneStart(r.Bytes[i]); i++ {
			at++
		}
	}
	r, _, err = l.read(min(at, end.Size), 0)
	return r.Offset, err
}

// logFile is a log and its record of the hole, open.
type logFile struct {
	path    string
	fd      int
	dropped int                   // -1: there is none
	last    *record.DroppedRecord // as it was last read
	seq     uint64                // of which write
	known   bool                  // it has been read
}

func (j *Job) openLog() (*logFile, error) {
	d, err := j.open()
	if err != nil {
		return nil, err
	}
	defer d.close()
	l := &logFile{path: j.path(record.Log), dropped: -1}
	if l.fd, err = d.open(record.Log, syscall.O_RDONLY); err != nil {
		if err == syscall.ENOENT && !d.current() {
			return nil, ErrNotFound
		}
		return nil, &fs.PathError{Op: "read", Path: l.path, Err: err}
	}
	fd, err := d.open(record.Dropped, syscall.O_RDONLY)
	switch err {
	case nil:
		l.dropped = fd
	case syscall.ENOENT, ErrNotRegular:
	default:
		l.close()
		return nil, &fs.PathError{Op: "read", Path: j.path(record.Dropped), Err: err}
	}
	return l, nil
}

func (l *logFile) close() {
	_ = syscall.Close(l.fd)
	if l.dropped >= 0 {
		_ = syscall.Close(l.dropped)
	}
}

func (l *logFile) size() (int64, error) {
	var st syscall.Stat_t
	if err := syscall.Fstat(l.fd, &st); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: l.path, Err: err}
	}
	return st.Size, nil
}

func (l *logFile) hole() (*record.Hole, error) {
	if l.dropped < 0 {
		return nil, nil
	}
	switch r, seq, err := readDroppedSeq(l.dropped); {
	case err == nil:
		l.last, l.seq, l.known = r, seq, true
	case err != errTorn || !l.known:
		return nil, &fs.PathError{Op: "read", Path: path.Join(path.Dir(l.path), record.Dropped), Err: err}
	}
	if l.last == nil {
		return nil, nil
	}
	return l.last.Hole, nil
}

// unwritten is of the record that hole has read last.
func (l *logFile) unwritten() *record.Unwritten {
	if l.last == nil {
		return nil
	}
	return l.last.Unwritten
}

// overtaken bounds how often a read tries again because the hole has changed
// under it. The caller may always go on at Next.
const overtaken = 16

// read reads around the hole, which may grow meanwhile: the runner says so in
// dropped before it punches. Bytes that were read are therefore good unless
// dropped, read after them, covers them, or was written more than once or with
// less of a hole than before, as it is when somebody cuts the log: they may be of
// a hole that came and went. cut reports that Bytes end where the hole begins.
func (l *logFile) read(offset, max int64) (r LogRange, cut bool, err error) {
	if offset < 0 || max < 0 {
		return r, false, fmt.Errorf("read %s: offset %d, %d bytes: negative", l.path, offset, max)
	}
	max = min(max, MaxRead)
	r.Offset = offset
	for range overtaken {
		if r.Size, err = l.size(); err != nil {
			return r, false, err
		}
		hole, err := l.hole()
		if err != nil {
			return r, false, err
		}
		r.Unwritten = l.unwritten()
		if r.Offset > r.Size {
			// Cut from outside, perhaps inside what the hole covered.
			r.Offset, r.Next, r.Truncated = r.Size, r.Size, true
			return r, false, nil
		}
		r.skip(hole, offset)
		n := min(max, r.Size-r.Offset)
		if hole != nil && r.Offset < hole.From {
			n = min(n, hole.From-r.Offset)
		}
		if r.Bytes, err = l.bytes(r.Offset, n); err != nil {
			return r, false, err
		}
		before, seq := hole, l.seq
		if hole, err = l.hole(); err != nil {
			return r, false, err
		}
		r.Unwritten = l.unwritten()
		grown := hole != nil && (before == nil || hole.From <= before.From && hole.To >= before.To)
		if l.seq > seq+1 || l.seq != seq && !grown {
			r.Bytes = nil
			continue
		}
		read := r.Offset
		r.skip(hole, offset)
		if gone := r.Offset - read; gone > 0 {
			r.Bytes = r.Bytes[min(gone, int64(len(r.Bytes))):]
			if len(r.Bytes) == 0 && max > 0 {
				continue
			}
		}
		if hole != nil && r.Offset < hole.From && r.Offset+int64(len(r.Bytes)) >= hole.From {
			r.Bytes = r.Bytes[:hole.From-r.Offset]
			cut = true
		}
		break
	}
	r.Next = r.Offset + int64(len(r.Bytes))
	r.More = r.Next < r.Size
	return r, cut, nil
}

// skip moves the read out of the hole.
func (r *LogRange) skip(hole *record.Hole, from int64) {
	if hole == nil || r.Offset < hole.From || r.Offset >= hole.To {
		return
	}
	to := min(hole.To, max(r.Size, r.Offset))
	if to == r.Offset {
		return
	}
	r.Offset = to
	r.Dropped = &record.Hole{From: from, To: to}
}

// bytes reads n bytes, fewer where the log was cut meanwhile.
func (l *logFile) bytes(offset, n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b := make([]byte, n)
	for got := 0; ; {
		m, err := pread(l.fd, b[got:], offset+int64(got))
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: l.path, Err: err}
		}
		if got += m; m == 0 || got == len(b) {
			return b[:got], nil
		}
	}
}

// readDropped reads a dropped record, which the runner overwrites in place at
// a constant length. A read beside such a write can be half of each: its first
// field and its last then differ, and two reads in a row do too, unless the
// writer was stopped in the middle: errTorn, if that lasts. It returns nil where
// nothing was dropped.
func readDropped(fd int) (*record.DroppedRecord, error) {
	r, _, err := readDroppedSeq(fd)
	return r, err
}

// readDroppedSeq also returns which write of the record it is, 0 for none.
func readDroppedSeq(fd int) (*record.DroppedRecord, uint64, error) {
	var bufs [2][1024]byte
	var last []byte
	for i := range 20 {
		buf := bufs[i&1][:]
		n, err := pread(fd, buf, 0)
		if err != nil {
			return nil, 0, err
		}
		b := buf[:n]
		if record.IsBlank(b) {
			return nil, 0, nil
		}
		if last != nil && bytes.Equal(b, last) {
			if seq, torn := numberOf(b); !torn {
				return parseDropped(b), seq, nil
			}
			time.Sleep(time.Millisecond)
		}
		last = b
	}
	if seq, torn := numberOf(last); json.Valid(last) && !torn { // written all the time
		return parseDropped(last), seq, nil
	}
	return nil, 0, errTorn
}

var errTorn = errors.New("is half of one write and half of another")

// numberOf is which write of a dropped record this is, and whether it is of two.
func numberOf(b []byte) (seq uint64, torn bool) {
	var r struct {
		Seq    uint64 `json:"seq"`
		SeqEnd uint64 `json:"seq_end"`
	}
	err := json.Unmarshal(b, &r)
	return r.Seq, err == nil && r.Seq != r.SeqEnd
}

func parseDropped(b []byte) *record.DroppedRecord {
	var r record.DroppedRecord
	if json.Unmarshal(b, &r) != nil {
		return nil
	}
	r.Seq, r.SeqEnd = 0, 0
	if h := r.Hole; h != nil && (h.From < 0 || h.To <= h.From) {
		r.Hole = nil
	}
	if u := r.Unwritten; u != nil && u.Bytes < 0 { // 0: said before the first was discarded
		r.Unwritten = nil
	}
	if r == (record.DroppedRecord{}) {
		return nil
	}
	return &r
}
