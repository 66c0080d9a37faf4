package api

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"space-job/cmd/internal/policy"
	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
	"space-job/runner"
)

// Approval is a start that waits for a person's word, or has it.
type Approval struct {
	Request   string        `json:"request"` // its id
	State     string        `json:"state"`   // "pending", "approved" or "denied"
	Command   string        `json:"command"` // the shell string, or
	Argv      []string      `json:"argv"`    // what is run as it stands
	Until     bool          `json:"until"`   // the command is tried again and again, until it succeeds
	Cwd       string        `json:"cwd"`
	Env       []string      `json:"env"` // the names of the variables that are set for it
	Space     string        `json:"space"`
	By        thread.Author `json:"by"`  // who wants to start it
	Why       string        `json:"why"` // what asks for it
	At        time.Time     `json:"at"`
	ExpiresAt time.Time     `json:"expires_at"`
}

// ApprovalsResult are all requests that are not done with, oldest first.
type ApprovalsResult struct {
	Approvals []Approval `json:"approvals"`
	Warnings  []string   `json:"-"`
}

// Ways in which a person's word comes.
const (
	ViaTerminal = "terminal" // of the calling process
	ViaClient   = "client"   // a dialogue of the program that an agent runs in
)

// ApproveRequest is a person's word.
type ApproveRequest struct {
	ID   string
	Deny bool
	Rule bool          // from now on, too: it becomes a rule of the policy
	By   thread.Author // who says so, as far as it is known; never an agent
	Via  string        // ViaTerminal or ViaClient
}

// ApproveResult is what was decided.
type ApproveResult struct {
	Approval
	Rule     *int     `json:"rule"` // the number of the rule that was written, or null
	Warnings []string `json:"-"`
}

// PolicyShown is the policy as it is read.
type PolicyShown struct {
	Path     string        `json:"path"`
	Present  bool          `json:"present"`
	Personal bool          `json:"personal"`
	Rules    []policy.Rule `json:"rules"`
	Default  string        `json:"default"` // what is said where no rule matches
	Error    *string       `json:"error"`   // why the file cannot be used
}

// PolicyRequest is a command to be judged, and not run.
type PolicyRequest struct {
	Command string   // a shell string, or
	Argv    []string // what is run as it stands
	Cwd     string   // "": here
	Env     []string // as in StartRequest
	Member  string   // who would run it: see Identity
}

// PolicyResult is the verdict on a command.
type PolicyResult struct {
	Verdict  string   `json:"verdict"` // "allow", "ask" or "deny"
	Rule     *int     `json:"rule"`    // the number of the rule, from 1; null: the default
	Why      string   `json:"why"`
	Warnings []string `json:"warnings"`
}

func (a *Actions) questions() *policy.Store { return &policy.Store{Root: a.root, Now: a.now} }

// deciding are variables of the caller that say which program a name stands for,
// or make it another one. An approval is for a start that has the same.
var deciding = []string{"PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "ENV", "BASH_ENV", "IFS"}

// asked is a start as a person is asked about it: names are the variables that are
// set for it, env is its whole environment.
func (a *Actions) asked(member string, names, env []string, cwd string) policy.Start {
	s := policy.Start{Cwd: cwd, Space: policy.Local}
	if real, err := filepath.EvalSymlinks(cwd); err == nil {
		s.Real = real
	}
	// Who is not a member here is nobody that a rule allows anything to.
	if who, err := a.Identity(member); err == nil {
		s.By = policy.Who(who)
	}
	s.Env = slices.Clone(names)
	slices.Sort(s.Env)
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(s.Env, name) || slices.Contains(deciding, name) {
			s.Values = append(s.Values, kv)
		}
	}
	return s
}

