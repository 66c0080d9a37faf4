// Package cli is the command line: one file for each command, with an options
// struct that adds its flags and runs. It encodes what package api returns and
// decides nothing.
//
// Data goes to stdout, talk to stderr. With --json a failure, too, is one
// document on stdout, {"error": {...}}, so that a caller that reads JSON always
// gets some; the line for people is on stderr all the same.
//
// One table of commands ([commands]) feeds the parser, the help, the man page
// and the completion scripts. A start is measured in microseconds: nothing
// here is built before it is needed.
package cli

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

// Exit codes of the program itself.
const (
	exitOK = iota
	exitFailed
	exitUsage
	exitNotFound
	exitApproval // a person is to say so first
	exitDenied   // the policy or a person does not allow it

	exitAsk = exitNotFound // of policy check

	exitDetached = 130 // by Ctrl-C
)

// options are the flags of a command, and what it does.
type options interface {
	AddFlags(*pflag.FlagSet)
	Run(s *session, args []string) (code int, err error)
}

// Main runs the command that os.Args names, and exits.
func Main() {
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	s := &session{stdout: os.Stdout, stderr: os.Stderr}
	code, err := s.dispatch(args)
	if err == nil && s.broken != nil {
		err = &api.Error{Code: api.IO, Message: "stdout: " + s.broken.Error()}
	}
	if err == nil {
		return code
	}
	return s.fail(api.AsError(err))
}

// dispatch finds the command behind the global flags.
func (s *session) dispatch(args []string) (int, error) {
	all := args
	args, err := s.globalFlags(args)
	if err != nil {
		s.jsonAfter(all)
		return 0, err
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		switch args[0] {
		case "-h", "--help":
			return exitOK, s.showHelp(nil)
		case "--version":
			s.print(versionLine() + "\n")
			return exitOK, nil
		}
		s.jsonAfter(args)
		return 0, usage("unknown flag: "+short(args[0]), "")
	}
	if len(args) == 0 {
		if s.json {
			return 0, usage("command: none is given", "")
		}
		s.talk(overview())
		return exitUsage, nil
	}
	if args[0] == "link" && len(args) == 1 && !s.json {
		return answerLink(), nil
	}
	given := args
	c, args := find(args)
	switch {
	case c == nil:
		s.jsonAfter(given)
		return 0, unknownCommand(given[0], commandNames(), "")
	case c.new == nil:
		return s.group(c, args)
	}
	return s.run(c, args)
}

// globalFlags takes the flags of every command from the beginning of args.
func (s *session) globalFlags(args []string) ([]string, error) {
	for len(args) > 0 {
		name, given, ok := strings.Cut(args[0], "=")
		switch {
		case args[0] == "--json":
			s.json = true
		case name == "--member":
			if !ok {
				if len(args) == 1 {
					return nil, usage("--member needs a value", "")
				}
				args = args[1:]
				given = args[0]
			}
			if err := s.memberFlag().Set(given); err != nil {
				return nil, err
			}
		case name == "--space":
			if !ok {
				if len(args) == 1 {
					return nil, usage("--space needs a value", "")
				}
				args = args[1:]
				given = args[0]
			}
			if err := s.spaceFlag().Set(given); err != nil {
				return nil, err
			}
		default:
			return args, nil
		}
		args = args[1:]
	}
	return args, nil
}

// jsonAfter takes --json from what cannot be parsed: the flag may stand behind
// the word that is wrong.
func (s *session) jsonAfter(args []string) { s.json = s.json || slices.Contains(args, "--json") }

// memberFlag is --member.
func (s *session) memberFlag() value { return named(&s.member, "member", "NAME", api.ParseMember) }

// group is called for a command that does nothing without one of its own.
func (s *session) group(c *command, args []string) (int, error) {
	args, err := s.globalFlags(args) // before the word that says what to do
	if err != nil {
		return 0, err
	}
	if sub, rest := find(append([]string{c.name}, args...)); sub.name != c.name {
		return s.run(sub, rest)
	}
	switch {
	case len(args) == 0 && s.json:
		return 0, usage(c.name+": no command is given: "+strings.Join(c.subNames(), ", "), c.name)
	case len(args) == 0:
		s.talk(c.help())
		return exitUsage, nil
	case args[0] == "-h" || args[0] == "--help":
		return exitOK, s.showHelp(c)
	}
	s.jsonAfter(args)
	if strings.HasPrefix(args[0], "-") {
		return 0, usage("unknown flag: "+short(args[0]), c.name)
	}
	return 0, unknownCommand(args[0], c.subNames(), c.name)
}

