// Package policy says whether a command may be started: at once, after a person
// has said so, or not at all. It judges, keeps the questions that wait for a
// person, and writes down what was decided. It runs nothing.
//
// # The policy
//
// <root>/policy.json is read at every call, whole or not at all:
//
//	{"personal": false,
//	 "rules": [
//	   {"command": "git push *", "verdict": "ask"},
//	   {"member": "ann", "command": "make *", "cwd": "/src/app", "env": ["CI"], "verdict": "allow"},
//	   {"verdict": "ask"}]}
//
// The first rule that matches decides. With none, the default does: allow, and ask
// where personal says that this Space is a person's own machine. Without the file
// it is allow. A file that is there and cannot be used (damaged, with a field that
// is not known, a symbolic link, owned by somebody else, open to the writing of
// others, too long) decides nothing: as it may have said anything, everything is
// asked for.
//
// A rule holds for whoever, wherever and whatever it does not name:
//
//	member   who starts it
//	space    where: "local" is this Space, others have their names in spaces.json
//	command  a pattern of the command; or
//	exact    the shell string, letter by letter; or
//	argv     program and arguments, letter by letter, run without a shell
//	cwd      the folder it runs in, or one above that
//	env      names of variables that may be set for it; for allow alone
//	verdict  allow, ask or deny
//
// # What a pattern matches
//
// In a pattern, * stands for any text, and everything else for itself. A pattern
// is compared with the shell string; with the argv as a shell would be given it.
// It is as narrow as can be where it allows, and as wide where it does not.
//
// To allow: the whole command, from its first byte to its last. A * stands for no
// ; & | < > ( ) $ ` # \ and no control character such as a newline, so that one
// simple command stays one; and for no quote, where the pattern has one itself.
// Where the start sets variables that the rule does not name, the rule does not
// match: PATH decides which make "make" is. The variables that the caller has
// itself are not looked at. Names of programs are looked up as ever: name a cwd
// where "./build" or a Makefile matters.
//
// To ask or deny: each simple command of the text by itself, in capitals or not,
// without quotes, leading variables, keywords and the folder of the program, also
// behind sudo, env, xargs and the like and within sh -c and eval; "rm *" is also rm
// alone. Where it cannot be told what the text runs ($X, `...`, a pipe into sh),
// such a rule asks. A rule for one member matches a caller who does not say who it
// is, too. This cannot be complete: a script, python -c or make can run anything.
// Who wants a wall allows what is harmless, and asks for the rest.
//
// # Questions
//
// <root>/approvals/<id> is a start that a person is asked about: what a person is
// shown, and a salted digest of that and of the values of its variables, as values
// never reach a file. Changes are made under the lock of approvals/.lock, each by
// one rename or one removal. A question is decided once. An approval holds for 15
// minutes, for the very start that was asked about, and is removed right before that
// goes through: once, or if something dies in between, not at all. Where the start
// fails then, having run nothing, it is put back. There are
// [MaxQuestions] at most; one that nobody decides is gone after a day.
//
// # The audit log
//
// <root>/audit.log has a line of JSON for every decision. Only what the default
// allows where there is no policy.json leaves no line: such a start costs one look
// at a file that is not there. A log over 16 MiB becomes audit.log.old.
//
// All of this keeps honest programs apart. Whoever has the uid of the root can
// write all its files: to a hostile program this is no wall.
package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"space-job/jobdir"
)

// Verdict is what is decided about a command.
type Verdict string

// The verdicts.
const (
	Allow Verdict = "allow"
	Ask   Verdict = "ask"
	Deny  Verdict = "deny"
)

// Local is the name of this Space in rules.
const Local = "local"

// File is the policy's name in the root.
const File = "policy.json"

// Limits of a policy.
const (
	maxFile    = 4 << 20
	maxRules   = 1000
	maxPattern = 4 << 10
)

