package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"space-job/cmd/internal/api"
)

// session is one run of the program.
type session struct {
	stdout, stderr *os.File
	json           bool
	member         string // who asks, as far as the command line says it
	space          string // whose jobs it is about; "": those of this Space
	asked          bool   // what is to be done comes on stdin
	broken         error  // the first failed write to stdout
	midLine        bool   // what was written to stdout last ended within a line

	opened *api.Actions // nil: no root was needed

	args    []string // of start and run, as they were given
	asGiven bool     // the operands follow a --
}

// print writes data.
func (s *session) print(text string) { s.write([]byte(text)) }

func (s *session) write(b []byte) {
	if len(b) > 0 {
		s.midLine = b[len(b)-1] != '\n'
	}
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
	s.sayPlain(kind, oneLine(message))
}

func (s *session) sayPlain(kind, message string) {
	if s.midLine && isTerminal(s.stdout) && isTerminal(s.stderr) {
		s.midLine = false
		s.talk("\n")
	}
	s.talk("space-job: " + kind + ": " + message + "\n")
}

// ended says how a job ended, in one line.
func (s *session) ended(e *api.Entry) {
	text := end(e, colourful(s.stderr))
	if e.State == "lost" {
		text += ": its runner is gone, and how it ended is not known"
	}
	if e.DurationMS != nil {
		text += " after " + api.FormatDuration(time.Duration(*e.DurationMS)*time.Millisecond)
	}
	if e.Error != nil {
		text += ": " + oneLine(*e.Error)
	}
	s.sayPlain("job "+string(e.Job), text)
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
func (s *session) open() (*api.Actions, error) {
	a, err := api.Open()
	s.opened = a
	if err != nil || s.space == "" {
		return a, err
	}
	return s.in(a)
}

// tend sees to it that somebody brings on what waits in the outbox, and wakes who
// is to be woken, after a command has done its work. No command waits for that,
// and a start looks at the outbox only.
func (s *session) tend(start bool) {
	switch {
	case s.opened == nil:
	case start:
		s.opened.Tend()
	default:
		s.opened.TendAll()
	}
}

// interruptible is a context that ends with Ctrl-C, unless that is meant for
// others: in the background of a script.
func interruptible() (context.Context, context.CancelFunc) {
	if signal.Ignored(os.Interrupt) {
		return context.WithCancel(context.Background())
	}
	return signal.NotifyContext(context.Background(), os.Interrupt)
}

// following is the context of a read: Ctrl-C ends its wait, where it has one.
func following(ms int64) (context.Context, context.CancelFunc) {
	if ms <= 0 {
		return context.Background(), func() {}
	}
	return interruptible()
}

// quote shows what somebody typed.
func quote(s string) string { return api.Quote(s) }

// short is s as far as a line of an error has room for it.
func short(s string) string {
	const most = 80
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// oneLine puts blanks in the place of what would break a line, speak to the
// terminal or turn the direction of text, as the line of a job in a list does.
func oneLine(s string) string {
	return strings.TrimSpace(api.OneLine(s))
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