// permit judges a start. It makes nothing, apart from the question that waits for
// a person and a line of the audit log. use is nil where there is nothing to use up.
func (a *Actions) permit(req *StartRequest, spec *runner.Spec, cmd *jobdir.Cmd) (use *approved, existing *StartResult, warnings []string, err error) {
	p := policy.Load(a.root.Path())
	if !p.Present() {
		return nil, nil, nil, nil
	}
	s := a.asked(req.Member, cmd.Env, spec.Env, cmd.Cwd)
	if !runs(&s, req, cmd.Until) {
		return nil, nil, nil, nil
	}
	d, line, warnings := a.judge(p, &s)
	if d.Verdict == policy.Allow {
		return nil, nil, warnings, nil
	}
	if req.Key != "" {
		if id, ok := a.root.KeyJob(req.Key); ok {
			res, there, err := a.underKey(req.Key, id, cmd)
			if there || err != nil {
				return nil, &res, nil, err
			}
		}
	}
	use, err = a.asking(d, line, &s, req.Approval)
	return use, nil, nil, err
}

// permitThere judges a start in another Space, as permit does: by the rules here, for
// the Space by its name. What the folder is over there is not known here, nor what a
// program's name stands for. It reports whether a person's word was asked for here.
func (a *Actions) permitThere(req *StartRequest, names, env []string) (use *approved, warnings []string, asked bool, err error) {
	p := policy.Load(a.root.Path())
	if !p.Present() && !a.away.space.Machine {
		return nil, nil, false, nil
	}
	s := a.askedThere(req.Member, names, env, req.Cwd)
	var until json.RawMessage
	if req.Until != nil {
		until = req.Until.JSON()
	}
	if !runs(&s, req, until) {
		return nil, nil, false, nil
	}
	d, line, warnings := a.judge(p, &s)
	if d.Verdict == policy.Allow {
		return nil, warnings, false, nil
	}
	use, err = a.asking(d, line, &s, req.Approval)
	return use, nil, true, err
}

// askedThere is asked for a start in another Space.
func (a *Actions) askedThere(member string, names, env []string, cwd string) policy.Start {
	s := policy.Start{Cwd: cwd, Space: a.away.space.Name, Machine: a.away.space.Machine, Env: slices.Clone(names), Values: slices.Clone(env)}
	if filepath.IsAbs(cwd) && filepath.Clean(cwd) == cwd {
		s.Real = cwd
	}
	if cwd == "" {
		s.Cwd = thereHome
	}
	if who, err := a.Identity(member); err == nil {
		s.By = policy.Who(who)
	}
	slices.Sort(s.Env)
	return s
}

// thereHome is how the folder is called that a login elsewhere begins in.
const thereHome = "~"

// runs says what a start runs of the caller's, and reports whether that is anything.
func runs(s *policy.Start, req *StartRequest, until json.RawMessage) bool {
	switch {
	case req.Until == nil && req.Command != "":
		s.Command = req.Command
	case req.Until == nil:
		s.Argv = req.Argv
	case req.Until.Command != "":
		s.Command, s.Until = req.Until.Command, until
	case req.Until.PRChecks != "" && len(s.Env) > 0:
		// The variables say which gh that is.
		s.Argv, s.Until = []string{"gh", "pr", "checks", req.Until.PRChecks}, until
	default:
		return false
	}
	return true
}

