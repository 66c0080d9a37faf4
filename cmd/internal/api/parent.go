package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"space-job/cmd/internal/link"
	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify"
	"space-job/notify/thread"
)

// The files of a root that has joined the thread of another Space: where that is
// and with which tokens; a join that is under way; and below linkDir the newest
// entry that was heard of, what each member has taken, and which items it was
// woken for.
const (
	joinFile    = "join.json"
	pendingFile = "join.pending"
	joinLock    = "join.lock"
	linkDir     = "link"
	endFile     = "end"
	takenDir    = "taken"
	wokenDir    = "woken"

	maxJoinFile = 1 << 20
)

// Carrier brings a call to the Space that it is for. Its errors are those of
// package carrier.
type Carrier func(context.Context, link.Request) (link.Answer, error)

// Carry has calls to another Space made by this process, by c. Without it the
// program space-jobd is run for each: see [runCarrier].
func (a *Actions) Carry(c Carrier) { a.carry = c }

// joined is what joinFile has.
type joined struct {
	Address string         `json:"address"`
	SpaceID string         `json:"space_id"`
	Space   string         `json:"space"`            // what this Space is called in the parent
	Parent  string         `json:"parent,omitempty"` // what tells that from any other Space
	Via     link.Via       `json:"via,omitzero"`     // how it is reached
	Members []joinedMember `json:"members"`
}

type joinedMember struct {
	Name  string `json:"name"`
	Token string `json:"token"`
}

// parent is the way to the Space whose thread this root has joined.
type parent struct {
	a *Actions
	joined
}

// parent is nil where the root has joined none.
func (a *Actions) parent() (*parent, error) {
	if a.local {
		return nil, nil
	}
	p := &parent{a: a}
	there, err := a.readOwnJSON(joinFile, &p.joined)
	if err != nil || !there {
		return nil, err
	}
	if len(p.Members) == 0 || p.Address == "" {
		return nil, &Error{Code: IO, Message: "read " + a.path(joinFile) + ": it names no parent or no member", Hint: "space-job thread leave removes it"}
	}
	return p, nil
}

// readOwnJSON reads a file that is for this user only. It reports whether it is
// there.
func (a *Actions) readOwnJSON(name string, v any) (bool, error) {
	b, err := jobdir.ReadOwn(a.path(name), maxJoinFile, private)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	if err == nil {
		if err = json.Unmarshal(b, v); err != nil {
			err = fmt.Errorf("read %s: %w", a.path(name), err)
		}
	}
	return err == nil, fault(err)
}

// show is where the parent is, for people.
func (p *parent) show() string {
	if address, err := link.ParseAddress(p.Address); err == nil {
		return address.Show()
	}
	return shown(p.Address)
}

// token is that of a member, "" where it has not joined.
func (p *parent) token(member string) string {
	for _, m := range p.Members {
		if m.Name == member {
			return m.Token
		}
	}
	return ""
}

// callAny is call as a member or, where that has not joined or its token opens
// nothing any more, as another one: for what everybody may ask for.
func (p *parent) callAny(ctx context.Context, member, op string, args, result any) (warnings []string, err error) {
	tokens := []string{}
	if token := p.token(member); token != "" {
		tokens = append(tokens, token)
	}
	for _, m := range p.Members {
		if m.Name != member {
			tokens = append(tokens, m.Token)
		}
	}
	for i, token := range tokens {
		var e error
		if warnings, e = p.call(ctx, token, op, args, result); i == 0 || !TokenRefused(e) {
			err = e
		}
		if !TokenRefused(e) {
			break
		}
	}
	return warnings, err
}

// asker is whoever asks, "" where that is not known.
func (p *parent) asker() string {
	who, _ := p.a.Identity("")
	return who.Member
}

