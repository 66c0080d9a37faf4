package mcp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"space-job/cmd/internal/api"
)

// answerName is what the answer of the person is called between the calls.
const answerName = "permission"

const (
	answerOnce   = "once"
	answerAlways = "always"
	answerDeny   = "deny"
)

// question is a start that has to wait for what a person says.
type question struct {
	message string
	state   string
}

func (q *question) Error() string { return q.message }

func (q *question) result() *sdk.CallToolResult {
	return &sdk.CallToolResult{
		RequestState: q.state,
		InputRequests: sdk.InputRequestMap{answerName: &sdk.ElicitParams{
			Mode:    "form",
			Message: q.message,
			RequestedSchema: json.RawMessage(`{"type":"object","required":["decision"],"properties":{"decision":{"type":"string","title":"Decision",` +
				`"enum":["once","always","deny"],"enumNames":["Allow once","Always allow this command","Deny"]}}}`),
		}},
	}
}

// ask starts a job, after a person was asked where that has to be. The SDK makes
// the call again with the answer, so nothing has begun when it is asked.
func (s *Server) ask(req *sdk.CallToolRequest, r api.StartRequest, actions *api.Actions) (api.StartResult, error) {
	if req.Params.RequestState != "" {
		id, err := s.open(req.Params.RequestState)
		if err != nil {
			return api.StartResult{}, err
		}
		if err := s.decide(id, req.Params.InputResponses[answerName]); err != nil {
			return api.StartResult{}, err
		}
		r.Approval = id
	}
	res, err := actions.Start(r)
	if err == nil {
		return res, nil
	}
	e := api.AsError(err)
	if e.Code != api.ApprovalRequired || req.Params.RequestState != "" || !canAsk(req.Session) {
		return res, err
	}
	wanted, missing := s.actions.Approval(e.Request)
	if missing != nil {
		if actions.Space() != "" {
			return res, err // it waits over there
		}
		return res, missing
	}
	if wanted.State == "approved" { // on a terminal: it waits to be used
		return res, err
	}
	return res, &question{message: wish(&wanted), state: s.sign(e.Request)}
}

// wish is what a person is shown: everything that would be run, as it is. Nothing
// in it passes for what this server says itself.
func wish(w *api.Approval) string {
	var b strings.Builder
	who := w.By.Member
	if who == "" {
		who = "Somebody unknown"
	}
	fmt.Fprintf(&b, "%s wants to run a command in the Space %s.\n", who, w.Space)
	switch {
	case w.Command != "" && w.Until:
		fmt.Fprintf(&b, "Again and again, until it succeeds: %s\n", legible(w.Command))
	case w.Command != "":
		fmt.Fprintf(&b, "Command: %s\n", legible(w.Command))
	default:
		fmt.Fprintf(&b, "Program and arguments: %s\n", strings.Join(quoted(w.Argv), " "))
	}
	fmt.Fprintf(&b, "Directory: %s\n", legible(w.Cwd))
	if len(w.Env) > 0 {
		fmt.Fprintf(&b, "Variables: %s\n", legible(strings.Join(w.Env, ", ")))
	}
	fmt.Fprintf(&b, "Why you are asked: %s", legible(w.Why))
	return b.String()
}

// legible sets each line of a text off, where it has more than one, and shows what
// is invisible, or does something, as its number.
func legible(s string) string {
	var b strings.Builder
	lines := strings.Contains(s, "\n")
	for line := range strings.Lines(s) {
		if lines {
			b.WriteString("\n    | ")
		}
		for _, r := range strings.TrimSuffix(line, "\n") {
			if r == '\t' || unicode.IsPrint(r) && r != unicode.ReplacementChar {
				b.WriteRune(r)
			} else {
				fmt.Fprintf(&b, "<%X>", r)
			}
		}
	}
	return b.String()
}

func quoted(argv []string) []string {
	out := make([]string, len(argv))
	for i, arg := range argv {
		out[i] = strconv.Quote(arg)
	}
	return out
}

// decide records what the person said.
func (s *Server) decide(id string, said sdk.InputResponse) error {
	r, ok := said.(*sdk.ElicitResult)
	if !ok { // that is no word of a person
		return invalid("inputResponses."+answerName, "is missing")
	}
	d := api.ApproveRequest{ID: id, Deny: true, Via: api.ViaClient}
	if r.Action == "accept" {
		switch r.Content["decision"] {
		case answerOnce:
			d.Deny = false
		case answerAlways:
			d.Deny, d.Rule = false, true
		}
	}
	if _, err := s.actions.Approve(d); err != nil {
		return err
	}
	if d.Deny {
		return &api.Error{Code: api.ApprovalDenied, Message: "command: the person who was asked did not allow it"}
	}
	return nil
}

// canAsk reports whether a client says that it can put a form before a person.
func canAsk(session *sdk.ServerSession) bool {
	p := session.InitializeParams()
	return p != nil && p.Capabilities != nil && p.Capabilities.Elicitation != nil
}

// sign makes an id fit to be carried by a client, and open takes it back: a client
// cannot answer a question that it was not asked.
func (s *Server) sign(id string) string { return id + "." + hex.EncodeToString(s.mac(id)) }

func (s *Server) open(state string) (string, error) {
	id, sum, _ := strings.Cut(state, ".")
	got, err := hex.DecodeString(sum)
	if err != nil || !hmac.Equal(got, s.mac(id)) {
		return "", &api.Error{Code: api.InvalidArgument, Message: "requestState: is not what this server gave", Hint: "make the call again without it"}
	}
	return id, nil
}

func (s *Server) mac(id string) []byte {
	m := hmac.New(sha256.New, s.secret)
	m.Write([]byte(id))
	return m.Sum(nil)
}
