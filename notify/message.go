package notify

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"space-job/jobdir"
)

// Message is what is said of a job that has ended.
type Message struct {
	Key        string       `json:"key"` // "job/<id>": the same, however often it is delivered
	Job        jobdir.ID    `json:"job"`
	State      jobdir.State `json:"state"`
	ExitCode   *int         `json:"exit_code"`   // nil unless exited
	DurationMS *int64       `json:"duration_ms"` // nil: not known
	LogBytes   int64        `json:"log_bytes"`
	Name       string       `json:"name"` // as in the first line of Text
	Text       string       `json:"text"` // as it stands in the thread
	Offset     int64        `json:"-"`    // where the end of the log in Text begins
}

// KeyOf is the key of a job's message.
func KeyOf(id jobdir.ID) string { return "job/" + string(id) }

// ErrNotEnded is the error of a message about a job whose end is not written
// down.
var ErrNotEnded = errors.New("has no recorded end")

// MessageOf is the message of a job whose end is written down:
//
//	JOB <id> <state> exit=<code|-> <duration> log=<bytes>B | <name, else command, else condition>
//	End of the log:
//	    <the last lines, plain, of at most 2 KiB>
//	Read more with space_job {action: "logs", job: "<id>", offset: <n>} or: space-job logs <id> --offset <n>
//
// A log that lacks bytes has a line more, above the last one. No line but the
// first begins with what a job has written or is called. Errors are ErrNotEnded,
// jobdir.ErrNotFound, *jobdir.DamagedError, and those of reading.
func MessageOf(j *jobdir.Job) (Message, error) {
	info, err := j.Read()
	if err != nil {
		return Message{}, err
	}
	if info.Damaged != "" {
		return Message{}, &jobdir.DamagedError{ID: j.ID(), Reason: info.Damaged}
	}
	if info.Exit == nil {
		return Message{}, ErrNotEnded
	}
	m := Message{
		Key: KeyOf(j.ID()), Job: j.ID(), State: info.State, ExitCode: info.Exit.ExitCode,
		LogBytes: info.Exit.LogBytes, Name: info.Cmd.Line(),
	}
	if info.Timing != nil && info.State != jobdir.Lost {
		m.DurationMS = &info.Timing.DurationMS
	}
	// The log may go on after the end, and may have been cut since.
	if info.LogBytes < m.LogBytes {
		m.LogBytes = info.LogBytes
	}
	shown, err := readTail(j)
	if err != nil && !errors.Is(err, jobdir.ErrNotRegular) {
		return Message{}, err
	}
	if err != nil {
		shown.lines = []string{"(the log " + err.Error() + ")"}
	}
	m.Offset = shown.offset

	var b strings.Builder
	b.WriteString(m.head() + "\nEnd of the log:\n")
	for _, line := range shown.lines {
		if line != "" {
			b.WriteString(indent + line)
		}
		b.WriteByte('\n')
	}
	for _, line := range missing(info) {
		b.WriteString("Missing in the log: " + line + "\n")
	}
	offset := strconv.FormatInt(m.Offset, 10)
	b.WriteString(`Read more with space_job {action: "logs", job: "` + string(m.Job) + `", offset: ` + offset +
		"} or: space-job logs " + string(m.Job) + " --offset " + offset)
	m.Text = b.String()
	return m, nil
}

// indent is what every line that the job wrote is set off with.
const indent = "    "

// head is the first line: always these fields, in this order.
func (m *Message) head() string {
	code, took := "-", "-"
	if m.ExitCode != nil {
		code = strconv.Itoa(*m.ExitCode)
	}
	if m.DurationMS != nil {
		took = jobdir.FormatDuration(time.Duration(*m.DurationMS) * time.Millisecond)
	}
	return "JOB " + string(m.Job) + " " + string(m.State) + " exit=" + code + " " + took +
		" log=" + strconv.FormatInt(m.LogBytes, 10) + "B | " + m.Name
}