// Rule is one rule. What is nil matches all.
type Rule struct {
	Member  *string  `json:"member,omitempty"`
	Space   *string  `json:"space,omitempty"`
	Command *string  `json:"command,omitempty"`
	Exact   *string  `json:"exact,omitempty"`
	Argv    []string `json:"argv,omitempty"`
	Cwd     *string  `json:"cwd,omitempty"`
	Env     []string `json:"env,omitempty"`
	Verdict Verdict  `json:"verdict"`
}

// Policy is what is decided by. The zero value is that of a root without a file.
type Policy struct {
	Personal bool   `json:"personal,omitempty"`
	Rules    []Rule `json:"rules"`

	present bool
	broken  error
}

// Present reports whether there is a file, whatever is in it.
func (p *Policy) Present() bool { return p.present }

// Broken is why the file cannot be used, or nil.
func (p *Policy) Broken() error { return p.broken }

// Request is what is to be judged.
type Request struct {
	Member  string   // who, "" where nobody knows
	Space   string   // where, Local or a name
	Machine bool     // another Space than Local is a person's own machine
	Command string   // a shell string, or
	Argv    []string // what is run as it stands
	Cwd     string   // where it runs, with no symbolic link in it, "" where that cannot be told
	Env     []string // the names of the variables that are set for it
}

// Decision is a verdict and where it comes from.
type Decision struct {
	Verdict Verdict
	Rule    int    // its number, from 1; 0: the default
	Why     string // in words, for a person
}

// writable are the permissions that would let others write a file.
const writable = 0o022

// Load reads the policy of a root. It costs one failed open where there is none.
func Load(root string) *Policy {
	path := filepath.Join(root, File)
	b, err := jobdir.ReadOwn(path, maxFile, writable)
	if errors.Is(err, fs.ErrNotExist) {
		return &Policy{}
	}
	var p *Policy
	if err == nil {
		if p, err = parse(b); err != nil {
			err = fmt.Errorf("read %s: %w", path, err)
		}
	}
	if err != nil {
		return &Policy{present: true, broken: err}
	}
	p.present = true
	return p
}

// parse reads a policy. What it does not know it refuses: a rule that is read
// without one of its conditions would match too much.
func parse(b []byte) (*Policy, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	var p *Policy
	if err := d.Decode(&p); err != nil {
		if err == io.EOF {
			err = errors.New("is empty")
		}
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows its end")
	}
	if p == nil {
		return nil, errors.New("holds null")
	}
	if err := unambiguous(b); err != nil {
		return nil, err
	}
	if len(p.Rules) > maxRules {
		return nil, fmt.Errorf("has more than %d rules", maxRules)
	}
	for i := range p.Rules {
		if err := p.Rules[i].check(); err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
	}
	return p, nil
}

// unambiguous refuses an object that has one name twice, and null, which Go takes
// for a field that is left out.
func unambiguous(b []byte) error {
	type level struct {
		object bool
		names  map[string]bool
		name   bool // a name comes next
	}
	var stack []*level
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		t, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var top *level
		if len(stack) > 0 {
			top = stack[len(stack)-1]
		}
		switch t {
		case json.Delim('{'):
			stack = append(stack, &level{object: true, names: map[string]bool{}, name: true})
			continue
		case json.Delim('['):
			stack = append(stack, &level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			if stack = stack[:len(stack)-1]; len(stack) > 0 {
				top = stack[len(stack)-1]
			} else {
				top = nil
			}
		case nil:
			return errors.New("holds null: leave out what is not meant")
		default:
			if top != nil && top.object && top.name {
				name := strings.ToLower(t.(string))
				if top.names[name] {
					return fmt.Errorf("has %q twice", name)
				}
				top.names[name], top.name = true, false
				continue
			}
		}
		if top != nil && top.object {
			top.name = true // behind a value
		}
	}
}

