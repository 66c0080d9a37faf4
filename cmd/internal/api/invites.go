package api

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"space-job/cmd/internal/link"
	"space-job/cmd/internal/policy"
	"space-job/jobdir"
	"space-job/notify/thread"
)

// invitesDir has a file for each link that was made, by its id, for whoever joined
// by it, too: see [invite]. Who writes one has the lock.
const (
	invitesDir  = "invites"
	invitesLock = invitesDir + "/.lock"

	// A link that is of no use any more is kept for so long, to say why.
	keepInvites = 8 * 24 * time.Hour
)

// Bounds of how long a link is good for.
const (
	DefaultExpires = time.Hour
	MaxExpires     = 24 * time.Hour
)

func invitePath(id string) string { return invitesDir + "/" + id + ".json" }

// invite is a link that was made and, once somebody has joined by it, the member
// that it let in. Of secrets it has digests only.
type invite struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"` // what the Space that joins is to be called, "": as it likes
	Address   string    `json:"address"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Secret    string    `json:"secret_digest"`

	UsedAt  time.Time `json:"used_at,omitzero"`
	Member  string    `json:"member,omitempty"`
	SpaceID string    `json:"space_id,omitempty"`
	Space   string    `json:"space,omitempty"`
	Token   string    `json:"token_digest,omitempty"`

	RevokedAt time.Time `json:"revoked_at,omitzero"` // of the link, or of the token
	LeftAt    time.Time `json:"left_at,omitzero"`    // the member has left by itself
}

// States of a link.
const (
	InviteOpen    = "open"
	InviteUsed    = "used" // somebody takes part by it
	InviteExpired = "expired"
	InviteRevoked = "revoked"
	InviteLeft    = "left" // whoever took part has left
)

func (v *invite) state(now time.Time) string {
	switch {
	case !v.RevokedAt.IsZero():
		return InviteRevoked
	case !v.LeftAt.IsZero():
		return InviteLeft
	case !v.UsedAt.IsZero():
		return InviteUsed
	case !now.Before(v.ExpiresAt):
		return InviteExpired
	}
	return InviteOpen
}

func secretDigest(id, secret string) string { return policy.Digest(id, []string{secret}) }

// invites are all links that are known, oldest first.
func (a *Actions) invites() ([]invite, error) {
	entries, err := os.ReadDir(a.path(invitesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault(err)
	}
	var all []invite
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		v, err := a.invite(id)
		if err != nil {
			return nil, err
		}
		if v != nil {
			all = append(all, *v)
		}
	}
	slices.SortFunc(all, func(x, y invite) int { return x.CreatedAt.Compare(y.CreatedAt) })
	return all, nil
}

// invite is one, nil where it is not known.
func (a *Actions) invite(id string) (*invite, error) {
	var v invite
	there, err := a.readOwnJSON(invitePath(id), &v)
	if err != nil || !there || v.ID != id {
		return nil, err
	}
	return &v, nil
}

func (a *Actions) saveInvite(v *invite) error {
	return fault(jobdir.ReplaceFile(a.path(invitePath(v.ID)), jobdir.Line(v), true))
}

func (a *Actions) lockInvites() (unlock func(), err error) {
	if _, err := a.root.MakeDurableDir(invitesDir); err != nil {
		return nil, fault(err)
	}
	unlock, err = jobdir.LockFile(a.path(invitesLock))
	return unlock, fault(err)
}

// children are those who take part in this thread from other Spaces.
func (a *Actions) children() ([]invite, error) {
	all, err := a.invites()
	return slices.DeleteFunc(all, func(v invite) bool { return v.state(a.now()) != InviteUsed }), err
}

// InviteRequest says what a link is to be like.
type InviteRequest struct {
	Name    string        // what the Space that joins is called here; "": as it likes
	Expires time.Duration // 0: DefaultExpires
	Address string        // where children find this Space; "": the daemon's port
}

// InviteResult is a link.
type InviteResult struct {
	Link      string    `json:"link"`
	Invite    string    `json:"invite"` // its id
	Name      string    `json:"name"`
	Address   string    `json:"address"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Invite makes a link that works once, for one agent of another Space.
