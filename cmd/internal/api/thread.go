package api

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"space-job/cmd/internal/link"
	"space-job/notify/thread"
)

// DefaultEntries is how many entries are read, unless asked otherwise.
const DefaultEntries = thread.DefaultRead

// ThreadRequest says which entries to read: those after one, those before one,
// or with neither the newest.
type ThreadRequest struct {
	After    *int64
	Before   *int64
	N        int64 // most; 0: DefaultEntries
	FollowMS int64 // wait so long for the first
}

// ThreadResult is a piece of the thread.
type ThreadResult struct {
	thread.Read
	Warnings []string `json:"-"` // what was found damaged
}

// ThreadRead reads the thread.
func (a *Actions) ThreadRead(ctx context.Context, req ThreadRequest) (ThreadResult, error) {
	var res ThreadResult
	if err := checkFollow(req.FollowMS); err != nil {
		return res, err
	}
	if req.N < 0 || req.N > thread.MaxRead {
		return res, invalid("n", strconv.FormatInt(req.N, 10), "is not within 1.."+strconv.Itoa(thread.MaxRead))
	}
	if p, err := a.parent(); err != nil {
		return res, err
	} else if p != nil {
		return p.readAbove(ctx, req)
	}
	t := a.warned(&res.Warnings)
	r := thread.Range{After: req.After, Before: req.Before, N: int(req.N)}
	var err error
	if req.FollowMS == 0 {
		res.Read, err = t.Read(r)
	} else {
		wait, cancel := context.WithTimeout(ctx, time.Duration(req.FollowMS)*time.Millisecond)
		defer cancel()
		if res.Read, err = t.Follow(wait, r); err == nil {
			err = ctx.Err()
		}
	}
	return res, fault(err)
}

func checkFollow(ms int64) error {
	if ms < 0 || ms > MaxFollowMS {
		return invalid("follow_ms", strconv.FormatInt(ms, 10), "is not within 0..25000")
	}
	return nil
}

// warned is the thread of the root, whose warnings are kept.
func (a *Actions) warned(to *[]string) *thread.Thread {
	t := a.thread()
	t.Warn = func(line string) {
		for _, l := range *to {
			if l == line {
				return
			}
		}
		*to = append(*to, line)
	}
	return t
}

// asMember is who asks, where somebody has to.
func (a *Actions) asMember(member string) (thread.Author, error) {
	who, err := a.Identity(member)
	if err == nil && !who.Known() {
		err = &Error{Code: InvalidArgument, Message: "member: no name is given", Hint: "say who you are: --member NAME, or SPACE_MEMBER=NAME (space-job member list shows who there is)"}
	}
	return who, err
}

// PostRequest is something to say.
type PostRequest struct {
	Member  string // see Identity
	Text    string
	ReplyTo *int64
}

// PostResult is what became of it.
type PostResult struct {
	Seq      int64            `json:"seq"`
	Author   thread.Author    `json:"author"`
	Text     string           `json:"text"` // as it was posted
	Mentions []MentionResult  `json:"mentions"`
	Unknown  []string         `json:"unknown"` // names that nobody has
	Claims   []thread.Outcome `json:"claims"`
	Warnings []string         `json:"warnings"`

	// Waits: the parent could not be reached. Seq is 0, and it is posted later.
	Waits bool `json:"waits,omitempty"`
}

// MentionResult is what became of one mention.
type MentionResult struct {
	Member       string `json:"member"`
	Item         string `json:"item"`
	Wake         string `json:"wake"`  // pending, limited, or none: it reads its inbox
	Limit        string `json:"limit"` // "hops" or "rate", where it is limited
	RetryAfterMS int64  `json:"retry_after_ms"`
}

// ThreadPost posts to the thread.
func (a *Actions) ThreadPost(req PostRequest) (PostResult, error) {
	if p, err := a.parent(); err != nil {
		return PostResult{}, err
	} else if p != nil {
		if strings.TrimSpace(req.Text) == "" {
			return PostResult{}, invalid("text", req.Text, "is empty")
		}
		return p.sayAbove(req.Member, link.Post, link.SayArgs{Text: req.Text, ReplyTo: req.ReplyTo}, true)
	}
	return a.post(req, false)
}

func (a *Actions) post(req PostRequest, claim bool) (PostResult, error) {
	var res PostResult
	who, err := a.asMember(req.Member)
	if err != nil {
		return res, err
	}
	p := thread.Post{Author: who, Text: req.Text, Claims: claim, Key: a.key, After: a.keyAfter, Gather: a.key != ""}
	if req.ReplyTo != nil {
		if p.ReplyTo = *req.ReplyTo; p.ReplyTo < 1 {
			return res, invalid("reply_to", strconv.FormatInt(p.ReplyTo, 10), "is no entry: they begin with 1")
		}
	}
	posted, err := a.warned(&res.Warnings).Post(p)
	if errors.Is(err, thread.ErrNoEntry) {
		return res, invalid("reply_to", strconv.FormatInt(p.ReplyTo, 10), "is no entry of the thread")
	}
	if err != nil {
		return res, fault(err)
	}
	res.fill(&posted)
	return res, nil
}

