package cli

import (
	"context"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type approvalsOptions struct{}

func approvalsCommand() *command {
	return &command{
		name:    "approvals",
		usage:   []string{"approvals"},
		summary: "see and decide what waits for a person's word",
		about: []string{
			"A start for which the policy says ask is refused with the id of a request. A person approves it here, and the same start with --approval ID goes through: once, within 15 minutes, and only if command, folder, variables with their values, the caller's PATH, Space and member are the same. A request that nobody decides is gone after a day.",
			"Deciding is for a person on a terminal. It is refused to a member of kind agent ($SPACE_MEMBER, --member) and within a job ($SPACE_JOB). This keeps honest programs apart; it is no wall against a hostile program of the same user.",
			"With --json approvals prints one document for each request on a line of its own: request, state (pending, approved, denied), command or argv, until (the command is a condition), cwd, env (names), space, by {member, kind}, why, at, expires_at.",
		},
		examples: []example{
			{"space-job approvals", ""},
			{"space-job approvals approve a5d1c06f2b9e8d374", "once"},
			{"space-job approvals approve a5d1c06f2b9e8d374 --rule", "this very command in this folder, from now on"},
			{"space-job approvals deny a5d1c06f2b9e8d374", ""},
		},
		exits: plainExits,
		new:   func() options { return new(approvalsOptions) },
		sub: []*command{
			{
				name:     "approvals list",
				usage:    []string{"approvals list"},
				summary:  "list the requests, oldest first",
				about:    []string{"The same as approvals alone."},
				examples: []example{{"space-job approvals list", ""}},
				exits:    plainExits,
				new:      func() options { return new(approvalsOptions) },
			},
			decideCommand("approve", "approve a request, so that its start goes through once",
				"Shows what would be started, and approves it. With --rule it is also written into policy.json, before the rule that asked: this very command, in this folder, for this member, from now on. A start that sets variables gets no rule, as a rule holds no values."),
			decideCommand("deny", "deny a request",
				"The same start is refused for 15 minutes with approval_denied; then a person can be asked again. With --rule it is also written into policy.json: this very command is denied from now on."),
		},
	}
}

var decideExits = []exit{{"0", "fine"}, {"1", "it failed, or was decided already"}, {"2", "a wrong flag or value"}, {"3", "no such request"}, {"5", "you are not who may decide it"}}

func decideCommand(verb, summary, about string) *command {
	return &command{
		name:     "approvals " + verb,
		usage:    []string{"approvals " + verb + " ID [--rule]"},
		summary:  summary,
		about:    []string{about},
		examples: []example{{"space-job approvals " + verb + " a5d1c06f2b9e8d374", ""}},
		exits:    decideExits,
		operand:  operandRequest,
		most:     1,
		new:      func() options { return &decideOptions{verb: verb, req: api.ApproveRequest{Deny: verb == "deny"}} },
	}
}

func (o *approvalsOptions) AddFlags(*pflag.FlagSet) {}

func (o *approvalsOptions) Run(s *session, args []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.Approvals()
	if err != nil {
		return 0, err
	}
	s.warnings(res.Warnings)
	rows := [][]string{{"REQUEST", "STATE", "AGE", "BY", "FOLDER", "COMMAND"}}
	for i := range res.Approvals {
		p := &res.Approvals[i]
		if s.json {
			s.document(p)
			continue
		}
		rows = append(rows, []string{p.Request, p.State, liveDuration(max(time.Since(p.At).Round(time.Second), 0)), byWhom(p), oneLine(p.Cwd), oneLine(p.Line())})
	}
	switch {
	case s.json:
	case len(res.Approvals) == 0:
		s.say("hint", "nothing waits for a person's word")
	default:
		s.print(columns(rows))
	}
	return exitOK, nil
}

func byWhom(p *api.Approval) string {
	if p.By.Member == "" {
		return "unknown"
	}
	return p.By.Member
}

type decideOptions struct {
	verb string
	req  api.ApproveRequest
}

func (o *decideOptions) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.req.Rule, "rule", false, "write a rule into policy.json, too")
}