// run parses the flags of a command and runs it.
func (s *session) run(c *command, args []string) (int, error) {
	o := c.new()
	fs := flagSet(c, o)
	help := false
	fs.BoolVarP(&help, "help", "h", false, "show this help")
	if c.textOnly {
		if s.json {
			return 0, usage("--json: "+c.name+" prints text only", c.name)
		}
	} else {
		fs.BoolVar(&s.json, "json", s.json, "print JSON")
		fs.Var(s.memberFlag(), "member", memberMeaning)
		s.spaceFlags(c, fs)
	}
	if err := fs.Parse(args); err != nil {
		s.jsonAfter(args)
		return 0, parseError(c, err)
	}
	if help {
		return exitOK, s.showHelp(c)
	}
	if err := s.checkSpace(c); err != nil {
		return 0, err
	}
	operands := fs.Args()
	if c.strict {
		s.asGiven = fs.ArgsLenAtDash() >= 0
		s.args = args
	} else if c.most >= 0 && len(operands) > c.most {
		return 0, usage("too many operands: "+quote(operands[c.most]), c.name)
	}
	defer s.tend(c.strict)
	if s.asked {
		if len(operands) > 0 {
			return 0, usage("--request: what is to be done is on stdin, and "+quote(operands[0])+" beside it", c.name)
		}
		return s.answer(c.name)
	}
	return o.Run(s, operands)
}

func flagSet(c *command, o options) *pflag.FlagSet {
	fs := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetInterspersed(!c.strict)
	o.AddFlags(fs)
	return fs
}

// parseError says in our words what pflag found.
func parseError(c *command, err error) error {
	var (
		known   *api.Error
		value   *pflag.InvalidValueError
		missing *pflag.ValueRequiredError
		unknown *pflag.NotExistError
	)
	switch {
	case errors.As(err, &known):
		if known.Hint == "" {
			known.Hint = "see space-job " + c.name + " --help"
		}
		return known
	case errors.As(err, &value):
		return usage(value.GetFlag().Name+": "+quote(value.GetValue())+" is neither true nor false", c.name)
	case errors.As(err, &missing):
		return usage("--"+missing.GetFlag().Name+" needs a value", c.name)
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		return usage("unknown flag: "+short(name), c.name)
	}
	return usage(short(err.Error()), c.name)
}

// unknownCommand names the command that was perhaps meant, among names; of is
// the command whose they are, if any.
func unknownCommand(given string, names []string, of string) *api.Error {
	if of != "" {
		of += " "
	}
	e := usage("unknown command: "+of+quote(given), strings.TrimSpace(of))
	least := 3 // edits
	for _, name := range names {
		if n := edits(given, name); n < least && n < len(name)-1 || len(given) > 2 && strings.HasPrefix(name, given) {
			least = min(n, least)
			e.Hint = "did you mean space-job " + of + name + "? See space-job " + of + "--help"
		}
	}
	return e
}

// edits is how many bytes are to be put in, left out or replaced to make b of a.
func edits(a, b string) int {
	if len(a) > 2*len(b) {
		return len(a) // far off
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			n := before
			if a[i] != b[j] {
				n = min(before, row[j], row[j+1]) + 1
			}
			before, row[j+1] = row[j+1], n
		}
	}
	return row[len(b)]
}

// usage is the error of a command line that cannot be understood.
func usage(message, command string) *api.Error {
	hint := "see space-job --help"
	if command != "" {
		hint = "see space-job " + command + " --help"
	}
	return &api.Error{Code: api.InvalidArgument, Message: message, Hint: hint}
}

// exitCode is what the program exits with after a fault.
func exitCode(c api.Code) int {
	switch c {
	case api.InvalidArgument, api.Ambiguous, api.LimitExceeded:
		return exitUsage
	case api.NotFound:
		return exitNotFound
	case api.ApprovalRequired:
		return exitApproval
	case api.ApprovalDenied:
		return exitDenied
	}
	return exitFailed
}

// value is a flag whose text is parsed by package api.
type value struct {
	kind string
	set  func(string) error
}

func (v value) String() string     { return "" }
func (v value) Set(s string) error { return v.set(s) }
func (v value) Type() string       { return v.kind }

// parsed is a flag of any type, with the function that reads it.
func parsed[T any](p *T, kind string, parse func(string) (T, error)) value {
	return value{kind, func(s string) error {
		v, err := parse(s)
		if err == nil {
			*p = v
		}
		return err
	}}
}

// text is a flag that takes any text.
func text(p *string, kind string) value {
	return parsed(p, kind, func(s string) (string, error) { return s, nil })
}

// named is a flag whose reader says the field in its errors.
func named[T any](p *T, field, kind string, parse func(field, s string) (T, error)) value {
	return parsed(p, kind, func(s string) (T, error) { return parse(field, s) })
}

// given is a flag that takes any text but none: "" there is a variable that
// somebody forgot to set, and no wish.
func given(p *string, field, kind string) value { return named(p, field, kind, api.ParseText) }

// number is a flag that takes a whole number.
func number(p *int64, field string, parse func(field, s string) (int64, error)) value {
	return named(p, field, "N", parse)
}
