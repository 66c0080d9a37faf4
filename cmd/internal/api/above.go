package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"space-job/cmd/internal/link"
	"space-job/cmd/internal/policy"
	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// Posts that wait for the parent, each a file by its key, which sorts as they were
// made; those that it has refused, with why, below that; and the lock of whoever
// sends them, so that they arrive in order.
const (
	postsDir     = "outbox/posts"
	refusedPosts = postsDir + "/refused"
	postsLock    = ".lock"
)

// waitingPost is something to say that the parent does not have, as far as is
// known.
type waitingPost struct {
	Key    string       `json:"key"`
	Member string       `json:"member"`
	Op     string       `json:"op"`
	Args   link.SayArgs `json:"args"`
	At     time.Time    `json:"at"`
	Error  string       `json:"error,omitempty"` // why it was refused
}

// sayAbove says something in the parent's thread, after all that was said before.
// With mayWait it waits in the outbox where the parent cannot be reached, and the
// result says so.
func (p *parent) sayAbove(member, op string, args link.SayArgs, mayWait bool) (PostResult, error) {
	var res PostResult
	who, err := p.a.asMember(member)
	if err != nil {
		return res, err
	}
	token := p.token(who.Member)
	if token == "" {
		return res, p.notJoined(who.Member)
	}
	if err := checkSaid(&args); err != nil {
		return res, err
	}
	if args.Key, err = newKey(p.a.now()); err != nil {
		return res, err
	}
	args.After = p.a.lastHeard()
	ctx := context.Background()
	var said []string // of posts that had waited
	say := func(line string) { said = append(said, line) }
	if !mayWait {
		left, err := p.a.BringPosts(ctx, say)
		res.Warnings = said
		if err != nil {
			return res, err
		}
		if left > 0 {
			return res, &Error{Code: Unavailable, Message: "earlier posts are being sent to the parent: " + strconv.Itoa(left), Hint: "try again in a moment"}
		}
		res.Warnings, err = p.call(ctx, token, op, args, &res)
		res.Warnings = append(said, res.Warnings...)
		return res, err
	}
	wait := func(why string) (PostResult, error) {
		w := waitingPost{Member: who.Member, Op: op, Args: args, At: p.a.now().UTC()}
		if err := p.a.keepPost(&w); err != nil {
			e := *AsError(err)
			e.Message = why + "; and it cannot be kept here: " + e.Message
			return PostResult{}, &e
		}
		p.a.wakeDaemon()
		return PostResult{
			Author: who, Text: args.Text, Mentions: []MentionResult{}, Unknown: []string{}, Claims: []thread.Outcome{}, Waits: true,
			Warnings: append(said, "waits: "+why+". It is kept, and posted once when the parent can be reached"),
		}, nil
	}
	// Whoever sends what waits goes on until nothing does.
	unlock, err := p.a.lockPosts(time.Second)
	if err != nil {
		return res, err
	}
	if unlock == nil {
		return wait("earlier posts are being sent")
	}
	_, err = p.bringPosts(ctx, say)
	if err == nil {
		res.Warnings, err = p.call(ctx, token, op, args, &res)
		if err == nil || !retried(err) {
			unlock()
			res.Warnings = append(said, res.Warnings...)
			return res, err
		}
	}
	defer unlock()
	return wait(AsError(err).Message)
}

// retried reports whether what failed is tried again: the parent was not reached,
// or could not do it for a reason of its own.
func retried(err error) bool {
	_, unreachable := isUnreachable(err)
	code := AsError(err).Code
	return unreachable || code == IO || code == Unavailable
}

// Refused reports whether the parent has answered, and does not do what it was
// asked for.
func Refused(err error) bool { return err != nil && !retried(err) }

// checkSaid refuses what the parent would refuse whoever says it, before it waits.
func checkSaid(args *link.SayArgs) error {
	for _, s := range []string{args.Text, args.What, args.Result, args.Next, args.Needs, args.From} {
		switch {
		case len(s) > thread.MaxPost:
			return fault(&thread.TooLongError{Text: s})
		case !utf8.ValidString(s):
			return invalid("text", s, "is not UTF-8")
		case strings.IndexByte(s, 0) >= 0:
			return invalid("text", s, "holds a NUL byte")
		}
	}
	return nil
}

// newKey is a key that nobody has, and sorts behind those that were made before.
func newKey(now time.Time) (string, error) {
	random, err := newSecret(6)
	return fmt.Sprintf("%016x-%s", max(now.UnixNano(), 0), random), err
}

