package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAskedAtATerminal: a person is asked there and shown what is started, an agent
// is not, and cannot say yes.
func TestAskedAtATerminal(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.output("member", "add", "bot", "--kind", "agent")
	root := filepath.Join(p.dir, "root")
	if err := os.WriteFile(filepath.Join(root, "policy.json"), []byte(`{"personal": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(env, answer string, args ...string) (code int, seen, out string) {
		t.Helper()
		term := openTerminal(t, 200)
		c := p.command(args...)
		c.Env = append(c.Env, env)
		var stdout strings.Builder
		c.Stdin, c.Stdout, c.Stderr = term.near, &stdout, term.near
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if answer != "" {
			term.await(t, "[d]eny? ")
			if _, err := term.far.WriteString(answer); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.Wait()
		if code := c.ProcessState.ExitCode(); code != 0 {
			term.await(t, "error")
		}
		return c.ProcessState.ExitCode(), term.text(), stdout.String()
	}
	code, seen, out := at("A=", "o\n", "start", "-e", "TOKEN=secret", "echo one\u202e;\nexit 3")
	if code != 0 || !strings.HasPrefix(out, "j") || strings.Contains(seen, "secret") || strings.Contains(seen, "always") {
		t.Errorf("once: %d, %q, %q", code, seen, out)
	}
	for _, want := range []string{"    echo one<202E>;\r\n    exit 3\r\n", "folder", p.dir, "TOKEN", "local"} {
		if !strings.Contains(seen, want) {
			t.Errorf("%q is not shown: %q", want, seen)
		}
	}
	if code, seen, out := at("A=", "what\nd\n", "start", "echo two"); code != 5 || out != "" {
		t.Errorf("deny: %d, %q, %q", code, seen, out)
	}
	if code, seen, out := at("A=", "", "start", "echo two"); code != 5 || out != "" || !strings.Contains(seen, "was denied by a person") {
		t.Errorf("deny, again: %d, %q, %q", code, seen, out)
	}
	if code, seen, out := at("A=", "\x04", "start", "echo three"); code != 4 || out != "" {
		t.Errorf("no answer: %d, %q, %q", code, seen, out)
	}
	if code, seen, out := at("A=", "o\n", "run", "echo four"); code != 0 || out != "four\n" {
		t.Errorf("run: %d, %q, %q", code, seen, out)
	}
	if code, seen, out := at("A=", "always\n", "run", "echo five"); code != 0 || out != "five\n" {
		t.Errorf("always: %d, %q, %q", code, seen, out)
	}
	if code, seen, out := at("A=", "", "run", "echo five"); code != 0 || out != "five\n" {
		t.Errorf("always, again: %d, %q, %q", code, seen, out)
	}

	// An agent, on a terminal.
	code, _, out = at("SPACE_MEMBER=bot", "", "start", "--json", "echo six")
	var doc struct {
		Error struct{ Code, Request string }
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 4 || doc.Error.Code != "approval_required" || doc.Error.Request == "" {
		t.Fatalf("agent: %d, %q, %v", code, out, err)
	}
	id := doc.Error.Request
	for _, args := range [][]string{
		{"approvals", "approve", id}, {"approvals", "deny", id}, {"approvals", "approve", id, "--rule"},
	} {
		if code, seen, _ := at("SPACE_MEMBER=bot", "", args...); code != 5 || !strings.Contains(seen, "agent") {
			t.Errorf("%q: %d, %q", args, code, seen)
		}
	}
	if code, seen, _ := at("A=", "", "--member", "bot", "approvals", "approve", id); code != 5 || !strings.Contains(seen, "agent") {
		t.Errorf("as a member: %d, %q", code, seen)
	}
	if code, seen, _ := at("SPACE_JOB=j000000000000", "", "approvals", "approve", id); code != 5 || !strings.Contains(seen, "in a job") {
		t.Errorf("in a job: %d, %q", code, seen)
	}
	if code, seen, _ := at("SPACE_JOB=j000000000000", "", "start", "echo seven"); code != 4 {
		t.Errorf("a start in a job: %d, %q", code, seen)
	}
	if code, seen, out := at("A=", "", "approvals", "approve", id); code != 0 || !strings.Contains(seen, "    echo six\r\n") {
		t.Errorf("approve: %d, %q, %q", code, seen, out)
	}
	if code, seen, _ := at("A=", "", "approvals", "approve", id); code != 1 {
		t.Errorf("approve again: %d, %q", code, seen)
	}
	again := func(env string, args ...string) int {
		c := p.command(append([]string{"start", "--approval", id}, args...)...)
		c.Env = append(c.Env, env)
		_ = c.Run()
		return c.ProcessState.ExitCode()
	}
	for name, got := range map[string]int{
		"another command":  again("SPACE_MEMBER=bot", "echo six; true"),
		"as argv":          again("SPACE_MEMBER=bot", "echo", "six"),
		"with a variable":  again("SPACE_MEMBER=bot", "-e", "PATH="+p.dir, "echo six"),
		"another PATH":     again("PATH="+p.dir+":"+os.Getenv("PATH"), "--member", "bot", "echo six"),
		"another folder":   again("SPACE_MEMBER=bot", "-C", "/", "echo six"),
		"of somebody else": again("A=", "echo six"),
		"as a condition":   again("SPACE_MEMBER=bot", "--until-command", "echo six"),
	} {
		if got != 4 {
			t.Errorf("%s: %d", name, got)
		}
	}
	if got := again("SPACE_MEMBER=bot", "echo six"); got != 0 {
		t.Errorf("the same start: %d", got)
	}
	if got := again("SPACE_MEMBER=bot", "echo six"); got != 4 {
		t.Errorf("a second time: %d", got)
	}
	log, err := os.ReadFile(filepath.Join(root, "audit.log"))
	for _, want := range []string{`"approve"`, `"refuse"`, `"consume"`, `"ask"`, `"rule_added":1`, `"via":"terminal"`} {
		if !strings.Contains(string(log), want) {
			t.Errorf("%s is not in the audit log (%v)", want, err)
		}
	}
	if strings.Contains(string(log), "secret") {
		t.Error("a value is in the audit log")
	}
}
