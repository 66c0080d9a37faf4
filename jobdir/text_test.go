package jobdir

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in   string
		more bool
		want string
		used int
	}{
		{"", true, "", 0},
		{"abc", true, "abc", 3},
		{"a\xc3", true, "a", 1},
		{"a\xc3", false, "a\ufffd", 2},
		{"a\xf0\x9f\x8e", true, "a", 1},
		{"a\xf0\x9f\x8e\x89", true, "a🎉", 5},
		{"\x80\x80\x80\x80", true, "\ufffd\ufffd\ufffd\ufffd", 4},
		{"\xed\xa0\x80", true, "\ufffd\ufffd\ufffd", 3}, // a lone surrogate
		{"\xf0\x80", true, "\ufffd\ufffd", 2},           // no continuation can make this one valid
		{"\xff", true, "\ufffd", 1},
		{"\xef\xbf\xbd", true, "\ufffd", 3},
		{"a\x00b", true, "a\x00b", 3},
	} {
		if got, used := Text([]byte(c.in), c.more); got != c.want || used != c.used {
			t.Errorf("Text(%q, %v) = %q, %d, want %q, %d", c.in, c.more, got, used, c.want, c.used)
		}
	}
}

// FuzzText: pieces with their rest carried on give the text of the whole.
func FuzzText(f *testing.F) {
	f.Add([]byte("aé日🎉"), 1)
	f.Add([]byte("\xf0\x9f\xf0\x80\xc3"), 2)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		whole, used := Text(b, false)
		if used != len(b) || !utf8.ValidString(whole) {
			t.Fatalf("Text(%q) = %q, %d", b, whole, used)
		}
		if utf8.Valid(b) && whole != string(b) {
			t.Fatalf("Text(%q) = %q", b, whole)
		}
		size = max(size%7, 1)
		var joined strings.Builder
		var held []byte
		for rest := b; len(rest) > 0; {
			n := min(size, len(rest))
			held = append(held, rest[:n]...)
			rest = rest[n:]
			text, used := Text(held, len(rest) > 0)
			if len(held)-used >= utf8.UTFMax {
				t.Fatalf("%d bytes of %q held back", len(held)-used, held)
			}
			joined.WriteString(text)
			held = held[used:]
		}
		if joined.String() != whole {
			t.Fatalf("%q in pieces of %d: %q, want %q", b, size, joined.String(), whole)
		}
	})
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"plain", "one\ntwo", "one\ntwo"},
		{"empty lines", "\n\na\n", "\n\na\n"},
		{"colour", "\x1b[1;31mred\x1b[0m\n", "red\n"},
		{"dos", "a\r\nb\r\n", "a\nb\n"},
		{"frames", "10%\r20%\r100%\ndone\n", "100%\ndone\n"},
		{"shorter frame", "a long frame\rshort\n", "short\n"},
		{"frames that end with a return", "10%\r20%\rerror: boom\n", "error: boom\n"},
		{"unfinished frame", "10%\r20%\r", "20%"},
		{"erased by the next frame", "10%\r\x1b[Kdone\n", "done\n"},
		{"erased", "10%\r\x1b[K\ndone\n", "\ndone\n"},
		{"erased whole", "10%\x1b[2K\x1b[1Gdone\n", "done\n"},
		{"erased to its end", "keep\x1b[K\n", "keep\n"},
		{"backspace", "abc\b\bX\n", "aX\n"},
		{"backspaces beyond the start", "a\b\b\b\bok\n", "ok\n"},
		{"backspace of a character", "é🎉\b\bx\n", "x\n"},
		{"backspace after return", "abc\r\bx\n", "x\n"},
		{"overstrike", "N\bNA\bAM\bME\bE", "NAME"},
		{"tab", "a\tb", "a\tb"},
		{"controls", "a\x00\x07\x0b\x0c\x0e\x7fb", "ab"},
		{"title", "\x1b]0;a title\x07text\n", "text\n"},
		{"title, string terminator", "\x1b]0;“a”\x1b\\text", "text"},
		{"title, c1 terminator", "\x1b]0;a\u009ctext", "text"},
		{"title without an end", "\x1b]0;a title\ntext\n", "\ntext\n"},
		{"link", "\x1b]8;;http://x\x1b\\here\x1b]8;;\x1b\\\n", "here\n"},
		{"device control", "\x1bPq#0;1\x1b\\x", "x"},
		{"charset", "\x1b(B\x1b)0a", "a"},
		{"two bytes", "\x1b7a\x1b8\x1b=b\x1bM", "ab"},
		{"c1", "a\u009b31mb\u0085c", "abc"},
		{"escape in escape", "\x1b\x1b[31ma\x1b[3\x1b[32mb", "ab"},
		{"newline in escape", "\x1b[3\nx\x1b\ny", "\nx\ny"},
		{"cut escape", "a\x1b[31", "a"},
		{"not utf-8", "\xff\x9ba", "\xff\x9ba"},
		{"text after an escape", "\x1b[31é", "é"},
	} {
		if got := string(Plain([]byte(c.in))); got != c.want {
			t.Errorf("%s: Plain(%q) = %q, want %q", c.name, c.in, got, c.want)
		}
	}
}