func (a *Actions) Invite(req InviteRequest) (InviteResult, error) {
	var res InviteResult
	if req.Name != "" {
		if err := thread.CheckName("name", req.Name); err != nil {
			return res, fault(err)
		}
	}
	switch {
	case req.Expires == 0:
		req.Expires = DefaultExpires
	case req.Expires < time.Second || req.Expires > MaxExpires:
		return res, invalid("expires", FormatDuration(req.Expires), "is not within 1s and 24h")
	}
	if p, err := a.parent(); err != nil {
		return res, err
	} else if p != nil {
		return res, &Error{Code: Conflict, Message: "this Space has joined the thread of " + p.show() + ": it has none of its own to invite to", Hint: "invite over there, or leave: space-job thread leave"}
	}
	address := req.Address
	if address == "" {
		port, there, err := a.HTTPPort()
		if err != nil {
			return res, err
		}
		if !there || port == 0 {
			return res, &Error{Code: Unavailable, Message: "this Space has no port that a child could call",
				Hint: "let the daemon serve one: space-job daemon stop; space-job daemon --detach --http 0; or say how else it is reached: --address https://HOST or --address 'exec:[\"ssh\",\"box\"]'"}
		}
		address = fmt.Sprintf("http://127.0.0.1:%d", port)
	}
	at, err := link.ParseAddress(address)
	if err != nil {
		return res, &Error{Code: InvalidArgument, Message: "address: " + shown(address) + " " + err.Error(), Hint: "as a child would call it", cause: err}
	}
	if err := a.root.Create(); err != nil {
		return res, fault(err)
	}
	id, err := newSecret(8)
	if err != nil {
		return res, err
	}
	secret, err := newSecret(24)
	if err != nil {
		return res, err
	}
	unlock, err := a.lockInvites()
	if err != nil {
		return res, err
	}
	defer unlock()
	if err := a.forgetInvites(); err != nil {
		return res, err
	}
	now := a.now().UTC().Truncate(time.Second)
	v := invite{ID: id, Name: req.Name, Address: at.String(), CreatedAt: now, ExpiresAt: now.Add(req.Expires), Secret: secretDigest(id, secret)}
	if err := a.saveInvite(&v); err != nil {
		return res, err
	}
	return InviteResult{
		Link: link.Link{Address: at.String(), Secret: link.Secret(id, secret)}.String(), Invite: id, Name: req.Name,
		Address: at.Show(), ExpiresAt: v.ExpiresAt,
	}, nil
}

// forgetInvites removes links that have been of no use for long.
func (a *Actions) forgetInvites() error {
	all, err := a.invites()
	for i := range all {
		v := &all[i]
		over := v.ExpiresAt
		for _, t := range []time.Time{v.RevokedAt, v.LeftAt} {
			if t.After(over) {
				over = t
			}
		}
		if s := v.state(a.now()); s != InviteUsed && s != InviteOpen && a.now().Sub(over) > keepInvites {
			err = errors.Join(err, os.Remove(a.path(invitePath(v.ID))))
		}
	}
	return fault(err)
}

// InviteInfo is a link, without its secret.
type InviteInfo struct {
	Invite    string     `json:"invite"`
	Name      string     `json:"name"`
	State     string     `json:"state"` // open, used, expired, revoked or left
	Address   string     `json:"address"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at"`
	Member    string     `json:"member"` // who has joined by it, "" for nobody
	Space     string     `json:"space"`  // from where
	UsedAt    *time.Time `json:"used_at"`
}

