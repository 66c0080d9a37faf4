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
)

var threadActions = []string{"read", "post", "inbox", "answer", "claim", "release", "done", "blocked", "claims", "members"}

func threadTool() *sdk.Tool {
	no := false
	return &sdk.Tool{
		Name:         "space_thread",
		Title:        "Thread",
		Description:  "The thread that all who work in this Space share: read and post, your inbox, and claims of files or branches. You act as the member of this connection.",
		Annotations:  &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no},
		InputSchema:  json.RawMessage(threadInput),
		OutputSchema: json.RawMessage(`{"type":"object"}`),
	}
}

const threadInput = `{"type":"object","required":["action"],"additionalProperties":false,"properties":{` +
	`"action":{"enum":["read","post","inbox","answer","claim","release","done","blocked","claims","members"]},` +
	`"after":{"type":"integer","description":"read: entries after this seq"},` +
	`"before":{"type":"integer"},` +
	`"limit":{"type":"integer","description":"read: most entries"},` +
	`"follow_ms":{"type":"integer","maximum":25000,"description":"read, inbox: wait so long for one"},` +
	`"text":{"type":"string","description":"post, answer"},` +
	`"reply_to":{"type":"integer","description":"post: a seq"},` +
	`"take":{"type":"boolean","description":"inbox: take the oldest unread item"},` +
	`"item":{"type":"string","description":"answer: an item of the inbox"},` +
	`"what":{"type":"string","description":"claim, release, done, blocked"},` +
	`"files":{"type":"array","items":{"type":"string"},"description":"claim: paths or globs"},` +
	`"branch":{"type":"string","description":"claim: instead of files"},` +
	`"until":{"type":"string","description":"claim: 15:04, 30m or RFC 3339"},` +
	`"result":{"type":"string","description":"done"},` +
	`"next":{"type":"string","description":"done"},` +
	`"needs":{"type":"string","description":"blocked"},` +
	`"from":{"type":"string","description":"blocked: the member who can help"}}}`

type threadArguments struct {
	Action   string `json:"action"`
	After    *int64 `json:"after"`
	Before   *int64 `json:"before"`
	Limit    *int64 `json:"limit"`
	FollowMS int64  `json:"follow_ms"`
	Text     string `json:"text"`
	ReplyTo  *int64 `json:"reply_to"`
	Take     bool   `json:"take"`
	Item     string `json:"item"`
	What     string `json:"what"`
	Files    words  `json:"files"`
	Branch   string `json:"branch"`
	Until    string `json:"until"`
	Result   string `json:"result"`
	Next     string `json:"next"`
	Needs    string `json:"needs"`
	From     string `json:"from"`
}

// takes are the arguments of each action.
var takes = map[string][]string{
	"read":    {"after", "before", "limit", "follow_ms"},
	"post":    {"text", "reply_to"},
	"inbox":   {"take", "follow_ms"},
	"answer":  {"item", "text"},
	"claim":   {"what", "files", "branch", "until"},
	"release": {"what"},
	"done":    {"what", "result", "next"},
	"blocked": {"what", "needs", "from"},
	"claims":  nil,
	"members": nil,
}

func (s *Server) thread(ctx context.Context, req *sdk.CallToolRequest) (answer, error) {
	var a threadArguments
	if err := decode(req.Params.Arguments, &a); err != nil {
		return answer{}, err
	}
	if !slices.Contains(threadActions, a.Action) {
		return answer{}, unknownAction(a.Action, threadActions)
	}
	if err := only(a.Action, given(req.Params.Arguments), takes[a.Action]...); err != nil {
		return answer{}, err
	}
	switch a.Action {
	case "read":
		defer s.progress(ctx, req, a.FollowMS)()
		return s.read(ctx, &a)
	case "inbox":
		defer s.progress(ctx, req, a.FollowMS)()
		return s.inbox(ctx, &a)
	case "claims":
		return s.claims()
	case "members":
		return s.members()
	}
	res, err := s.say(&a)
	if err != nil {
		return answer{}, err
	}
	return answer{res, posted(&res)}, nil
}

// say makes the one entry that an action posts.
func (s *Server) say(a *threadArguments) (api.PostResult, error) {
	switch a.Action {
	case "post":
		return s.actions.ThreadPost(api.PostRequest{Text: a.Text, ReplyTo: a.ReplyTo})
	case "answer":
		return s.actions.InboxAnswer("", a.Item, a.Text)
	case "claim":
		return s.actions.ThreadClaim(api.ClaimRequest{What: a.What, Files: a.Files, Branch: a.Branch, Until: a.Until})
	case "release":
		return s.actions.ThreadRelease("", a.What)
	case "done":
		return s.actions.ThreadDone("", a.What, a.Result, a.Next)
	default:
		return s.actions.ThreadBlocked("", a.What, a.Needs, a.From)
	}
}

