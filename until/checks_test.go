package until

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// standIn is a gh that only says what it is told, for what Debian's does not.
func standIn(t *testing.T, script string) func(*watcher) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gh")
	syscall.ForkLock.RLock() // what is forked while it is open for writing keeps it from being executed
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	return func(w *watcher) {
		w.gh = func() (string, error) { return path, nil }
		w.checks = checkTimes{soon: 5 * time.Millisecond, slow: 5 * time.Millisecond, try: patience, grace: 50 * time.Millisecond, limited: time.Hour, longest: time.Hour}
	}
}

// TestU4NewerGh: pending is exit code 8 there, and lines have a fifth column.
func TestU4NewerGh(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := begin(t, newRoot(t), Condition{PRChecks: "o/r#1"}, standIn(t, `cd `+dir+`
		case "$*" in
		'pr checks 1 -R o/r --required') ;;
		'api graphql '*) echo '{"message":"no"}'; exit 1 ;;
		*) echo "$*" >unexpected; exit 1 ;;
		esac
		if test -e go; then printf 'build\tcancel\t5s\thttp://x\tfail\nlint\tskipping\t0\thttp://x\t\n'; exit 1; fi
		printf 'build\tpending\t0\thttp://x\tall jobs pass\n'; exit 8`))
	w.says("0 of 1 passed, 1 pending (build)")
	write(t, dir+"/go", "")
	w.ends(1, "1 of 2 passed, 1 failed (build)")
	if b, err := os.ReadFile(dir + "/unexpected"); err == nil {
		t.Errorf("gh was called as %s", b)
	}
}

// TestU4ExitFour: not signed in, as newer ones say it.
func TestU4ExitFour(t *testing.T) {
	t.Parallel()
	w := begin(t, newRoot(t), Condition{PRChecks: "o/r#1"}, standIn(t, `echo "To get started with GitHub CLI, please run:  gh auth login" >&2; exit 4`))
	w.ends(2, "gh is not signed in")
	few(t, w, 2)
	begin(t, newRoot(t), Condition{PRChecks: "o/r#1"}, standIn(t, `exit 4`)).ends(2, "gh is not signed in")
}

func TestU4GhMissing(t *testing.T) {
	t.Parallel()
	w := begin(t, newRoot(t), Condition{PRChecks: "o/r#1"}, func(w *watcher) {
		w.gh = func() (string, error) { return "", exec.ErrNotFound }
	})
	w.ends(2, "gh cannot be run, and checks are read through it: executable file not found in $PATH")
	few(t, w, 2)
}

// TestU4TooOld: a gh that does not know what it is asked.
func TestU4TooOld(t *testing.T) {
	t.Parallel()
	begin(t, newRoot(t), Condition{PRChecks: "o/r#1"}, standIn(t, `echo "unknown flag: --required" >&2; exit 1`)).ends(2, "too old")
}

// TestU4Panic: what gh does with an answer that is none is waited out.
func TestU4Panic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := begin(t, newRoot(t), Condition{PRChecks: "o/r#1"}, standIn(t, `test -e `+dir+`/go && { printf 'build\tpass\t5s\thttp://x\n'; exit 0; }
		printf 'panic: runtime error\n\ngoroutine 1 [running]:\n' >&2; exit 2`))
	w.says("asking again: gh failed: panic: runtime error")
	write(t, dir+"/go", "")
	w.ends(0, "1 of 1 passed")
	few(t, w, 4)
}