// Invites are the links that were made, oldest first. Those that are of no use are
// kept for eight days.
func (a *Actions) Invites() ([]InviteInfo, error) {
	all, err := a.invites()
	infos := []InviteInfo{}
	for i := range all {
		v := &all[i]
		info := InviteInfo{Invite: v.ID, Name: v.Name, State: v.state(a.now()), CreatedAt: v.CreatedAt, ExpiresAt: v.ExpiresAt, Member: v.Member, Space: v.Space}
		if at, err := link.ParseAddress(v.Address); err == nil {
			info.Address = at.Show()
		}
		if !v.UsedAt.IsZero() {
			info.UsedAt = &v.UsedAt
		}
		infos = append(infos, info)
	}
	return infos, err
}

// Uninvite revokes a link that nobody has used: by its id or the beginning of
// that, the name that it was made with, or the link itself.
func (a *Actions) Uninvite(given string) (InviteInfo, error) {
	if l, err := link.Parse(given); err == nil {
		given, _, _ = link.SplitSecret(l.Secret)
	}
	switch {
	case given == "":
		return InviteInfo{}, invalid("invite", given, "names none")
	case link.IsLink(given): // and not shown: it may be a secret
		return InviteInfo{}, &Error{Code: InvalidArgument, Message: "invite: " + link.ErrDamaged.Error(), Hint: "name it by its id, or what the Space is called: space-job thread invites"}
	}
	if _, err := os.Lstat(a.path(invitesDir)); errors.Is(err, fs.ErrNotExist) {
		return InviteInfo{}, &Error{Code: NotFound, Message: "there is no invitation " + shown(given), Hint: "space-job thread invite makes one"}
	}
	unlock, err := a.lockInvites()
	if err != nil {
		return InviteInfo{}, err
	}
	defer unlock()
	all, err := a.invites()
	if err != nil {
		return InviteInfo{}, err
	}
	var found []*invite
	for i := range all {
		if v := &all[i]; strings.HasPrefix(v.ID, given) || v.Name == given {
			found = append(found, v)
		}
	}
	if len(found) > 1 { // of one name, the one that is good for something
		if open := slices.DeleteFunc(slices.Clone(found), func(v *invite) bool { return v.state(a.now()) != InviteOpen }); len(open) > 0 {
			found = open
		}
	}
	switch {
	case len(found) == 0:
		return InviteInfo{}, &Error{Code: NotFound, Message: "there is no invitation " + shown(given), Hint: "see which there are: space-job thread invites"}
	case len(found) > 1:
		ids := make([]string, len(found))
		for i, v := range found {
			ids[i] = v.ID
		}
		return InviteInfo{}, &Error{Code: Ambiguous, Message: "several invitations are " + shown(given) + ": " + strings.Join(ids, ", "), Hint: "give more of the id"}
	}
	v := found[0]
	switch s := v.state(a.now()); s {
	case InviteOpen:
		v.RevokedAt = a.now().UTC().Truncate(time.Millisecond)
		if err := a.saveInvite(v); err != nil {
			return InviteInfo{}, err
		}
	case InviteUsed:
		return InviteInfo{}, &Error{Code: Conflict, Message: "the invitation " + v.ID + " is used: @" + v.Member + " has joined by it from " + v.Space, Hint: "to end that: space-job member revoke " + v.Member}
	}
	return InviteInfo{Invite: v.ID, Name: v.Name, State: v.state(a.now()), CreatedAt: v.CreatedAt, ExpiresAt: v.ExpiresAt, Member: v.Member, Space: v.Space}, nil
}

// RevokeRequest says whose tokens are taken back: a member's, those of all who
// joined from a Space, or of all who joined.
type RevokeRequest struct {
	Member  string
	Machine string // the Space, as it is called here
	All     bool
}

// RevokeResult is whose were.
type RevokeResult struct {
	Members []string `json:"members"`
}

