package cli

import (
	"bufio"
	"context"
	"io"
	"os"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

const (
	spaceMeaning   = "the Space whose jobs it is about, by its name in spaces.json; \"local\" is this one"
	requestMeaning = "-: do what another Space asks for in a line of JSON on stdin, and answer in two"
)

// reach is whether a command can be about another Space.
type reach int

const (
	hereOnly  reach = iota
	judgedBy        // it is decided here, for that Space
	elsewhere       // it goes there
	answering       // and answers when it is asked from there
)

// spaceFlag is --space.
func (s *session) spaceFlag() value { return parsed(&s.space, "NAME", api.ParseSpace) }

// spaceFlags are those of a command that are about other Spaces.
func (s *session) spaceFlags(c *command, fs *pflag.FlagSet) {
	fs.Var(s.spaceFlag(), "space", spaceMeaning)
	if c.reach == answering {
		fs.Var(value{"-", func(given string) error {
			if given != "-" {
				return usage("request: "+quote(given)+" is not -, the standard input", c.name)
			}
			s.asked = true
			return nil
		}}, "request", requestMeaning)
	}
}

// checkSpace refuses a Space that a command cannot be about.
func (s *session) checkSpace(c *command) error {
	if s.space == "local" {
		s.space = ""
	}
	switch {
	case s.space == "":
		return nil
	case s.asked:
		return usage("--request and --space exclude each other", c.name)
	case c.reach != hereOnly:
		return nil
	}
	return &api.Error{Code: api.InvalidArgument, Message: "space: " + c.name + " is about this Space only",
		Hint: "these reach another one: start, run, logs, status, wait, cancel, list; and policy check judges for it"}
}

// self is how this program is called for the same Space, in hints.
func (s *session) self() string {
	if s.space == "" {
		return "space-job"
	}
	return "space-job --space " + s.space
}

// in are the actions on the jobs of the Space that was named.
func (s *session) in(a *api.Actions) (*api.Actions, error) {
	return a.In(s.space, api.Elsewhere{Version: versionLine()[len("space-job "):], Tell: s.say})
}

// answer does what is asked on standard input: see package space.
func (s *session) answer(action string) (int, error) {
	s.document(api.Hello(versionLine()[len("space-job "):]))
	const most = 8 << 20
	in := bufio.NewReaderSize(io.LimitReader(os.Stdin, most), 32<<10)
	line, err := in.ReadBytes('\n')
	switch {
	case err == nil || len(line) == 0: // none came: the answer says so
	case len(line) == most:
		line = append(line[:80], "..."...) // no JSON
	default:
		line = append(line, " ..."...) // the rest was lost, so no JSON either
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // who waited is gone
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	a, err := s.open()
	if err != nil {
		s.document(api.Refusal(err))
		return exitOK, nil
	}
	s.document(a.AnswerRequest(ctx, action, line))
	return exitOK, nil
}
