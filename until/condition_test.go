package until

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"space-job/jobdir"
)

// TestBadConditions: what is refused names the field and the value.
func TestBadConditions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, given, want string }{
		{"file", "", `until.file: "" is empty`},
		{"file", "a\x00b", "holds a NUL byte"},
		{"file", strings.Repeat("x", 5000), "is too long"},
		{"port", "0", `until.port: "0" is not within 1..65535`},
		{"port", "65536", `until.port: "65536" is not within 1..65535`},
		{"port", "99999999999999999999", "is not within"},
		{"port", "http", `until.port: "http" is no port`},
		{"port", "", `until.port: "" is no port`},
		{"port", "+5", "is no port"},
		{"port", "-5", "is no port"},
		{"port", "localhost:", "is no port"},
		{"port", "localhost:http", "is no port"},
		{"port", "::1:5432", "leaves open"},
		{"port", "[::1:5432", "brackets"},
		{"port", "[localhost]:5432", "brackets"},
		{"port", "[a:b]:5432", "no IPv6 address"},
		{"port", "a b:5432", "names no host"},
		{"port", "-x:5432", "names no host"},
		{"port", "http://localhost:80", "leaves open"},
		{"port", "//localhost:80", "names no host"},
		{"command", " \n", "is empty"},
		{"command", "a\x00", "NUL"},
		{"command", strings.Repeat("x", 1<<17), "too long"},
		{"pr_checks", "owner/repo#abc", `until.pr_checks: "owner/repo#abc" is no pull request`},
		{"pr_checks", "--web#1", `until.pr_checks: "--web#1" is no pull request`},
		{"pr_checks", "", "is no pull request"},
		{"pr_checks", "owner/repo", "is no pull request"},
		{"pr_checks", "owner/repo#0", "is no pull request"},
		{"pr_checks", "owner/repo#-1", "is no pull request"},
		{"pr_checks", "owner/repo#+1", "is no pull request"},
		{"pr_checks", "owner/repo#01", "is no pull request"},
		{"pr_checks", "owner/repo#1 2", "is no pull request"},
		{"pr_checks", "owner/repo#99999999999", "is no pull request"},
		{"pr_checks", "-R/repo#1", "is no pull request"},
		{"pr_checks", "owner/--web#1", "is no pull request"},
		{"pr_checks", "owner/..#1", "is no pull request"},
		{"pr_checks", "host/owner/repo#1", "is no pull request"},
		{"pr_checks", "ow\tner/repo#1", "is no pull request"},
		{"job", "", "is empty"},
		{"log", "", "is no ID:REGEXP"},
		{"log", "abcd", "is no ID:REGEXP"},
		{"log", ":x", "is no ID:REGEXP"},
		{"log", "abcd:", "has no pattern"},
		{"log", "abcd:a[", "has a bad pattern"},
		{"log", "abcd:" + strings.Repeat("x", 5000), "too long"},
		{"moon", "full", "is no kind of condition"},
	} {
		_, err := Parse(c.kind, c.given)
		var v *ValueError
		if !errors.As(err, &v) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %.40q: %v, want %q", c.kind, c.given, err, c.want)
		}
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j, _ := runningJob(t, r, "")
	id := string(j.ID())
	for _, c := range []struct {
		given Condition
		json  string
		args  []string
	}{
		{Condition{File: "out/done"}, `{"file":"/srv/out/done"}`, []string{"--file=/srv/out/done"}},
		{Condition{File: "./-x"}, `{"file":"/srv/-x"}`, []string{"--file=/srv/-x"}},
		{Condition{File: "/a"}, `{"file":"/a"}`, []string{"--file=/a"}},
		{Condition{File: "../up"}, `{"file":"/srv/../up"}`, []string{"--file=/srv/../up"}},
		{Condition{Port: 5432}, `{"port":5432,"host":"127.0.0.1"}`, []string{"--port=127.0.0.1:5432"}},
		{Condition{Port: 5432, Host: "::1", Interval: 2 * time.Second, TryTimeout: 300 * time.Millisecond},
			`{"port":5432,"host":"::1","interval_s":2,"try_timeout_s":0.3}`, []string{"--port=[::1]:5432", "--interval=2", "--try-timeout=0.3"}},
		{Condition{Command: "-x; test -s report.json"}, `{"command":"-x; test -s report.json"}`, []string{"--command=-x; test -s report.json"}},
		{Condition{PRChecks: "o/r#1"}, `{"pr_checks":"o/r#1"}`, []string{"--pr-checks=o/r#1"}},
		{Condition{Job: id[7:]}, `{"job":"` + id + `"}`, []string{"--job=" + id}},
		{Condition{Log: id, Match: "a:b"}, `{"log":"` + id + `","match":"a:b"}`, []string{"--log=" + id + ":a:b"}},
	} {
		got, err := c.given.Resolve(r, "/srv")
		if err != nil {
			t.Errorf("%+v: %v", c.given, err)
			continue
		}
		if s := string(got.JSON()); s != c.json {
			t.Errorf("%+v: %s, want %s", c.given, s, c.json)
		}
		if !slices.Equal(got.Args(), c.args) {
			t.Errorf("%+v: %q, want %q", c.given, got.Args(), c.args)
		}
		// What is given to the watcher is the same condition.
		kind, value, _ := strings.Cut(strings.TrimPrefix(got.Args()[0], "--"), "=")
		again, err := Parse(strings.ReplaceAll(kind, "-", "_"), value)
		if err != nil {
			t.Errorf("%q: %v", got.Args(), err)
			continue
		}
		again.Interval, again.TryTimeout = got.Interval, got.TryTimeout
		if again, err = again.Resolve(r, "/"); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%+v, %v, want %+v", again, err, got)
		}
	}
	for want, c := range map[string]Condition{
		"until: no condition is given":                          {},
		"until: more than one condition is given (file, port)":  {File: "x", Port: 5},
		`until.host: "x" belongs to a port`:                     {File: "x", Host: "x"},
		`until.match: "x" belongs to a log`:                     {File: "x", Match: "x"},
		`interval: "1s" has no meaning for a job`:               {Job: id, Interval: time.Second},
		`interval: "1ms" is too short`:                          {File: "x", Interval: time.Millisecond},
		`try_timeout: "1s" has no meaning for a file`:           {File: "x", TryTimeout: time.Second},
		`until.port: "65536" is not within 1..65535`:            {Port: 65536},
		`until.port: "-1" is not within 1..65535`:               {Port: -1},
		`until.log: "` + id + `:(" has a bad pattern`:           {Log: id, Match: "("},
		`until.pr_checks: "owner/repo#abc" is no pull request`:  {PRChecks: "owner/repo#abc"},
		`until.command: " " is empty`:                           {Command: " "},
		`until: more than one condition is given (command, job`: {Command: "x", Job: id},
	} {
		if _, err := c.Resolve(r, "/"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, c := range []Condition{{Job: "j000000000000"}, {Log: "j000000000000", Match: "x"}, {Job: "0000"}} {
		if _, err := c.Resolve(r, "/"); !errors.Is(err, jobdir.ErrNotFound) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	var bad *jobdir.InvalidIDError
	if _, err := (Condition{Job: "xyz"}).Resolve(r, "/"); !errors.As(err, &bad) {
		t.Errorf("%v", err)
	}
}

// FuzzCondition: whatever is given is refused with its field, or is one
// condition whose arguments give it back.
func FuzzCondition(f *testing.F) {
	for _, s := range []string{"file\x00/srv/out", "port\x005432", "port\x00[::1]:22", "port\x00a.b:1", "command\x00test -s x", "pr_checks\x00o/r#1", "pr_checks\x00--web#1", "job\x00abcd", "log\x00abcd:re(a|b)"} {
		kind, given, _ := strings.Cut(s, "\x00")
		f.Add(kind, given)
	}
	f.Fuzz(func(t *testing.T, kind, given string) {
		c, err := Parse(kind, given)
		if err != nil {
			var v *ValueError
			if !errors.As(err, &v) || !strings.HasPrefix(v.Field, "until") {
				t.Fatalf("%v", err)
			}
			return
		}
		if k := c.kinds(); len(k) != 1 || k[0] != kind {
			t.Fatalf("%q is %q", kind, k)
		}
		if c.Port != 0 && c.Host == "" {
			c.Host = DefaultHost
		}
		if kind == kindLog && strings.Contains(c.Log, ":") {
			t.Fatalf("%q", c.Log)
		}
		args := c.Args()
		_, value, _ := strings.Cut(args[0], "=")
		again, err := Parse(kind, value)
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Fatalf("%q: %+v, %v, want %+v", args, again, err, c)
		}
		if !json.Valid(c.JSON()) || strings.ContainsAny(c.String(), "\n\x1b") {
			t.Fatalf("%s %q", c.JSON(), c.String())
		}
	})
}

// FuzzPort: a port that is taken is one.
func FuzzPort(f *testing.F) {
	for _, s := range []string{"1", "65535", "65536", "localhost:80", "[::1]:80", "[fe80::1%eth0]:22", "::1:80", ":80", "a:b:c", "[]:1", "0x10", "١"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParsePort(s)
		if err != nil {
			return
		}
		if c.Port < 1 || c.Port > 65535 || !strings.HasSuffix(s, strconv.Itoa(c.Port)) || strings.ContainsAny(c.Host, " /@[]\n\x00") {
			t.Fatalf("%q: %+v", s, c)
		}
	})
}

// FuzzPullRequest: no part of what is taken is a flag or a path.
func FuzzPullRequest(f *testing.F) {
	for _, s := range []string{"o/r#1", "owner/repo#abc", "--web#1", "o/.github#7", "o/..#1", "o/r#01", "o/r#+1", "o//r#1", "o/r#1#2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePullRequest(s)
		if err != nil {
			return
		}
		if p.String() != s || p.Number < 1 {
			t.Fatalf("%q: %+v", s, p)
		}
		for _, part := range []string{p.Owner, p.Repo} {
			if part == "" || part == "." || part == ".." || part[0] == '-' || strings.ContainsAny(part, "/#? \n\x00") {
				t.Fatalf("%q: %+v", s, p)
			}
		}
	})
}
