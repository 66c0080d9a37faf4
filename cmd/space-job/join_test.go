package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	_ "unsafe" // for linkname

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link/carrier"
	"space-job/jobdir"
	"space-job/notify"
	"space-job/notify/thread"
)

// The steps at which the programs of a test can be killed.
var (
	//go:linkname apiCrash space-job/cmd/internal/api.testOnlyCrash
	apiCrash func(point string)
	//go:linkname daemonCrash space-job/cmd/internal/daemon.testOnlyCrash
	daemonCrash func(point string)
	//go:linkname notifyCrash space-job/notify.testOnlyCrash
	notifyCrash func(point string)
	// How long the daemon looks for a start elsewhere whose answer never came.
	//go:linkname undoneAfter space-job/cmd/internal/daemon.undoneAfter
	undoneAfter time.Duration
)

// armed is a program that dies, as by kill -9, at the step that the file beside
// its root names: once.
func armed(main func()) func() {
	return func() {
		order := os.Getenv("SPACE_JOB_HOME") + ".crash"
		at := func(point string) {
			b, err := os.ReadFile(order)
			if err == nil && string(b) == point && os.Rename(order, order+"ing") == nil {
				_ = os.WriteFile(order+"ing", []byte(strconv.Itoa(os.Getpid())), 0o600)
				_ = os.Rename(order+"ing", order+"ed")
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		apiCrash, daemonCrash, notifyCrash = at, at, at
		undoneAfter = time.Second
		main()
	}
}

// arm has the next program of the root that comes to a step die there.
func (s *space) arm(point string) {
	s.t.Helper()
	if s.bin != armedDir {
		s.t.Fatal("its programs do not look")
	}
	if err := os.WriteFile(s.root+".crash", []byte(point), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// died waits until a program has.
func (s *space) died() {
	s.t.Helper()
	pid := 0
	s.await("a program that dies", func() string {
		b, err := os.ReadFile(s.root + ".crashed")
		pid, _ = strconv.Atoi(string(b))
		return fmt.Sprint(err == nil)
	}, "true")
	if err := os.Remove(s.root + ".crashed"); err != nil {
		s.t.Fatal(err)
	}
	s.noDaemon(pid)
}

// noDaemon waits until the daemon that a process was is gone: one that is about to be
// is still in the way of the next.
func (s *space) noDaemon(pid int) {
	s.t.Helper()
	root, err := jobdir.OpenRoot(s.root)
	if err != nil {
		s.t.Fatal(err)
	}
	s.await("the end of the daemon", func() string {
		r, held := notify.DaemonOf(root)
		return fmt.Sprint(held && (r.PID == pid || r.PID == 0))
	}, "false")
}

// hasDaemon has a daemon run. One that a command has started meanwhile does; what was
// killed is not there any more, if somebody has waited for that.
func (s *space) hasDaemon() {
	s.t.Helper()
	s.await("a daemon", func() string {
		_, err := s.try("daemon", "--detach")
		return fmt.Sprint(err == nil || strings.Contains(err.Error(), "a daemon runs for "+s.root))
	}, "true")
}

// serve has the daemon run, and returns once it answers at its port.
func (s *space) serve() {
	s.t.Helper()
	s.hasDaemon()
	s.await("an answer at the port", func() string {
		res, err := http.Get("http://127.0.0.1:" + strings.TrimSpace(s.file("port")) + "/mcp")
		if err == nil {
			res.Body.Close()
		}
		return fmt.Sprint(err == nil)
	}, "true")
}

// newParent is a space whose daemon serves a port.
func newParent(t *testing.T) *space {
	return newParentOf(newSpace(t))
}

func newParentOf(s *space) *space {
	s.t.Helper()
	s.run("daemon", "--detach", "--http", "0")
	return s
}

// childOf is a space of its own with a member that has joined s. What it is woken
// for stands in the file woken, one item on a line.
func (s *space) childOf(t *testing.T, member string) *space {
	t.Helper()
	c := newSpaceOf(t, s.bin)
	c.run("member", "add", member, "--kind", "agent", "--wake-command", "cat >>"+c.wokenFile())
	c.run("thread", "join", s.run("thread", "invite"), "--member", member)
	return c
}

func (s *space) wokenFile() string { return filepath.Join(filepath.Dir(s.root), "woken") }

// woken are the items that the member was woken for.
func (s *space) woken() string {
	b, _ := os.ReadFile(s.wokenFile())
	var ids []string
	for line := range strings.Lines(string(b)) {
		var it struct{ Item string }
		if json.Unmarshal([]byte(line), &it) == nil {
			ids = append(ids, it.Item)
		}
	}
	return strings.Join(ids, " ")
}

// texts are the first lines of the entries of the thread, in order, as a program
// reads them that is none of those under test.
func (s *space) texts() string {
	s.t.Helper()
	a := s.actions()
	a.Carry(carrier.Do)
	read, err := a.ThreadRead(context.Background(), api.ThreadRequest{N: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	all := make([]string, len(read.Entries))
	for i, e := range read.Entries {
		all[i], _, _ = strings.Cut(e.Text, "\n")
	}
	return strings.Join(all, ";")
}

func (s *space) actions() *api.Actions {
	s.t.Helper()
	a, err := api.OpenRoot(s.root)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// notified is how far the message of a job has come.
func (s *space) notified(job string) notify.Status {
	s.t.Helper()
	res, err := s.actions().Status(job)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.Notify
}

// refused is an error that says all of it.
func (s *space) refused(words []string, args ...string) {
	s.t.Helper()
	out, err := s.try(args...)
	if err == nil {
		s.t.Errorf("%q: %s", args, out)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			s.t.Errorf("%q does not say %q: %v", args, w, err)
		}
	}
}

// files are those of the root that a join makes.
func (s *space) files() string {
	var there []string
	for _, name := range []string{"join.json", "join.pending", "members", "link", "thread", "inbox"} {
		if _, err := os.Lstat(filepath.Join(s.root, name)); err == nil {
			there = append(there, name)
		}
	}
	return strings.Join(there, " ")
}

// TestJoin: a parent with two children has one thread.
func TestJoin(t *testing.T) {
	t.Parallel()
	p := newParent(t)
	a, b := p.childOf(t, "ann"), p.childOf(t, "bob")
	if got := a.run("thread", "post", "--member", "ann", "from a"); got != "1" {
		t.Errorf("seq %s", got)
	}
	b.run("thread", "post", "--member", "bob", "--reply-to", "1", "from b")
	for _, s := range []*space{p, a, b} {
		if got := s.texts(); got != "from a;from b" {
			t.Errorf("%s", got)
		}
	}
	// A claim in one is refused in the other, and until is the parent's.
	a.run("thread", "claim", "--member", "ann", "parser", "--files", "src", "--until", "1h")
	b.refused([]string{"overlaps", "@ann has claimed"}, "thread", "claim", "--member", "bob", "x", "--files", "src/x.go", "--until", "1h")
	p.run("member", "add", "local", "--kind", "agent")
	p.refused([]string{"overlaps"}, "thread", "claim", "--member", "local", "x", "--files", "src/x.go", "--until", "1h")
	b.refused([]string{"it is @ann's"}, "thread", "release", "--member", "bob", "parser")
	a.run("thread", "done", "--member", "ann", "parser", "works", "--next", "nothing")
	b.run("thread", "claim", "--member", "bob", "x", "--files", "src/x.go", "--until", "1h")
	b.run("thread", "release", "--member", "bob", "x")
	a.run("thread", "blocked", "--member", "ann", "parser", "--needs", "a schema", "--from", "bob")
	b.await("bob's waker", b.woken, "e7")

	// A job that ends in a is announced in the parent, and wakes its starter in a
	// and whom it names in b.
	job := a.run("start", "--notify", "--member", "ann", "--wake", "bob", "--wake", "local", "echo hello; exit 3")
	a.await("ann's waker", a.woken, "e8")
	b.await("bob's waker", b.woken, "e7 e8")
	p.await("the inbox of local", func() string {
		got := p.run("inbox", "--member", "local", "--json")
		return fmt.Sprint(strings.Contains(got, `"item":"e8"`) && strings.Contains(got, `"job":"`+job+`"`))
	}, "true")
	if got := p.texts(); !strings.Contains(got, ";JOB "+job+" exited exit=3 ") || strings.Count(got, "JOB") != 1 {
		t.Errorf("%s", got)
	}
	a.await("the receipt", func() string {
		n := a.notified(job)
		if n.Targets == nil {
			return ""
		}
		return fmt.Sprintf("%s%d%s", n.State, n.Seq, n.Wakes["ann"].State)
	}, "delivered8delivered")
	for _, s := range []*space{a, b} {
		if _, err := os.Lstat(filepath.Join(s.root, "thread")); err == nil {
			t.Error("a child has a thread of its own")
		}
		b, err := os.Stat(filepath.Join(s.root, "join.json"))
		if err != nil || b.Mode().Perm() != 0o600 {
			t.Errorf("join.json: %v, %v", b, err)
		}
	}
	// Neither the token nor the secret is in a log or the parent's files.
	var j struct{ Members []struct{ Token string } }
	raw, err := os.ReadFile(filepath.Join(a.root, "join.json"))
	if err != nil || json.Unmarshal(raw, &j) != nil || len(j.Members) != 1 {
		t.Fatalf("%s, %v", raw, err)
	}
	_, secret, _ := strings.Cut(j.Members[0].Token, ".")
	for _, root := range []string{p.root, a.root} {
		_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
			if b, e := os.ReadFile(path); e == nil && filepath.Base(path) != "join.json" && strings.Contains(string(b), secret) {
				t.Errorf("the token stands in %s", path)
			}
			return nil
		})
	}
	// Who is not joined cannot post; the parent's members are shown.
	a.run("member", "add", "local", "--kind", "agent")
	a.refused([]string{"has not joined", "thread join"}, "thread", "post", "--member", "local", "x")
	if got := a.run("member", "list"); !strings.Contains(got, "bob") || !strings.Contains(got, "the command cat") {
		t.Errorf("%s", got)
	}
	if got := a.run("doctor"); !strings.Contains(got, "@ann takes part in the thread of http://127.0.0.1:") {
		t.Errorf("%s", got)
	}
	if got := a.run("inbox", "--member", "ann", "--take", "--json"); !strings.Contains(got, `"item":"e8"`) {
		t.Errorf("%s", got)
	}
	a.run("inbox", "answer", "--member", "ann", "e8", "seen")
	if got := a.run("inbox", "--member", "ann", "--json"); got != "" {
		t.Errorf("%s", got)
	}

	// Left, it has its own thread again, and the name is free.
	a.run("thread", "leave")
	if got := a.texts(); got != "" {
		t.Errorf("%s", got)
	}
	c := newSpace(t)
	c.run("thread", "join", p.run("thread", "invite", "--name", "third"), "--member", "ann")
	if got := p.run("thread", "invites"); !strings.Contains(got, "@ann from third") || !strings.Contains(got, "left") {
		t.Errorf("%s", got)
	}
}

// TestJoinLimits: hops and wakes are those of the group, whichever child they are
// made in.
func TestJoinLimits(t *testing.T) {
	t.Parallel()
	p := newParent(t)
	p.run("member", "add", "boss", "--kind", "person")
	a, b := p.childOf(t, "ann"), p.childOf(t, "bob")
	begun := time.Now()
	p.run("thread", "post", "--member", "boss", "@ann begin")
	chain := []struct {
		s        *space
		me, next string
	}{{a, "ann", "bob"}, {b, "bob", "ann"}, {a, "ann", "bob"}, {b, "bob", "ann"}}
	for i, c := range chain {
		c.s.run("inbox", "--member", c.me, "--take")
		got := c.s.run("thread", "post", "--json", "--member", c.me, "@"+c.next+" go on")
		if limited := strings.Contains(got, `"limit":"hops"`); limited != (i == 3) {
			t.Errorf("hop %d: %s", i+1, got)
		}
	}
	// What is started meanwhile carries them.
	job := b.run("start", "--notify", "--member", "bob", "--wake", "ann", "true")
	b.await("the limit", func() string {
		n := b.notified(job)
		if n.Targets == nil {
			return ""
		}
		return string(n.Wakes["ann"].State) + " " + n.Wakes["ann"].Limit
	}, "limited hops")
	// Three were used by the chain: seventeen are left in this minute.
	c, d := p.childOf(t, "carol"), p.childOf(t, "dave")
	limited := 0
	for i := range 18 {
		s, me, to := c, "carol", "dave"
		if i%2 == 1 {
			s, me, to = d, "dave", "carol"
		}
		as := s.actions()
		as.Carry(carrier.Do)
		res, err := as.ThreadPost(api.PostRequest{Member: me, Text: "@" + to + " hello"})
		if err != nil || len(res.Mentions) != 1 {
			t.Fatal(res, err)
		}
		if res.Mentions[0].Limit == thread.LimitRate {
			limited++
		}
	}
	if limited != 1 && time.Since(begun) < thread.WakeWindow { // else the first ones count no more
		t.Errorf("%d of 18 were limited", limited)
	}
}

// TestJoinRefused: each link that is no good says why, and leaves nothing.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	p, other := newParent(t), newSpace(t)
	address := "http://127.0.0.1:" + strings.TrimSpace(p.file("port"))
	short := p.run("thread", "invite", "--expires", "1s")
	used := p.run("thread", "invite")
	first := newSpace(t)
	first.run("thread", "join", used, "--member", "bob")
	revoked := p.run("thread", "invite", "--name", "gone")
	p.run("thread", "uninvite", "gone")
	foreign := other.run("thread", "invite", "--address", address)
	good := p.run("thread", "invite")
	p.run("member", "add", "here", "--kind", "agent")
	p.run("member", "add", "who", "--kind", "person")

	c := newSpace(t)
	refused := func(words []string, link, member string) {
		t.Helper()
		c.refused(words, "thread", "join", link, "--member", member)
		if left := c.files(); left != "" {
			t.Errorf("%q leaves %s", words, left)
		}
	}
	refused([]string{"is used already", "@bob"}, used, "carol")
	refused([]string{"was revoked at"}, revoked, "carol")
	refused([]string{"foreign"}, foreign, "carol")
	at := strings.IndexByte(good, '#') + 4
	changed := good[:at] + string("0123456789abcdef0"[strings.IndexByte("0123456789abcdef", good[at])+1]) + good[at+1:]
	refused([]string{"is damaged"}, changed, "carol")
	refused([]string{"is damaged"}, strings.ToUpper(good), "carol")
	refused([]string{`"bob" has joined already`}, good, "bob")
	refused([]string{"differs from the parent's member bob in capitals only"}, good, "Bob")
	refused([]string{`"here" is somebody else`}, good, "here")
	refused([]string{`"who" is somebody else`}, good, "who")
	refused([]string{"is no name"}, good, "a b")
	c.await("the end of a link", func() string {
		_, err := c.try("thread", "join", short, "--member", "here") // which is refused as well
		return fmt.Sprint(err != nil && strings.Contains(err.Error(), "has expired at"))
	}, "true")
	refused([]string{"has expired at"}, short, "carol")
	other.refused([]string{"this very Space"}, "thread", "join", foreign, "--member", "carol")
	p.refused([]string{"cannot join another"}, "thread", "join", other.run("thread", "invite", "--address", "http://127.0.0.1:1"), "--member", "carol")

	// Nothing of all that has used it up.
	c.run("thread", "join", good, "--member", "carol")
	c.refused([]string{"is used already"}, "thread", "join", good, "--member", "dave")
	c.refused([]string{"has joined the thread of"}, "thread", "invite")
	c.refused([]string{"has joined the thread of"}, "thread", "join", other.run("thread", "invite", "--address", "http://127.0.0.1:1"), "--member", "dave")
	first.run("thread", "post", "--member", "bob", "still here")

	other.refused([]string{"no port that a child could call", "--http 0"}, "thread", "invite")
	other.refused([]string{"plain http to another machine"}, "thread", "invite", "--address", "http://box:7411")
	other.refused([]string{"is not within"}, "thread", "invite", "--expires", "48h")
	nobody := newSpace(t)
	nobody.refused([]string{"cannot be reached", "connection refused"}, "thread", "join", other.run("thread", "invite", "--address", "http://127.0.0.1:1"), "--member", "carol")
	if left := nobody.files(); left != "" {
		t.Errorf("%s is left", left)
	}
	nobody.refused([]string{"has joined no other"}, "thread", "leave")
}

func (s *space) file(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(b)
}

// TestRevoke: a token that was taken back opens nothing, and who uses it is told.
func TestRevoke(t *testing.T) {
	t.Parallel()
	p := newParent(t)
	a, b := p.childOf(t, "ann"), p.childOf(t, "bob")
	a.run("thread", "join", p.run("thread", "invite"), "--member", "al")
	machine := ""
	for line := range strings.Lines(p.run("thread", "invites", "--json")) {
		var v struct{ Member, Space string }
		if json.Unmarshal([]byte(line), &v) == nil && v.Member == "ann" {
			machine = v.Space
		}
	}
	// A follower that waits is let go of, too.
	follower := exec.Command("space-job", "thread", "read", "--follow-ms", "20000", "--json")
	follower.Env = append(os.Environ(), "SPACE_JOB_HOME="+b.root, "SPACE_MEMBER=bob")
	out, err := follower.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follower.Start(); err != nil {
		t.Fatal(err)
	}
	p.run("member", "revoke", "bob")
	b.refused([]string{"the token of bob was revoked"}, "thread", "post", "--member", "bob", "x")
	b.refused([]string{"the token of bob was revoked"}, "thread", "read")
	a.run("thread", "post", "--member", "ann", "secret")
	if said, _ := io.ReadAll(out); strings.Contains(string(said), "secret") {
		t.Errorf("%s", said)
	}
	_ = follower.Wait()
	p.run("member", "revoke", "--machine", machine)
	for _, name := range []string{"ann", "al"} {
		a.refused([]string{"the token of " + name + " was revoked"}, "thread", "claim", "--member", name, "x", "--files", "x", "--until", "1h")
	}
	p.refused([]string{"has no token"}, "member", "revoke", "ann")
	p.refused([]string{"nobody has joined from"}, "member", "revoke", "--machine", "nowhere")
	p.refused([]string{"one of them"}, "member", "revoke", "ann", "--all")

	// The same member may be invited again.
	b.run("thread", "leave")
	b.run("thread", "join", p.run("thread", "invite"), "--member", "bob")
	b.run("thread", "post", "--member", "bob", "back")
	if got := p.run("member", "revoke", "--all"); got != "revoked bob" {
		t.Errorf("%s", got)
	}
	b.refused([]string{"was revoked"}, "thread", "read")
	token := p.run("mcp", "token", "--member", "bob")
	p.run("member", "revoke", "bob")
	if strings.Contains(p.file("token"), token) {
		t.Error("the token of MCP is still there")
	}
}

// TestParentAway: while the parent cannot be reached posts wait, reads and claims
// say so, and then each post is there once, in order.
func TestParentAway(t *testing.T) {
	t.Parallel()
	p := newParent(t)
	a, b := p.childOf(t, "ann"), p.childOf(t, "bob")
	p.killDaemon()
	var want []string
	for i := range 3 {
		text := fmt.Sprintf("post %d", i)
		want = append(want, text)
		got := a.run("thread", "post", "--json", "--member", "ann", text)
		if !strings.Contains(got, `"seq":0,`) || !strings.Contains(got, `"waits":true`) || !strings.Contains(got, "waits: the parent of this Space cannot be reached") {
			t.Errorf("%s", got)
		}
	}
	a.run("thread", "done", "--member", "ann", "x", "y", "--next", "z")
	for _, args := range [][]string{{"read"}, {"read", "--follow-ms", "1000"}, {"claims"}, {"claim", "--member", "ann", "x", "--files", "x", "--until", "1h"}, {"release", "--member", "ann", "x"}} {
		a.refused([]string{"the parent of this Space cannot be reached", "daemon"}, append([]string{"thread"}, args...)...)
	}
	a.refused([]string{"the parent of this Space cannot be reached"}, "inbox", "--member", "ann")
	a.refused([]string{"posts wait for the parent"}, "thread", "leave")
	a.refused([]string{"is empty"}, "thread", "post", "--member", "ann", " ")
	job := a.run("start", "--notify", "--member", "ann", "true")
	a.await("what status says", func() string {
		return fmt.Sprint(strings.Contains(a.notified(job).Error, "cannot be reached"))
	}, "true")
	if got := a.run("doctor"); !strings.Contains(got, "posts that wait for it: 4") {
		t.Errorf("%s", got)
	}
	a.killDaemon()
	p.serve()
	// Whoever posts next brings on what waits before that.
	if got := a.run("thread", "post", "--member", "ann", "post 3"); got == "0" {
		t.Error("it waits")
	}
	posts := func() string {
		var all []string
		for text := range strings.SplitSeq(p.texts(), ";") {
			if strings.HasPrefix(text, "post") {
				all = append(all, text)
			}
		}
		return strings.Join(all, "|")
	}
	if got := posts(); got != strings.Join(want, "|")+"|post 3" {
		t.Errorf("%s", got)
	}
	a.await("ann's waker", func() string { return fmt.Sprint(a.woken() != "") }, "true")
	p.killDaemon()
	a.run("thread", "post", "--member", "ann", "post 4")
	b.run("thread", "post", "--member", "bob", "@ann post of bob")
	p.hasDaemon()
	p.await("what waited", posts, strings.Join(want, "|")+"|post 3|post 4")
	a.await("ann's waker", func() string { return fmt.Sprint(strings.Count(a.woken(), "e")) }, "2")
	if got := p.texts(); strings.Count(got, "JOB "+job) != 1 || strings.Count(got, "@ann post of bob") != 1 {
		t.Errorf("%s", got)
	}
	// What the parent refuses meanwhile is kept.
	p.killDaemon()
	a.run("thread", "post", "--member", "ann", "@ann myself")
	p.hasDaemon()
	a.await("what was refused", func() string {
		left, _ := os.ReadDir(filepath.Join(a.root, "outbox", "posts", "refused"))
		return fmt.Sprint(len(left))
	}, "1")
}

// cutter is a way to the parent that breaks: it passes requests on, and cuts the
// connection of the next ones before their answer is through.
type cutter struct {
	to   string
	cuts atomic.Int32
	seen atomic.Int32
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.seen.Add(1)
	req, _ := http.NewRequestWithContext(r.Context(), r.Method, c.to+r.URL.Path, r.Body)
	req.Header = r.Header
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	if c.cuts.Add(-1) >= 0 {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(res.StatusCode)
	_, _ = w.Write(b)
}

// TestLinkCut: what was sent and not answered is done once.
func TestLinkCut(t *testing.T) {
	t.Parallel()
	p := newParent(t)
	c := &cutter{to: "http://127.0.0.1:" + strings.TrimSpace(p.file("port"))}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: c}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	a := newSpace(t)
	a.hasDaemon()
	a.run("daemon", "stop") // and nobody starts it: each call here is one of the test
	link := p.run("thread", "invite", "--address", "http://"+l.Addr().String())

	c.cuts.Store(2)
	a.refused([]string{"cannot be reached"}, "thread", "join", link, "--member", "ann")
	a.run("thread", "join", link, "--member", "ann")
	for i, args := range [][]string{
		{"thread", "post", "--member", "ann", "one"},
		{"thread", "claim", "--member", "ann", "x", "--files", "x", "--until", "1h"},
		{"thread", "done", "--member", "ann", "x", "y", "--next", "z"},
		{"thread", "claim", "--member", "ann", "y", "--files", "x", "--until", "1h"},
		{"thread", "release", "--member", "ann", "y"},
	} {
		c.cuts.Store(1)
		if got := a.run(args...); got != fmt.Sprint(i+1) {
			t.Errorf("%q: %s", args, got)
		}
	}
	// Cut twice, a post waits under its key, and is found.
	c.cuts.Store(2)
	if got := a.run("thread", "post", "--member", "ann", "six"); got != "0" {
		t.Errorf("seq %s", got)
	}
	if got := a.run("thread", "post", "--member", "ann", "seven"); got != "7" {
		t.Errorf("seq %s", got)
	}
	p.run("member", "add", "boss", "--kind", "person")
	p.run("thread", "post", "--member", "boss", "@ann?")
	c.cuts.Store(1)
	if got := a.run("inbox", "answer", "--member", "ann", "e8", "yes"); got != "9" {
		t.Errorf("seq %s", got)
	}
	if got := p.texts(); strings.Count(got, ";") != 8 {
		t.Errorf("%s", got)
	}
}

// TestExecPrefix: a parent without a port is reached by running space-job there.
func TestExecPrefix(t *testing.T) {
	t.Parallel()
	p, a := newSpace(t), newSpace(t)
	prefix, err := json.Marshal([]string{"env", "SPACE_JOB_HOME=" + p.root, "SPACE_MEMBER="})
	if err != nil {
		t.Fatal(err)
	}
	a.run("thread", "join", p.run("thread", "invite", "--address", "exec:"+string(prefix)), "--member", "ann")
	if got := a.run("thread", "post", "--member", "ann", "over there"); got != "1" {
		t.Errorf("seq %s", got)
	}
	c := exec.Command("space-job", "thread", "read", "--after", "1", "--follow-ms", "20000")
	c.Env = append(os.Environ(), "SPACE_JOB_HOME="+a.root, "SPACE_MEMBER=ann")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.run("member", "add", "boss", "--kind", "person")
	p.run("thread", "post", "--member", "boss", "come back")
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "@boss: come back") {
		t.Errorf("%q, %v", line, err)
	}
	_ = c.Wait()
	p.run("member", "revoke", "ann")
	a.refused([]string{"was revoked"}, "thread", "read")
	a.run("thread", "leave")
	gone := p.run("thread", "invite", "--address", `exec:["/no/such/program"]`)
	a.refused([]string{"cannot be reached", "no such file"}, "thread", "join", gone, "--member", "bob")
}

// TestJoinMCP: the tools of a child are those of the parent's thread, whichever
// way its client came, and it is told of what arrives there.
func TestJoinMCP(t *testing.T) {
	t.Parallel()
	p := newParent(t)
	p.run("member", "add", "boss", "--kind", "person")
	f := newFronts(t, "alice")
	f.command(t, "thread", "join", p.run("thread", "invite"), "--member", "alice")
	seq := 0.0
	say := func(session *sdk.ClientSession, args map[string]any) map[string]any {
		t.Helper()
		doc, ok := call(t, session, "space_thread", args).(map[string]any)
		if !ok {
			t.Fatalf("%v: %v", args, doc)
		}
		return doc
	}
	for front, session := range f.sessions() {
		uri := "space://inbox/alice"
		if err := session.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
		seq++
		if got := say(session, map[string]any{"action": "post", "text": "from " + front}); got["seq"] != seq {
			t.Errorf("%s: %v", front, got)
		}
		if got := say(session, map[string]any{"action": "read", "after": seq - 1, "follow_ms": 1000}); got["cursor"] != seq {
			t.Errorf("%s: %v", front, got)
		}
		seq++
		p.run("thread", "post", "--member", "boss", "@alice hello")
		select {
		case got := <-f.updated[front]:
			if got != uri {
				t.Errorf("%s: %s", front, got)
			}
		case <-time.After(patience):
			t.Errorf("%s: not told", front)
		}
		item := say(session, map[string]any{"action": "inbox", "take": true})["items"].([]any)[0].(map[string]any)["item"]
		seq++
		if got := say(session, map[string]any{"action": "answer", "item": item, "text": "done"}); got["seq"] != seq {
			t.Errorf("%s: %v", front, got)
		}
		if got := say(session, map[string]any{"action": "members"}); !strings.Contains(fmt.Sprint(got), "boss") {
			t.Errorf("%s: %v", front, got)
		}
	}
	p.killDaemon()
	for front, session := range f.sessions() {
		if got := say(session, map[string]any{"action": "post", "text": "away"}); got["waits"] != true || got["seq"] != 0.0 {
			t.Errorf("%s: %v", front, got)
		}
		if got := say(session, map[string]any{"action": "claims"}); !strings.Contains(fmt.Sprint(got), "cannot be reached") {
			t.Errorf("%s: %v", front, got)
		}
	}
	p.hasDaemon()
	p.await("what waited", func() string { return fmt.Sprint(strings.Count(p.texts(), ";away")) }, "2")
}

// TestJoinFollow: who follows the parent's thread has each entry once and in order,
// also over another daemon of the parent.
func TestJoinFollow(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.run("daemon", "--detach", "--http", "0")
	all := joinedActions(t, s, 2)
	parent, err := api.OpenRoot(s.root)
	if err != nil {
		t.Fatal(err)
	}
	const entries = 12
	after := int64(0)
	for posted := 0; after < entries; {
		for range 3 {
			if _, err := all[0].ThreadPost(api.PostRequest{Text: strconv.Itoa(posted + 1)}); err != nil {
				t.Fatal(err)
			}
			posted++
		}
		for after < int64(posted) {
			read, err := all[1].ThreadRead(t.Context(), api.ThreadRequest{After: &after, FollowMS: api.MaxFollowMS})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range read.Entries {
				if after++; e.Seq != after || e.Text != strconv.FormatInt(after, 10) {
					t.Fatalf("%+v, want the entry %d", e, after)
				}
			}
		}
		if posted == entries/2 {
			s.run("daemon", "stop")
			s.hasDaemon()
			if _, err := parent.WaitHTTP(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	began := time.Now()
	read, err := all[1].ThreadRead(t.Context(), api.ThreadRequest{After: &after, FollowMS: 300})
	if err != nil || len(read.Entries) != 0 || time.Since(began) < 300*time.Millisecond || time.Since(began) > 10*time.Second {
		t.Errorf("after %v: %+v, %v", time.Since(began), read, err)
	}
}