func (p *parent) notJoined(member string) error {
	names := make([]string, len(p.Members))
	for i, m := range p.Members {
		names[i] = m.Name
	}
	e := invalid("member", member, "has not joined the thread of "+p.show()+": "+strings.Join(names, ", ")+" has")
	if len(names) > 1 {
		e.Message = strings.TrimSuffix(e.Message, "has") + "have"
	}
	e.Hint = "ask for a link there (space-job thread invite), then: space-job thread join LINK --member " + member
	return e
}

// unreachable says so of a call that had no answer.
func (p *parent) unreachable(u *link.UnreachableError, hint string) *Error {
	return &Error{Code: Unavailable, Message: "the parent of this Space cannot be reached at " + p.show() + ": " + u.Error(), Hint: hint, cause: u}
}

// untrusted: what answers has a certificate that is not trusted here.
func untrusted(u *link.UnreachableError) bool {
	return strings.HasPrefix(u.Error(), "x509: ") || strings.HasPrefix(u.Error(), "tls: ")
}

const trustHint = "see that its certificate is trusted here: $SSL_CERT_FILE, when a Space joins, is remembered"

// errAnother: what answers is a space-job, and not the one that was joined.
var errAnother = errors.New("another Space answers there")

// isUnreachable: there was no answer.
func isUnreachable(err error) (*link.UnreachableError, bool) {
	var u *link.UnreachableError
	return u, errors.As(err, &u)
}

// call asks the parent, as who has the token, and fills in the result. One that
// may be made again (it has a key, or changes nothing) is, where the connection
// broke.
func (p *parent) call(ctx context.Context, token, op string, args, result any) ([]string, error) {
	answer, err := p.a.callAt(ctx, link.Request{Address: p.Address, Via: p.Via, Token: token}, op, args, result)
	if TokenRefused(err) && p.Parent != "" && answer.Parent != p.Parent {
		// It has another Space's port, say, as long as the parent is away.
		err = &link.UnreachableError{Err: errAnother}
	}
	if u, ok := isUnreachable(err); ok {
		hint := "see that its daemon runs: space-job daemon --detach over there"
		switch {
		case untrusted(u):
			hint = trustHint
		case errors.Is(err, errAnother):
			hint = "see that nothing else has its port. Where it was made anew: space-job thread leave --drop-waiting, and join by a new link"
		}
		taken, _ := args.(link.InboxArgs)
		switch {
		case u.Sent && op == link.Claim:
			hint += ". What was asked for may have been done, and the claim hold: see space-job thread claims, or claim it again"
		case u.Sent && op == link.Release:
			hint += ". What was asked for may have been done: see space-job thread claims"
		case u.Sent && taken.Take:
			hint += ". An item may have been taken: space-job inbox shows it"
		case op == link.Claim, op == link.Release:
			hint += ". Only the parent can decide about a claim"
		case op == link.Read, op == link.Claims, op == link.Inbox, op == link.Arrivals, op == link.Members:
			hint += ". The thread is there, and cannot be read meanwhile"
		}
		err = p.unreachable(u, hint)
	}
	p.a.heardOf(answer.End)
	if err != nil {
		return nil, err
	}
	return answer.Warnings, nil
}

// callAt is call to any Space. Its error may be a *link.UnreachableError.
func (a *Actions) callAt(ctx context.Context, r link.Request, op string, args, result any) (answer link.Answer, err error) {
	r.Op = op
	if args != nil {
		if r.Args, err = json.Marshal(args); err != nil {
			return answer, fault(err)
		}
	}
	carry := a.carry
	if carry == nil {
		carry = runCarrier
	}
	answer, err = carry(ctx, r)
	if u, ok := isUnreachable(err); ok && u.Sent && !u.Late && op != link.Inbox {
		answer, err = carry(ctx, r)
		if again, ok := isUnreachable(err); ok {
			again.Sent = true // the first one
		}
	}
	switch {
	case err != nil:
		if _, ok := isUnreachable(err); ok {
			return answer, err
		}
		return answer, fault(err)
	case answer.Error != nil:
		return answer, &Error{Code: Code(answer.Error.Code), Message: answer.Error.Message, Hint: answer.Error.Hint, token: answer.Error.Token}
	case result == nil:
	default:
		if err := json.Unmarshal(answer.Result, result); err != nil {
			return answer, &Error{Code: IO, Message: "read the answer of the parent: " + err.Error(), cause: err}
		}
	}
	return answer, nil
}

