package until

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a check run, or with a context a status.
type fake struct {
	name, status, conclusion string
	context, state           string
	workflow                 string
	id                       int
	started                  int  // seconds; 0: not yet
	free                     bool // not required
}

// pull is how a pull request stands, or how it is answered for.
type pull struct {
	checks []fake
	head   string // "": aaaa...
	base   string // the branch that it goes to, "": not said
	rules  string // answers for the rules of the branch, by path: path=JSON, one a line
	state  string // "": OPEN

	errors string      // GraphQL errors, in place of data
	status int         // an HTTP status, with message
	header http.Header // beside it
	hang   bool
	bad    int    // so many questions are answered with 502
	badAt  string // those with this in them: "headRefOid", "/branches/"
}

// forge answers gh as GitHub's GraphQL would.
type forge struct {
	t      *testing.T
	server *httptest.Server
	done   chan struct{}

	mu    sync.Mutex
	now   pull
	asked int // how often for the checks
}

func newForge(t *testing.T, now pull) *forge {
	t.Helper()
	f := &forge{t: t, now: now, done: make(chan struct{})}
	f.server = httptest.NewServer(f)
	t.Cleanup(func() {
		close(f.done)
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

// set changes how things stand, and returns when gh has asked since.
func (f *forge) set(now pull) {
	f.t.Helper()
	f.mu.Lock()
	f.now = now
	before := f.asked
	f.mu.Unlock()
	within(f.t, "look", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.asked > before
	})
}

func (f *forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Query     string
		Variables map[string]any
	}
	b, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	bad := f.now.bad > 0 && strings.Contains(r.URL.Path+string(b), f.now.badAt)
	if bad {
		f.now.bad--
	}
	f.mu.Unlock()
	if bad {
		http.Error(w, `{"message":"Bad Gateway"}`, http.StatusBadGateway)
		return
	}
	if r.Method == http.MethodGet {
		f.mu.Lock()
		rules := f.now.rules
		f.mu.Unlock()
		for line := range strings.Lines(rules) {
			if path, body, _ := strings.Cut(line, "="); r.URL.EscapedPath() == path {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, body)
				return
			}
		}
		http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
		return
	}
	if err := json.Unmarshal(b, &q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	now := f.now
	if strings.Contains(q.Query, "PullRequestByNumber") {
		f.asked++
	}
	f.mu.Unlock()
	if now.hang {
		select {
		case <-f.done:
		case <-r.Context().Done():
		}
		return
	}
	if now.status != 0 {
		for k, v := range now.header {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(now.status)
		fmt.Fprintf(w, `{"message":%q}`, http.StatusText(now.status)+": as told")
		return
	}
	answer := func(data any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}
	if now.errors != "" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"data":{"repository":{"pullRequest":null}},"errors":[%s]}`, now.errors)
		return
	}
	head, state := now.head, now.state
	if head == "" {
		head = strings.Repeat("a", 40)
	}
	if state == "" {
		state = "OPEN"
	}
	commits := map[string]any{"nodes": []any{map[string]any{"commit": map[string]any{"oid": head, "statusCheckRollup": rollup(now.checks)}}}}
	switch {
	case strings.Contains(q.Query, "PullRequestByNumber"):
		answer(map[string]any{"repository": map[string]any{"pullRequest": map[string]any{"number": 7, "headRefName": "topic", "id": "PR_7"}}})
	case strings.Contains(q.Query, "headRefOid"):
		answer(map[string]any{"repository": map[string]any{"pullRequest": map[string]any{"state": state, "headRefOid": head, "baseRefName": now.base, "commits": commits}}})
	case strings.Contains(q.Query, "node(id"):
		answer(map[string]any{"node": map[string]any{"statusCheckRollup": commits}})
	case strings.Contains(q.Query, "viewer"):
		answer(map[string]any{"viewer": map[string]any{"login": "me"}})
	default:
		f.t.Errorf("gh asks %s", b)
	}
}

func rollup(checks []fake) any {
	if len(checks) == 0 {
		return nil
	}
	var nodes []any
	for _, c := range checks {
		started := "0001-01-01T00:00:00Z"
		if c.started > 0 {
			started = time.Unix(1_700_000_000+int64(c.started), 0).UTC().Format(time.RFC3339)
		}
		if c.context != "" {
			nodes = append(nodes, map[string]any{"__typename": "StatusContext", "context": c.context, "state": c.state, "createdAt": started, "isRequired": !c.free, "targetUrl": "http://x.test/1"})
			continue
		}
		nodes = append(nodes, map[string]any{"__typename": "CheckRun", "name": c.name, "status": c.status, "conclusion": c.conclusion, "databaseId": c.id,
			"startedAt": started, "completedAt": started, "detailsUrl": "http://x.test/1", "isRequired": !c.free,
			"checkSuite": map[string]any{"workflowRun": map[string]any{"event": "push", "workflow": map[string]any{"name": c.workflow}}}})
	}
	return map[string]any{"contexts": map[string]any{"nodes": nodes, "pageInfo": map[string]any{"hasNextPage": false, "endCursor": ""}}}
}

// beginChecks begins a watch of the pull request of a forge, through the real
// gh.
func (f *forge) beginChecks(set func(*watcher)) *watch {
	f.t.Helper()
	return beginChecks(f.t, f.server.Listener.Addr(), func(w *watcher) {
		if set != nil {
			set(w)
		}
	})
}

func beginChecks(t *testing.T, at net.Addr, set func(*watcher)) *watch {
	t.Helper()
	if _, err := exec.LookPath("gh"); err != nil {
		t.Skip("gh is not installed")
	}
	dir := t.TempDir()
	return begin(t, newRoot(t), Condition{PRChecks: "octo/app#7"}, func(w *watcher) {
		w.checks = checkTimes{soon: 10 * time.Millisecond, slow: 10 * time.Millisecond, try: patience, grace: time.Hour, limited: time.Hour, longest: time.Hour}
		w.environ = func() []string {
			return append(os.Environ(), "http_proxy=http://"+at.String(), "HTTP_PROXY=", "no_proxy=", "NO_PROXY=", "GH_HOST=github.localhost", "GH_TOKEN=x", "GITHUB_TOKEN=", "GH_CONFIG_DIR="+dir, "HOME="+dir,
				"GH_FORCE_TTY=1", "GH_DEBUG=1")
		}
		set(w)
	})
}

func run(name, conclusion string) fake {
	switch conclusion {
	case "":
		return fake{name: name, status: "IN_PROGRESS", id: 1, started: 1}
	case "QUEUED":
		return fake{name: name, status: conclusion, id: 1}
	}
	return fake{name: name, status: "COMPLETED", conclusion: conclusion, id: 1, started: 1}
}

func optional(c fake) fake {
	c.free = true
	return c
}

func TestU4Pass(t *testing.T) {
	t.Parallel()
	f := newForge(t, pull{checks: []fake{run("build", "SUCCESS"), {context: "ci/lint", state: "SUCCESS"}, optional(run("flaky", "FAILURE")), optional(run("slow", ""))}})
	w := f.beginChecks(nil)
	w.ends(0, "all required checks of octo/app#7 have passed: 2 of 2 passed")
	few(t, w, 2)
}

// TestU4Fail: a failure is told when all have finished.
func TestU4Fail(t *testing.T) {
	t.Parallel()
	f := newForge(t, pull{checks: []fake{run("build", "FAILURE"), run("lint", ""), run("docs", "SUCCESS")}})
	w := f.beginChecks(nil)
	w.says("1 of 3 passed, 1 failed (build), 1 pending (lint)")
	f.set(pull{checks: []fake{run("build", "FAILURE"), run("lint", "SUCCESS"), run("docs", "SUCCESS")}})
	w.ends(1, "not all have passed: 2 of 3 passed, 1 failed (build)")
	few(t, w, 3)
}

func TestU4PendingThenPass(t *testing.T) {
	t.Parallel()
	f := newForge(t, pull{checks: []fake{run("build", "QUEUED"), {context: "ci/lint", state: "PENDING"}}})
	w := f.beginChecks(nil)
	w.says("0 of 2 passed, 2 pending")
	w.goesOn()
	f.set(pull{checks: []fake{run("build", "SUCCESS"), {context: "ci/lint", state: "SUCCESS"}}})
	w.ends(0, "2 of 2 passed")
	few(t, w, 3)
}

// TestU4NoneThenPendingThenPass: that nothing is reported yet means nothing.
func TestU4NoneThenPendingThenPass(t *testing.T) {
	t.Parallel()
	f := newForge(t, pull{})
	w := f.beginChecks(nil)
	w.says("no checks are reported; perhaps not yet")
	f.set(pull{checks: []fake{optional(run("other", "SUCCESS"))}})
	w.says("no required checks are reported; perhaps not yet")
	f.set(pull{checks: []fake{run("build", "")}})
	w.says("1 pending (build)")
	f.set(pull{checks: []fake{run("build", "SUCCESS")}})
	w.ends(0, "1 of 1 passed")
	few(t, w, 5)
}

// TestU4NoneRequired: after the grace period that is an end of its own.
func TestU4NoneRequired(t *testing.T) {
	t.Parallel()
	for what, now := range map[string]pull{
		"no required checks are reported": {checks: []fake{optional(run("build", "SUCCESS"))}},
		"no checks are reported":          {},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newForge(t, now).beginChecks(func(w *watcher) { w.checks.grace = 100 * time.Millisecond })
			w.ends(3, "no check is required for octo/app#7: "+what)
			few(t, w, 3)
		})
	}
	if newWatcher(nil, Condition{}, nil).checks.grace != time.Minute {
		t.Error("the grace period is not a minute")
	}
}

func TestU4SkippedAndNeutral(t *testing.T) {
	t.Parallel()
	f := newForge(t, pull{checks: []fake{run("build", "SKIPPED"), run("lint", "NEUTRAL")}})
	f.beginChecks(nil).ends(0, "2 of 2 passed")
}

// TestU4CancelledThenRerun: of two runs under one name the newest counts, also
// when it has not started, whatever its number of seconds.
func TestU4CancelledThenRerun(t *testing.T) {
	t.Parallel()
	old := fake{name: "build", workflow: "ci", status: "COMPLETED", conclusion: "CANCELLED", id: 1, started: 100}
	again := fake{name: "build", workflow: "ci", status: "QUEUED", id: 2}
	f := newForge(t, pull{checks: []fake{again, old}})
	w := f.beginChecks(nil)
	w.says("0 of 1 passed, 1 pending (build)")
	again.status, again.conclusion, again.started = "COMPLETED", "SUCCESS", 200
	f.set(pull{checks: []fake{old, again}})
	w.ends(0, "1 of 1 passed")

	// The other way round: it had passed, and is run again.
	old.conclusion, again = "SUCCESS", fake{name: "build", workflow: "ci", status: "QUEUED", id: 2}
	f = newForge(t, pull{checks: []fake{old, again}})
	w = f.beginChecks(nil)
	w.says("1 pending (build)")
	again.status, again.conclusion, again.started = "COMPLETED", "CANCELLED", 200
	f.set(pull{checks: []fake{old, again}})
	w.ends(1, "1 failed (build)")
}

// TestU4TwoWorkflows: checks of one name in two workflows are two.
func TestU4TwoWorkflows(t *testing.T) {
	t.Parallel()
	f := newForge(t, pull{checks: []fake{
		{name: "build", workflow: "ci", status: "COMPLETED", conclusion: "FAILURE", id: 1, started: 1},
		{name: "build", workflow: "release", status: "COMPLETED", conclusion: "SUCCESS", id: 2, started: 2},
	}})
	f.beginChecks(nil).ends(1, "1 of 2 passed, 1 failed (build)")
}

// TestU4HeadMoved: a push is followed, and said.
func TestU4HeadMoved(t *testing.T) {
	t.Parallel()
	f := newForge(t, pull{checks: []fake{run("build", "")}})
	w := f.beginChecks(nil)
	w.says("1 pending")
	f.set(pull{head: strings.Repeat("b", 40)})
	w.says("the head has moved from aaaaaaaaaaaa... to bbbbbbbbbbbb...")
	f.set(pull{head: strings.Repeat("b", 40), checks: []fake{run("build", "SUCCESS")}})
	w.ends(0, "1 of 1 passed")
}

// TestU4NotReportedYet: a check that the rules demand, and that starts only when
// others have finished, is waited for.
func TestU4NotReportedYet(t *testing.T) {
	t.Parallel()
	rules := `/repos/octo/app/branches/release%2F1={"protection":{"required_status_checks":{"contexts":["build"]}}}
/repos/octo/app/rules/branches/release%2F1=[{"type":"deletion"},{"type":"required_status_checks","parameters":{"required_status_checks":[{"context":"deploy"}]}}]
`
	f := newForge(t, pull{base: "release/1", rules: rules})
	w := f.beginChecks(func(w *watcher) { w.checks.grace = time.Millisecond })
	w.says("no checks are reported, not reported yet: build, deploy")
	f.set(pull{base: "release/1", rules: rules, checks: []fake{run("build", "SUCCESS")}})
	w.says("1 of 1 passed, not reported yet: deploy")
	f.set(pull{base: "release/1", rules: rules, checks: []fake{run("build", "SUCCESS"), run("deploy", "")}})
	w.says("1 of 2 passed, 1 pending (deploy)")
	f.set(pull{base: "release/1", rules: rules, checks: []fake{run("build", "SUCCESS"), run("deploy", "SUCCESS")}})
	w.ends(0, "2 of 2 passed")
	// Rules that nobody may read demand nothing.
	f = newForge(t, pull{base: "main", checks: []fake{run("build", "SUCCESS")}})
	f.beginChecks(nil).ends(0, "1 of 1 passed")
}

// TestU4AnswersFail: what cannot be asked because of the network is asked again
// before the checks count as passed; where there is never an answer, what gh pr
// checks prints has to do.
func TestU4AnswersFail(t *testing.T) {
	t.Parallel()
	const rules = `/repos/octo/app/branches/main={"protection":{"required_status_checks":{"contexts":["deploy"]}}}`
	for _, at := range []string{"headRefOid", "/branches/"} {
		f := newForge(t, pull{base: "main", rules: rules, checks: []fake{run("build", "SUCCESS")}, bad: 1, badAt: at})
		w := f.beginChecks(nil)
		w.says("asking again: 1 of 1 passed")
		w.says("1 of 1 passed, not reported yet: deploy")
		f.set(pull{base: "main", rules: rules, checks: []fake{run("build", "SUCCESS"), run("deploy", "SUCCESS")}})
		w.ends(0, "2 of 2 passed")
	}
	f := newForge(t, pull{base: "main", rules: rules, checks: []fake{run("build", "SUCCESS")}, bad: 1000, badAt: "headRefOid"})
	f.beginChecks(nil).ends(0, "1 of 1 passed")
}

func TestU4NotSignedIn(t *testing.T) {
	t.Parallel()
	w := newForge(t, pull{status: 401}).beginChecks(nil)
	w.ends(2, "gh is not signed in: gh auth login")
	few(t, w, 2)
}

// TestU4RateLimit: a refusal is waited out until the time that it names.
func TestU4RateLimit(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]http.Header{
		"reset":       {"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {fmt.Sprint(time.Now().Unix() + 1)}},
		"retry-after": {"Retry-After": {"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t, pull{status: 403, header: header})
			w := f.beginChecks(nil) // without the head it would be an hour
			w.says("asking again: gh failed: HTTP 403")
			f.mu.Lock()
			f.now = pull{checks: []fake{run("build", "SUCCESS")}}
			f.mu.Unlock()
			w.ends(0, "1 of 1 passed")
			few(t, w, 3)
		})
	}
}

// TestU4Trouble: what passes is waited out, and said once.
func TestU4Trouble(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]pull{
		"502": {status: 502},
		"500": {status: 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newForge(t, now)
			w := f.beginChecks(nil)
			w.says("asking again: gh failed: HTTP " + name)
			f.set(now)
			w.goesOn()
			f.set(pull{checks: []fake{run("build", "SUCCESS")}})
			w.ends(0, "1 of 1 passed")
			few(t, w, 3)
		})
	}
}

func TestU4Hang(t *testing.T) {
	t.Parallel()
	f := newForge(t, pull{hang: true})
	w := f.beginChecks(func(w *watcher) { w.checks.try = time.Second })
	w.says("asking again: gh did not answer within 1s")
	w.goesOn()
	f.mu.Lock()
	f.now = pull{checks: []fake{run("build", "SUCCESS")}}
	f.mu.Unlock()
	w.ends(0, "1 of 1 passed")
}

func TestU4ConnectionRefused(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr()
	l.Close()
	w := beginChecks(t, at, func(*watcher) {})
	w.says("asking again: gh failed:")
	w.goesOn()
	few(t, w, 2)
}

// TestU4ConnectionReset: each time from another port of ours, which is no news.
func TestU4ConnectionReset(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	asked := make(chan bool, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 10))
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
			asked <- true
		}
	}()
	w := beginChecks(t, l.Addr(), func(*watcher) {})
	w.says("asking again: gh failed:")
	for range 4 {
		<-asked
	}
	few(t, w, 2)
}

func TestU4Unknown(t *testing.T) {
	t.Parallel()
	for what, errors := range map[string]string{
		"there is no such pull request": `{"type":"NOT_FOUND","path":["repository","pullRequest"],"message":"Could not resolve to a PullRequest with the number of 7."}`,
		"there is no such repository":   `{"type":"NOT_FOUND","path":["repository"],"message":"Could not resolve to a Repository with the name 'octo/app'."}`,
	} {
		w := newForge(t, pull{errors: errors}).beginChecks(nil)
		w.ends(2, what)
		few(t, w, 2)
	}
}

// TestU4Closed: a closed pull request ends the watch, unless its checks have
// finished; a merged one does not.
func TestU4Closed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		now  pull
		code int
		what string
	}{
		{pull{state: "CLOSED", checks: []fake{run("build", "")}}, 2, "the pull request is closed"},
		{pull{state: "CLOSED"}, 2, "the pull request is closed"},
		{pull{state: "CLOSED", checks: []fake{run("build", "SUCCESS")}}, 0, "1 of 1 passed"},
		{pull{state: "MERGED", checks: []fake{run("build", "FAILURE")}}, 1, "1 failed"},
	} {
		newForge(t, c.now).beginChecks(nil).ends(c.code, c.what)
	}
}

// TestU4HostileNames: a check may be called as an error is, or as gh's words
// for a state.
func TestU4HostileNames(t *testing.T) {
	t.Parallel()
	f := newForge(t, pull{checks: []fake{
		run("no required checks reported on the 'topic' branch", ""), run("HTTP 401: Bad credentials", "SUCCESS"), run("pass", "FAILURE"), run("a\tpass\tb", "SUCCESS"),
	}})
	w := f.beginChecks(nil)
	w.says("2 of 4 passed, 1 failed (pass), 1 pending (no required checks reported on the 'topic' branch)")
	f.set(pull{checks: []fake{run("no required checks reported on the 'topic' branch", "SUCCESS")}})
	w.ends(0, "1 of 1 passed")
}