// missing says which bytes of the output the log does not have, and why.
func missing(info *jobdir.Info) (lines []string) {
	d := info.Dropped
	if d == nil {
		return nil
	}
	if h := d.Hole; h != nil {
		why := "cut out of the log"
		if info.Cmd.MaxLog > 0 {
			why += " (--max-log)"
		}
		lines = append(lines, strconv.FormatInt(h.To-h.From, 10)+" bytes, "+strconv.FormatInt(h.From, 10)+" to "+
			strconv.FormatInt(h.To, 10)+": "+why)
	}
	if u := d.Unwritten; u != nil {
		what := "some output" // its runner was killed before it could count
		if u.Bytes > 0 {
			what = strconv.FormatInt(u.Bytes, 10) + " bytes"
		}
		lines = append(lines, what+" that could not be written: "+oneLine(u.Error))
	}
	return lines
}

// tailBytes is how much of the end of a log is shown, tailLook how much is
// looked at: escapes and redrawn lines take room that the text will not.
const (
	tailBytes = 2 << 10
	tailLook  = 8 * tailBytes
)

// tail is the end of a log for people.
type tail struct {
	lines  []string // no newline in any
	offset int64    // where the first of them begins
}

func readTail(j *jobdir.Job) (tail, error) {
	at, err := j.TailOffset(tailLook)
	if err != nil {
		return tail{}, err
	}
	var raw []byte
	from, size := at, int64(0)
	for next := at; ; {
		r, err := j.ReadLog(next, tailLook)
		if err != nil {
			return tail{}, err
		}
		if r.Offset != next { // behind a hole, or where the log was cut to: what was read before is not its end
			raw, from = raw[:0], r.Offset
		}
		raw = append(raw, r.Bytes...)
		next, size = r.Next, r.Size
		if !r.More || len(r.Bytes) == 0 || len(raw) >= 2*tailLook { // something writes still
			break
		}
	}
	t := tailOf(raw, from)
	if len(t.lines) == 0 {
		text := "(no output)"
		if size > 0 {
			text = "(nothing that can be shown)"
		}
		t = tail{[]string{text}, from}
	}
	return t, nil
}

// tailOf is the end of the bytes at an offset of a log: whole lines, as many as
// there is room for, else the end of the last one.
func tailOf(raw []byte, offset int64) (t tail) {
	end := len(raw)
	if end > 0 && raw[end-1] == '\n' {
		end--
	}
	t.offset = offset + int64(len(raw))
	room := tailBytes
	some := false
	for end >= 0 && len(raw) > 0 {
		begin := bytes.LastIndexByte(raw[:end], '\n') + 1
		line := raw[begin:end]
		plain := jobdir.Plain(line)
		text := show(plain)
		if len(text)+1 > room {
			if len(t.lines) == 0 {
				var cut int
				if text, cut = lastPart(text, plain, room); !bytes.Equal(plain, line) {
					cut = 0 // which byte that was cannot be told
				}
				t.lines, t.offset, some = []string{text}, offset+int64(begin+cut), true
			}
			break
		}
		room -= len(text) + 1
		t.lines = append(t.lines, text)
		t.offset = offset + int64(begin)
		some = some || text != ""
		end = begin - 1
	}
	if !some {
		return tail{offset: offset + int64(len(raw))}
	}
	for i, j := 0, len(t.lines)-1; i < j; i, j = i+1, j-1 {
		t.lines[i], t.lines[j] = t.lines[j], t.lines[i]
	}
	return t
}

// lastPart cuts a line to its last n bytes, at a character, and says how many
// bytes of plain are left out.
func lastPart(text string, plain []byte, n int) (string, int) {
	cut := 0
	for len(text) > n && cut < len(plain) {
		_, size := utf8.DecodeRune(plain[cut:])
		cut += size
		_, size = utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text, cut
}

// show is plain text as one line of valid UTF-8, character for character: what
// some readers would take for the end of a line, and what turns the direction of
// text, is replaced.
func show(plain []byte) string {
	text, _ := jobdir.Text(plain, false)
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return r
		case unicode.IsControl(r), r == '\u2028', r == '\u2029':
			return ' '
		case unicode.Is(unicode.Bidi_Control, r), r == '\ufeff':
			return utf8.RuneError
		}
		return r
	}, text)
}

func oneLine(s string) string { return show([]byte(s)) }