// runCarrier has space-jobd make the call: this program links no HTTP. The call
// goes over its standard input, so that no token is among arguments.
func runCarrier(ctx context.Context, r link.Request) (link.Answer, error) {
	program, err := daemonProgram()
	if err != nil {
		return link.Answer{}, err
	}
	line, err := json.Marshal(r)
	if err != nil {
		return link.Answer{}, err
	}
	c := exec.CommandContext(ctx, program, "link")
	in, err := c.StdinPipe() // it stays open: that it closes says that nobody waits
	if err != nil {
		return link.Answer{}, err
	}
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &out, &said
	if err := c.Start(); err != nil {
		return link.Answer{}, fmt.Errorf("execute %s: %w", program, err)
	}
	go func() { _, _ = in.Write(append(line, '\n')) }()
	err = c.Wait()
	if ctx.Err() != nil {
		return link.Answer{}, ctx.Err()
	}
	var a link.Answer
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &a)
	}
	if err != nil {
		return a, &link.UnreachableError{Sent: true, Err: fmt.Errorf("%s link: %w %s", program, err, strings.TrimSpace(said.String()))}
	}
	if a.Unanswered != "" {
		return a, &link.UnreachableError{Sent: a.Sent, Late: a.Late, Err: errors.New(a.Unanswered)}
	}
	return a, nil
}

// heardOf keeps the newest entry that the parent has told of: a post is looked
// for from there on, so that the parent need not search its whole thread. One that
// is too old, or none, costs time only.
func (a *Actions) heardOf(end int64) {
	const near = 64 // not with every entry
	if last := a.lastHeard(); end <= 0 || end >= last && end-last < near && last > 0 {
		return
	}
	if dir, err := a.root.MakeDir(linkDir); err == nil {
		_ = jobdir.ReplaceFile(dir+"/"+endFile, []byte(strconv.FormatInt(end, 10)+"\n"), false)
	}
}

func (a *Actions) lastHeard() int64 {
	b, err := jobdir.ReadOwn(a.path(linkDir+"/"+endFile), 64, private)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return max(n, 0)
}

// wakeDaemon tells the daemon that there is something new about the link: a post
// that waits, a member that has joined or left. Where none runs one is started,
// as by Tend.
func (a *Actions) wakeDaemon() {
	if r, held := notify.DaemonOf(a.root); held {
		// One that is not ready looks for what is new when it is.
		if r.Ready && r.PID != os.Getpid() && r.BootID == record.BootID() && record.IsProcess(r.PID, r.Start) {
			_ = syscall.Kill(r.PID, syscall.SIGHUP)
		}
		return
	}
	a.tend()
}

// linked reports whether there is something for a daemon to do about links: posts
// that wait, members that are woken from a parent, or children that call.
func (a *Actions) linked() bool {
	if _, err := os.Lstat(a.path(joinFile)); err == nil {
		return true
	}
	if _, err := os.Lstat(a.path(invitesDir)); err == nil {
		_, there, err := a.HTTPPort()
		return err == nil && there
	}
	return false
}

// taken is what a member has taken in the parent's thread: what it starts
// meanwhile carries the hops.
type taken struct {
	Item string `json:"item"`
	Hops int    `json:"hops"`
}

// noteTaken is called with an item that was taken.
func (a *Actions) noteTaken(member string, it *thread.Item) {
	dir, err := a.root.MakeDir(linkDir, takenDir)
	if err == nil {
		err = jobdir.ReplaceFile(dir+"/"+member, jobdir.Line(taken{it.ID, it.Hops}), false)
	}
	_ = err // the parent knows, too: a post has its hops from there
}

