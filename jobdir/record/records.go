package record

import (
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// TimeFormat is how records write an instant: RFC 3339 in UTC, to the
// millisecond.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// State is where a job stands, as far as its files prove it.
type State string

// A job only ever goes from Running to one of the others, once.
const (
	Running   State = "running"   // the runner holds the lock
	Exited    State = "exited"    // the command ended by itself
	Cancelled State = "cancelled" // somebody asked, and the tree is gone
	TimedOut  State = "timed_out" // the timeout passed, and the tree is gone
	Lost      State = "lost"      // the runner went without recording an end
)

// ProcessRecord is the pid file: who watches the job, and which process it is.
// Start times are the kernel's own count (clock ticks since boot on Linux,
// microseconds since 1970 on macOS): with BootID they tell a process from a
// later one of the same number.
type ProcessRecord struct {
	RunnerPID   int       `json:"runner_pid"`
	ChildPID    int       `json:"child_pid"` // 0: the command could not be started
	RunnerStart uint64    `json:"runner_start"`
	ChildStart  uint64    `json:"child_start"`
	BootID      string    `json:"boot_id"`
	MachineID   string    `json:"machine_id"`
	StartedAt   time.Time `json:"started_at"`
}

// TimingRecord is the timing file. CPU times and memory are those of the
// command and of every descendant that was waited for; the memory is that of
// the largest, and never less than what the runner had when it forked.
type TimingRecord struct {
	StartedAt   time.Time `json:"started_at"`
	EndedAt     time.Time `json:"ended_at"`
	DurationMS  int64     `json:"duration_ms"` // monotonic
	UserMS      int64     `json:"user_ms"`
	SysMS       int64     `json:"sys_ms"`
	MaxRSSBytes int64     `json:"max_rss_bytes"`
}

// ExitRecord is the exit file: how the job ended. Written once.
type ExitRecord struct {
	State    State     `json:"state"`
	ExitCode *int      `json:"exit_code"` // null unless exited
	Signal   string    `json:"signal"`    // "KILL": what ended the command, else ""
	Error    string    `json:"error"`     // why it could not be started or stopped, else ""
	LogBytes int64     `json:"log_bytes"` // size of the log at the end
	Left     int       `json:"left"`      // processes of the job still running
	At       time.Time `json:"at"`
}

// DroppedRecord is the dropped file: which bytes of the output the log does
// not have. It is always written whole, at a constant length.
//
// A reader beside a write can see half of each record: then Seq and SeqEnd, the
// first field and the last, differ.
type DroppedRecord struct {
	Seq       uint64     `json:"seq,omitzero"`     // counts the writes
	Hole      *Hole      `json:"hole"`             // what was cut out of the log, for max_log
	Unwritten *Unwritten `json:"unwritten"`        // what could not be written
	SeqEnd    uint64     `json:"seq_end,omitzero"` // Append makes it Seq
}

// Hole is a range of the log that reads as zeros.
type Hole struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Unwritten counts output that was discarded because the log took no bytes.
type Unwritten struct {
	Bytes   int64     `json:"bytes"`
	Error   string    `json:"error"` // the last one
	FirstAt time.Time `json:"first_at"`
}

// CancelRecord is the cancel file: a request. The runner does the killing.
type CancelRecord struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"` // who asked, "" where unknown
	Reason string    `json:"reason"`
}

// Append adds the record's JSON and a newline to b.
func (r ProcessRecord) Append(b []byte) []byte {
	o := open(b)
	o.int("runner_pid", int64(r.RunnerPID))
	o.int("child_pid", int64(r.ChildPID))
	o.uint("runner_start", r.RunnerStart)
	o.uint("child_start", r.ChildStart)
	o.text("boot_id", r.BootID)
	o.text("machine_id", r.MachineID)
	o.time("started_at", r.StartedAt)
	return o.close()
}

// Append adds the record's JSON and a newline to b.
func (r TimingRecord) Append(b []byte) []byte {
	o := open(b)
	o.time("started_at", r.StartedAt)
	o.time("ended_at", r.EndedAt)
	o.int("duration_ms", r.DurationMS)
	o.int("user_ms", r.UserMS)
	o.int("sys_ms", r.SysMS)
	o.int("max_rss_bytes", r.MaxRSSBytes)
	return o.close()
}