// judge decides about a start, and writes down that it is allowed.
func (a *Actions) judge(p *policy.Policy, s *policy.Start) (d policy.Decision, line policy.Line, warnings []string) {
	d = p.Decide(s.Request())
	line = policy.Line{Decision: string(d.Verdict), Rule: d.Rule, Why: d.Why, Start: *s}
	if d.Verdict == policy.Allow {
		if err := a.questions().Audit(line); err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	return d, line, warnings
}

// approved is a person's word for a start.
type approved struct {
	a        *Actions
	id       string
	start    *policy.Start
	question *policy.Question // nil: it is not used yet
}

// use uses the word up. It is called right before the start is made, and may refuse
// it still. Further calls are for the same start, and do nothing.
func (p *approved) use() error {
	if p == nil || p.question != nil {
		return nil
	}
	store := p.a.questions()
	q, err := store.Consume(p.id, p.start, func() error {
		return store.Audit(policy.Line{Decision: "consume", Request: p.id, Start: *p.start})
	})
	if errors.Is(err, policy.ErrNoQuestion) {
		return &Error{Code: ApprovalRequired, Message: "request " + p.id + " was used by another start, or has expired",
			Hint: "start it again without it: a person is asked anew", cause: err}
	}
	p.question = q
	return fault(err)
}

// putBack takes it back: the start has failed with err, and has run nothing.
func (p *approved) putBack(err error) error {
	if p == nil || p.question == nil {
		return err
	}
	store := p.a.questions()
	if bad := store.PutBack(p.question); bad != nil {
		e := *AsError(err)
		e.Message += "; request " + p.id + " is used up by this, as it could not be put back: " + bad.Error()
		return &e
	}
	p.question = nil
	_ = store.Audit(policy.Line{Decision: "put back", Request: p.id, Why: err.Error(), Start: *p.start}) // the disk may be full
	return err
}

// asking is what a start needs that is not simply allowed: a person's word.
func (a *Actions) asking(d policy.Decision, line policy.Line, s *policy.Start, approval string) (use *approved, err error) {
	store := a.questions()
	if d.Verdict == policy.Deny {
		e := &Error{Code: ApprovalDenied, Message: "the policy does not allow this: " + d.Why,
			Hint: "see the rules: space-job policy show"}
		if err := store.Audit(line); err != nil {
			e.Message += " (" + err.Error() + ")"
		}
		return nil, e
	}
	refused := ""
	if approval != "" {
		switch err := store.Check(approval, s); {
		case err == nil:
			return &approved{a: a, id: approval, start: s}, nil
		case errors.Is(err, policy.ErrNoQuestion):
			refused = "there is no request " + approval + ", or it was used, or it has expired; "
		case errors.Is(err, policy.ErrOther):
			refused = "request " + approval + " is for another start (the command, folder, variables, who starts it and PATH must be the same); "
		case !errors.As(err, new(*policy.StateError)):
			refused = err.Error() + "; "
		}
	}
	return nil, a.askPerson(*s, line, refused)
}

// askPerson keeps the question, and is the error that says so.
func (a *Actions) askPerson(s policy.Start, line policy.Line, refused string) error {
	store := a.questions()
	q, err := store.Ask(s, line.Why)
	switch {
	case errors.Is(err, policy.ErrFull):
		return &Error{Code: LimitExceeded, Message: "approval: " + strconv.Itoa(policy.MaxQuestions) + " requests wait to be decided, which is the most there may be",
			Hint: "a person sees and decides them: space-job approvals", cause: err}
	case errors.Is(err, policy.ErrTooLong):
		return &Error{Code: LimitExceeded, Message: "approval: a person is to be asked, and the command is too long to be shown: at most " + FormatSize(policy.MaxShown),
			Hint: "put it into a file and let the command read that", cause: err}
	case errors.Is(err, policy.ErrIllegible):
		return &Error{Code: InvalidArgument, Message: "approval: a person is to be asked, and the command " + err.Error(), cause: err}
	case err != nil:
		return fault(err)
	}
	line.Request = q.ID
	if err := store.Audit(line); err != nil {
		return fault(err)
	}
	e := &Error{Code: ApprovalRequired, Request: q.ID}
	switch q.State {
	case policy.Denied:
		e.Code = ApprovalDenied
		e.Message = refused + "request " + q.ID + " for this start was denied by a person"
		e.Hint = "do something else, or say in the thread why it is needed"
	case policy.Approved:
		e.Message = refused + "request " + q.ID + " for this start is approved, and waits to be used"
		e.Hint = "start it again with --approval " + q.ID + ", before " + q.Expires().Local().Format("15:04")
	default:
		e.Message = refused + "a person is to approve this first, as request " + q.ID + ": " + line.Why
		e.Hint = "a person does so on a terminal: space-job approvals approve " + q.ID + "; then start it again with --approval " + q.ID + ", within 15 minutes"
	}
	return e
}

// Approvals lists what waits for a person's word, and what has it.
func (a *Actions) Approvals() (ApprovalsResult, error) {
	res := ApprovalsResult{Approvals: []Approval{}}
	all, damaged, err := a.questions().List()
	for _, q := range all {
		res.Approvals = append(res.Approvals, approval(q))
	}
	for _, d := range damaged {
		res.Warnings = append(res.Warnings, d.Error())
	}
	return res, fault(err)
}

func approval(q *policy.Question) Approval {
	s := &q.Start
	return Approval{Request: q.ID, State: string(q.State), Command: s.Command, Argv: orNone(s.Argv), Until: s.Until != nil, Cwd: s.Cwd,
		Env: orNone(s.Env), Space: s.Space, By: thread.Author(s.By), Why: q.Why, At: q.At, ExpiresAt: q.Expires()}
}

func orNone(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

// Line is the command as one would type it.
func (p *Approval) Line() string {
	if p.Command != "" {
		return p.Command
	}
	return jobdir.ShellLine(p.Argv)
}

// Approval is one of them.
func (a *Actions) Approval(id string) (Approval, error) {
	q, err := a.questions().Get(id)
	if err != nil {
		return Approval{}, noQuestion(id, err)
	}
	return approval(q), nil
}

func noQuestion(id string, err error) error {
	var state *policy.StateError
	switch {
	case errors.Is(err, policy.ErrNoQuestion):
		return &Error{Code: NotFound, Message: "there is no request " + shown(id) + ", or it was used, or it has expired",
			Hint: "see which there are: space-job approvals", cause: err}
	case errors.As(err, &state):
		return &Error{Code: Conflict, Message: "request " + state.ID + " is " + string(state.State) + " already", cause: err}
	}
	return fault(err)
}

// Approve approves or denies a start that waits for it, once. It is for a person:
// an agent is refused, and so is whatever runs in a job.
func (a *Actions) Approve(req ApproveRequest) (ApproveResult, error) {
	var res ApproveResult
	if !policy.ValidID(req.ID) {
		return res, invalid("request", req.ID, "is no id of a request, which is a and 16 hex digits")
	}
	if err := a.isPerson(&req); err != nil {
		return res, err
	}
	store := a.questions()
	verdict, line := policy.Deny, policy.Line{Decision: "refuse", Request: req.ID, By: policy.Who(req.By), Via: req.Via}
	if !req.Deny {
		verdict, line.Decision = policy.Allow, "approve"
	}
	q, err := store.Answer(req.ID, !req.Deny, policy.Who(req.By), req.Via, func(q *policy.Question) error {
		line.Start = q.Start
		if req.Rule {
			if len(q.Start.Env) > 0 && !req.Deny {
				return &Error{Code: InvalidArgument, Message: "rule: a rule holds no values of variables, and this start sets " + strings.Join(q.Start.Env, ", "),
					Hint: "approve it once"}
			}
			n, err := store.AddRule(q, verdict)
			if err != nil {
				return &Error{Code: Conflict, Message: "no rule can be added: " + err.Error(), Hint: "repair it, or decide this once", cause: err}
			}
			line.Added, res.Rule = n, &n
		}
		return store.Audit(line)
	})
	if err != nil {
		res.Rule = nil
		return res, noQuestion(req.ID, err)
	}
	res.Approval = approval(q)
	return res, nil
}

// isPerson refuses a word that is none of a person.
func (a *Actions) isPerson(req *ApproveRequest) error {
	refuse := func(why string) error {
		return &Error{Code: ApprovalDenied, Message: "request " + req.ID + ": " + why, Hint: "a person does so on a terminal of their own: space-job approvals"}
	}
	if id := os.Getenv(record.EnvJob); id != "" {
		return refuse("nothing that runs in a job (" + shown(id) + ") can decide it")
	}
	if req.By.Kind != "" && req.By.Kind != thread.Person {
		return refuse(shown(req.By.Member) + " is of kind " + req.By.Kind + ", and a person decides it")
	}
	switch req.Via {
	case ViaClient:
		return nil
	case ViaTerminal:
	default:
		return invalid("via", req.Via, "is neither terminal nor client")
	}
	who, err := a.Identity("")
	if err != nil {
		return err
	}
	if who.Kind == thread.Agent {
		return refuse(shown(who.Member) + " ($" + record.EnvMember + ") is an agent, and a person decides it")
	}
	if !isTerminal(os.Stdin) || !isTerminal(os.Stderr) {
		return refuse("a person decides it on a terminal, and this is none")
	}
	return nil
}

// Askable is who may be asked at the terminal of this process: a person, or
// whoever is not known, but no agent, and nothing in a job.
func (a *Actions) Askable(member string) (thread.Author, bool) {
	who, err := a.Identity(member)
	caller, strange := a.Identity("")
	if err != nil || strange != nil || who.Kind == thread.Agent || caller.Kind == thread.Agent || os.Getenv(record.EnvJob) != "" {
		return thread.Author{}, false
	}
	return who, true
}

// PolicyCheck judges a command as a start of it would be judged.
func (a *Actions) PolicyCheck(req PolicyRequest) (PolicyResult, error) {
	res := PolicyResult{Warnings: []string{}}
	start := StartRequest{Command: req.Command, Argv: req.Argv}
	if _, err := commandOf(start); err != nil {
		return res, err
	}
	set, names, err := variables(req.Env)
	if err != nil {
		return res, err
	}
	cwd := req.Cwd
	if a.away == nil {
		if cwd, err = directory(req.Cwd); err != nil {
			return res, err
		}
	}
	if req.Member != "" {
		if _, err := a.Identity(req.Member); err != nil {
			return res, err
		}
	}
	p := policy.Load(a.root.Path())
	var s policy.Start
	if a.away != nil {
		s = a.askedThere(req.Member, names, nil, cwd)
	} else {
		s = a.asked(req.Member, names, withVariables(os.Environ(), set), cwd)
	}
	s.Command, s.Argv = req.Command, req.Argv
	d := p.Decide(s.Request())
	res.Verdict, res.Why = string(d.Verdict), d.Why
	if d.Rule > 0 {
		res.Rule = &d.Rule
	}
	if p.Present() {
		if err := a.questions().Audit(policy.Line{Decision: "check", Verdict: d.Verdict, Rule: d.Rule, Why: d.Why, Start: s}); err != nil {
			res.Warnings = append(res.Warnings, err.Error())
		}
	}
	return res, nil
}

// PolicyShow is the policy as it is read.
func (a *Actions) PolicyShow() PolicyShown {
	p := policy.Load(a.root.Path())
	res := PolicyShown{Path: filepath.Join(a.root.Path(), policy.File), Present: p.Present(), Personal: p.Personal, Rules: p.Rules, Default: string(policy.Allow)}
	if res.Rules == nil {
		res.Rules = []policy.Rule{}
	}
	if err := p.Broken(); err != nil {
		why := err.Error()
		res.Error = &why
	}
	if p.Personal || p.Broken() != nil {
		res.Default = string(policy.Ask)
	}
	return res
}

// Rows are the rules for people: number, verdict, member, Space, folder, command.
// The last is the default.
func (p *PolicyShown) Rows() [][]string {
	or := func(s *string) string {
		if s == nil {
			return "any"
		}
		return *s
	}
	var rows [][]string
	for i, r := range p.Rules {
		what := "any"
		switch {
		case r.Command != nil:
			what = *r.Command
		case r.Exact != nil:
			what = "exactly: " + *r.Exact
		case r.Argv != nil:
			what = "exactly: " + jobdir.ShellLine(r.Argv)
		}
		if len(r.Env) > 0 {
			what += " (may set " + strings.Join(r.Env, ", ") + ")"
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), string(r.Verdict), or(r.Member), or(r.Space), or(r.Cwd), what})
	}
	return append(rows, []string{"-", p.Default, "any", "any", "any", "any (the default)"})
}
