package jobdir

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Text makes valid UTF-8 of b: a byte that is none becomes U+FFFD. An
// incomplete character at the end is held back while more can come; used is
// how many bytes of b the text stands for.
func Text(b []byte, more bool) (text string, used int) {
	if more {
		b = b[:len(b)-unfinished(b)]
	}
	if utf8.Valid(b) {
		return string(b), len(b)
	}
	var s strings.Builder
	s.Grow(len(b) + len(b)/8)
	for rest := b; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		s.WriteRune(r)
		rest = rest[n:]
	}
	return s.String(), len(b)
}

// unfinished is how many bytes at the end of b begin a character that more
// bytes could complete.
func unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if end := b[len(b)-n:]; utf8.RuneStart(end[0]) {
			if utf8.FullRune(end) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Plain is what a terminal would be left with, line by line: escapes are
// dropped, of a line redrawn by carriage returns the last frame stays, a
// backspace takes a character back, other control characters go.
func Plain(b []byte) []byte {
	var p Plainer
	return append(p.Next(b), p.Flush()...)
}

// Plainer is Plain for text that comes in pieces. It holds the line under way
// back, as it may yet be redrawn, but not more than heldLine bytes of it. The
// zero value is ready.
type Plainer struct {
	line   []byte
	redraw bool // the cursor is back at the start: what comes next replaces the line
	in     mode
	last   byte   // in a string: the byte before
	params []byte // of a control sequence: its first bytes
}

const heldLine = 64 << 10

type mode byte

const (
	ground   mode = iota
	escape        // after ESC
	charset       // ESC and intermediate bytes
	sequence      // ESC [
	str           // ESC ] and its kind: up to BEL or ST, at most to the end of the line
)

const (
	esc = 0x1b
	bel = 0x07
	st  = 0x9c // string terminator, as the character U+009C
	c1  = 0xc2 // first byte of the controls U+0080 to U+009F
)

// Next takes a piece and returns the lines that it completed.
func (p *Plainer) Next(b []byte) []byte {
	out := make([]byte, 0, len(b)) // text only ever gets shorter
	for _, c := range b {
		for !p.step(c) {
		}
		if c == '\n' {
			out = append(out, p.line...)
			out = append(out, '\n')
			p.reset()
		} else if len(p.line) >= heldLine {
			n := len(p.line) - unfinished(p.line)
			out = append(out, p.line[:n]...)
			p.line = append(p.line[:0], p.line[n:]...)
		}
	}
	return out
}

// Flush returns the line under way, and starts afresh.
func (p *Plainer) Flush() []byte {
	line := bytes.Clone(p.line)
	p.reset()
	p.in = ground
	return line
}

func (p *Plainer) reset() {
	p.line, p.redraw = p.line[:0], false
}

// step takes one byte. It reports false when the byte ended what was under way
// and is to be taken again. A newline always comes to ground.
func (p *Plainer) step(c byte) bool {
	switch p.in {
	case ground:
		p.print(c)
		return true
	case escape:
		p.params = p.params[:0]
		switch {
		case c == '[':
			p.in = sequence
		case c == ']' || c == 'P' || c == 'X' || c == '^' || c == '_':
			p.in, p.last = str, 0
		case c >= ' ' && c <= '/':
			p.in = charset
		case c >= '0' && c <= '~':
			p.in = ground
		default:
			p.in = ground
			return false
		}
	case charset:
		switch {
		case c >= ' ' && c <= '/':
		case c >= '0' && c <= '~':
			p.in = ground
		default:
			p.in = ground
			return false
		}
	case sequence:
		switch {
		case c >= ' ' && c <= '?':
			if len(p.params) < 4 {
				p.params = append(p.params, c)
			}
		case c >= '@' && c <= '~':
			p.in = ground
			p.control(c)
		default:
			p.in = ground
			return false
		}
	case str:
		switch {
		case c == bel || c == st && p.last == c1:
			p.in = ground
		case c == esc:
			p.in = escape // of ST, or of a sequence that breaks the string off
		case c == '\n':
			p.in = ground
			return false
		}
		p.last = c
	}
	return true
}

// control does what a control sequence does to the line.
func (p *Plainer) control(final byte) {
	params := string(p.params)
	switch {
	case final == 'G' && (params == "" || params == "0" || params == "1"): // cursor to the start of the line
		p.redraw = true
	case final == 'K' && params == "2", final == 'K' && (params == "" || params == "0") && p.redraw: // erase the line
		p.line = p.line[:0]
	}
}

// print takes one byte of text, or a control character.
func (p *Plainer) print(c byte) {
	switch {
	case c == esc:
		p.in = escape
	case c == '\r':
		p.redraw = true
	case c == '\b':
		if !p.redraw {
			_, n := utf8.DecodeLastRune(p.line)
			p.line = p.line[:len(p.line)-n]
		}
	case c < ' ' && c != '\t' || c == 0x7f:
	default:
		if p.redraw {
			p.reset()
		}
		if n := len(p.line) - 1; c >= 0x80 && c <= 0x9f && n >= 0 && p.line[n] == c1 {
			p.line = p.line[:n]
			switch c {
			case 0x9b:
				p.in, p.params = sequence, p.params[:0]
			case 0x9d, 0x90, 0x98, 0x9e, 0x9f:
				p.in, p.last = str, 0
			}
			return
		}
		p.line = append(p.line, c)
	}
}

// OneLine puts blanks in the place of what would break a line, speak to the
// terminal or turn the direction of text.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' || r == '\ufeff' {
			return ' '
		}
		return r
	}, s)
}

// FormatDuration is a duration as people read it: 340ms, 2.3s, 12m55s, 3h02m.
func FormatDuration(d time.Duration) string {
	switch {
	case d < time.Second:
		return strconv.FormatInt(max(d.Milliseconds(), 0), 10) + "ms"
	case d < time.Minute:
		tenths := d.Milliseconds() / 100
		return strconv.FormatInt(tenths/10, 10) + "." + strconv.FormatInt(tenths%10, 10) + "s"
	case d < time.Hour:
		s := int64(d / time.Second)
		return strconv.FormatInt(s/60, 10) + "m" + twoDigits(s%60) + "s"
	}
	m := int64(d / time.Minute)
	return strconv.FormatInt(m/60, 10) + "h" + twoDigits(m%60) + "m"
}

func twoDigits(n int64) string {
	if n < 10 {
		return "0" + strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n, 10)
}