// Revoke takes tokens back at once: those of joined members and, of one that is
// named, that of its MCP over HTTP, too. Who they are stays, and may be invited
// again.
func (a *Actions) Revoke(req RevokeRequest) (RevokeResult, error) {
	res := RevokeResult{Members: []string{}}
	if n := len(slices.DeleteFunc([]string{req.Member, req.Machine, map[bool]string{true: "all"}[req.All]}, func(s string) bool { return s == "" })); n != 1 {
		return res, &Error{Code: InvalidArgument, Message: "member: name one, or say --machine SPACE, or --all: one of them", Hint: "see who has joined: space-job thread invites"}
	}
	if req.Member != "" {
		if err := thread.CheckName("member", req.Member); err != nil {
			return res, fault(err)
		}
		removed, err := a.removeTokens(req.Member)
		if err != nil {
			return res, err
		}
		if removed {
			res.Members = append(res.Members, req.Member)
		}
	}
	revoked, err := a.revokeChildren(func(v *invite) bool {
		return req.All || v.Member == req.Member || req.Machine != "" && v.Space == req.Machine
	})
	for _, name := range revoked {
		if !slices.Contains(res.Members, name) {
			res.Members = append(res.Members, name)
		}
	}
	if err != nil {
		return res, err
	}
	if len(res.Members) == 0 && !req.All {
		what := "the member " + shown(req.Member) + " has no token"
		if req.Machine != "" {
			what = "nobody has joined from a Space called " + shown(req.Machine)
			children, err := a.children()
			if err != nil {
				return res, err
			}
			var names []string
			for i := range children {
				if !slices.Contains(names, children[i].Space) {
					names = append(names, children[i].Space)
				}
			}
			if len(names) > 0 {
				what += ": those that have are called " + strings.Join(names, ", ")
			}
		}
		return res, &Error{Code: NotFound, Message: what, Hint: "see who has joined: space-job thread invites"}
	}
	return res, nil
}

// revokeChildren takes back the tokens of those who have joined and are meant.
func (a *Actions) revokeChildren(meant func(*invite) bool) (members []string, err error) {
	if _, err := os.Lstat(a.path(invitesDir)); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	unlock, err := a.lockInvites()
	if err != nil {
		return nil, err
	}
	defer unlock()
	children, err := a.children()
	for i := range children {
		v := &children[i]
		if !meant(v) {
			continue
		}
		v.RevokedAt = a.now().UTC().Truncate(time.Millisecond)
		if err := a.saveInvite(v); err != nil {
			return members, err
		}
		members = append(members, v.Member)
	}
	return members, err
}

// removeTokens removes the lines of a member from the file of tokens.
func (a *Actions) removeTokens(member string) (removed bool, err error) {
	if _, err := os.Lstat(a.path(tokenFile)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	unlock, err := jobdir.LockFile(a.path(tokenFile + ".lock"))
	if err != nil {
		return false, fault(err)
	}
	defer unlock()
	b, err := jobdir.ReadOwn(a.path(tokenFile), maxTokenFile, private)
	if err != nil {
		return false, fault(err)
	}
	var keep []byte
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[1] == member {
			removed = true
		} else {
			keep = append(keep, line...)
		}
	}
	if !removed {
		return false, nil
	}
	return true, fault(jobdir.ReplaceFile(a.path(tokenFile), keep, true))
}

// holder is who calls with a token.
func (a *Actions) holder(token string) (*invite, error) {
	id, _, ok := link.SplitSecret(token)
	if !ok {
		return nil, &Error{Code: InvalidArgument, Message: "token: it is none of a member that has joined", token: true}
	}
	v, known, err := a.cachedInvite(id, token)
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, &Error{Code: NotFound, Message: "token: the parent does not know it: it is of another Space, or was revoked long ago", Hint: "space-job thread leave, and join by a new link", token: true}
	}
	switch v.state(a.now()) {
	case InviteRevoked:
		return nil, &Error{Code: Conflict, Message: "the token of " + v.Member + " was revoked in the parent at " + thread.Clock(v.RevokedAt, a.now()), Hint: "ask for a new link; then space-job thread leave, and join by it", token: true}
	case InviteLeft:
		return nil, &Error{Code: Conflict, Message: v.Member + " has left the parent's thread", Hint: "ask for a new link; then space-job thread leave, and join by it", token: true}
	}
	return v, nil
}