func (r *PostResult) fill(p *thread.Posted) {
	r.Seq, r.Author, r.Text = p.Entry.Seq, p.Entry.Author, p.Entry.Text
	r.Mentions, r.Unknown, r.Claims = []MentionResult{}, p.Unknown, p.Claims
	if r.Unknown == nil {
		r.Unknown = []string{}
	}
	if r.Claims == nil {
		r.Claims = []thread.Outcome{}
	}
	for i := range p.Items {
		it := &p.Items[i]
		m := MentionResult{it.To, it.ID, it.Wake.State, it.Wake.Limit, it.Wake.RetryAfterMS}
		r.Mentions = append(r.Mentions, m)
		switch {
		case m.Wake != thread.WakeLimited:
		case m.Limit == thread.LimitHops:
			r.warn("@" + m.Member + " is not woken: limit hops: a chain stops after " + strconv.Itoa(thread.MaxHops) + " agent to agent hops. The message is in its inbox; to wake it again, a person has to post")
		default:
			r.warn("@" + m.Member + " is not woken: limit rate: " + strconv.Itoa(thread.MaxWakes) + " agent to agent wakes in " + FormatDuration(thread.WakeWindow) +
				" is what a Space allows. The message is in its inbox; retry in " + FormatDuration(time.Duration(m.RetryAfterMS)*time.Millisecond+time.Millisecond))
		}
	}
	for _, name := range r.Unknown {
		r.warn("@" + name + " is no member: nobody was told")
	}
	for i := range r.Claims {
		c := &r.Claims[i]
		switch {
		case c.Verb == "CLAIM" && !c.Live:
			for i := range c.Overlaps {
				r.warn("this claim is posted and does not hold: " + c.Overlaps[i].String())
			}
		case c.Verb == "CLAIM":
		case c.Verb == "BLOCKED" && c.Owner != p.Entry.Author.Member, c.Verb != "BLOCKED" && !c.Ended:
			why := "you have no live claim of " + shown(c.What)
			if c.Owner != "" && c.Owner != p.Entry.Author.Member {
				why += ": it is @" + c.Owner + "'s"
			}
			r.warn(why)
		}
	}
}

func (r *PostResult) warn(line string) { r.Warnings = append(r.Warnings, line) }

// ClaimRequest is ground to claim.
type ClaimRequest struct {
	Member string
	What   string
	Files  []string
	Branch string
	Until  string

	in *time.Location // what a time of the day in Until is one of, nil: the one here
}

// ThreadClaim posts a CLAIM, or refuses it where it overlaps a live one of
// somebody else: of several that try, one succeeds.
func (a *Actions) ThreadClaim(req ClaimRequest) (PostResult, error) {
	switch {
	case len(req.Files) == 0 && req.Branch == "":
		return PostResult{}, &Error{Code: InvalidArgument, Message: "files: neither files nor a branch is named", Hint: "say what you will change: --files src/a.go,docs or --branch NAME"}
	case req.Until == "":
		return PostResult{}, &Error{Code: InvalidArgument, Message: "until: nothing is given", Hint: "say until when: --until 15:04, 30m, +2h or 2026-05-04T15:04:00+02:00"}
	}
	if p, err := a.parent(); err != nil {
		return PostResult{}, err
	} else if p != nil { // also the time, which is one of the parent's clock, in the zone here
		var zone link.Zone
		zone.Name, zone.East = thread.ZoneOf(req.Until, a.now().Local())
		return p.sayAbove(req.Member, link.Claim, link.SayArgs{What: req.What, Files: req.Files, Branch: req.Branch, Until: req.Until, Zone: &zone}, false)
	}
	now := a.now().Local()
	if req.in != nil {
		now = now.In(req.in)
	}
	text, err := thread.ClaimText(req.What, req.Files, req.Branch, req.Until, now)
	if err != nil {
		return PostResult{}, fault(err)
	}
	return a.post(PostRequest{Member: req.Member, Text: text}, true)
}

// ThreadDone posts a DONE, which ends the caller's claim of that what.
func (a *Actions) ThreadDone(member, what, result, next string) (PostResult, error) {
	if next == "" {
		return PostResult{}, &Error{Code: InvalidArgument, Message: "next: nothing is given", Hint: `say what comes next: --next "review"; or --next nothing`}
	}
	parts := []part{{"what", what}, {"result", result}, {"next", next}}
	if p, err := a.parent(); err != nil {
		return PostResult{}, err
	} else if p != nil {
		if err := checkParts(parts); err != nil {
			return PostResult{}, err
		}
		return p.sayAbove(member, link.Done, link.SayArgs{What: what, Result: result, Next: next}, true)
	}
	return a.statement(member, "DONE", parts, what+" | "+result+" | next: "+next)
}