// TestL4ProgressBar: of a bar that is drawn thousands of times, the last one stays.
func TestL4ProgressBar(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&b, "\r\033[32m%d%%\033[0m", i/50)
	}
	b.WriteString("error: disk full\n")
	if got := string(Plain(b.Bytes())); got != "99%error: disk full\n" {
		t.Errorf("%q", got)
	}
}

// TestPlainLongLine: a line of any length is held in little memory.
func TestPlainLongLine(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("日", 1<<20)
	var p Plainer
	var out []byte
	for rest := []byte(line); len(rest) > 0; {
		n := min(1000, len(rest))
		piece := p.Next(rest[:n])
		if _, used := Text(piece, true); used != len(piece) {
			t.Fatal("a character is cut")
		}
		out = append(out, piece...)
		rest = rest[n:]
		if cap(p.line) > 4*heldLine {
			t.Fatalf("%d bytes held", cap(p.line))
		}
	}
	if out = append(out, p.Flush()...); string(out) != line {
		t.Error("the line has changed")
	}
}

func FuzzPlain(f *testing.F) {
	f.Add([]byte("\x1b[31mred\x1b[0m\r\nx\b\by\rz"), 3)
	f.Add([]byte("\xc2\x1b[m\x9b31m\x1b]0;t\x07"), 1)
	f.Add([]byte("a\xc2x\b\x9b1mq"), 2)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		whole := Plain(b)
		if len(whole) > len(b) {
			t.Fatalf("Plain(%q) = %q is longer", b, whole)
		}
		for i, c := range whole {
			if c < ' ' && c != '\n' && c != '\t' || c == 0x7f || i > 0 && c >= 0x80 && c < 0xa0 && whole[i-1] == 0xc2 {
				t.Fatalf("Plain(%q) = %q has a control character", b, whole)
			}
		}
		if got, want := bytes.Count(whole, []byte("\n")), bytes.Count(b, []byte("\n")); got != want {
			t.Fatalf("Plain(%q) = %q: %d lines, want %d", b, whole, got, want)
		}
		if again := Plain(whole); !bytes.Equal(again, whole) {
			t.Fatalf("Plain(%q) = %q, and again %q", b, whole, again)
		}
		var p Plainer
		var pieces []byte
		size = max(size%100, 1)
		for rest := b; len(rest) > 0; {
			n := min(size, len(rest))
			pieces = append(pieces, p.Next(rest[:n])...)
			rest = rest[n:]
		}
		if pieces = append(pieces, p.Flush()...); !bytes.Equal(pieces, whole) {
			t.Fatalf("%q in pieces of %d: %q, want %q", b, size, pieces, whole)
		}
	})
}