// noteAnswered is called with an item that was answered.
func (a *Actions) noteAnswered(member, item string) {
	if t, ok := a.takenBy(member); ok && t.Item == item {
		_ = os.Remove(a.path(linkDir + "/" + takenDir + "/" + member))
	}
}

func (a *Actions) takenBy(member string) (t taken, ok bool) {
	name := linkDir + "/" + takenDir + "/" + member
	info, err := os.Lstat(a.path(name))
	if err != nil || a.now().Sub(info.ModTime()) > thread.DefaultLease {
		return t, false
	}
	ok, err = a.readOwnJSON(name, &t)
	return t, ok && err == nil
}

// JoinRequest is a link to follow, and for whom.
type JoinRequest struct {
	Link   string
	Member string
	Space  string // what this Space would like to be called; "": by its host name
}

// JoinResult is what came of it.
type JoinResult struct {
	Member   string   `json:"member"`
	Space    string   `json:"space"`   // what this Space is called in the parent
	Address  string   `json:"address"` // where the parent is, for people
	Warnings []string `json:"warnings"`
}

// Join takes part in the thread that a link leads to. The link works once; a join
// that was interrupted is gone on with by the same link and member. Refused, it
// leaves nothing behind.
func (a *Actions) Join(ctx context.Context, req JoinRequest) (JoinResult, error) {
	res := JoinResult{Warnings: []string{}}
	l, err := link.Parse(req.Link)
	switch {
	case errors.Is(err, link.ErrDamaged): // and not shown: it may be a secret
		return res, &Error{Code: InvalidArgument, Message: "link: " + err.Error(), Hint: "copy it again, in quotes, as space-job thread invite has printed it", cause: err}
	case err != nil:
		return res, &Error{Code: InvalidArgument, Message: "link: its address " + err.Error(), Hint: "ask for another: space-job thread invite --address", cause: err}
	}
	if req.Member == "" {
		return res, &Error{Code: InvalidArgument, Message: "member: no name is given", Hint: "say who joins: --member NAME"}
	}
	if err := thread.CheckNewName("member", req.Member); err != nil {
		return res, fault(err)
	}
	if req.Space != "" {
		if err := thread.CheckName("name", req.Space); err != nil {
			return res, fault(err)
		}
	}
	id, _, _ := link.SplitSecret(l.Secret)
	if _, err := os.Lstat(a.path(invitePath(id))); err == nil {
		return res, &Error{Code: InvalidArgument, Message: "link: it leads to this very Space", Hint: "use it in the Space that is to take part: another machine, or another SPACE_JOB_HOME"}
	}
	if children, err := a.children(); err != nil {
		return res, err
	} else if len(children) > 0 {
		return res, &Error{Code: Conflict, Message: "members of other Spaces have joined the thread of this one: it cannot join another", Hint: "see who: space-job thread invites; space-job member revoke --all ends that"}
	}
	_, err = os.Lstat(a.root.Path())
	fresh := errors.Is(err, fs.ErrNotExist)
	unlock, err := a.lockJoin()
	if err != nil {
		return res, err
	}
	defer unlock()
	if fresh {
		defer a.forgetRoot()
	}
	p, err := a.parent()
	if err != nil {
		return res, err
	}
	var pending pendingJoin
	if _, err := a.readOwnJSON(pendingFile, &pending); err != nil {
		return res, err
	}
	again := pending.Invite == id && pending.Member == req.Member
	if p != nil {
		switch {
		case p.token(req.Member) != "" && again && p.token(req.Member) == pending.token():
			res.Member, res.Space, res.Address = req.Member, p.Space, p.show()
			return res, a.endPending()
		case p.Address != l.Address:
			return res, &Error{Code: Conflict, Message: "this Space has joined the thread of " + p.show() + " already", Hint: "space-job thread leave ends that"}
		case p.token(req.Member) != "":
			return res, &Error{Code: Conflict, Message: "the member " + req.Member + " has joined already", Hint: "to join anew: space-job thread leave --member " + req.Member}
		}
	} else {
		p = &parent{a: a, joined: joined{Address: l.Address}}
	}
	t := a.thread()
	local, err := t.Member(req.Member)
	missing := errors.Is(err, thread.ErrNoMember)
	switch {
	case missing:
		if other, err := a.sameFolded(req.Member); err != nil || other != "" {
			if err == nil {
				err = invalid("member", req.Member, "differs from the member "+other+" in capitals only")
			}
			return res, err
		}
	case err != nil:
		return res, fault(err)
	case local.Kind != thread.Agent:
		return res, &Error{Code: Conflict, Message: "the member " + req.Member + " is a person here: an agent joins", Hint: "take another name, which is added: --member NAME"}
	}
	if !again {
		secret, err := newSecret(24)
		if err != nil {
			return res, err
		}
		if p.SpaceID == "" {
			p.SpaceID = pending.SpaceID // so that the parent knows who it is, if it has heard of that
		}
		if p.SpaceID == "" {
			if p.SpaceID, err = newSecret(8); err != nil {
				return res, err
			}
		}
		pending = pendingJoin{Invite: id, Member: req.Member, Secret: secret, SpaceID: p.SpaceID}
		if err := jobdir.ReplaceFile(a.path(pendingFile), jobdir.Line(pending), true); err != nil {
			return res, fault(err)
		}
		crash("join.pending")
	}
	var got link.JoinResult
	args := link.JoinArgs{Member: req.Member, Token: pending.Secret, SpaceID: pending.SpaceID, Space: req.Space}
	if args.Space == "" {
		args.Space = hostName()
	}
	answer, err := a.callAt(ctx, link.Request{Address: l.Address, Via: p.Via, Token: l.Secret}, link.Join, args, &got)
	if u, ok := isUnreachable(err); ok {
		hint := "see that its daemon runs and serves (space-job daemon --detach --http 0 over there), and join again with the same link"
		if untrusted(u) {
			hint = trustHint + ". Then join again with the same link"
		}
		e := p.unreachable(u, hint)
		e.Message = strings.Replace(e.Message, "the parent of this Space", "the Space that the link leads to", 1)
		if !u.Sent {
			if err := a.endPending(); err != nil {
				return res, err
			}
		}
		return res, e
	}
	crash("join.answered")
	if err != nil {
		if refused := AsError(err); ctx.Err() == nil && refused.Code != IO && refused.Code != Unavailable {
			if err := a.endPending(); err != nil {
				return res, err
			}
		}
		return res, err
	}
	if got.Member != req.Member || !thread.ValidName(got.Space) { // it would stand in each message
		return res, &Error{Code: Unavailable, Message: "what answers at " + p.show() + " is no space-job", Hint: "ask whoever made the link where it is to lead"}
	}
	if len(p.Members) > 0 && p.Parent != "" && got.Parent != p.Parent {
		token := pending.token()
		if _, err := a.callAt(ctx, link.Request{Address: l.Address, Via: p.Via, Token: token}, link.Leave, nil, nil); err != nil {
			if u, ok := isUnreachable(err); ok {
				err = p.unreachable(u, "join again with the same link")
			}
			return res, err
		}
		if err := a.endPending(); err != nil {
			return res, err
		}
		return res, &Error{Code: Conflict, Message: "link: another Space answers at " + p.show() + " than the one that this Space has joined", Hint: "space-job thread leave ends that", cause: errAnother}
	}
	if missing {
		if _, err := t.AddMember(thread.Member{Name: req.Member, Kind: thread.Agent}); err != nil {
			return res, fault(err)
		}
	}
	crash("join.member")
	p.SpaceID, p.Space, p.Parent, p.Via = pending.SpaceID, got.Space, got.Parent, answer.Via
	p.Members = append(p.Members, joinedMember{req.Member, pending.token()})
	if err := jobdir.ReplaceFile(a.path(joinFile), jobdir.Line(&p.joined), true); err != nil {
		return res, fault(err)
	}
	crash("join.written")
	if err := a.endPending(); err != nil {
		return res, err
	}
	crash("join.done")
	a.heardOf(answer.End)
	a.wakeDaemon()
	res.Member, res.Space, res.Address = req.Member, got.Space, p.show()
	if end, err := t.End(); err == nil && end > 0 {
		res.Warnings = append(res.Warnings, "the thread of this Space, "+strconv.FormatInt(end, 10)+" entries, is not shown as long as it has joined another; thread leave brings it back")
	}
	res.Warnings = append(res.Warnings, p.leftBehind(req.Member)...)
	return res, nil
}