// ThreadRelease posts a RELEASE, which ends the caller's claim of that what. It
// is refused where there is none.
func (a *Actions) ThreadRelease(member, what string) (PostResult, error) {
	who, err := a.asMember(member)
	if err != nil {
		return PostResult{}, err
	}
	if err := (part{"what", what}).check(); err != nil {
		return PostResult{}, err
	}
	if p, err := a.parent(); err != nil {
		return PostResult{}, err
	} else if p != nil {
		return p.sayAbove(member, link.Release, link.SayArgs{What: what}, false)
	}
	if a.key != "" { // it may be released by this very call, whose answer was lost
		if seq, err := a.thread().FindKey(a.key, a.keyAfter); err != nil {
			return PostResult{}, fault(err)
		} else if seq > 0 {
			return a.statement(member, "RELEASE", []part{{"what", what}}, what)
		}
	}
	claims, err := a.thread().Claims()
	if err != nil {
		return PostResult{}, fault(err)
	}
	why, mine := "you have no live claim of "+shown(what), false
	for _, c := range claims {
		switch {
		case !thread.SameWhat(c.What, what):
		case c.Owner.Member == who.Member:
			mine = true
		default:
			why += ": it is @" + c.Owner.Member + "'s"
		}
	}
	if !mine {
		return PostResult{}, &Error{Code: Conflict, Message: why, Hint: "see which there are: space-job thread claims"}
	}
	return a.statement(member, "RELEASE", []part{{"what", what}}, what)
}

// ThreadBlocked posts a BLOCKED, which mentions who is to help.
func (a *Actions) ThreadBlocked(member, what, needs, from string) (PostResult, error) {
	for _, p := range []part{{"needs", needs}, {"from", from}} {
		if p.value == "" {
			return PostResult{}, &Error{Code: InvalidArgument, Message: p.field + ": nothing is given", Hint: `such as: space-job thread blocked parser --needs "the schema" --from bob`}
		}
	}
	from = strings.TrimPrefix(from, "@")
	if err := thread.CheckName("from", from); err != nil {
		return PostResult{}, invalid("from", from, "is no name of a member")
	}
	parts := []part{{"what", what}, {"needs", needs}}
	if p, err := a.parent(); err != nil {
		return PostResult{}, err
	} else if p != nil {
		if err := checkParts(parts); err != nil {
			return PostResult{}, err
		}
		return p.sayAbove(member, link.Blocked, link.SayArgs{What: what, Needs: needs, From: from}, true)
	}
	t := a.thread()
	if _, err := t.Member(from); errors.Is(err, thread.ErrNoMember) {
		e := invalid("from", from, "is no member here")
		e.Hint = "see who is: space-job member list"
		return PostResult{}, e
	}
	return a.statement(member, "BLOCKED", parts, what+" | needs: "+needs+" | from @"+from)
}

// part is one part of a line about a claim.
type part struct{ field, value string }

func (p part) check() error {
	switch {
	case strings.TrimSpace(p.value) == "":
		return invalid(p.field, p.value, "is empty")
	case strings.Contains(p.value, "|") || hasControl(p.value):
		return invalid(p.field, p.value, "holds a | or a line break: it is one part of one line")
	case strings.Contains(p.value, "`"):
		return invalid(p.field, p.value, "holds a backtick: what is between them is quoted")
	}
	return nil
}

func (a *Actions) statement(member, verb string, parts []part, rest string) (PostResult, error) {
	if err := checkParts(parts); err != nil {
		return PostResult{}, err
	}
	return a.post(PostRequest{Member: member, Text: verb + " " + rest}, false)
}

func checkParts(parts []part) error {
	for _, p := range parts {
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// ClaimsResult are the live claims.
type ClaimsResult struct {
	Claims   []thread.Claim `json:"claims"`
	Warnings []string       `json:"-"`
}

// ThreadClaims are the live claims, oldest first.
func (a *Actions) ThreadClaims() (ClaimsResult, error) {
	res := ClaimsResult{}
	if p, err := a.parent(); err != nil {
		return res, err
	} else if p != nil {
		return p.claimsAbove()
	}
	claims, err := a.warned(&res.Warnings).Claims()
	res.Claims = append([]thread.Claim{}, claims...)
	return res, fault(err)
}

// Clock shows the time of a claim as the Space's clocks do.
func Clock(t, near time.Time) string { return thread.Clock(t, near) }

// ThreadEntry is one entry of the thread.
type ThreadEntry = thread.Entry

// InboxItem is one item of an inbox.
type InboxItem = thread.Item

// SplitPaths splits a list of paths at its commas, but for those within {a,b}.
func SplitPaths(s string) []string {
	var out []string
	depth, from := 0, 0
	add := func(end int) {
		if p := strings.TrimSpace(s[from:end]); p != "" {
			out = append(out, p)
		}
		from = end + 1
	}
	for i := range len(s) {
		switch {
		case s[i] == '{':
			depth++
		case s[i] == '}' && depth > 0:
			depth--
		case s[i] == ',' && depth == 0:
			add(i)
		}
	}
	add(len(s))
	return out
}