func posted(res *api.PostResult) string {
	var b strings.Builder
	if res.Waits { // a warning says why
		fmt.Fprintf(&b, "not posted yet: %s", within(res.Text))
	} else {
		fmt.Fprintf(&b, "#%d %s", res.Seq, within(res.Text))
	}
	for _, m := range res.Mentions {
		if m.Limit == "" { // else a warning says so
			fmt.Fprintf(&b, "\n@%s has it in the inbox (wake: %s)", m.Member, m.Wake)
		}
	}
	for _, c := range res.Claims {
		switch {
		case c.Live:
			fmt.Fprintf(&b, "\nclaimed until %s", api.Clock(c.Until, time.Now()))
		case c.Ended:
			fmt.Fprintf(&b, "\nthe claim of %q has ended", c.What)
		}
	}
	warn(&b, res.Warnings...)
	return b.String()
}

func (s *Server) read(ctx context.Context, a *threadArguments) (answer, error) {
	r := api.ThreadRequest{After: a.After, Before: a.Before, FollowMS: a.FollowMS}
	if a.Limit != nil {
		if *a.Limit < 1 {
			return answer{}, invalid("limit", fmt.Sprintf("%d is not above zero", *a.Limit))
		}
		r.N = *a.Limit
	}
	var res api.ThreadResult
	err := s.end.patiently(ctx, &r.FollowMS, func(ctx context.Context) (err error) {
		res, err = s.actions.ThreadRead(ctx, r)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	var b strings.Builder
	for i := range res.Entries {
		e := &res.Entries[i]
		fmt.Fprintf(&b, "#%d %s %s: %s\n", e.Seq, time.UnixMilli(e.AtMS).Format(time.RFC3339), e.Author.Member, within(e.Text))
	}
	if len(res.Entries) == 0 {
		b.WriteString("nothing new\n")
	}
	fmt.Fprintf(&b, "cursor %d", res.Cursor)
	warn(&b, res.Warnings...)
	return answer{res, b.String()}, nil
}

type inbox struct {
	Items []api.InboxItem `json:"items"`
}

func (s *Server) inbox(ctx context.Context, a *threadArguments) (answer, error) {
	r := api.InboxRequest{Take: a.Take, FollowMS: a.FollowMS}
	var res api.InboxResult
	err := s.end.patiently(ctx, &r.FollowMS, func(ctx context.Context) (err error) {
		res, err = s.actions.Inbox(ctx, r)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	out := inbox{res.Items}
	if out.Items == nil {
		out.Items = []api.InboxItem{}
	}
	var b strings.Builder
	b.WriteString(count(len(out.Items), "item"))
	for i := range out.Items {
		it := &out.Items[i]
		fmt.Fprintf(&b, "\n%s %s from %s (#%d): %s", it.ID, it.State, it.From.Member, it.Seq, within(it.Text))
	}
	warn(&b, res.Warnings...)
	return answer{out, b.String()}, nil
}

func (s *Server) claims() (answer, error) {
	res, err := s.actions.ThreadClaims()
	if err != nil {
		return answer{}, err
	}
	if res.Claims == nil {
		res.Claims = res.Claims[:0]
	}
	var b strings.Builder
	b.WriteString(count(len(res.Claims), "live claim"))
	for _, c := range res.Claims {
		fmt.Fprintf(&b, "\n#%d %s: %s | files: %s | until: %s", c.Seq, c.Owner.Member, c.What, strings.Join(c.Files, ", "), api.Clock(c.Until, time.Now()))
		if c.Blocked != nil {
			b.WriteString(" | blocked")
		}
	}
	warn(&b, res.Warnings...)
	return answer{res, b.String()}, nil
}

type members struct {
	You     string             `json:"you"` // "": nobody known
	Members []api.MemberResult `json:"members"`
}

func (s *Server) members() (answer, error) {
	res, err := s.actions.MemberList()
	if err != nil {
		return answer{}, err
	}
	out := members{s.member, res.Members}
	if out.Members == nil {
		out.Members = []api.MemberResult{}
	}
	var b strings.Builder
	if s.member == "" {
		b.WriteString("You are nobody known: the server was started without --member.")
	} else {
		fmt.Fprintf(&b, "You are %s.", s.member)
	}
	for _, m := range out.Members {
		fmt.Fprintf(&b, "\n%s (%s)", m.Name, m.Kind)
	}
	return answer{out, b.String()}, nil
}