// leftBehind are warnings about inboxes here, when a member has joined: its own is
// that of the parent now, and those of others are not.
func (p *parent) leftBehind(joined string) (warnings []string) {
	all, err := p.a.thread().Members()
	if err != nil {
		return nil
	}
	var others []string
	for _, m := range all {
		items, err := p.a.thread().Inbox(m.Name)
		if err != nil {
			continue
		}
		switch {
		case m.Name == joined && len(items) > 0:
			warnings = append(warnings, "the inbox that "+m.Name+" had here, "+strconv.Itoa(len(items))+" items, is not shown as long as it has joined; thread leave brings it back")
		case p.token(m.Name) == "" && (m.Kind == thread.Agent || len(items) > 0):
			others = append(others, m.Name)
		}
	}
	if len(others) > 0 {
		warnings = append(warnings, "not joined: "+strings.Join(others, ", ")+". What is in an inbox here stays there, and who is in the parent's thread is told nothing of them; an agent joins by a link of its own")
	}
	return warnings
}

// forgetRoot removes a root that was made for a join, if there is nothing in it.
func (a *Actions) forgetRoot() {
	for _, name := range []string{joinFile, pendingFile} {
		if _, err := os.Lstat(a.path(name)); !errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	_ = a.root.Forget(joinLock)
}

// lockJoin waits for others who join or leave.
func (a *Actions) lockJoin() (unlock func(), err error) {
	if err := a.root.Create(); err != nil {
		return nil, fault(err)
	}
	unlock, err = jobdir.LockFile(a.path(joinLock))
	return unlock, fault(err)
}

// pendingJoin is a join of which it is not known what came. The token is in it
// before the parent hears of it, so that it can be asked for again.
type pendingJoin struct {
	Invite  string `json:"invite"`
	Member  string `json:"member"`
	Secret  string `json:"secret"`
	SpaceID string `json:"space_id"`
}

func (p *pendingJoin) token() string { return link.Secret(p.Invite, p.Secret) }

func (a *Actions) endPending() error {
	err := os.Remove(a.path(pendingFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return fault(err)
}

// sameFolded is a member whose name differs in capitals only, "" where there is
// none.
func (a *Actions) sameFolded(name string) (string, error) {
	all, err := a.thread().Members()
	for _, m := range all {
		if m.Name != name && strings.EqualFold(m.Name, name) {
			return m.Name, nil
		}
	}
	return "", fault(err)
}

// hostName is what this machine is called, as a name of a Space.
func hostName() string {
	name, _ := os.Hostname()
	name, _, _ = strings.Cut(name, ".")
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && thread.ValidName("x"+string(r)) {
			return r
		}
		return '-'
	}, name)
	name = strings.TrimLeft(name[:min(len(name), 40)], ".-")
	if !thread.ValidName(name) {
		return "space"
	}
	return name
}

// LeaveResult is who has left.
type LeaveResult struct {
	Left     []string `json:"left"`
	Address  string   `json:"address"`
	Warnings []string `json:"warnings"`
}

// Leave ends the part of one member in the parent's thread or, for "", of all. The
// tokens are revoked over there, if it can be reached, and forgotten here. While
// posts wait it is refused, unless they are to be dropped: they are set aside.
func (a *Actions) Leave(ctx context.Context, member string, drop bool) (LeaveResult, error) {
	res := LeaveResult{Left: []string{}, Warnings: []string{}}
	p, err := a.parent()
	if err != nil {
		return res, err
	}
	if p == nil {
		return res, &Error{Code: NotFound, Message: "this Space has joined no other", Hint: "space-job thread join LINK --member NAME does"}
	}
	unlock, err := a.lockJoin()
	if err != nil {
		return res, err
	}
	defer unlock()
	if p, err = a.parent(); err != nil {
		return res, err
	}
	if p == nil { // since
		return res, nil
	}
	if member != "" && p.token(member) == "" {
		return res, p.notJoined(member)
	}
	res.Address = p.show()
	say := func(line string) { res.Warnings = append(res.Warnings, line) }
	_, _ = a.BringPosts(ctx, say)
	left, damaged, err := a.waitingPosts()
	if err == nil {
		err = a.setAsideDamaged(damaged, say)
	}
	if err != nil {
		return res, err
	}
	if member != "" {
		left = slices.DeleteFunc(left, func(w waitingPost) bool { return w.Member != member })
	}
	if len(left) > 0 && !drop {
		return res, &Error{Code: Conflict, Message: strconv.Itoa(len(left)) + " posts wait for the parent, and would never be posted", Hint: "wait until it can be reached, or set them aside: space-job thread leave --drop-waiting"}
	}
	stay := p.joined
	stay.Members = nil
	for _, m := range p.Members {
		if member != "" && m.Name != member {
			stay.Members = append(stay.Members, m)
			continue
		}
		if _, err := p.call(ctx, m.Token, link.Leave, nil, nil); err != nil {
			if ctx.Err() != nil {
				return res, err
			}
			if !retried(err) { // it opens nothing any more
				res.Left = append(res.Left, m.Name)
				continue
			}
			res.Warnings = append(res.Warnings, "the parent was not told that "+m.Name+" has left ("+AsError(err).Message+"): over there, space-job member revoke "+m.Name)
		}
		res.Left = append(res.Left, m.Name)
	}
	for i := range left {
		if err := a.setAside(&left[i], "its member has left the thread"); err != nil {
			return res, err
		}
	}
	if len(stay.Members) > 0 {
		err = jobdir.ReplaceFile(a.path(joinFile), jobdir.Line(&stay), true)
	} else if err = os.Remove(a.path(joinFile)); err == nil {
		err = jobdir.SyncDir(a.root.Path() + "/")
		_ = os.RemoveAll(a.path(linkDir))
	}
	if err != nil {
		return res, fault(err)
	}
	a.wakeDaemon()
	return res, nil
}

// examineParent is what a doctor says of the Space that this one has joined.
func (a *Actions) examineParent(ctx context.Context, res *DoctorResult) {
	p, err := a.parent()
	if err != nil {
		res.add("parent", Failed, AsError(err).Message)
		return
	}
	refused := keyNames(a.path(refusedPosts))
	if p == nil {
		if len(refused) > 0 {
			res.add("parent", Warning, "none any more; posts that were refused or damaged: "+strconv.Itoa(len(refused))+", in "+a.path(refusedPosts))
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	note := ""
	if n := len(keyNames(a.path(postsDir))); n > 0 {
		note = "; posts that wait for it: " + strconv.Itoa(n)
		if _, _, err := a.waitingPosts(); err != nil {
			note += ", and one of them cannot be read: " + AsError(err).Message
		}
	}
	if len(refused) > 0 {
		note += "; posts that were refused or damaged: " + strconv.Itoa(len(refused)) + ", in " + a.path(refusedPosts)
	}
	for _, m := range p.Members {
		_, err := p.call(ctx, m.Token, link.Claims, nil, nil)
		switch {
		case err != nil:
			res.add("parent", Warning, "@"+m.Name+": "+AsError(err).Message+note)
		default:
			v := Good
			if note != "" {
				v = Warning
			}
			res.add("parent", v, "@"+m.Name+" takes part in the thread of "+p.show()+", which answers and calls this Space "+p.Space+note)
		}
		note = ""
	}
}
