package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"space-job/cmd/internal/api"
	"space-job/jobdir"
)

var jobActions = []string{"start", "logs", "status", "cancel", "list"}

// jobTool describes space_job. What stands here is read by a model in every one of
// its turns, so each word counts.
func jobTool() *sdk.Tool {
	yes, no := true, false
	return &sdk.Tool{
		Name:        "space_job",
		Title:       "Jobs",
		Description: "Run a command as a job that goes on without you, and read, stop or list jobs. start returns at once; with notify its end becomes your next task: do not poll. logs, status and list only read; cancel stops the job and all it started.",
		Annotations: &sdk.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &no},
		InputSchema: json.RawMessage(jobInput),
		OutputSchema: json.RawMessage(`{"type":"object","properties":{"job":{"type":"string"},"state":{"enum":["running","exited","cancelled","timed_out","lost","damaged"]},` +
			`"exit_code":{"type":["integer","null"]},"existing":{"type":"boolean"},"text":{"type":"string"},"next_offset":{"type":"integer"},"more":{"type":["boolean","integer"]},` +
			`"total":{"type":"integer"},"jobs":{"type":"array"},"error":{"type":["object","string","null"]}}}`),
	}
}

const jobInput = `{"type":"object","required":["action"],"additionalProperties":false,"properties":{` +
	`"space":{"type":"string","description":"where the jobs are: a name of spaces.json; default local, this one"},` +
	`"action":{"enum":["start","logs","status","cancel","list"]},` +
	`"job":{"type":"string","description":"id, or its unique end (4+ digits); logs, status: default newest"},` +
	`"name":{"type":"string"},` +
	`"command":{"type":"string","description":"for sh -c"},` +
	`"argv":{"type":"array","items":{"type":"string"},"description":"instead of command: run without a shell"},` +
	`"until":{"type":"object","description":"instead of command: the job ends when this holds. One of file; port (host); command (exits 0); pr_checks (owner/repo#1: exit 0 pass, 1 failed); job (ended); log (a job) with match (regexp)",` +
	`"properties":{"file":{"type":"string"},"port":{"type":"integer"},"host":{"type":"string"},"command":{"type":"string"},"pr_checks":{"type":"string"},"job":{"type":"string"},"log":{"type":"string"},"match":{"type":"string"}}},` +
	`"cwd":{"type":"string"},` +
	`"env":{"type":"object","additionalProperties":{"type":"string"}},` +
	`"timeout":{"type":"number","description":"seconds, then it is stopped"},` +
	`"notify":{"type":"boolean","description":"wake me when it ends"},` +
	`"wake":{"type":"array","items":{"type":"string"},"description":"members to wake, too"},` +
	`"key":{"type":"string","description":"start once: the same key gives the same job"},` +
	`"approval":{"type":"string","description":"request id of an approved start"},` +
	`"offset":{"type":"integer","description":"logs: byte to read from; default the end"},` +
	`"max":{"type":"integer","description":"logs: most bytes"},` +
	`"follow_ms":{"type":"integer","maximum":25000,"description":"logs: wait so long for output or the end"},` +
	`"plain":{"type":"boolean","description":"logs: without escapes"},` +
	`"state":{"type":"array","items":{"type":"string"},"description":"list: only these"},` +
	`"limit":{"type":"integer","description":"list: most jobs, default 20"}}}`

type jobArguments struct {
	Space    string            `json:"space"`
	Action   string            `json:"action"`
	Job      string            `json:"job"`
	Name     string            `json:"name"`
	Command  *string           `json:"command"`
	Argv     []string          `json:"argv"`
	Until    *api.Condition    `json:"until"`
	Cwd      string            `json:"cwd"`
	Env      map[string]string `json:"env"`
	Timeout  *float64          `json:"timeout"`
	Notify   bool              `json:"notify"`
	Wake     words             `json:"wake"`
	Key      string            `json:"key"`
	Approval string            `json:"approval"`
	Offset   *int64            `json:"offset"`
	Max      *int64            `json:"max"`
	FollowMS int64             `json:"follow_ms"`
	Plain    bool              `json:"plain"`
	State    words             `json:"state"`
	Limit    *int              `json:"limit"`
}