func (r *Rule) check() error {
	given := 0
	for _, s := range []*string{r.Member, r.Space, r.Command, r.Exact, r.Cwd} {
		if s != nil && *s == "" {
			return errors.New("a field is empty: leave it out where it does not matter")
		}
	}
	if r.Command != nil {
		given++
		if len(*r.Command) > maxPattern {
			return fmt.Errorf("command is longer than %d bytes", maxPattern)
		}
	}
	if r.Exact != nil {
		given++
	}
	if r.Argv != nil {
		given++
		if len(r.Argv) == 0 || r.Argv[0] == "" {
			return errors.New("argv is empty: leave it out where it does not matter")
		}
	}
	switch {
	case given > 1:
		return errors.New("has more than one of command, exact and argv")
	case r.Cwd != nil && (!filepath.IsAbs(*r.Cwd) || filepath.Clean(*r.Cwd) != *r.Cwd):
		return fmt.Errorf("cwd %q is not an absolute path in its shortest form", *r.Cwd)
	case r.Verdict != Allow && r.Verdict != Ask && r.Verdict != Deny:
		return fmt.Errorf("verdict %q is none of allow, ask, deny", r.Verdict)
	case r.Env != nil && r.Verdict != Allow:
		return errors.New("env is for allow alone")
	}
	return nil
}

// Decide judges a request. It looks at nothing else.
func (p *Policy) Decide(q Request) Decision {
	var t *text
	if p.broken != nil {
		return Decision{Ask, 0, "the policy cannot be used: " + p.broken.Error()}
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		if !r.concerns(&q) {
			continue
		}
		n := i + 1
		if r.Verdict == Allow {
			if r.allows(&q) {
				return Decision{Allow, n, ruleName(n, r)}
			}
			continue
		}
		if r.Command == nil && r.Exact == nil && r.Argv == nil {
			return Decision{r.Verdict, n, ruleName(n, r)}
		}
		if t == nil {
			t = newText(&q)
		}
		switch {
		case t.matches(r):
			return Decision{r.Verdict, n, ruleName(n, r)}
		case t.opaque:
			return Decision{Ask, n, "it cannot be told what this runs, and " + ruleName(n, r)}
		}
	}
	switch {
	case q.Space != Local && q.Machine:
		return Decision{Ask, 0, "the Space " + q.Space + " is a person's own machine"}
	case q.Space == Local && p.Personal:
		return Decision{Ask, 0, "this Space is a person's own machine"}
	}
	return Decision{Allow, 0, "the default"}
}

func ruleName(n int, r *Rule) string {
	s := "rule " + strconv.Itoa(n) + " of " + File + " says " + string(r.Verdict)
	switch {
	case r.Command != nil:
		s += " for " + strconv.Quote(*r.Command)
	case r.Exact != nil:
		s += " for this command"
	case r.Argv != nil:
		s += " for this argv"
	}
	return s
}

// concerns compares all but the command.
func (r *Rule) concerns(q *Request) bool {
	if r.Member != nil && *r.Member != q.Member && (r.Verdict == Allow || q.Member != "") {
		return false
	}
	if r.Space != nil && *r.Space != q.Space {
		return false
	}
	if q.Cwd == "" && r.Cwd != nil { // it may be any
		return r.Verdict != Allow
	}
	return r.Cwd == nil || within(q.Cwd, *r.Cwd)
}

func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// allows compares the command with a rule that allows.
func (r *Rule) allows(q *Request) bool {
	switch {
	case r.Command != nil:
		line := q.Command
		if line == "" {
			line = jobdir.ShellLine(q.Argv)
		}
		if !narrow(*r.Command, line) {
			return false
		}
	case r.Exact != nil:
		if len(q.Argv) > 0 || q.Command != *r.Exact {
			return false
		}
	case r.Argv != nil:
		if q.Command != "" || !slices.Equal(q.Argv, r.Argv) {
			return false
		}
	default:
		return true // whatever it is, with whatever variables
	}
	for _, name := range q.Env {
		if !slices.Contains(r.Env, name) {
			return false
		}
	}
	return true
}
