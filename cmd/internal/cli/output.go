package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"unicode"

	"space-job/cmd/internal/api"
)

// session is one run of the program.
type session struct {
	stdout, stderr *os.File
	json           bool
	broken         error // the first failed write to stdout

	args    []string // of start and run, as they were given
	asGiven bool     // the operands follow a --
}

// print writes data.
func (s *session) print(text string) { s.write([]byte(text)) }

func (s *session) write(b []byte) {
	if _, err := s.stdout.Write(b); err != nil && s.broken == nil {
		s.broken = err
		var path *os.PathError
		if errors.As(err, &path) {
			s.broken = path.Err
		}
	}
}

// document writes a value as JSON on one line.
func (s *session) document(v any) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // a type of ours that JSON has no form for
	}
	s.print(b.String())
}

// say is the one place where the program talks to a person:
// "space-job: error: ...", "space-job: hint: ...".
func (s *session) say(kind, message string) {
	if kind == "error" && colourful(s.stderr) {
		kind = "\x1b[1;31m" + kind + "\x1b[0m"
	}
	s.talk("space-job: " + kind + ": " + oneLine(message) + "\n")
}

func (s *session) talk(text string) { _, _ = s.stderr.WriteString(text) }

// fail reports an error, and returns the exit code.
func (s *session) fail(e *api.Error) int {
	if s.json {
		s.document(struct {
			Error *api.Error `json:"error"`
		}{e})
	}
	s.say("error", e.Message)
	if e.Hint != "" {
		s.say("hint", e.Hint)
	}
	return exitCode(e.Code)
}

// open opens the root, and nothing else.
func (s *session) open() (*api.Actions, error) { return api.Open() }

// interruptible is a context that ends with Ctrl-C.
func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt)
}

// quote shows what somebody typed.
func quote(s string) string { return strconv.Quote(s) }

// oneLine replaces what would break a line or speak to the terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return '\ufffd'
		}
		return r
	}, s)
}

// count is "1 job", "2 jobs".
func count(n int, what string) string {
	if n != 1 {
		if strings.HasSuffix(what, "ss") {
			what += "e"
		}
		what += "s"
	}
	return strconv.Itoa(n) + " " + what
}