// newSecret is what nobody can guess: n bytes in hex.
func newSecret(n int) (string, error) {
	s, err := policy.Random(n)
	return s, fault(err)
}

func validKey(s string) bool {
	return len(s) == 16+1+12 && s[16] == '-' && strings.Trim(s[:16]+s[17:], "0123456789abcdef") == ""
}

// keepPost makes a post durable. Its key may have been sent already: it stays, and
// the file's name is one that sorts behind all that wait.
func (a *Actions) keepPost(w *waitingPost) error {
	dir, err := a.root.MakeDurableDir(strings.Split(postsDir, "/")...)
	if err != nil {
		return fault(err)
	}
	name := w.Args.Key
	if last := lastName(dir); name <= last { // the clock was set back
		n, _ := strconv.ParseInt(last[:16], 16, 64)
		name = fmt.Sprintf("%016x%s", n+1, name[16:])
	}
	w.Key = name
	crash("post.waits")
	if err := jobdir.ReplaceFile(filepath.Join(dir, name), jobdir.Line(w), true); err != nil {
		return fault(err)
	}
	crash("post.kept")
	return nil
}

func lastName(dir string) string {
	names := keyNames(dir)
	if len(names) == 0 {
		return ""
	}
	return names[len(names)-1]
}

// keyNames are the posts of a directory, oldest first.
func keyNames(dir string) []string {
	entries, _ := os.ReadDir(dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if validKey(e.Name()) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names
}

// damagedPost is a file that is no post, and why.
type damagedPost struct {
	name string
	err  error
}

// waitingPosts are the posts that wait, oldest first, and those that are damaged. One
// that cannot be read for another reason may be well: that is an error.
func (a *Actions) waitingPosts() (all []waitingPost, damaged []damagedPost, err error) {
	for _, name := range keyNames(a.path(postsDir)) {
		w := waitingPost{}
		there, err := a.readOwnJSON(postsDir+"/"+name, &w)
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &syntax), errors.As(err, &kind):
			damaged = append(damaged, damagedPost{name, err})
		case err != nil:
			return all, damaged, err
		case there:
			w.Key = name
			all = append(all, w)
		}
	}
	return all, damaged, nil
}

// setAsideDamaged keeps what is damaged where it is in the way of no other post, and
// tells say.
func (a *Actions) setAsideDamaged(damaged []damagedPost, say func(string)) error {
	for _, d := range damaged {
		dir, err := a.root.MakeDurableDir(strings.Split(refusedPosts, "/")...)
		if err == nil {
			err = os.Rename(a.path(postsDir+"/"+d.name), filepath.Join(dir, d.name))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault(err)
		}
		if say != nil {
			say("a post that waited cannot be read, and is set aside in " + a.path(refusedPosts) + ": " + AsError(d.err).Message)
		}
	}
	return nil
}

// lockPosts waits for who sends posts, not longer than within: then unlock is nil.
func (a *Actions) lockPosts(within time.Duration) (unlock func(), err error) {
	dir, err := a.root.MakeDurableDir(strings.Split(postsDir, "/")...)
	if err != nil {
		return nil, fault(err)
	}
	path := filepath.Join(dir, postsLock)
	fd, err := record.Open(-1, path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fault(err)
	}
	for end := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		switch err := record.Lock(fd); {
		case err == nil:
			return func() { _ = syscall.Close(fd) }, nil
		case err != record.ErrLocked:
			_ = syscall.Close(fd)
			return nil, fault(&fs.PathError{Op: "lock", Path: path, Err: err})
		case time.Now().After(end):
			_ = syscall.Close(fd)
			return nil, nil
		}
	}
}

// BringPosts sends the posts that wait to the parent, in order, and returns how
// many still do. Its error is why. What the parent refuses is set aside, and say
// is told.
func (a *Actions) BringPosts(ctx context.Context, say func(string)) (left int, err error) {
	names := keyNames(a.path(postsDir))
	p, err := a.parent()
	if err != nil || p == nil || len(names) == 0 {
		return 0, err
	}
	unlock, err := a.lockPosts(time.Second)
	if err != nil || unlock == nil { // another process does it
		return len(names), err
	}
	defer unlock()
	return p.bringPosts(ctx, say)
}