func (s *Server) job(ctx context.Context, req *sdk.CallToolRequest) (answer, error) {
	var a jobArguments
	if err := decode(req.Params.Arguments, &a); err != nil {
		return answer{}, err
	}
	if !slices.Contains(jobActions, a.Action) {
		return answer{}, unknownAction(a.Action, jobActions)
	}
	at, err := s.in(a.Space)
	if err != nil {
		return answer{}, err
	}
	out, err := s.jobIn(ctx, req, &a, at)
	return at.tell(out), at.fault(err)
}

// jobIn is a call about the jobs of one Space.
func (s *Server) jobIn(ctx context.Context, req *sdk.CallToolRequest, a *jobArguments, at *place) (answer, error) {
	set := given(req.Params.Arguments)
	switch a.Action {
	case "start":
		if err := only("start", set, "command", "argv", "until", "name", "cwd", "env", "timeout", "notify", "wake", "key", "approval"); err != nil {
			return answer{}, err
		}
		return s.start(req, a, at)
	case "logs":
		if err := only("logs", set, "job", "offset", "max", "follow_ms", "plain"); err != nil {
			return answer{}, err
		}
		return s.logs(ctx, req, a, at)
	case "status":
		if err := only("status", set, "job"); err != nil {
			return answer{}, err
		}
		return s.status(a, at)
	case "cancel":
		if err := only("cancel", set, "job"); err != nil {
			return answer{}, err
		}
		return s.cancel(ctx, a, at)
	default:
		if err := only("list", set, "state", "limit"); err != nil {
			return answer{}, err
		}
		return s.list(a, at)
	}
}

func (s *Server) start(req *sdk.CallToolRequest, a *jobArguments, at *place) (answer, error) {
	r := api.StartRequest{
		Argv: a.Argv, Until: a.Until, Name: a.Name, Cwd: a.Cwd,
		Key: a.Key, Notify: a.Notify, Wake: a.Wake, Approval: a.Approval,
	}
	ways := 0
	for _, there := range []bool{a.Command != nil, a.Argv != nil, a.Until != nil} {
		if there {
			ways++
		}
	}
	if ways != 1 {
		return answer{}, invalid("command", "give one of command, argv and until")
	}
	if a.Command != nil {
		if strings.TrimSpace(*a.Command) == "" {
			return answer{}, invalid("command", "is empty")
		}
		r.Command = *a.Command
	}
	if u := a.Until; u != nil {
		switch {
		case u.Log != "" && u.Match == "":
			return answer{}, invalid("until.match", "is missing: until.log needs one")
		case u.Log == "" && u.Match != "":
			return answer{}, invalid("until.log", "is missing: until.match is for one")
		case u.Port == 0 && u.Host != "":
			return answer{}, invalid("until.port", "is missing: until.host needs one")
		}
	}
	if a.Argv != nil && len(a.Argv) == 0 {
		return answer{}, invalid("argv", "is empty")
	}
	var err error
	if r.Timeout, err = seconds(a.Timeout); err != nil {
		return answer{}, err
	}
	for name, v := range a.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return answer{}, invalid("env", api.Quote(name)+" is no name of a variable")
		}
		r.Env = append(r.Env, name+"="+v)
	}
	slices.Sort(r.Env)
	res, err := s.ask(req, r, at.actions)
	if err != nil {
		return answer{}, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "job %s %s", res.Job, res.State)
	if res.Existing {
		b.WriteString(" (it was there already, under this key)")
	}
	warn(&b, res.Warnings...)
	for _, h := range res.Hints {
		b.WriteString("\nhint: " + speak(h))
	}
	switch {
	case res.Existing && res.State != jobdir.Running:
		b.WriteString("\nHow it went: action status.")
	case res.Existing:
	case res.Held && s.member != "":
		fmt.Fprintf(&b, "\nNobody is told of its end before then: action logs, %sjob %q (follow_ms waits).", at.words(), res.Job)
	case (a.Notify || len(a.Wake) > 0) && s.member != "":
		b.WriteString("\nIts end will be your next task: end your turn, do not poll.")
	case !a.Notify && len(a.Wake) == 0:
		fmt.Fprintf(&b, "\nRead it with action logs, %sjob %q (follow_ms waits).", at.words(), res.Job)
	}
	return answer{res, b.String()}, nil
}

