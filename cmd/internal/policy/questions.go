package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// Dir is the name of the folder of questions in the root.
const Dir = "approvals"

// Limits of questions.
const (
	MaxQuestions = 100              // that are kept at once
	MaxShown     = 128 << 10        // bytes of a command that a person can be asked about
	Holds        = 15 * time.Minute // how long an approval holds, and a denial is remembered
	Waits        = 24 * time.Hour   // how long a question waits for a person

	lockName    = ".lock"
	maxQuestion = 2 << 20
	backwards   = time.Minute // so far a clock may be set back under an approval
)

// State is where a question stands.
type State string

// The states of a question.
const (
	Pending  State = "pending"
	Approved State = "approved"
	Denied   State = "denied"
)

// Who is who wants something, or says so.
type Who struct {
	Member string `json:"member"`
	Kind   string `json:"kind"`
}

// Start is a start that somebody is asked about: all that decides what it does.
type Start struct {
	Command string          `json:"command"`         // a shell string, or
	Argv    []string        `json:"argv"`            // what is run as it stands
	Until   json.RawMessage `json:"until,omitempty"` // the condition whose command it is, or null
	Cwd     string          `json:"cwd"`
	Real    string          `json:"real_cwd"` // the same without symbolic links
	Env     []string        `json:"env"`      // names
	Space   string          `json:"space"`
	Machine bool            `json:"machine,omitempty"` // that Space is a person's own machine
	By      Who             `json:"by"`

	// Values are the variables that are set, and those of the caller's that decide
	// which program a name is: NAME=value. They are kept as a digest alone.
	Values []string `json:"-"`
}

// Request is the start as it is judged.
func (s *Start) Request() Request {
	return Request{Member: s.By.Member, Space: s.Space, Machine: s.Machine, Command: s.Command, Argv: s.Argv, Cwd: s.Real, Env: s.Env}
}

// Question is a start that waits for a person's word, or has it.
type Question struct {
	Format    int       `json:"format"`
	ID        string    `json:"id"`
	State     State     `json:"state"`
	Start     Start     `json:"start"`
	Why       string    `json:"why"`
	At        time.Time `json:"at"`
	DecidedAt time.Time `json:"decided_at,omitzero"`
	DecidedBy Who       `json:"decided_by,omitzero"`
	Via       string    `json:"via,omitempty"`

	Salt   string `json:"salt"`
	Values string `json:"values"` // digest of the start's values
	Digest string `json:"digest"` // of all of the start
}

const format = 1

// Expires is when the question is no more.
func (q *Question) Expires() time.Time {
	if q.State == Pending {
		return q.At.Add(Waits)
	}
	return q.DecidedAt.Add(Holds)
}

// expired: also one of the future, which a clock that was set back has made.
func (q *Question) expired(now time.Time) bool {
	since := q.At
	if q.State != Pending {
		since = q.DecidedAt
	}
	return !now.Before(q.Expires()) || now.Before(since.Add(-backwards))
}

// Errors that callers match with errors.Is.
var (
	ErrNoQuestion = errors.New("no such request") // never was, was used, or has expired
	ErrFull       = errors.New("too many requests wait to be decided")
	ErrTooLong    = errors.New("is too long to be shown to a person")
	ErrIllegible  = errors.New("holds bytes that are not UTF-8, which a person cannot be shown")
	ErrOther      = errors.New("is for another start")
)

// StateError is a question that stands elsewhere than it must.
type StateError struct {
	ID    string
	State State
}

func (e *StateError) Error() string { return "request " + e.ID + " is " + string(e.State) }

// ValidID reports whether s can name a question.
func ValidID(s string) bool { return len(s) == 17 && s[0] == 'a' && record.IsHex(s[1:]) }

// digests are those of a start: of its values, and of all of it.
func (s *Start) digests(salt string) (values, all string) {
	list := slices.Clone(s.Values)
	slices.Sort(list)
	values = Digest(salt, list)
	return values, s.digest(salt, values)
}

func (s *Start) digest(salt, values string) string {
	var b bytes.Buffer
	_ = json.Compact(&b, s.Until) // a reader may have put blanks into it
	return Digest(salt, append([]string{values, "command", s.Command, "until", b.String(), "cwd", s.Cwd, s.Real,
		"space", s.Space, "by", s.By.Member, s.By.Kind, "env", strings.Join(s.Env, "\x00"), "argv"}, s.Argv...))
}

// whole reports whether the question is what was written: what a person is shown
// is what is run.
func (q *Question) whole(id string) bool {
	return q.Format == format && q.ID == id && (q.State == Pending || q.State == Approved || q.State == Denied) &&
		!q.At.IsZero() && (q.State == Pending) == q.DecidedAt.IsZero() && len(q.Salt) == 32 &&
		q.Start.digest(q.Salt, q.Values) == q.Digest
}