// Append adds the record's JSON and a newline to b.
func (r ExitRecord) Append(b []byte) []byte {
	o := open(b)
	o.text("state", string(r.State))
	if r.ExitCode == nil {
		o.null("exit_code")
	} else {
		o.int("exit_code", int64(*r.ExitCode))
	}
	o.text("signal", r.Signal)
	o.text("error", r.Error)
	o.int("log_bytes", r.LogBytes)
	o.int("left", int64(r.Left))
	o.time("at", r.At)
	return o.close()
}

// droppedLen is the constant length of a dropped record, so that one write in
// place always replaces the whole of the one before.
const droppedLen = 512

// Append adds the record's JSON, blanks up to a constant length and a newline
// to b.
func (r DroppedRecord) Append(b []byte) []byte {
	start := len(b)
	o := open(b)
	o.uint("seq", r.Seq)
	if r.Hole == nil {
		o.null("hole")
	} else {
		h := o.object("hole")
		h.int("from", r.Hole.From)
		h.int("to", r.Hole.To)
		o.b = append(h.b, '}')
	}
	if r.Unwritten == nil {
		o.null("unwritten")
	} else {
		u := o.object("unwritten")
		u.int("bytes", r.Unwritten.Bytes)
		u.key("error")
		u.b = appendString(u.b, r.Unwritten.Error, 96)
		u.time("first_at", r.Unwritten.FirstAt)
		o.b = append(u.b, '}')
	}
	o.uint("seq_end", r.Seq)
	b = append(o.b, '}')
	for len(b) < start+droppedLen-1 {
		b = append(b, ' ')
	}
	return append(b, '\n')
}

// Append adds the record's JSON and a newline to b.
func (r CancelRecord) Append(b []byte) []byte {
	o := open(b)
	o.time("at", r.At)
	o.text("by", r.By)
	o.text("reason", r.Reason)
	return o.close()
}

// object writes one JSON object, field by field.
type object struct {
	b    []byte
	some bool
}

func open(b []byte) object { return object{b: append(b, '{')} }

func (o *object) key(k string) {
	if o.some {
		o.b = append(o.b, ',')
	}
	o.some = true
	o.b = append(o.b, '"')
	o.b = append(o.b, k...)
	o.b = append(o.b, '"', ':')
}

func (o *object) object(k string) object {
	o.key(k)
	return open(o.b)
}

func (o *object) int(k string, n int64)   { o.key(k); o.b = strconv.AppendInt(o.b, n, 10) }
func (o *object) uint(k string, n uint64) { o.key(k); o.b = strconv.AppendUint(o.b, n, 10) }
func (o *object) bool(k string, v bool)   { o.key(k); o.b = strconv.AppendBool(o.b, v) }
func (o *object) null(k string)           { o.key(k); o.b = append(o.b, "null"...) }
func (o *object) text(k, s string)        { o.key(k); o.b = appendString(o.b, s, MaxText) }

func (o *object) time(k string, t time.Time) {
	o.key(k)
	o.b = append(o.b, '"')
	o.b = t.UTC().AppendFormat(o.b, TimeFormat)
	o.b = append(o.b, '"')
}

func (o *object) close() []byte { return append(o.b, '}', '\n') }

// AppendString adds s as a JSON string, as encoding/json writes it without
// HTML escapes; bytes that are not UTF-8 become U+FFFD.
func AppendString(b []byte, s string) []byte { return appendString(b, s, math.MaxInt) }

// appendString is AppendString for a record that must fit where it was
// reserved: of s it takes what makes at most max bytes of JSON, and no half
// character.
func appendString(b []byte, s string, max int) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start, whole := len(b), len(b)
	for i := 0; i < len(s); {
		if len(b)-start > max {
			break
		}
		whole = len(b)
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c == '\n':
				b = append(b, '\\', 'n')
			case c == '\r':
				b = append(b, '\\', 'r')
			case c == '\t':
				b = append(b, '\\', 't')
			case c == '\b':
				b = append(b, '\\', 'b')
			case c == '\f':
				b = append(b, '\\', 'f')
			case c < ' ':
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			default:
				b = append(b, c)
			}
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = append(b, `\ufffd`...)
		case r == '\u2028' || r == '\u2029':
			b = append(b, `\u202`...)
			b = append(b, hex[r&15])
		default:
			b = append(b, s[i:i+n]...)
		}
		i += n
	}
	if len(b)-start > max {
		b = b[:whole]
	}
	return append(b, '"')
}