// bringPosts is BringPosts under the lock.
func (p *parent) bringPosts(ctx context.Context, say func(string)) (left int, err error) {
	for {
		posts, damaged, err := p.a.waitingPosts()
		if err == nil {
			err = p.a.setAsideDamaged(damaged, say)
		}
		if err != nil || len(posts) == 0 {
			return len(posts), err
		}
		for i := range posts {
			if err := p.bring(ctx, &posts[i], say); err != nil {
				return len(posts) - i, err
			}
		}
	}
}

func (p *parent) bring(ctx context.Context, w *waitingPost, say func(string)) error {
	err := error(p.notJoined(w.Member))
	if token := p.token(w.Member); token != "" {
		var res PostResult
		var warnings []string
		warnings, err = p.call(ctx, token, w.Op, w.Args, &res)
		crash("post.sent")
		if err == nil && say != nil {
			for _, line := range append(warnings, res.Warnings...) {
				say("a post of " + w.Member + " that waited is entry " + strconv.FormatInt(res.Seq, 10) + ": " + line)
			}
		}
		if err != nil && (retried(err) || ctx.Err() != nil) {
			return err
		}
	}
	if err != nil {
		if say != nil {
			say("a post of " + w.Member + " that waited was refused by the parent, and is set aside in " + p.a.path(refusedPosts) + ": " + AsError(err).Message)
		}
		return p.a.setAside(w, AsError(err).Message)
	}
	err = os.Remove(p.a.path(postsDir + "/" + w.Key))
	crash("post.removed")
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return fault(err)
}

// setAside keeps a post that will not be posted, with why.
func (a *Actions) setAside(w *waitingPost, why string) error {
	w.Error = why
	dir, err := a.root.MakeDurableDir(strings.Split(refusedPosts, "/")...)
	if err == nil {
		err = jobdir.ReplaceFile(filepath.Join(dir, w.Key), jobdir.Line(w), true)
	}
	if err == nil {
		err = os.Remove(a.path(postsDir + "/" + w.Key))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return fault(err)
}

// readAbove reads the parent's thread.
func (p *parent) readAbove(ctx context.Context, req ThreadRequest) (ThreadResult, error) {
	var res ThreadResult
	warnings, err := p.callAny(ctx, p.asker(), link.Read, link.ReadArgs{After: req.After, Before: req.Before, N: req.N, FollowMS: req.FollowMS}, &res)
	res.Warnings = warnings
	return res, err
}

// claimsAbove are the live claims of the parent's thread.
func (p *parent) claimsAbove() (ClaimsResult, error) {
	var res ClaimsResult
	warnings, err := p.callAny(context.Background(), p.asker(), link.Claims, nil, &res)
	res.Warnings = warnings
	return res, err
}

// membersAbove are the members of the parent's thread, those that are woken here
// with what wakes them, and behind them who has not joined.
func (p *parent) membersAbove() (MembersResult, error) {
	local := *p.a
	local.local = true
	res, err := local.MemberList()
	if err != nil {
		return res, err
	}
	var above []MemberResult
	warnings, err := p.callAny(context.Background(), p.asker(), link.Members, nil, &above)
	res.Warnings = append(res.Warnings, warnings...)
	if err != nil {
		res.Warnings = append(res.Warnings, AsError(err).Message+": these are the members of this Space only")
		return res, nil
	}
	for i := range above {
		m := &above[i]
		j := slices.IndexFunc(res.Members, func(l MemberResult) bool { return l.Name == m.Name })
		if j < 0 {
			continue
		}
		if l := res.Members[j]; p.token(m.Name) != "" {
			m.WakeCommand, m.WakePane, m.WakeSocket, m.Login = l.WakeCommand, l.WakePane, l.WakeSocket, l.Login
		}
		res.Members = slices.Delete(res.Members, j, j+1)
	}
	res.Members = append(above, res.Members...)
	return res, nil
}

// inboxAbove is Inbox of a member that has joined.
func (p *parent) inboxAbove(ctx context.Context, member string, req InboxRequest) (InboxResult, error) {
	var res InboxResult
	warnings, err := p.call(ctx, p.token(member), link.Inbox, link.InboxArgs{Take: req.Take, FollowMS: req.FollowMS}, &res.Items)
	res.Warnings = warnings
	if err == nil && req.Take && len(res.Items) > 0 {
		p.a.noteTaken(member, &res.Items[0])
	}
	return res, err
}

// arrivalsAbove waits for unread items of a member that are not known.
func (p *parent) arrivalsAbove(ctx context.Context, member string, known []string, followMS int64) (link.ArrivalsResult, error) {
	var res link.ArrivalsResult
	_, err := p.call(ctx, p.token(member), link.Arrivals, link.ArrivalsArgs{Known: known, FollowMS: followMS}, &res)
	return res, err
}

// above is the way to the thread that a member takes part in, nil for that of
// this root.
func (a *Actions) above(member string) (*parent, error) {
	p, err := a.parent()
	if p != nil && p.token(member) == "" {
		p = nil
	}
	return p, err
}

// Part is the part that a root has in the thread of a parent.
type Part struct {
	Members []PartMember // that have joined; none where there is no parent
	Space   string       // what this Space is called there
	Exec    bool         // a call runs a program
}

// PartMember is a member that has joined, and the id of the link that it did by.
type PartMember struct{ Name, Invite string }

// Has reports whether a member takes part.
func (p *Part) Has(member string) bool {
	return slices.ContainsFunc(p.Members, func(m PartMember) bool { return m.Name == member })
}

// Joined is the part that this root has in the thread of a parent.
func (a *Actions) Joined() (Part, error) {
	p, err := a.parent()
	if p == nil {
		return Part{}, err
	}
	part := Part{Space: p.Space}
	for _, m := range p.Members {
		id, _ := link.SplitToken(m.Token)
		part.Members = append(part.Members, PartMember{m.Name, id})
	}
	address, err := link.ParseAddress(p.Address)
	part.Exec = address.Exec != nil
	return part, err
}

// JobEndAbove tells the parent of a job that has ended.
func (a *Actions) JobEndAbove(ctx context.Context, args link.JobEndArgs) (link.JobEndResult, error) {
	var res link.JobEndResult
	p, err := a.parent()
	if err != nil {
		return res, err
	}
	if p == nil {
		return res, &Error{Code: Unavailable, Message: "this Space has left the thread of its parent"}
	}
	if p.token(args.Starter) == "" {
		args.Starter = ""
	}
	_, err = p.callAny(ctx, args.Starter, link.JobEnd, args, &res)
	return res, err
}

// Woken are the items that a member was woken for.
func (a *Actions) Woken(member string) ([]string, error) {
	var ids []string
	_, err := a.readOwnJSON(linkDir+"/"+wokenDir+"/"+member, &ids)
	if err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, nil // it is woken again
		}
	}
	return ids, err
}

