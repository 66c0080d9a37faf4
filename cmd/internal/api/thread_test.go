package api

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"space-job/notify/thread"
)

func newActions(t *testing.T) *Actions {
	t.Helper()
	a, err := OpenRoot(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantError(t *testing.T, err error, code Code, words ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("%v, want %s", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(e.Message, w) {
			t.Errorf("%q does not say %q", e.Message, w)
		}
	}
}

// TestIdentity: what is given, else the environment. No call can be somebody who
// is not in the list, the login name aside.
func TestIdentity(t *testing.T) {
	a := newActions(t)
	t.Setenv("SPACE_MEMBER", "")
	if _, err := a.MemberAdd(MemberRequest{Name: "bob", Kind: "agent"}); err != nil {
		t.Fatal(err)
	}
	login := thread.LoginName()
	for _, c := range []struct{ given, env, member, kind string }{
		{"bob", "", "bob", "agent"}, {"", "bob", "bob", "agent"}, {login, "bob", login, "person"}, {"bob", "carol", "bob", "agent"},
	} {
		t.Setenv("SPACE_MEMBER", c.env)
		if who, err := a.Identity(c.given); err != nil || who.Member != c.member || who.Kind != c.kind {
			t.Errorf("%+v: %+v, %v", c, who, err)
		}
	}
	t.Setenv("SPACE_MEMBER", "carol")
	_, err := a.Identity("")
	wantError(t, err, InvalidArgument, "SPACE_MEMBER", `"carol"`, "no member")
	t.Setenv("SPACE_MEMBER", "../carol")
	_, err = a.Identity("")
	wantError(t, err, InvalidArgument, `"../carol"`, "is no name")
	t.Setenv("SPACE_MEMBER", "")
	_, err = a.Identity("carol")
	wantError(t, err, InvalidArgument, "member", `"carol"`)
	if !isTerminal(os.Stdin) && !isTerminal(os.Stderr) {
		if who, err := a.Identity(""); who.Known() || err != nil {
			t.Errorf("%+v, %v", who, err)
		}
		_, err = a.ThreadPost(PostRequest{Text: "x"})
		wantError(t, err, InvalidArgument, "member: no name is given")
	}
}

// TestPostResult: a poster is told what did not come about, and when to retry.
// TestBoundIdentity: who a connection acts for is looked up at every call.
func TestBoundIdentity(t *testing.T) {
	a := newActions(t)
	add := func(kind string) {
		t.Helper()
		if _, err := a.MemberAdd(MemberRequest{Name: "bob", Kind: kind}); err != nil {
			t.Fatal(err)
		}
	}
	add("person")
	bound, err := a.As("bob")
	if err != nil {
		t.Fatal(err)
	}
	add("agent")
	if who, err := bound.Identity(""); err != nil || who.Kind != thread.Agent {
		t.Errorf("%+v, %v", who, err)
	}
	if err := a.MemberRemove("bob"); err != nil {
		t.Fatal(err)
	}
	_, err = bound.Identity("")
	wantError(t, err, InvalidArgument, `"bob"`, "no member")
	if who, err := mustAs(t, a, "").Identity(""); err != nil || who.Known() {
		t.Errorf("%+v, %v", who, err)
	}
}

func mustAs(t *testing.T, a *Actions, member string) *Actions {
	t.Helper()
	bound, err := a.As(member)
	if err != nil {
		t.Fatal(err)
	}
	return bound
}

func TestPostResult(t *testing.T) {
	a := newActions(t)
	for _, name := range []string{"a", "b"} {
		if _, err := a.MemberAdd(MemberRequest{Name: name, Kind: "agent"}); err != nil {
			t.Fatal(err)
		}
	}
	post := func(member, text string) PostResult {
		t.Helper()
		res, err := a.ThreadPost(PostRequest{Member: member, Text: text})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := post("a", "@nobody-at-all hello"); !slices.Equal(res.Unknown, []string{"nobody-at-all"}) || len(res.Warnings) != 1 || len(res.Mentions) != 0 {
		t.Errorf("%+v", res)
	}
	for range thread.MaxWakes {
		if res := post("a", "@b hello"); len(res.Warnings) != 0 || res.Mentions[0].Wake != "none" {
			t.Errorf("%+v", res)
		}
	}
	res := post("a", "@b hello")
	if m := res.Mentions[0]; m.Wake != "limited" || m.Limit != "rate" || m.RetryAfterMS <= 0 || m.RetryAfterMS > 60_000 || !strings.Contains(res.Warnings[0], "limit rate") || !strings.Contains(res.Warnings[0], "retry in ") {
		t.Errorf("%+v", res)
	}
	zero := int64(0)
	_, err := a.ThreadPost(PostRequest{Member: "a", Text: "x", ReplyTo: &zero})
	wantError(t, err, InvalidArgument, "reply_to", `"0"`)
	far := int64(1000)
	_, err = a.ThreadPost(PostRequest{Member: "a", Text: "x", ReplyTo: &far})
	wantError(t, err, InvalidArgument, "reply_to", `"1000"`, "no entry")
	_, err = a.ThreadPost(PostRequest{Member: "a", Text: strings.Repeat("x", 1<<20)})
	wantError(t, err, LimitExceeded, "text: ", "1048576 bytes", "8192")
	_, err = a.ThreadPost(PostRequest{Member: "a", Text: "@a hello"})
	wantError(t, err, InvalidArgument, "text: ", "yourself")
}

func TestThreadClaim(t *testing.T) {
	a := newActions(t)
	for _, name := range []string{"a", "b"} {
		if _, err := a.MemberAdd(MemberRequest{Name: name, Kind: "agent"}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.ThreadClaim(ClaimRequest{Member: "a", What: "x", Until: "1h"})
	wantError(t, err, InvalidArgument, "files")
	_, err = a.ThreadClaim(ClaimRequest{Member: "a", What: "x", Files: []string{"src"}})
	wantError(t, err, InvalidArgument, "until")
	_, err = a.ThreadClaim(ClaimRequest{Member: "a", What: "x", Files: []string{"src"}, Until: "1 o'clock"})
	wantError(t, err, InvalidArgument, "until", `"1 o'clock"`)
	res, err := a.ThreadClaim(ClaimRequest{Member: "a", What: "x", Files: []string{"src"}, Until: "1h"})
	if err != nil || !res.Claims[0].Live || len(res.Warnings) != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	// The time stands in the entry with its zone.
	_, until, _ := strings.Cut(res.Text, "until: ")
	if at, err := time.Parse(time.RFC3339, until); err != nil || time.Until(at) < 59*time.Minute {
		t.Errorf("%q: %v", res.Text, err)
	}
	_, err = a.ThreadClaim(ClaimRequest{Member: "b", What: "y", Files: []string{"docs", "src/a"}, Until: "1h"})
	wantError(t, err, Conflict, "@a has claimed", "src/a with src")
	_, err = a.ThreadRelease("b", "x")
	wantError(t, err, Conflict, "it is @a's")
	_, err = a.ThreadBlocked("a", "x", "help", "nobody")
	wantError(t, err, InvalidArgument, "from", `"nobody"`)
	_, err = a.ThreadDone("a", "x", "a|b", "c")
	wantError(t, err, InvalidArgument, "result")
	res, err = a.ThreadDone("b", "x", "ok", "nothing")
	if err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "it is @a's") {
		t.Errorf("%+v, %v", res, err)
	}
	if res, err := a.ThreadRelease("a", "X"); err != nil || !res.Claims[0].Ended {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestSplitPaths(t *testing.T) {
	for s, want := range map[string]string{"a,b": "a|b", "a, b ,": "a|b", "{a,b},c": "{a,b}|c", "": "", ",": "", "a}b,c": "a}b|c"} {
		if got := strings.Join(SplitPaths(s), "|"); got != want {
			t.Errorf("%q: %q", s, got)
		}
	}
}