func TestParseChecks(t *testing.T) {
	t.Parallel()
	for out, want := range map[string][]check{
		"":                                   nil,
		"\n":                                 nil,
		"build\tpass\t1m\thttp://x\n":        {{"build", "pass"}},
		"build\tpass\t1m\thttp://x\tpending": {{"build", "pass"}},
		"a\tb\tfail\t1m\thttp://x\r\n":       {{"a b", "fail"}},
		"fail\tpass\t1m\tu\nx\tdone\t0\tu\n": {{"fail", "pass"}, {"x", "done"}},
		"no required checks reported on the 'x' branch\tpending\t0\tu\n": {{"no required checks reported on the 'x' branch", "pending"}},
	} {
		if got := parseChecks(out); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
	if s, what := judge([]check{{"a", "pass"}, {"b", "done"}}); s != standPending || what != "1 of 2 passed, 1 pending (b)" {
		t.Errorf("%v %s", s, what)
	}
	var many []check
	for i := range 9 {
		many = append(many, check{fmt.Sprint("c", i), "fail"})
	}
	if s, what := judge(many); s != standFailed || what != "0 of 9 passed, 9 failed (c0, c1, c2, c3, c4 and 4 more)" {
		t.Errorf("%v %s", s, what)
	}
}

func TestReadWords(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]stand{
		"no checks reported on the 'HTTP 401' branch":                                                standNone,
		"no required checks reported on the 'gh auth login' branch":                                  standNone,
		"a new release of gh is available\nno checks reported on the 'x' branch\n":                   standNone,
		"HTTP 401: Bad credentials (http://x/graphql)\nTry authenticating with:  gh auth login":      standNever,
		"HTTP 403: API rate limit exceeded for user ID 1. (http://x)":                                standTrouble,
		"HTTP 403: Resource not accessible by personal access token (http://x)":                      standNever,
		"HTTP 403: Resource protected by organization SAML enforcement. (http://x)":                  standNever,
		"HTTP 429: You have exceeded a secondary rate limit":                                         standTrouble,
		"HTTP 502: Bad Gateway (http://x/graphql)":                                                   standTrouble,
		"HTTP 404: Not Found (http://x)":                                                             standNever,
		"GraphQL: Could not resolve to a PullRequest with the number of 7. (repository.pullRequest)": standNever,
		"GraphQL: API rate limit exceeded for user ID 1.":                                            standTrouble,
		"error connecting to api.github.com":                                                         standTrouble,
		"Post \"https://api.github.com/graphql\": dial tcp: lookup no such host":                     standTrouble,
		"": standTrouble,
	} {
		r := &try{code: 1}
		r.tail.most = 1 << 10
		_, _ = r.tail.Write([]byte(said))
		if s := readChecks(r, ""); s.stand != want || strings.Contains(s.what, "\n") {
			t.Errorf("%q: %+v, want %d", said, s, want)
		}
		// Beside a line about a check no word counts.
		if s := readChecks(r, "x\tpass\t0\tu\n"); s.stand != standPassed {
			t.Errorf("%q: %+v", said, s)
		}
	}
}

func TestWaitFor(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0).UTC()
	for _, c := range []struct {
		head string
		want time.Duration
		ok   bool
	}{
		{"", 0, false},
		{"gh: no", 0, false},
		{"HTTP/2.0 403 Forbidden\r\nRetry-After: 30\r\n\r\n{}", 30 * time.Second, true},
		{"HTTP/1.1 429 Too Many Requests\nretry-after: 5\n", 5 * time.Second, true},
		{"HTTP/2.0 403 Forbidden\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 1700000100\n", 101 * time.Second, true},
		{"HTTP/2.0 403 Forbidden\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 1600000000\n", time.Second, true},
		// Their clock is ten seconds ahead of ours.
		{"HTTP/2.0 403 Forbidden\nDate: " + now.Add(10*time.Second).Format("Mon, 02 Jan 2006 15:04:05 GMT") + "\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 1700000100\n", 91 * time.Second, true},
		{"HTTP/2.0 403 Forbidden\nX-Ratelimit-Remaining: 4999\nX-Ratelimit-Reset: 1700000100\n", 0, false},
		{"HTTP/2.0 403 Forbidden\n\nX-Ratelimit-Reset: 1700000100\n", 0, false},
		{"HTTP/2.0 200 OK\nX-Ratelimit-Remaining: 10\nX-Ratelimit-Reset: 1700000100\n\n{\"data\":{}}", 0, true},
		{"HTTP/2.0 200 OK\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 1700000100\n\n{\"errors\":[{\"type\":\"RATE_LIMITED\"}]}", 101 * time.Second, true},
	} {
		if got, ok := waitFor(c.head, now); got != c.want || ok != c.ok {
			t.Errorf("%q: %v, %v, want %v, %v", c.head, got, ok, c.want, c.ok)
		}
	}
}

