package runner

import (
	"encoding/binary"
	"io/fs"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// Descriptors that the runner finds open.
const (
	fdNull = iota // /dev/null, also as 1 and 2
	_
	_
	fdSpec  // the hand-over, below
	fdDir   // the job's directory
	fdPid   // its pid file, locked
	fdLog   // its log, for writing
	fdPipe  // its FIFO, for reading, non-blocking
	fdOut   // its FIFO, for reading and writing: the command's stdout and stderr
	fdCwd   // where the command runs
	fdCount // the first descriptor of the runner's own
)

// specVersion changes whenever the hand-over does: a runner refuses another.
const specVersion = 1

// handover is what the runner is told over fdSpec. The environment's values are
// in it, so it never touches a disk or an argv.
type handover struct {
	path    string   // what to execute; "" when argv[0] is nowhere in PATH
	found   bool     // false: argv[0] was not found, or found but not executable
	denied  bool     // found, but not executable
	argv    []string // as the command sees it
	env     []string
	timeout time.Duration // 0: none
	maxLog  int64         // 0: keep all

	sender int    // the pipe's writing end, where a pipe is used
	rest   []byte // what is still to be sent through it
}

func (h *handover) encode() []byte {
	n := 64 + len(h.path)
	for _, l := range [][]string{h.argv, h.env} {
		for _, s := range l {
			n += 4 + len(s)
		}
	}
	b := make([]byte, 0, n)
	b = binary.LittleEndian.AppendUint32(b, specVersion)
	var flags uint32
	if h.found {
		flags |= 1
	}
	if h.denied {
		flags |= 2
	}
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(h.timeout))
	b = binary.LittleEndian.AppendUint64(b, uint64(h.maxLog))
	b = appendText(b, h.path)
	for _, l := range [][]string{h.argv, h.env} {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(l)))
		for _, s := range l {
			b = appendText(b, s)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

// openPipe is the hand-over where there is no memory file. What the pipe does
// not hold at once is sent by finish, when the runner is there to read it.
func (h *handover) openPipe(b []byte) (int, error) {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return -1, &fs.PathError{Op: "create", Path: "hand-over", Err: err}
	}
	unix.CloseOnExec(p[0])
	unix.CloseOnExec(p[1])
	_ = unix.SetNonblock(p[1], true)
	n, err := unix.Write(p[1], b)
	if err != nil {
		n = 0
	}
	h.sender, h.rest = p[1], b[n:]
	return p[0], nil
}

// close gives up what openPipe has opened.
func (h *handover) close() {
	if h.sender != 0 {
		unix.Close(h.sender)
		h.sender = 0
	}
}

// finish sends what openPipe could not. A runner that has gone shows as lost.
func (h *handover) finish() {
	if h.sender == 0 {
		return
	}
	defer h.close()
	_ = unix.SetNonblock(h.sender, false)
	for len(h.rest) > 0 {
		n, err := unix.Write(h.sender, h.rest)
		if err != nil && err != unix.EINTR {
			break
		}
		h.rest = h.rest[max(n, 0):]
	}
}

// decode reads a hand-over. Its strings share b's memory.
func decode(b []byte) (h handover, ok bool) {
	d := decoder{b: b, ok: true}
	if d.u32() != specVersion {
		return h, false
	}
	flags := d.u32()
	h.found, h.denied = flags&1 != 0, flags&2 != 0
	h.timeout = time.Duration(d.u64())
	h.maxLog = int64(d.u64())
	h.path = d.text()
	h.argv = d.list(0)
	h.env = d.list(1) // one more: SPACE_JOB
	return h, d.ok && len(d.b) == 0 && len(h.argv) > 0
}

type decoder struct {
	b  []byte
	ok bool
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.b) {
		d.ok, d.b = false, nil
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if b := d.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) text() string {
	b := d.take(int(d.u32()))
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (d *decoder) list(spare int) []string {
	n := int(d.u32())
	if n > len(d.b)/4 { // each takes four bytes at least
		d.ok = false
		return nil
	}
	l := make([]string, 0, n+spare)
	for range n {
		l = append(l, d.text())
	}
	return l
}

// A Spec is what a job is to be. All of it has been checked by the caller.
type Spec struct {
	Runner  string        // path of the space-runner program
	Root    string        // absolute; made and checked
	Argv    []string      // as the command sees it, at least one
	Env     []string      // the command's whole environment; SPACE_JOB is set by Start
	Cwd     string        // absolute
	Timeout time.Duration // 0: none
	MaxLog  int64         // 0: the log keeps every byte

	// Describe is the content of the job's cmd file.
	Describe func(id record.ID, created time.Time) []byte

	// Claim, if not nil, is called with the id just before the job becomes
	// visible under it, and again with a later one if that was taken.
	Claim func(id record.ID) error
}