// admit lets a member in by the secret of a link. The same join may be asked for
// again.
func (a *Actions) admit(secret string, args *link.JoinArgs) (link.JoinResult, error) {
	var res link.JoinResult
	if err := thread.CheckNewName("member", args.Member); err != nil {
		return res, fault(err)
	}
	if err := thread.CheckName("space", args.Space); err != nil {
		return res, fault(err)
	}
	id, key, ok := link.SplitSecret(secret)
	_, _, isToken := link.SplitSecret(link.Secret(id, args.Token))
	if !ok || !isToken || args.SpaceID == "" || len(args.SpaceID) > 64 {
		return res, &Error{Code: InvalidArgument, Message: "link: it is none of this program"}
	}
	if _, err := os.Lstat(a.path(invitesDir)); err != nil {
		return res, foreignLink()
	}
	if _, err := os.Lstat(a.path(joinFile)); err == nil { // since the link was made
		return res, &Error{Code: Conflict, Message: "link: the Space that made it has joined the thread of another one itself", Hint: "ask for a link there"}
	}
	unlock, err := a.lockInvites()
	if err != nil {
		return res, err
	}
	defer unlock()
	all, err := a.invites()
	if err != nil {
		return res, err
	}
	i := slices.IndexFunc(all, func(v invite) bool { return v.ID == id })
	if i < 0 || all[i].Secret != secretDigest(id, key) {
		return res, foreignLink()
	}
	parent, err := a.makeParentID()
	if err != nil {
		return res, err
	}
	place := func(v *invite) link.JoinResult {
		return link.JoinResult{Member: v.Member, Space: v.Space, Parent: parent}
	}
	v := &all[i]
	now := a.now()
	digest := secretDigest(id, args.Token)
	switch v.state(now) {
	case InviteUsed:
		if v.Token == digest && v.Member == args.Member { // the answer was lost
			return place(v), a.addChild(v.Member)
		}
		return res, refusedLink("is used already: @" + v.Member + " has joined by it from " + v.Space + " at " + thread.Clock(v.UsedAt, now))
	case InviteLeft:
		return res, refusedLink("is used already: @" + v.Member + " had joined by it, and has left")
	case InviteRevoked:
		return res, refusedLink("was revoked at " + thread.Clock(v.RevokedAt, now))
	case InviteExpired:
		return res, refusedLink("has expired at " + thread.Clock(v.ExpiresAt, now) + ", and it is " + thread.Clock(now, now) + " in the parent")
	}
	before, err := a.mayJoin(args, all)
	if err != nil {
		return res, err
	}
	if before != nil { // it has lost the token, or never had it: a join was killed
		before.LeftAt = now.UTC().Truncate(time.Millisecond)
		if err := a.saveInvite(before); err != nil {
			return res, err
		}
	}
	v.Member, v.SpaceID, v.Token, v.UsedAt = args.Member, args.SpaceID, digest, now.UTC().Truncate(time.Second)
	v.Space = spaceName(v, args.Space, all)
	crash("admit.checked")
	if err := a.saveInvite(v); err != nil {
		return res, err
	}
	crash("admit.saved")
	if err := a.addChild(v.Member); err != nil {
		return res, err
	}
	crash("admit.added")
	return place(v), nil
}

// parentFile has what tells a parent from any other Space. The lock is held of
// whoever makes it.
const parentFile = invitesDir + "/.parent"

func (a *Actions) parentID() (string, error) {
	b, err := jobdir.ReadOwn(a.path(parentFile), 64, private)
	return strings.TrimSpace(string(b)), err
}

func (a *Actions) makeParentID() (string, error) {
	id, err := a.parentID()
	if !errors.Is(err, fs.ErrNotExist) {
		return id, fault(err)
	}
	if id, err = newSecret(8); err != nil {
		return "", err
	}
	return id, fault(jobdir.ReplaceFile(a.path(parentFile), []byte(id+"\n"), true))
}

