package api

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"space-job/cmd/internal/link"
	"space-job/notify/thread"
)

// MemberRequest is a member to add.
type MemberRequest struct {
	Name        string
	Kind        string
	WakeCommand string
	WakePane    string
}

// MemberResult is a member that there is.
type MemberResult struct {
	thread.Member
	Login    bool     `json:"login"`           // it is the login name
	Space    string   `json:"space,omitempty"` // from where it has joined, "": it is of this Space
	Replaced bool     `json:"-"`               // it was there before
	Warnings []string `json:"-"`
}

// MemberAdd adds a member, or replaces it.
func (a *Actions) MemberAdd(req MemberRequest) (MemberResult, error) {
	var res MemberResult
	if req.Kind == "" {
		return res, &Error{Code: InvalidArgument, Message: "kind: nothing is given", Hint: "say which: --kind agent or --kind person"}
	}
	m := thread.Member{Name: req.Name, Kind: req.Kind, WakeCommand: req.WakeCommand, WakePane: req.WakePane}
	if server, _, ok := strings.Cut(os.Getenv("TMUX"), ","); ok && m.WakePane != "" {
		m.WakeSocket = server
	}
	t := a.warned(&res.Warnings)
	existed, err := t.AddMember(m)
	if err == nil {
		res.Member, err = t.Member(req.Name)
	}
	res.Replaced, res.Login = existed, req.Name == thread.LoginName()
	return res, fault(err)
}

// MembersResult are all members.
type MembersResult struct {
	Members  []MemberResult
	Warnings []string
}

// MemberList lists the members, by name.
func (a *Actions) MemberList() (MembersResult, error) {
	var res MembersResult
	if p, err := a.parent(); err != nil {
		return res, err
	} else if p != nil {
		return p.membersAbove()
	}
	children, err := a.children()
	if err != nil {
		return res, err
	}
	from := make(map[string]string, len(children))
	for i := range children {
		from[children[i].Member] = children[i].Space
	}
	all, err := a.warned(&res.Warnings).Members()
	login := thread.LoginName()
	for _, m := range all {
		res.Members = append(res.Members, MemberResult{Member: m, Login: m.Name == login, Space: from[m.Name]})
	}
	return res, fault(err)
}

// MemberRemove removes a member. Its inbox stays. One that has joined from another
// Space takes part no longer, also if there is a member of that name again.
func (a *Actions) MemberRemove(name string) error {
	err := a.thread().RemoveMember(name)
	if err == nil {
		_, err = a.revokeChildren(func(v *invite) bool { return v.Member == name })
	}
	if errors.Is(err, thread.ErrNoMember) {
		return &Error{Code: NotFound, Message: "there is no member " + shown(name), Hint: "see who there is: space-job member list", cause: err}
	}
	return fault(err)
}

// InboxRequest says what to do with an inbox.
type InboxRequest struct {
	Member   string // see Identity
	Take     bool   // take the oldest unread item
	FollowMS int64  // wait so long for one

	may func() error // is asked before one is taken that was waited for
}

// InboxResult are items, oldest first.
type InboxResult struct {
	Items    []thread.Item
	Warnings []string
}

// Inbox shows what a member has not answered. With Take it takes the oldest
// unread item, and shows that alone; with FollowMS it shows the first unread
// one, and waits for it.
func (a *Actions) Inbox(ctx context.Context, req InboxRequest) (InboxResult, error) {
	var res InboxResult
	if err := checkFollow(req.FollowMS); err != nil {
		return res, err
	}
	who, err := a.asMember(req.Member)
	if err != nil {
		return res, err
	}
	if p, err := a.above(who.Member); err != nil {
		return res, err
	} else if p != nil {
		return p.inboxAbove(ctx, who.Member, req)
	}
	t := a.warned(&res.Warnings)
	var it thread.Item
	switch {
	case req.FollowMS > 0:
		var taker *thread.Taker
		if req.Take {
			taker = &thread.Taker{May: req.may}
		}
		wait, cancel := context.WithTimeout(ctx, time.Duration(req.FollowMS)*time.Millisecond)
		defer cancel()
		it, err = t.WaitItem(wait, who.Member, taker)
		if ctx.Err() != nil && err != nil {
			err = ctx.Err()
		}
	case req.Take:
		it, err = t.Take(who.Member, thread.Taker{}, false)
	default:
		res.Items, err = t.Inbox(who.Member)
		return res, fault(err)
	}
	if errors.Is(err, thread.ErrNoItem) {
		return res, nil
	}
	if err == nil {
		res.Items = []thread.Item{it}
	}
	return res, fault(err)
}

// InboxAnswer posts the answer to an item, and marks it as answered.
func (a *Actions) InboxAnswer(member, item, text string) (PostResult, error) {
	var res PostResult
	who, err := a.asMember(member)
	if err != nil {
		return res, err
	}
	if p, err := a.above(who.Member); err != nil {
		return res, err
	} else if p != nil {
		if strings.TrimSpace(text) == "" {
			return res, invalid("text", text, "is empty")
		}
		res, err := p.sayAbove(who.Member, link.AnswerItem, link.SayArgs{Item: item, Text: text}, true)
		if err == nil {
			a.noteAnswered(who.Member, item)
		}
		return res, err
	}
	posted, err := a.warned(&res.Warnings).Answer(who, item, text)
	var answered *thread.AnsweredError
	switch {
	case errors.Is(err, thread.ErrNoItem):
		return res, &Error{Code: NotFound, Message: "there is no item " + shown(item) + " in the inbox of " + who.Member, Hint: "see what there is: space-job inbox", cause: err}
	case errors.As(err, &answered):
		return res, &Error{Code: Conflict, Message: err.Error(), Hint: "see it: space-job thread read --after " + strconv.FormatInt(answered.Reply-1, 10) + " -n 1", cause: err}
	case err != nil:
		return res, fault(err)
	}
	res.fill(&posted)
	return res, nil
}
