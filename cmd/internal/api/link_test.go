package api

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"space-job/cmd/internal/link"
	"space-job/jobdir"
	"space-job/notify"
	"space-job/notify/thread"
)

// testPatience is how long a test waits for what must come.
const testPatience = time.Minute

// carryTo is a way to a parent in this process, until cut says otherwise.
func carryTo(parent *Actions, cut *bool) Carrier {
	return func(ctx context.Context, r link.Request) (link.Answer, error) {
		if *cut {
			return link.Answer{}, &link.UnreachableError{Err: errors.New("connection refused")}
		}
		return parent.Answer(ctx, r.Token, r.Call), nil
	}
}

func newRootActions(t *testing.T) *Actions {
	t.Helper()
	a, err := OpenRoot(filepath.Join(t.TempDir(), "root"))
	if err == nil {
		err = a.root.Create()
	}
	if err == nil {
		err = notify.SetStopped(a.root, true) // no daemon
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const testAddress = "http://127.0.0.1:7411" // where carryTo does not look

// TestClockOfChild: a child whose clock is an hour off takes part all the same, by
// the parent's clock.
func TestClockOfChild(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"early": -time.Hour, "late": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent, child := newRootActions(t), newRootActions(t)
			cut := false
			child.Carry(carryTo(parent, &cut))
			child.now = func() time.Time { return time.Now().Add(off) }
			v, err := parent.Invite(InviteRequest{Expires: 10 * time.Minute, Address: testAddress})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"}); err != nil {
				t.Fatal(err)
			}
			before := time.Now()
			res, err := child.ThreadClaim(ClaimRequest{Member: "ann", What: "x", Files: []string{"x"}, Until: "30m"})
			if err != nil || len(res.Claims) != 1 || !res.Claims[0].Live {
				t.Fatalf("%+v, %v", res, err)
			}
			if until := res.Claims[0].Until.Sub(before); until < 30*time.Minute-time.Second || until > 31*time.Minute {
				t.Errorf("the claim holds for %v", until)
			}
			claims, err := child.ThreadClaims()
			if err != nil || len(claims.Claims) != 1 {
				t.Errorf("%+v, %v", claims, err)
			}
			read, err := child.ThreadRead(context.Background(), ThreadRequest{})
			if err != nil || len(read.Entries) != 1 || read.Entries[0].At().Sub(before).Abs() > 10*time.Second {
				t.Errorf("%+v, %v", read, err)
			}
			parent.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
			v, err = parent.Invite(InviteRequest{Expires: 10 * time.Minute, Address: testAddress})
			if err != nil {
				t.Fatal(err)
			}
			parent.now = func() time.Time { return time.Now().Add(3 * time.Hour) }
			_, err = child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "bob"})
			if e := AsError(err); err == nil || e.Code != Conflict || !strings.Contains(e.Message, "has expired") {
				t.Errorf("%v", err)
			}
			if p, err := child.parent(); err != nil || len(p.Members) != 1 {
				t.Errorf("%+v, %v", p, err)
			}
			if _, err := child.thread().Member("bob"); !errors.Is(err, thread.ErrNoMember) {
				t.Errorf("a member was made: %v", err)
			}
		})
	}
}