func (o *decideOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("request: no id is given", "approvals "+o.verb)
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	o.req.ID, o.req.Via = args[0], api.ViaTerminal
	if o.req.By, err = a.Identity(s.member); err != nil {
		return 0, err
	}
	p, err := a.Approval(o.req.ID)
	if err != nil {
		return 0, err
	}
	if !s.json {
		s.talk(question(&p))
	}
	res, err := a.Approve(o.req)
	if err != nil {
		return 0, err
	}
	s.warnings(res.Warnings)
	if s.json {
		s.document(res)
		return exitOK, nil
	}
	s.print(res.State + " " + res.Request + "\n")
	if res.Rule != nil {
		s.print("rule " + strconv.Itoa(*res.Rule) + " of policy.json says so from now on\n")
	}
	if !o.req.Deny {
		s.say("hint", "it goes through once, with --approval "+res.Request+", until "+res.ExpiresAt.Local().Format("15:04"))
	}
	return exitOK, nil
}

// question is what a person is shown: all of the command, and nothing in it that
// speaks to the terminal.
func question(p *api.Approval) string {
	var b strings.Builder
	b.WriteString("\n")
	for line := range strings.Lines(p.Line()) {
		b.WriteString("    " + legible(strings.TrimSuffix(line, "\n")) + "\n")
	}
	b.WriteString("\n")
	row := func(term, text string) {
		b.WriteString("  " + term + strings.Repeat(" ", 11-len(term)) + legible(text) + "\n")
	}
	row("folder", p.Cwd)
	if len(p.Env) > 0 {
		row("variables", strings.Join(p.Env, ", "))
	}
	row("Space", p.Space)
	by := byWhom(p)
	if p.By.Kind != "" {
		by += " (" + p.By.Kind + ")"
	}
	row("by", by)
	if p.Until {
		row("until", "it is run again and again, until it succeeds")
	}
	row("because", p.Why)
	return b.String()
}

// legible shows what a terminal would not: a character that is invisible, or does
// something, as its number.
func legible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			b.WriteRune(r)
		} else {
			b.WriteString("<" + strings.ToUpper(strconv.FormatInt(int64(r), 16)) + ">")
		}
	}
	return b.String()
}

// askPerson asks whoever sits at the terminal about a start that was refused until
// a person says so, and returns the id of the request where it is approved. Where
// there is nobody to ask, or no answer comes, err is what it was.
func (s *session) askPerson(ctx context.Context, a *api.Actions, err error) (string, error) {
	e := api.AsError(err)
	if e.Code != api.ApprovalRequired || e.Request == "" || !isTerminal(os.Stdin) || !isTerminal(s.stderr) {
		return "", err
	}
	who, ok := a.Askable(s.member)
	if !ok {
		return "", err
	}
	p, gone := a.Approval(e.Request)
	if gone != nil {
		return "", err
	}
	if p.State == "approved" {
		return p.Request, nil
	}
	req := api.ApproveRequest{ID: p.Request, By: who, Via: api.ViaTerminal}
	s.sayPlain("question", "may this be started?")
	s.talk(question(&p))
	always := ", [a]lways (a rule for this very command, here)"
	if len(p.Env) > 0 {
		always = ""
	}
	for range 3 {
		s.talk("[o]nce" + always + " or [d]eny? ")
		answer, ok := readLine(ctx)
		if !ok {
			s.talk("\n")
			return "", err
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "o", "once":
		case "a", "always":
			if always == "" {
				continue
			}
			req.Rule = true
		case "d", "deny":
			req.Deny = true
		default:
			continue
		}
		if _, err := a.Approve(req); err != nil {
			return "", err
		}
		if req.Deny {
			return "", &api.Error{Code: api.ApprovalDenied, Message: "you have denied it (request " + p.Request + ")", Request: p.Request}
		}
		return p.Request, nil
	}
	return "", err
}

// readLine reads a line from stdin, and no byte behind it.
func readLine(ctx context.Context) (string, bool) {
	type result struct {
		text string
		ok   bool
	}
	c := make(chan result, 1)
	go func() {
		var line []byte
		var b [1]byte
		for {
			if n, err := os.Stdin.Read(b[:]); n == 0 || err != nil {
				c <- result{}
				return
			}
			if b[0] == '\n' {
				c <- result{string(line), true}
				return
			}
			if len(line) < 100 {
				line = append(line, b[0])
			}
		}
	}()
	select {
	case r := <-c:
		return r.text, r.ok
	case <-ctx.Done():
		return "", false
	}
}