// SetWoken keeps them, durably.
func (a *Actions) SetWoken(member string, ids []string) error {
	dir, err := a.root.MakeDurableDir(linkDir, wokenDir)
	if err == nil {
		crash("woken.note")
		err = jobdir.ReplaceFile(filepath.Join(dir, member), jobdir.Line(ids), true)
		crash("woken.noted")
	}
	return fault(err)
}

// ArrivalsAbove waits for items of a member that has joined: unread ones that are
// not known, and all that it has not answered, by id.
func (a *Actions) ArrivalsAbove(ctx context.Context, member string, known []string) (items []thread.Item, open []string, err error) {
	p, err := a.above(member)
	if err == nil && p == nil {
		err = &Error{Code: Conflict, Message: member + " has left the thread of the parent"}
	}
	if err != nil {
		return nil, nil, err
	}
	res, err := p.arrivalsAbove(ctx, member, known, MaxFollowMS)
	return res.Items, res.Open, err
}

// checkMember refuses a name that the parent's thread does not have, as far as
// that can be told now: a parent that cannot be reached says so later.
func (p *parent) checkMember(field, name string) error {
	var all []MemberResult
	_, err := p.callAny(context.Background(), p.asker(), link.Members, nil, &all)
	if err != nil {
		if retried(err) {
			return nil
		}
		return err
	}
	if slices.ContainsFunc(all, func(m MemberResult) bool { return m.Name == name }) {
		return nil
	}
	e := invalid(field, name, "is no member here, nor in the parent")
	e.Hint = "see who is: space-job member list"
	return e
}

// LocalMember is a member as this root has it, with what wakes it here.
func (a *Actions) LocalMember(name string) (thread.Member, error) {
	m, err := a.thread().Member(name)
	if errors.Is(err, thread.ErrNoMember) {
		return thread.Member{Name: name, Kind: thread.Agent}, nil
	}
	return m, fault(err)
}