// TestPostsWaitInOrder: also where the clock is set back in between, and whoever
// sends them; what was sent already is not sent again.
func TestPostsWaitInOrder(t *testing.T) {
	t.Parallel()
	parent, child := newRootActions(t), newRootActions(t)
	cut := false
	child.Carry(carryTo(parent, &cut))
	v, err := parent.Invite(InviteRequest{Address: testAddress})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"}); err != nil {
		t.Fatal(err)
	}
	ann, err := child.As("ann")
	if err != nil {
		t.Fatal(err)
	}
	cut = true
	for i, text := range []string{"one", "two", "three", "four"} {
		ann.now = func() time.Time { return time.Now().Add(-time.Duration(i) * time.Hour) }
		res, err := ann.ThreadPost(PostRequest{Text: text})
		if err != nil || !res.Waits || res.Seq != 0 || len(res.Warnings) != 1 || !strings.HasPrefix(res.Warnings[0], "waits: ") {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if left, err := ann.BringPosts(context.Background(), nil); err == nil || left != 4 {
		t.Errorf("%d, %v", left, err)
	}
	posts, _, err := ann.waitingPosts()
	if err != nil || len(posts) != 4 {
		t.Fatalf("%+v, %v", posts, err)
	}
	cut = false
	// The first was sent by somebody who was killed before it was taken away.
	p, err := ann.parent()
	if err == nil {
		_, err = p.call(context.Background(), p.token("ann"), link.Post, posts[0].Args, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	res, err := ann.ThreadPost(PostRequest{Text: "five"})
	if err != nil || res.Waits || res.Seq != 5 {
		t.Errorf("%+v, %v", res, err)
	}
	read, err := parent.ThreadRead(context.Background(), ThreadRequest{})
	var texts []string
	for _, e := range read.Entries {
		texts = append(texts, e.Text)
	}
	if got := strings.Join(texts, " "); err != nil || got != "one two three four five" {
		t.Errorf("%s, %v", got, err)
	}
	if left, err := os.ReadDir(ann.path(postsDir)); err != nil || len(left) != 1 { // the lock
		t.Errorf("%v, %v", left, err)
	}
}

// TestAnswerRefuses: what a child may not do, whatever it sends.
func TestAnswerRefuses(t *testing.T) {
	t.Parallel()
	parent := newRootActions(t)
	cut := false
	join := func(member string) (*Actions, string) {
		v, err := parent.Invite(InviteRequest{Address: testAddress, Name: "of-" + member})
		if err != nil {
			t.Fatal(err)
		}
		child := newRootActions(t)
		child.Carry(carryTo(parent, &cut))
		if _, err := child.Join(context.Background(), JoinRequest{Link: v.Link, Member: member}); err != nil {
			t.Fatal(err)
		}
		p, err := child.parent()
		if err != nil {
			t.Fatal(err)
		}
		return child, p.token(member)
	}
	_, ann := join("ann")
	_, _ = join("bob")
	call := func(token, op, args string) link.Answer {
		return parent.Answer(context.Background(), token, link.Call{Op: op, Args: []byte(args)})
	}
	for _, c := range []struct{ token, op, args, want string }{
		{ann, "nothing", `{}`, "is no call"},
		{ann, link.Post, `{"text":"x"}`, `key: "" is none`},
		{ann, link.Post, `{"text":"x","key":"../../../../x"}`, "is none"},
		{ann, link.Post, `{"text":`, "args of"},
		{ann, link.Read, `{"follow_ms":60000}`, "is not within"},
		{ann, link.Inbox, `{"follow_ms":-1}`, "is not within"},
		{"", link.Read, `{}`, "it is none of a member"},
		{"../token.x", link.Read, `{}`, "it is none of a member"},
		{strings.Repeat("0", 16) + ann[16:], link.Read, `{}`, "does not know it"},
		{ann[:len(ann)-1] + "x", link.Read, `{}`, "it is none"},
		{ann[:17] + strings.Repeat("0", 48), link.Post, `{}`, "does not know it"},
		{ann, link.Join, `{"member":"x","token":"` + ann[17:] + `","space_id":"a","space":"b"}`, "foreign"},
		{ann, link.JobEnd, `{"job":"j6c1f0a2b9d3e","text":"hello @bob"}`, "is no message"},
		{ann, link.JobEnd, `{"job":"../x","text":"JOB ../x "}`, "is no id"},
	} {
		if a := call(c.token, c.op, c.args); a.Error == nil || !strings.Contains(a.Error.Message, c.want) {
			t.Errorf("%s %s: %s, %+v; want %q", c.op, c.args, a.Result, a.Error, c.want)
		}
	}
	// The starter of a job is one of that child, or nobody.
	a := call(ann, link.JobEnd, string(jobdir.Line(link.JobEndArgs{
		Job: "j6c1f0a2b9d3e", Text: jobEndText("j6c1f0a2b9d3e", "of-ann"), State: "exited", Starter: "bob", Wake: []string{"nobody"},
	})))
	if a.Error != nil || !strings.Contains(string(a.Result), `"bob":{"item":"","wake":"","error":"has not joined from of-ann"}`) ||
		!strings.Contains(string(a.Result), `"nobody":{"item":"","wake":"","error":"no such member"}`) {
		t.Errorf("%s, %+v", a.Result, a.Error)
	}
	if items, err := parent.thread().Inbox("bob"); err != nil || len(items) != 0 {
		t.Errorf("%+v, %v", items, err)
	}
	// Nobody learns how others are woken.
	if _, err := parent.MemberAdd(MemberRequest{Name: "local", Kind: thread.Agent, WakeCommand: "echo secret"}); err != nil {
		t.Fatal(err)
	}
	if a := call(ann, link.Members, `{}`); a.Error != nil || strings.Contains(string(a.Result), "secret") || !strings.Contains(string(a.Result), `"local"`) {
		t.Errorf("%s, %+v", a.Result, a.Error)
	}
	// A member that was removed is out at once.
	if err := parent.MemberRemove("ann"); err != nil {
		t.Fatal(err)
	}
	if a := call(ann, link.Read, `{}`); a.Error == nil || !strings.Contains(a.Error.Message, "the token of ann was revoked") {
		t.Errorf("%s, %+v", a.Result, a.Error)
	}
}

// TestJoinAgain: a child that was killed when the parent had let it in may join by
// another link; nobody else may have its name.
func TestJoinAgain(t *testing.T) {
	t.Parallel()
	parent, child, other := newRootActions(t), newRootActions(t), newRootActions(t)
	cut := false
	lost := errors.New("killed")
	child.Carry(func(ctx context.Context, r link.Request) (link.Answer, error) {
		_ = parent.Answer(ctx, r.Token, r.Call)
		return link.Answer{}, lost
	})
	other.Carry(carryTo(parent, &cut))
	join := func(a *Actions) error {
		v, err := parent.Invite(InviteRequest{Address: testAddress})
		if err == nil {
			_, err = a.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"})
		}
		return err
	}
	if err := join(child); !errors.Is(err, lost) {
		t.Fatal(err)
	}
	if err := join(other); err == nil || !strings.Contains(err.Error(), "has joined already") {
		t.Errorf("%v", err)
	}
	child.Carry(carryTo(parent, &cut))
	if err := join(child); err != nil {
		t.Fatal(err)
	}
	if _, err := child.ThreadPost(PostRequest{Member: "ann", Text: "here"}); err != nil {
		t.Error(err)
	}
	if all, err := parent.children(); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := os.Lstat(child.path(pendingFile)); err == nil {
		t.Error("the join is still under way")
	}
	// Removed and added again, it is another one.
	if err := parent.MemberRemove("ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := parent.MemberAdd(MemberRequest{Name: "ann", Kind: thread.Agent}); err != nil {
		t.Fatal(err)
	}
	if _, err := child.ThreadPost(PostRequest{Member: "ann", Text: "still here"}); err == nil || !strings.Contains(err.Error(), "was revoked") {
		t.Errorf("%v", err)
	}
}

// TestFollowTogether: those who follow get every entry once, in order, whether
// they come before, between or after.
func TestFollowTogether(t *testing.T) {
	t.Parallel()
	parent := newRootActions(t)
	if _, err := parent.MemberAdd(MemberRequest{Name: "ann", Kind: thread.Agent}); err != nil {
		t.Fatal(err)
	}
	ann, err := parent.As("ann")
	if err != nil {
		t.Fatal(err)
	}
	const entries = 200
	hub := &parent.served.hub
	follow := func(n int) error {
		after := int64(0)
		for after < entries {
			ctx, cancel := context.WithTimeout(context.Background(), testPatience)
			got, ok := hub.follow(ctx, parent.thread(), after, n)
			cancel()
			var res ThreadResult
			var err error
			if !ok {
				res, err = parent.ThreadRead(context.Background(), ThreadRequest{After: &after, N: int64(n)})
				if err != nil {
					return err
				}
			} else if err = json.Unmarshal(got.body, &res); err != nil {
				return err
			}
			if len(res.Entries) == 0 {
				return errors.New("nothing came")
			}
			for _, e := range res.Entries {
				if after++; e.Seq != after {
					return errors.New("an entry is missing, or there twice")
				}
			}
			if res.Cursor != after {
				return errors.New("the cursor is another")
			}
		}
		return nil
	}
	done := make(chan error, 20)
	for i := range 20 {
		go func() { done <- follow(1 + i*i) }()
	}
	for range entries {
		if _, err := ann.ThreadPost(PostRequest{Text: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestOneTokenRevoked: what everybody of a Space may do goes on by the token of
// another member.
func TestOneTokenRevoked(t *testing.T) {
	t.Parallel()
	parent, child := newRootActions(t), newRootActions(t)
	cut := false
	child.Carry(carryTo(parent, &cut))
	for _, name := range []string{"ann", "bob"} {
		v, err := parent.Invite(InviteRequest{Address: testAddress})
		if err == nil {
			_, err = child.Join(context.Background(), JoinRequest{Link: v.Link, Member: name})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := parent.Revoke(RevokeRequest{Member: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := child.ThreadRead(context.Background(), ThreadRequest{}); err != nil {
		t.Errorf("%v", err)
	}
	if _, err := child.ThreadClaims(); err != nil {
		t.Errorf("%v", err)
	}
	ann, err := child.As("ann")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ann.ThreadPost(PostRequest{Text: "x"}); !TokenRefused(err) {
		t.Errorf("%v", err)
	}
	space := mustPart(t, child).Space
	res, err := child.JobEndAbove(context.Background(), link.JobEndArgs{Job: "j000000000001", Text: jobEndText("j000000000001", space), State: "exited", Starter: "ann", Wake: []string{"bob"}})
	if err != nil || res.Seq == 0 || res.Items["ann"].Error == "" || res.Items["bob"].Item == "" {
		t.Errorf("%+v, %v", res, err)
	}
	// With none left it is said why.
	if _, err := parent.Revoke(RevokeRequest{All: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := child.ThreadRead(context.Background(), ThreadRequest{}); !TokenRefused(err) || !strings.Contains(err.Error(), "of ann was revoked") {
		t.Errorf("%v", err)
	}
}

func mustPart(t *testing.T, a *Actions) Part {
	t.Helper()
	p, err := a.Joined()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// jobEndText is the message of a job as a child sends it.
func jobEndText(job, space string) string {
	return "JOB " + job + " exited exit=0 1.0s log=3B | x\nEnd of the log:\n    x\n\nRead more in the Space " + space + " with space_job"
}

// TestNameOfSomebodyElse: a link lets nobody be a member that the parent has of its
// own, nor one that nobody can be, and is none the worse for it.
func TestNameOfSomebodyElse(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	parent, child := newRootActions(t), newRootActions(t)
	cut := false
	child.Carry(carryTo(parent, &cut))
	invite := func() (link string) {
		t.Helper()
		v, err := parent.Invite(InviteRequest{Address: testAddress})
		if err != nil {
			t.Fatal(err)
		}
		return v.Link
	}
	join := func(link, member string) error {
		_, err := child.Join(ctx, JoinRequest{Link: link, Member: member})
		return err
	}
	add := func() {
		t.Helper()
		if _, err := parent.MemberAdd(MemberRequest{Name: "ann", Kind: thread.Agent}); err != nil {
			t.Fatal(err)
		}
	}
	good := invite()
	if err := join(good, "daemon"); err == nil || !strings.Contains(err.Error(), "take another name") {
		t.Errorf("%v", err)
	}
	if res := parent.Answer(ctx, secretOf(t, good), link.Call{Op: link.Join, Args: json.RawMessage(`{"member":"daemon","token":"` + strings.Repeat("a", 48) + `","space_id":"x","space":"x"}`)}); res.Error == nil {
		t.Errorf("%+v", res)
	}
	if err := join(good, "ann"); err != nil {
		t.Fatal(err)
	}
	// Who has left, or was removed, is a member no longer; one that the parent adds
	// then is its own. Who was revoked may be invited again.
	for name, end := range map[string]func() error{
		"left":    func() error { _, err := child.Leave(ctx, "", false); return err },
		"removed": func() error { return parent.MemberRemove("ann") },
	} {
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p, _ := child.parent(); p != nil {
			if _, err := child.Leave(ctx, "", false); err != nil {
				t.Fatal(err)
			}
		}
		add()
		good := invite()
		if err := join(good, "ann"); err == nil || !strings.Contains(err.Error(), `"ann" is somebody else in the parent`) {
			t.Fatalf("%s: %v", name, err)
		}
		if err := parent.MemberRemove("ann"); err != nil {
			t.Fatal(err)
		}
		if err := join(good, "ann"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	parent.now = func() time.Time { return time.Now().Add(time.Second) } // it was added before that
	if _, err := parent.Revoke(RevokeRequest{Member: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := child.Leave(ctx, "", false); err != nil {
		t.Fatal(err)
	}
	if err := join(invite(), "ann"); err != nil {
		t.Errorf("%v", err)
	}
}

func secretOf(t *testing.T, text string) string {
	t.Helper()
	l, err := link.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l.Secret
}

// TestLeaveTooLate: what asks to leave by a token that was given up meanwhile
// leaves the one that has joined since alone.
func TestLeaveTooLate(t *testing.T) {
	t.Parallel()
	parent, child := newRootActions(t), newRootActions(t)
	cut := false
	child.Carry(carryTo(parent, &cut))
	var ids []string
	for range 2 {
		v, err := parent.Invite(InviteRequest{Address: testAddress})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, v.Invite)
		_ = os.Remove(child.path(joinFile)) // it has lost it
		if _, err := child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"}); err != nil {
			t.Fatal(err)
		}
		var p joined
		if _, err := child.readOwnJSON(joinFile, &p); err != nil {
			t.Fatal(err)
		}
		// The Space is the same.
		for _, id := range ids {
			w, err := parent.invite(id)
			if err != nil || w == nil {
				t.Fatalf("%v", err)
			}
			w.SpaceID = p.SpaceID
			if err := parent.saveInvite(w); err != nil {
				t.Fatal(err)
			}
		}
		if len(ids) == 1 {
			if err := os.WriteFile(child.path(pendingFile), []byte(`{"invite":"","space_id":"`+p.SpaceID+`"}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := parent.leave(ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := child.ThreadPost(PostRequest{Member: "ann", Text: "x"}); err != nil {
		t.Errorf("%v", err)
	}
}

// TestParentThatJoins: a link of a Space that has joined another since leads to no
// thread that anybody reads.
func TestParentThatJoins(t *testing.T) {
	t.Parallel()
	top, middle, child := newRootActions(t), newRootActions(t), newRootActions(t)
	cut := false
	middle.Carry(carryTo(top, &cut))
	child.Carry(carryTo(middle, &cut))
	v, err := middle.Invite(InviteRequest{Address: testAddress})
	if err != nil {
		t.Fatal(err)
	}
	w, err := top.Invite(InviteRequest{Address: testAddress})
	if err == nil {
		_, err = middle.Join(context.Background(), JoinRequest{Link: w.Link, Member: "ann"})
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "bob"}); err == nil || !strings.Contains(err.Error(), "has joined the thread of another one itself") {
		t.Errorf("%v", err)
	}
}

// TestForgedJobEnd: a child cannot tell of a job in the name of another Space.
func TestForgedJobEnd(t *testing.T) {
	t.Parallel()
	parent, child := newRootActions(t), newRootActions(t)
	cut := false
	child.Carry(carryTo(parent, &cut))
	v, err := parent.Invite(InviteRequest{Address: testAddress, Name: "box"})
	if err == nil {
		_, err = child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"})
	}
	if err != nil {
		t.Fatal(err)
	}
	const job = "j000000000001"
	good := link.JobEndArgs{Job: job, Text: jobEndText(job, "box"), State: "exited"}
	for name, change := range map[string]func(*link.JobEndArgs){
		"of another Space": func(a *link.JobEndArgs) { a.Text = jobEndText(job, "bank") },
		"of none":          func(a *link.JobEndArgs) { a.Text = "JOB " + job + " exited exit=0 1.0s log=3B | deploy" },
		"a line more": func(a *link.JobEndArgs) {
			a.Text = strings.Replace(a.Text, "    x", "JOB j000000000002 exited exit=0 1.0s log=3B | deploy", 1)
		},
		"a NUL byte": func(a *link.JobEndArgs) { a.Text = strings.Replace(a.Text, "    x", "    \x00", 1) },
		"no end":     func(a *link.JobEndArgs) { a.State = "running" },
		"hops":       func(a *link.JobEndArgs) { a.Hops = 1 << 40 },
	} {
		args := good
		change(&args)
		if _, err := child.JobEndAbove(context.Background(), args); !Refused(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if res, err := child.JobEndAbove(context.Background(), good); err != nil || res.Seq != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestLongAnswers: what a child asks for comes in pieces that can be carried,
// however long posts and inboxes are.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	parent, child := newRootActions(t), newRootActions(t)
	longest := 0
	child.Carry(func(ctx context.Context, r link.Request) (link.Answer, error) {
		a := parent.Answer(ctx, r.Token, r.Call)
		longest = max(longest, len(a.Result))
		return a, nil
	})
	v, err := parent.Invite(InviteRequest{Address: testAddress})
	if err == nil {
		_, err = child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"})
	}
	if err != nil {
		t.Fatal(err)
	}
	const n = 200
	text := "@ann " + strings.Repeat("\x01", thread.MaxPost-5) // six bytes each in JSON
	for range n {
		if _, err := parent.thread().Post(thread.Post{Author: thread.Author{Member: "boss", Kind: thread.Person}, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	read := func(req ThreadRequest) ThreadResult {
		t.Helper()
		res, err := child.ThreadRead(ctx, req)
		if err != nil || len(res.Entries) == 0 {
			t.Fatalf("%d entries, %v", len(res.Entries), err)
		}
		return res
	}
	for _, follow := range []int64{0, 1000} {
		for after := int64(0); after < n; {
			res := read(ThreadRequest{After: &after, N: 1000, FollowMS: follow})
			if res.Entries[0].Seq != after+1 || res.Cursor != after+int64(len(res.Entries)) {
				t.Fatalf("after %d: from %d, %d entries, cursor %d", after, res.Entries[0].Seq, len(res.Entries), res.Cursor)
			}
			after = res.Cursor
		}
	}
	if res := read(ThreadRequest{N: 1000}); res.Cursor != n || res.Entries[len(res.Entries)-1].Seq != n || !res.HasMoreBefore {
		t.Errorf("%d entries up to %d", len(res.Entries), res.Cursor)
	}
	ann, err := child.As("ann")
	if err != nil {
		t.Fatal(err)
	}
	inbox, err := ann.Inbox(ctx, InboxRequest{})
	if err != nil || len(inbox.Items) == 0 || inbox.Items[0].Seq != 1 || len(inbox.Warnings) != 1 {
		t.Errorf("%d items, %q, %v", len(inbox.Items), inbox.Warnings, err)
	}
	var known []string
	for len(known) < n {
		items, open, err := child.ArrivalsAbove(ctx, "ann", known)
		if err != nil || len(items) == 0 || len(open) != n {
			t.Fatalf("%d items, %d open, %v", len(items), len(open), err)
		}
		for _, it := range items {
			known = append(known, it.ID)
		}
	}
	if longest > maxAnswer+maxAnswer/8 {
		t.Errorf("an answer of %d bytes", longest)
	}
}

// TestArrivalsAfterJoin: who waits for its inbox when its Space joins or leaves
// goes on with the one that it has then.
func TestArrivalsAfterJoin(t *testing.T) {
	t.Parallel()
	parent, child := newRootActions(t), newRootActions(t)
	cut := false
	child.Carry(carryTo(parent, &cut))
	if _, err := child.MemberAdd(MemberRequest{Name: "ann", Kind: thread.Agent}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testPatience)
	defer cancel()
	news := make(chan string, 10)
	ended := make(chan error, 1)
	go func() { ended <- child.Arrivals(ctx, "ann", func() { news <- "news" }) }()
	mention := func(a *Actions) {
		t.Helper()
		if _, err := a.thread().Post(thread.Post{Author: thread.Author{Member: "boss", Kind: thread.Person}, Text: "@ann x"}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-news:
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		case <-ctx.Done():
			t.Fatal("nothing is told")
		}
	}
	// Once it is known to wait: what was there before is no news.
	for waits := false; !waits; {
		if _, err := child.thread().Post(thread.Post{Author: thread.Author{Member: "boss", Kind: thread.Person}, Text: "@ann x"}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-news:
			waits = true
		case <-time.After(50 * time.Millisecond):
		}
	}
	for range 2 {
		v, err := parent.Invite(InviteRequest{Address: testAddress})
		var res JoinResult
		if err == nil {
			res, err = child.Join(ctx, JoinRequest{Link: v.Link, Member: "ann"})
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(res.Warnings, "\n"), "the inbox that ann had here") {
			t.Errorf("%q", res.Warnings)
		}
		mention(parent)
		if _, err := child.Leave(ctx, "", false); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("%v", err)
	}
}

// TestNotJoined: who joins is told who in its Space has not.
func TestNotJoined(t *testing.T) {
	t.Parallel()
	parent, child := newRootActions(t), newRootActions(t)
	cut := false
	child.Carry(carryTo(parent, &cut))
	if _, err := child.MemberAdd(MemberRequest{Name: "carol", Kind: thread.Agent}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bob", "carol"} {
		v, err := parent.Invite(InviteRequest{Address: testAddress})
		if err != nil {
			t.Fatal(err)
		}
		res, err := child.Join(context.Background(), JoinRequest{Link: v.Link, Member: name})
		if said := strings.Contains(strings.Join(res.Warnings, "\n"), "not joined: carol."); err != nil || said != (name == "bob") {
			t.Errorf("%q, %v", res.Warnings, err)
		}
	}
}

// TestRefusedJoinLeavesNoRoot: nor what was there before any the worse.
func TestRefusedJoinLeavesNoRoot(t *testing.T) {
	t.Parallel()
	parent := newRootActions(t)
	cut := false
	v, err := parent.Invite(InviteRequest{Address: testAddress})
	if err == nil {
		_, err = parent.Uninvite(v.Invite)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, away := range map[string]bool{"refused": false, "not reached": true} {
		root := filepath.Join(t.TempDir(), "root")
		child, err := OpenRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		cut = away
		child.Carry(carryTo(parent, &cut))
		if _, err := child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"}); err == nil {
			t.Fatal("it has joined")
		}
		if _, err := os.Lstat(root); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the root is there: %v", name, err)
		}
	}
	there := newRootActions(t)
	cut = false
	there.Carry(carryTo(parent, &cut))
	if _, err := there.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"}); err == nil {
		t.Fatal("it has joined")
	}
	if _, err := os.Lstat(there.root.Path()); err != nil {
		t.Errorf("%v", err)
	}
}

// TestOddParent: what answers a join and is no parent is not joined.
func TestOddParent(t *testing.T) {
	t.Parallel()
	other := newRootActions(t)
	v, err := other.Invite(InviteRequest{Address: testAddress})
	if err != nil {
		t.Fatal(err)
	}
	for _, answer := range []string{`{}`, `{"member":"bob","space":"x"}`, `{"member":"ann","space":"a\u001b[2Jb"}`, `[1]`} {
		child := newRootActions(t)
		child.Carry(func(context.Context, link.Request) (link.Answer, error) {
			return link.Answer{Result: json.RawMessage(answer)}, nil
		})
		if _, err := child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"}); err == nil {
			t.Errorf("%s: it has joined", answer)
		}
		if _, err := child.thread().Member("ann"); !errors.Is(err, thread.ErrNoMember) {
			t.Errorf("%s: a member was made: %v", answer, err)
		}
		if p, err := child.parent(); p != nil || err != nil {
			t.Errorf("%s: %+v, %v", answer, p, err)
		}
	}
}

// TestPostNotKept: a post that is neither in the parent nor kept is an error that
// says both, and one that the parent refuses later is told of by who brings it.
func TestPostNotKept(t *testing.T) {
	t.Parallel()
	parent, child := newRootActions(t), newRootActions(t)
	cut := false
	child.Carry(carryTo(parent, &cut))
	v, err := parent.Invite(InviteRequest{Address: testAddress})
	if err == nil {
		_, err = child.Join(context.Background(), JoinRequest{Link: v.Link, Member: "ann"})
	}
	if err != nil {
		t.Fatal(err)
	}
	cut = true
	if _, err := child.ThreadPost(PostRequest{Member: "ann", Text: "@ann myself"}); err != nil {
		t.Fatal(err)
	}
	cut = false
	res, err := child.ThreadPost(PostRequest{Member: "ann", Text: "x"})
	if err != nil || !strings.Contains(strings.Join(res.Warnings, "\n"), "is set aside in") {
		t.Errorf("%q, %v", res.Warnings, err)
	}
	child.Carry(func(context.Context, link.Request) (link.Answer, error) { // and meanwhile there is no room for it
		err := os.RemoveAll(child.path(postsDir))
		if err == nil {
			err = os.WriteFile(child.path(postsDir), nil, 0o600)
		}
		if err != nil {
			t.Error(err)
		}
		return link.Answer{}, &link.UnreachableError{Err: errors.New("connection refused")}
	})
	_, err = child.ThreadPost(PostRequest{Member: "ann", Text: "y"})
	if err == nil || !strings.Contains(err.Error(), "connection refused; and it cannot be kept here: ") {
		t.Errorf("%v", err)
	}
}

// TestAnswerAll: a stream has one answer after another until its time is over or its
// caller may not read any more; who asks for none has one answer.
func TestAnswerAll(t *testing.T) {
	t.Parallel()
	parent, child := newRootActions(t), newRootActions(t)
	cut := false
	child.Carry(carryTo(parent, &cut))
	v, err := parent.Invite(InviteRequest{Address: testAddress})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.Join(t.Context(), JoinRequest{Link: v.Link, Member: "ann"}); err != nil {
		t.Fatal(err)
	}
	p, err := child.parent()
	if err != nil {
		t.Fatal(err)
	}
	post := func(text string) {
		t.Helper()
		if _, err := child.ThreadPost(PostRequest{Member: "ann", Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	// all makes a call, and does then once there is each of its answers.
	all := func(followMS int64, stream bool, then ...func()) (answers []link.Answer) {
		t.Helper()
		after := int64(0)
		args, err := json.Marshal(link.ReadArgs{After: &after, FollowMS: followMS, Stream: stream})
		if err != nil {
			t.Fatal(err)
		}
		err = parent.AnswerAll(t.Context(), p.token("ann"), link.Call{Op: link.Read, Args: args}, func(a link.Answer, streams bool) error {
			if streams != stream {
				t.Error("it is told to be what it is not")
			}
			if answers = append(answers, a); len(answers) <= len(then) {
				then[len(answers)-1]()
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return answers
	}
	shown := func(answers []link.Answer) (s string) {
		for _, a := range answers {
			var res ThreadResult
			if a.Error == nil {
				if err := json.Unmarshal(a.Result, &res); err != nil {
					t.Error(err)
				}
			}
			for _, e := range res.Entries {
				s += e.Text + " "
			}
			s += "| "
		}
		return s
	}
	post("one")
	if got := shown(all(200, false)); got != "one | " {
		t.Error(got)
	}
	if got := shown(all(2000, true, func() { post("two") })); got != "one | two | | " && got != "one | two | " {
		t.Error(got)
	}
	gone := errors.New("the caller is gone")
	after := int64(0)
	args, _ := json.Marshal(link.ReadArgs{After: &after, FollowMS: MaxFollowMS, Stream: true})
	if err := parent.AnswerAll(t.Context(), p.token("ann"), link.Call{Op: link.Read, Args: args}, func(link.Answer, bool) error { return gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
	answers := all(MaxFollowMS, true, func() { post("three") }, func() {
		if err := parent.thread().RemoveMember("ann"); err != nil {
			t.Error(err)
		}
	})
	if got := shown(answers); got != "one two | three | | " || answers[2].Error == nil {
		t.Errorf("%s, %+v", got, answers)
	}
}

// joinedChild is a Space whose member ann has joined parent, as that, and what cuts
// it off or leads it to another Space.
func joinedChild(t *testing.T, parent *Actions) (ann *Actions, to **Actions) {
	t.Helper()
	child := newRootActions(t)
	to = &parent
	child.Carry(func(ctx context.Context, r link.Request) (link.Answer, error) {
		if *to == nil {
			return link.Answer{}, &link.UnreachableError{Err: errors.New("connection refused")}
		}
		return (*to).Answer(ctx, r.Token, r.Call), nil
	})
	v, err := parent.Invite(InviteRequest{Address: testAddress})
	if err == nil {
		_, err = child.Join(t.Context(), JoinRequest{Link: v.Link, Member: "ann"})
	}
	if err == nil {
		ann, err = child.As("ann")
	}
	if err != nil {
		t.Fatal(err)
	}
	return ann, to
}

func postOf(t *testing.T, a *Actions, member, text string) {
	t.Helper()
	if _, err := a.ThreadPost(PostRequest{Member: member, Text: text}); err != nil {
		t.Fatal(err)
	}
}

// TestTakeAfterRevoke: who waits for an item and whose token is revoked meanwhile
// gets none.
func TestTakeAfterRevoke(t *testing.T) {
	t.Parallel()
	parent := newRootActions(t)
	ann, _ := joinedChild(t, parent)
	if _, err := parent.MemberAdd(MemberRequest{Name: "boss", Kind: thread.Person}); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 1000)
	parent.now = func() time.Time { asked <- struct{}{}; return time.Now() }
	took := make(chan error, 1)
	go func() {
		res, err := ann.Inbox(t.Context(), InboxRequest{Take: true, FollowMS: 20_000})
		if err == nil {
			t.Errorf("it took %+v", res.Items)
		}
		took <- err
	}()
	for range 2 { // whether the token is good: when it calls, and when it begins to wait
		<-asked
	}
	parent.now = time.Now
	if _, err := parent.Revoke(RevokeRequest{Member: "ann"}); err != nil {
		t.Fatal(err)
	}
	postOf(t, parent, "boss", "@ann a secret")
	if err := <-took; !TokenRefused(err) {
		t.Error(err)
	}
	if items, err := parent.thread().Inbox("ann"); err != nil || len(items) != 1 || items[0].State != thread.Unread {
		t.Errorf("%+v, %v", items, err)
	}
}

// TestClaimInAnotherZone: a time of the day is one of where it was said, by the
// parent's clock.
func TestClaimInAnotherZone(t *testing.T) {
	t.Parallel()
	parent := newRootActions(t)
	ann, _ := joinedChild(t, parent)
	p, err := ann.parent()
	if err != nil {
		t.Fatal(err)
	}
	for _, zone := range []link.Zone{{Name: "EST", East: -5 * 3600}, {Name: "UTC"}, {Name: "IST", East: 5*3600 + 1800}} {
		want := time.Now().In(time.FixedZone(zone.Name, zone.East)).Add(10 * time.Minute).Truncate(time.Minute)
		key, err := newKey(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		args := link.SayArgs{Key: key, What: "x", Files: []string{"x"}, Until: want.Format("15:04 MST"), Zone: &zone}
		var res PostResult
		if _, err := p.call(t.Context(), p.token("ann"), link.Claim, args, &res); err != nil || len(res.Claims) != 1 || !res.Claims[0].Until.Equal(want) {
			t.Errorf("%s at %+v: %+v, %v", args.Until, zone, res.Claims, err)
		}
	}
	var sent link.SayArgs
	under := ann.carry
	ann.Carry(func(ctx context.Context, r link.Request) (link.Answer, error) {
		if r.Op == link.Claim {
			if err := json.Unmarshal(r.Args, &sent); err != nil {
				t.Error(err)
			}
		}
		return under(ctx, r)
	})
	at := time.Now().Add(10 * time.Minute)
	res, err := ann.ThreadClaim(ClaimRequest{What: "x", Files: []string{"x"}, Until: at.Format("15:04 MST")})
	if err != nil || len(res.Claims) != 1 || time.Until(res.Claims[0].Until) > 10*time.Minute {
		t.Errorf("%+v, %v", res.Claims, err)
	}
	name, east := at.Zone()
	if sent.Zone == nil || *sent.Zone != (link.Zone{Name: name, East: east}) {
		t.Errorf("%+v", sent.Zone)
	}
}

// TestClaimComesAfterWhatWaits: what was said before is posted before a claim, and
// ends none that comes after it. Who brings it on is told what came of it.
func TestClaimComesAfterWhatWaits(t *testing.T) {
	t.Parallel()
	parent := newRootActions(t)
	ann, to := joinedChild(t, parent)
	claim := ClaimRequest{What: "x", Files: []string{"x"}, Until: "30m"}
	if _, err := ann.ThreadClaim(claim); err != nil {
		t.Fatal(err)
	}
	if _, err := parent.MemberAdd(MemberRequest{Name: "bob", Kind: thread.Agent}); err != nil {
		t.Fatal(err)
	}
	if _, err := parent.ThreadClaim(ClaimRequest{Member: "bob", What: "y", Files: []string{"y"}, Until: "1h"}); err != nil {
		t.Fatal(err)
	}
	*to = nil
	if res, err := ann.ThreadDone("", "x", "finished", "nothing"); err != nil || !res.Waits {
		t.Fatalf("%+v, %v", res, err)
	}
	postOf(t, ann, "", "CLAIM mine | files: y/z | until: 1h")
	*to = parent
	res, err := ann.ThreadClaim(claim)
	if err != nil || res.Seq != 5 || len(res.Claims) != 1 || !res.Claims[0].Live {
		t.Errorf("%+v, %v", res, err)
	}
	if said := strings.Join(res.Warnings, "; "); !strings.Contains(said, "a post of ann that waited is entry 4: ") || !strings.Contains(said, "does not hold") {
		t.Errorf("%q", res.Warnings)
	}
	if claims, err := parent.ThreadClaims(); err != nil || len(claims.Claims) != 2 {
		t.Errorf("%+v, %v", claims, err)
	}
}

// TestDamagedPost: a post that waits and cannot be read is in the way of no other.
func TestDamagedPost(t *testing.T) {
	t.Parallel()
	parent := newRootActions(t)
	ann, to := joinedChild(t, parent)
	*to = nil
	postOf(t, ann, "", "one")
	postOf(t, ann, "", "two")
	first := keyNames(ann.path(postsDir))[0]
	if err := os.Truncate(ann.path(postsDir+"/"+first), 20); err != nil {
		t.Fatal(err)
	}
	if got := parentNote(t, ann); !strings.Contains(got, "posts that wait for it: 2") {
		t.Error(got)
	}
	*to = parent
	// One that cannot be read is not damaged for that: it waits, and so do the others.
	second := ann.path(postsDir + "/" + keyNames(ann.path(postsDir))[1])
	if err := os.Chmod(second, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.BringPosts(t.Context(), nil); err == nil || len(keyNames(ann.path(postsDir))) != 2 {
		t.Errorf("%v, %q", err, keyNames(ann.path(postsDir)))
	}
	if got := parentNote(t, ann); !strings.Contains(got, "may be read by others") {
		t.Error(got)
	}
	if err := os.Chmod(second, 0o600); err != nil {
		t.Fatal(err)
	}
	var said []string
	if left, err := ann.BringPosts(t.Context(), func(s string) { said = append(said, s) }); left != 0 || err != nil {
		t.Errorf("%d, %v", left, err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "cannot be read, and is set aside in ") {
		t.Errorf("%q", said)
	}
	if read, err := parent.ThreadRead(t.Context(), ThreadRequest{}); err != nil || len(read.Entries) != 1 || read.Entries[0].Text != "two" {
		t.Errorf("%+v, %v", read.Entries, err)
	}
	if names := keyNames(ann.path(refusedPosts)); len(names) != 1 || names[0] != first {
		t.Errorf("%q", names)
	}
	if _, err := ann.Leave(t.Context(), "", false); err != nil {
		t.Error(err)
	}
	if got := parentNote(t, ann); !strings.Contains(got, "posts that were refused or damaged: 1") {
		t.Error(got)
	}
}

// parentNote is what a doctor says of the parent.
func parentNote(t *testing.T, a *Actions) string {
	t.Helper()
	var res DoctorResult
	if a.examineParent(t.Context(), &res); len(res.Findings) != 1 {
		t.Fatalf("%+v", res)
	}
	return res.Findings[0].Note
}

// TestAnotherSpaceAnswers: as long as another Space has the parent's port, posts
// wait: they are not refused.
func TestAnotherSpaceAnswers(t *testing.T) {
	t.Parallel()
	parent, other := newRootActions(t), newRootActions(t)
	ann, to := joinedChild(t, parent)
	_, _ = joinedChild(t, other) // one that has children, too
	for _, wrong := range []*Actions{newRootActions(t), other} {
		*to = wrong
		res, err := ann.ThreadPost(PostRequest{Text: "hello"})
		if err != nil || !res.Waits || !strings.Contains(res.Warnings[0], "another Space answers there") {
			t.Errorf("%+v, %v", res, err)
		}
	}
	// Nor is it taken for the parent by somebody who has its link.
	v, err := other.Invite(InviteRequest{Address: testAddress})
	if err != nil {
		t.Fatal(err)
	}
	child := *ann
	child.bound = nil
	if _, err := child.Join(t.Context(), JoinRequest{Link: v.Link, Member: "carol"}); err == nil || AsError(err).Code != Conflict || !Astray(err) {
		t.Error(err)
	}
	if p, err := ann.parent(); err != nil || len(p.Members) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	if all, err := other.children(); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	*to = parent
	if left, err := ann.BringPosts(t.Context(), nil); left != 0 || err != nil {
		t.Errorf("%d, %v", left, err)
	}
	if read, err := parent.ThreadRead(t.Context(), ThreadRequest{}); err != nil || len(read.Entries) != 2 {
		t.Errorf("%+v, %v", read.Entries, err)
	}
	if _, err := parent.Revoke(RevokeRequest{Member: "ann"}); err != nil {
		t.Fatal(err)
	}
	if _, err := ann.ThreadPost(PostRequest{Text: "hello"}); !TokenRefused(err) {
		t.Error(err)
	}
}