// fits reports whether the question is about this start.
func (q *Question) fits(s *Start) bool {
	_, all := s.digests(q.Salt)
	return all == q.Digest
}

// Store keeps the questions of a root.
type Store struct {
	Root *jobdir.Root
	Now  func() time.Time
}

func (s *Store) path(id string) string { return filepath.Join(s.Root.Path(), Dir, id) }

// lock makes the folder and locks it.
func (s *Store) lock() (unlock func(), err error) {
	dir, err := s.Root.MakeDir(Dir)
	if err != nil {
		return nil, err
	}
	return jobdir.LockFile(filepath.Join(dir, lockName))
}

// Get is a question that is there and holds.
func (s *Store) Get(id string) (*Question, error) {
	if !ValidID(id) {
		return nil, ErrNoQuestion
	}
	q, err := s.load(id)
	if err != nil {
		return nil, err
	}
	if q.expired(s.Now()) {
		return nil, ErrNoQuestion
	}
	return q, nil
}

func (s *Store) load(id string) (*Question, error) {
	if _, there, err := s.Root.Dir(Dir); err != nil {
		return nil, err
	} else if !there {
		return nil, ErrNoQuestion
	}
	b, err := jobdir.ReadOwn(s.path(id), maxQuestion, writable)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoQuestion
	}
	if err != nil {
		return nil, err
	}
	var q Question
	if err := json.Unmarshal(b, &q); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.path(id), err)
	}
	if !q.whole(id) {
		return nil, fmt.Errorf("read %s: it is not as it was written", s.path(id))
	}
	return &q, nil
}

// names are those of the files that may be questions.
func (s *Store) names() (ids []string, other []string, err error) {
	dir, there, err := s.Root.Dir(Dir)
	if err != nil || !there {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		switch {
		case ValidID(e.Name()):
			ids = append(ids, e.Name())
		case e.Name() != lockName:
			other = append(other, e.Name())
		}
	}
	return ids, other, nil
}

// Ask keeps a question, or finds the one about the same start: it may have been
// decided meanwhile.
func (s *Store) Ask(start Start, why string) (*Question, error) {
	n := len(start.Command) + len(start.Until)
	for _, l := range [][]string{start.Argv, start.Env} {
		for _, a := range l {
			n += len(a) + 1
		}
	}
	if n > MaxShown {
		return nil, ErrTooLong
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := s.sweep(); err != nil {
		return nil, err
	}
	all, _, err := s.List()
	if err != nil {
		return nil, err
	}
	for _, q := range all {
		if q.fits(&start) {
			return q, nil
		}
	}
	if ids, _, err := s.names(); err != nil {
		return nil, err
	} else if len(ids) >= MaxQuestions {
		return nil, ErrFull
	}
	unique, err := Random(8)
	if err != nil {
		return nil, err
	}
	salt, err := Random(16)
	if err != nil {
		return nil, err
	}
	q := &Question{Format: format, ID: "a" + unique, State: Pending, Start: start, Why: why, At: s.Now().UTC().Truncate(time.Millisecond), Salt: salt}
	q.Values, q.Digest = start.digests(q.Salt)
	q.Start.Values = nil
	if !q.Start.legible() {
		return nil, ErrIllegible
	}
	return q, s.write(q, false)
}

// legible reports whether the start survives being written: JSON has no form for
// bytes that are not UTF-8.
func (s *Start) legible() bool {
	var back Start
	if err := json.Unmarshal(jobdir.Line(s), &back); err != nil {
		return false
	}
	return s.digest("", "") == back.digest("", "")
}

func (s *Store) write(q *Question, sync bool) error {
	crash("question.write")
	if err := jobdir.ReplaceFile(s.path(q.ID), jobdir.Line(q), sync); err != nil {
		return err
	}
	crash("question.written")
	return nil
}

// List lists the questions, oldest first, and what is wrong with files among them.
func (s *Store) List() (all []*Question, damaged []error, err error) {
	ids, _, err := s.names()
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		switch q, err := s.Get(id); {
		case errors.Is(err, ErrNoQuestion):
		case err != nil:
			damaged = append(damaged, err)
		default:
			all = append(all, q)
		}
	}
	slices.SortFunc(all, func(a, b *Question) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, damaged, nil
}

// Answer decides a question, once. What first says under the lock, before that,
// can stop it.
func (s *Store) Answer(id string, approve bool, by Who, via string, first func(*Question) error) (*Question, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	q, err := s.Get(id)
	if err != nil {
		return nil, err
	}
	if q.State != Pending {
		return q, &StateError{id, q.State}
	}
	if first != nil {
		if err := first(q); err != nil {
			return nil, err
		}
	}
	if q.State = Denied; approve {
		q.State = Approved
	}
	q.DecidedAt, q.DecidedBy, q.Via = s.Now().UTC().Truncate(time.Millisecond), by, via
	return q, s.write(q, true)
}

// Check reports whether the start may use the approval, and changes nothing.
func (s *Store) Check(id string, start *Start) error {
	q, err := s.Get(id)
	if err != nil {
		return err
	}
	if !q.fits(start) {
		return ErrOther
	}
	if q.State != Approved {
		return &StateError{id, q.State}
	}
	return nil
}

// Consume uses the approval up. Of any number that try, one succeeds. It is gone
// for good before Consume returns. What first says under the lock, before that, can
// stop it. The question is for [Store.PutBack].
func (s *Store) Consume(id string, start *Start, first func() error) (*Question, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.Check(id, start); err != nil {
		return nil, err
	}
	q, err := s.load(id)
	if err != nil {
		return nil, err
	}
	if first != nil {
		if err := first(); err != nil {
			return nil, err
		}
	}
	crash("consume.noted")
	if err := os.Remove(s.path(id)); err != nil {
		return nil, err
	}
	crash("consume.removed")
	if err := jobdir.SyncDir(filepath.Join(s.Root.Path(), Dir)); err != nil {
		return nil, err
	}
	crash("consume.synced")
	return q, nil
}

// PutBack takes back that an approval was used: the start has failed, and has run
// nothing. It holds no longer than it would have.
func (s *Store) PutBack(q *Question) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return s.write(q, true)
}

