package sink

import (
	"bytes"
	"io"
	"strings"

	"space-job/jobdir"
)

// maxLine is how much of one line of somebody else's is shown in an error.
const maxLine = 200

// oneLine puts blanks in the place of what would break a line or speak to a
// terminal, and shows at most so many bytes.
func oneLine(s string, most int) string {
	s = strings.TrimSpace(jobdir.OneLine(strings.ToValidUTF8(s, "\ufffd")))
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	t.b = append(t.b, p[max(len(p)-most, 0):]...)
	if extra := len(t.b) - most; extra > 0 {
		t.b = append(t.b[:0], t.b[extra:]...)
	}
	return len(p), nil
}

// line is the last line that says anything.
func (t *tail) line() string {
	b := bytes.TrimSpace(t.b)
	return oneLine(string(b[bytes.LastIndexByte(b, '\n')+1:]), maxLine)
}

// lines passes whole lines on, each with a prefix and in one write, as others
// may write to the same place.
type lines struct {
	to     io.Writer
	prefix string
	left   int // bytes that it may still pass on
	part   []byte
}

// Limits of what a waker may put into a log, as it may write forever.
const (
	maxOutput     = 64 << 10
	maxOutputLine = 4 << 10
)

func (l *lines) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && l.left > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			l.part = append(l.part, p[:min(len(p), maxOutputLine)]...)
			if len(l.part) >= maxOutputLine {
				l.flush()
			}
			break
		}
		l.part = append(l.part, p[:min(end, maxOutputLine)]...)
		l.flush()
		p = p[end+1:]
	}
	return n, nil
}

// flush passes on what there is of a line.
func (l *lines) flush() {
	text := oneLine(string(l.part), maxOutputLine)
	l.part = l.part[:0]
	if text == "" || l.left <= 0 {
		return
	}
	if l.left -= len(text); l.left <= 0 {
		text = "... (the rest of the output is left out)"
	}
	_, _ = io.WriteString(l.to, l.prefix+text+"\n")
}