// TestCombine: what was asked later and knows the newest run has the last word,
// but not where it knows less.
func TestCombine(t *testing.T) {
	t.Parallel()
	passed := sighting{stand: standPassed, what: "1 of 1 passed"}
	for _, c := range []struct {
		base sighting
		d    details
		want stand
	}{
		{passed, details{all: 1, checks: []check{{"a", "pass"}}}, standPassed},
		{passed, details{all: 1, checks: []check{{"a", "pending"}}}, standPending},
		{passed, details{all: 1, checks: []check{{"a", "fail"}}}, standFailed},
		{passed, details{}, standPending},      // the head has moved in between
		{passed, details{all: 1}, standPassed}, // it calls none required
		{passed, details{all: 1, closed: true}, standPassed},
		{sighting{stand: standPending}, details{closed: true}, standNever},
		{sighting{stand: standNone}, details{all: 3}, standNone},
		{sighting{stand: standNone}, details{all: 3, checks: []check{{"a", "pending"}}}, standPending},
	} {
		if got := combine(c.base, c.d); got.stand != c.want {
			t.Errorf("%+v %+v: %+v, want %d", c.base, c.d, got, c.want)
		}
	}
}

// FuzzChecks: whatever gh prints, what is shown is one line, and nothing has
// passed without a line that says so.
func FuzzChecks(f *testing.F) {
	for _, s := range []string{"build\tpass\t1m\thttp://x\n", "a\tfail\t0\tu\nb\tpending\t0\tu\n", "x\tdone\n", "\t\t\t", "no required checks reported on the 'x' branch"} {
		f.Add(s, s, 1)
	}
	f.Add("", "HTTP 401: Bad credentials", 4)
	f.Fuzz(func(t *testing.T, out, said string, code int) {
		r := &try{code: code}
		r.tail.most = 8 << 10
		_, _ = r.tail.Write([]byte(said))
		s := readChecks(r, out)
		if strings.ContainsAny(s.what, "\n\r\x1b") {
			t.Fatalf("%q", s.what)
		}
		if s.stand == standPassed && !strings.Contains(out, "\tpass") && !strings.Contains(out, "\tskipping") {
			t.Fatalf("%q: %+v", out, s)
		}
		if !strings.Contains(out, "\t") && (s.stand == standPassed || s.stand == standFailed || s.stand == standPending) {
			t.Fatalf("%q: %+v", out, s)
		}
	})
}

// FuzzDetails: whatever is answered, there is no verdict about what is not
// there.
func FuzzDetails(f *testing.F) {
	f.Add(`{"data":{"repository":{"pullRequest":{"state":"OPEN","headRefOid":"a","commits":{"nodes":[{"commit":{"oid":"a","statusCheckRollup":{"contexts":{"pageInfo":{"hasNextPage":true,"endCursor":"x"},"nodes":[{"__typename":"CheckRun","name":"b","status":"COMPLETED","conclusion":"SUCCESS","databaseId":5,"isRequired":true,"startedAt":"2026-01-02T03:04:05Z","checkSuite":{"workflowRun":{"event":"push","workflow":{"name":"ci"}}}}]}}}}]}}}}}`)
	f.Add(`{"data":{"repository":null},"errors":[{"type":"NOT_FOUND"}]}`)
	f.Add(`{"message":"Bad credentials"}`)
	f.Fuzz(func(t *testing.T, out string) {
		var d details
		nodes, next, ok := d.page(out)
		if !ok {
			if len(nodes) > 0 || next != "" {
				t.Fatalf("%v %q", nodes, next)
			}
			return
		}
		checks := newestOf(nodes)
		if len(checks) > len(nodes) {
			t.Fatalf("%d checks of %d", len(checks), len(nodes))
		}
		for _, c := range checks {
			if _, ok := buckets[c.state]; !ok {
				t.Fatalf("%q", c.state)
			}
		}
	})
}