func foreignLink() error {
	return &Error{Code: NotFound, Message: "link: is a foreign one: this Space has not made it, or long ago", Hint: "ask for another: space-job thread invite, in the Space that it is to lead to"}
}

func refusedLink(why string) error {
	return &Error{Code: Conflict, Message: "link: " + why, Hint: "ask for another: space-job thread invite"}
}

// mayJoin refuses a name that somebody has. Who joins again from the same Space has
// joined by another link before, which is returned. A member whose token was revoked
// may be invited again; who has left is a member no longer, and one of that name is
// somebody else, as is one that was added since.
func (a *Actions) mayJoin(args *link.JoinArgs, all []invite) (again *invite, err error) {
	var revoked time.Time // until then the member was one that had joined
	for i := range all {
		o := &all[i]
		if o.Member == "" || o.Member != args.Member {
			continue
		}
		switch o.state(a.now()) {
		case InviteUsed:
			if o.SpaceID == args.SpaceID {
				again = o
				break
			}
			return nil, &Error{Code: Conflict, Message: "member: " + shown(args.Member) + " has joined already, from " + o.Space, Hint: "take another name; or, where that one is lost, over there: space-job member revoke " + args.Member}
		case InviteRevoked:
			if o.RevokedAt.After(revoked) {
				revoked = o.RevokedAt
			}
		}
	}
	m, err := a.thread().Member(args.Member)
	switch {
	case errors.Is(err, thread.ErrNoMember):
		other, err := a.sameFolded(args.Member)
		if err == nil && other != "" {
			err = &Error{Code: Conflict, Message: "member: " + shown(args.Member) + " differs from the parent's member " + other + " in capitals only", Hint: "take another name"}
		}
		return again, err
	case err != nil:
		return nil, fault(err)
	case m.Kind != thread.Agent || again == nil && (revoked.IsZero() || !m.AddedAt.Before(revoked)):
		return nil, &Error{Code: Conflict, Message: "member: " + shown(args.Member) + " is somebody else in the parent", Hint: "take another name"}
	}
	return again, nil
}

// spaceName is what the Space of a child is called: by the link, as its other
// members have it, else as it likes, with a number where another one has that.
func spaceName(v *invite, wanted string, all []invite) string {
	if v.Name != "" {
		wanted = v.Name
	}
	has := map[string]bool{}
	for i := range all {
		switch o := &all[i]; {
		case o.ID == v.ID || o.Space == "":
		case o.SpaceID == v.SpaceID:
			return o.Space
		default:
			has[o.Space] = true
		}
	}
	name := wanted
	for n := 2; has[name]; n++ {
		name = wanted[:min(len(wanted), 50)] + "-" + strconv.Itoa(n)
	}
	return name
}

// addChild makes a member of who has joined.
func (a *Actions) addChild(member string) error {
	t := a.thread()
	if _, err := t.Member(member); !errors.Is(err, thread.ErrNoMember) {
		return fault(err)
	}
	_, err := t.AddMember(thread.Member{Name: member, Kind: thread.Agent})
	return fault(err)
}

// leave ends the part of a member, which asks for it. Its name is free again.
func (a *Actions) leave(id string) error {
	unlock, err := a.lockInvites()
	if err != nil {
		return err
	}
	defer unlock()
	v, err := a.invite(id)
	if err != nil || v == nil || v.state(a.now()) != InviteUsed { // since: it may have joined anew
		return err
	}
	v.LeftAt = a.now().UTC().Truncate(time.Millisecond)
	if err := a.saveInvite(v); err != nil {
		return err
	}
	m, err := a.thread().Member(v.Member)
	if err == nil && !m.Wakeable() {
		err = a.thread().RemoveMember(v.Member)
	}
	if errors.Is(err, thread.ErrNoMember) {
		err = nil
	}
	return fault(err)
}