// progressEvery is how often a client that waits is told that the wait goes on.
const progressEvery = 5 * time.Second

func (s *Server) logs(ctx context.Context, req *sdk.CallToolRequest, a *jobArguments, at *place) (answer, error) {
	r := api.LogsRequest{Job: a.Job, Offset: a.Offset, FollowMS: a.FollowMS, Plain: a.Plain, Encoding: api.Text}
	if a.Max != nil {
		if *a.Max < 1 || *a.Max > api.MaxRead {
			return answer{}, invalid("max", fmt.Sprintf("%d is not within 1 and %d", *a.Max, api.MaxRead))
		}
		r.Max = *a.Max
	}
	defer s.progress(ctx, req, a.FollowMS)()
	var res api.LogsResult
	err := s.end.patiently(ctx, &r.FollowMS, func(ctx context.Context) (err error) {
		res, err = at.actions.Logs(ctx, r)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	return answer{res, logsText(&res)}, nil
}

// progress tells a client that gave a token that a wait goes on, until it is stopped.
func (s *Server) progress(ctx context.Context, req *sdk.CallToolRequest, ms int64) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil || ms <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		begin := time.Now()
		t := time.NewTicker(progressEvery)
		defer t.Stop()
		for {
			elapsed := time.Since(begin)
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
				ProgressToken: token, Progress: elapsed.Seconds(), Total: float64(ms) / 1000, Message: "waiting for output",
			})
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func stateText(state jobdir.State, code *int) string {
	if code == nil || state == jobdir.Running {
		return string(state)
	}
	return fmt.Sprintf("%s exit=%d", state, *code)
}

func (s *Server) status(a *jobArguments, at *place) (answer, error) {
	res, err := at.actions.Status(a.Job)
	if err != nil {
		return answer{}, err
	}
	return answer{res, statusText(&res)}, nil
}

// entryText is one job in one line.
func entryText(e *api.Entry) string {
	text := string(e.Job) + " " + stateText(e.State, e.ExitCode)
	if d, ok := e.Elapsed(time.Now()); ok {
		text += " " + api.FormatDuration(d)
	}
	text += fmt.Sprintf(" log=%dB", e.LogBytes)
	if line := api.OneLine(e.Line); line != "" {
		text += " | " + line
	}
	return text
}

func (s *Server) cancel(ctx context.Context, a *jobArguments, at *place) (answer, error) {
	if a.Job == "" {
		return answer{}, invalid("job", "is missing: cancel needs one")
	}
	all, err := at.actions.Cancel(ctx, api.CancelRequest{Jobs: []string{a.Job}})
	if err != nil {
		return answer{}, err
	}
	res := all[0]
	if res.Error != nil {
		return answer{}, res.Error
	}
	text := "job " + string(res.Job) + " " + stateText(res.State, res.ExitCode)
	if res.Ended {
		text += ": it had ended before"
		if res.Stopped > 0 {
			text += fmt.Sprintf("; stopped of what it had left: %d", res.Stopped)
		}
	}
	return answer{res, text}, nil
}

type listed struct {
	Total int         `json:"total"`
	More  int         `json:"more"`
	Jobs  []api.Entry `json:"jobs"`
}

func (s *Server) list(a *jobArguments, at *place) (answer, error) {
	r := api.ListRequest{States: a.State}
	if a.Limit != nil {
		if *a.Limit < 1 {
			return answer{}, invalid("limit", fmt.Sprintf("%d is not above zero", *a.Limit))
		}
		r.N = *a.Limit
	}
	res, err := at.actions.List(r)
	if err != nil {
		return answer{}, err
	}
	out := listed{Total: len(res.Jobs) + res.More, More: res.More, Jobs: res.Jobs}
	if out.Jobs == nil {
		out.Jobs = []api.Entry{}
	}
	var b strings.Builder
	b.WriteString(count(out.Total, "job"))
	if out.More > 0 {
		fmt.Fprintf(&b, ", the newest %d", len(out.Jobs))
	}
	for i := range out.Jobs {
		fmt.Fprintf(&b, "\n%s", entryText(&out.Jobs[i]))
	}
	warn(&b, res.Warnings...)
	return answer{out, b.String()}, nil
}
