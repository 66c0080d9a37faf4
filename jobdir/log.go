package jobdir

import "space-job/jobdir/record"

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
}

// ReadLog reads at most max bytes from offset on. It costs the same wherever
// in a log it reads. A log that is no regular file is refused.
func (j *Job) ReadLog(offset, max int64) (LogRange, error) { panic("TODO") }

// TailOffset is where the last n bytes of the log begin, moved on to the start
// of a line when one begins there.
func (j *Job) TailOffset(n int64) (int64, error) { panic("TODO") }

// LogText is a piece of a log as text.
type LogText struct {
	Offset    int64
	Next      int64
	Size      int64
	Text      string // valid UTF-8
	Dropped   *record.Hole
	Truncated bool
	More      bool // another read would return something now
}

// ReadText is ReadLog as valid UTF-8. A character that is cut by max or, while
// the job is running, by the end of the log is left for the next read; a max
// below the length of a character is taken as that length, so that no read
// stalls. Bytes that are no UTF-8 become U+FFFD, one each, and Next counts the
// raw ones.
func (j *Job) ReadText(offset, max int64, running bool) (LogText, error) { panic("TODO") }