// Sweep removes what has expired, and what writers that were killed have left.
func (s *Store) Sweep() (removed int, err error) {
	if _, there, err := s.Root.Dir(Dir); err != nil || !there {
		return 0, errors.Join(err, s.sweepRoot())
	}
	unlock, err := s.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	removed, err = s.sweep()
	return removed, errors.Join(err, s.sweepRoot())
}

const leftover = time.Hour

func (s *Store) sweep() (removed int, err error) {
	ids, other, err := s.names()
	if err != nil {
		return 0, err
	}
	now := s.Now()
	for _, id := range ids {
		q, err := s.load(id)
		old := err == nil && q.expired(now)
		if err != nil { // damaged: it is no approval, and stays for a day to be looked at
			info, e := os.Lstat(s.path(id))
			old = e == nil && now.Sub(info.ModTime()) > Waits
		}
		if old && os.Remove(s.path(id)) == nil {
			removed++
		}
	}
	dir := filepath.Join(s.Root.Path(), Dir)
	for _, name := range other {
		if strings.HasPrefix(name, jobdir.TempPrefix) && sweepOld(filepath.Join(dir, name), now) {
			removed++
		}
	}
	return removed, nil
}

// sweepRoot removes unfinished policies.
func (s *Store) sweepRoot() error {
	names, err := filepath.Glob(filepath.Join(s.Root.Path(), jobdir.TempPrefix+File+"-*"))
	for _, name := range names {
		sweepOld(name, s.Now())
	}
	return err
}

func sweepOld(path string, now time.Time) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > leftover && os.Remove(path) == nil
}

// AddRule puts a rule into the policy for the very start of a question: before
// the rule that decided, so that it decides from now on. The caller holds the lock
// (see Answer). A policy that cannot be used is not touched.
func (s *Store) AddRule(q *Question, verdict Verdict) (number int, err error) {
	p := Load(s.Root.Path())
	if p.broken != nil {
		return 0, p.broken
	}
	start := &q.Start
	if start.Space != Local && start.Real == "" && verdict == Allow {
		return 0, errors.New("the start names no folder by its whole path (--cwd DIR), and a rule that allows is for one")
	}
	r := Rule{Space: &start.Space, Verdict: verdict, Argv: start.Argv}
	if start.By.Member != "" {
		r.Member = &start.By.Member
	}
	if start.Command != "" {
		r.Exact = &start.Command
	}
	if verdict == Allow {
		r.Cwd = &start.Real
	}
	if err := r.check(); err != nil {
		return 0, err
	}
	at := len(p.Rules)
	if d := p.Decide(start.Request()); d.Rule > 0 {
		if reflect.DeepEqual(p.Rules[d.Rule-1], r) { // somebody died before the question was decided
			return d.Rule, nil
		}
		at = d.Rule - 1
	}
	p.Rules = slices.Insert(p.Rules, at, r)
	if len(p.Rules) > maxRules {
		return 0, fmt.Errorf("%s has %d rules already", File, maxRules)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(p); err != nil {
		return 0, err
	}
	crash("rule.write")
	if err := jobdir.ReplaceFile(filepath.Join(s.Root.Path(), File), b.Bytes(), true); err != nil {
		return 0, err
	}
	crash("rule.written")
	return at + 1, nil
}
