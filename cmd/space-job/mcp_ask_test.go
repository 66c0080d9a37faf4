//go:build linux || darwin

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"space-job/cmd/internal/api"
)

// TestAskedThroughClient: where the policy wants a person to be asked, the client
// asks one, who is shown everything, and nothing begins before the answer.
func TestAskedThroughClient(t *testing.T) {
	t.Parallel()
	f := newFronts(t, "alice")
	f.policy(t, `{"rules":[{"command":"echo free","verdict":"allow"},{"command":"*forbidden*","verdict":"deny"},{"command":"**","verdict":"ask"}]}`)

	var asked atomic.Pointer[string]
	answer := ""
	server := exec.Command("space-job", "mcp", "--member", "alice")
	server.Env = f.env
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ElicitationHandler: func(_ context.Context, req *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			asked.Store(&req.Params.Message)
			if jobs, _ := filepath.Glob(filepath.Join(f.root, "jobs", "j*")); len(jobs) > 0 && answer == "once" {
				t.Errorf("there are jobs while it is asked: %v", jobs)
			}
			if answer == "cancel" {
				return &sdk.ElicitResult{Action: "cancel"}, nil
			}
			return &sdk.ElicitResult{Action: "accept", Content: map[string]any{"decision": answer}}, nil
		},
	})
	session, err := client.Connect(t.Context(), &sdk.CommandTransport{Command: server}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	start := func(session *sdk.ClientSession, args map[string]any) map[string]any {
		args["action"] = "start"
		return call(t, session, "space_job", args).(map[string]any)
	}
	code := func(res map[string]any) any {
		e, _ := res["error"].(map[string]any)
		return e["code"]
	}

	for _, c := range []struct {
		answer string
		want   any
	}{{"once", nil}, {"deny", "approval_denied"}, {"cancel", "approval_denied"}} {
		answer = c.answer
		asked.Store(nil)
		res := start(session, map[string]any{"command": "echo asked " + c.answer, "cwd": "/", "env": map[string]any{"SECRET": "value"}})
		if code(res) != c.want {
			t.Errorf("answer %q: %v", c.answer, res)
		}
		if m := asked.Load(); m == nil || !strings.Contains(*m, "echo asked") || !strings.Contains(*m, "Directory: /\n") || !strings.Contains(*m, "SECRET") || strings.Contains(*m, "value") {
			t.Errorf("answer %q: asked %v", c.answer, m)
		}
	}

	// Each way to run something is asked for; the other conditions run nothing.
	answer = "deny"
	for _, args := range []map[string]any{
		{"argv": []string{"/bin/sh", "-c", "echo free; id"}},
		{"argv": []string{"id"}},
		{"until": map[string]any{"command": "id"}, "timeout": 1},
		{"command": "echo free; id"},
		{"command": " echo free\nid"},
		{"command": "echo free", "env": map[string]any{"PATH": "/tmp"}},
	} {
		if res := start(session, args); code(res) != "approval_denied" {
			t.Errorf("%v: %v", args, res)
		}
	}
	asked.Store(nil)
	for _, args := range []map[string]any{
		{"command": "echo free"},
		{"until": map[string]any{"file": "/"}, "timeout": 5},
	} {
		if res := start(session, args); code(res) != nil {
			t.Errorf("%v: %v", args, res)
		}
	}
	if res := start(session, map[string]any{"command": "forbidden"}); code(res) != "approval_denied" || asked.Load() != nil {
		t.Errorf("a command that is denied: %v", res)
	}

	// A client that cannot ask gets the id of a request; no agent approves it.
	for front, session := range f.sessions() {
		res := start(session, map[string]any{"command": "echo later", "cwd": "/"})
		request, _ := res["error"].(map[string]any)["request"].(string)
		if code(res) != "approval_required" || request == "" {
			t.Fatalf("%s: %v", front, res)
		}
		if res := start(session, map[string]any{"command": "echo later", "cwd": "/", "approval": request}); code(res) == nil {
			t.Errorf("%s: it began without an approval", front)
		}
		out := f.command(t, "approvals", "approve", request, "--json")
		if !strings.Contains(string(out), `"error"`) {
			t.Errorf("%s: an agent approved: %s", front, out)
		}
		if res := start(session, map[string]any{"command": "echo other", "cwd": "/", "approval": request}); code(res) == nil {
			t.Errorf("%s: another command began", front)
		}
	}

	// "Always" is a rule from then on.
	answer = "always"
	if res := start(session, map[string]any{"command": "echo always", "cwd": "/"}); code(res) != nil {
		t.Errorf("always: %v", res)
	}
	asked.Store(nil)
	if res := start(session, map[string]any{"command": "echo always", "cwd": "/"}); code(res) != nil || asked.Load() != nil {
		t.Errorf("once it is always allowed: %v", res)
	}

	// What is damaged is never looser: a person is asked about everything.
	f.policy(t, `{"rules":[`)
	asked.Store(nil)
	answer = "deny"
	if res := start(session, map[string]any{"command": "echo free"}); code(res) != "approval_denied" || asked.Load() == nil {
		t.Errorf("a damaged policy: %v", res)
	}
}

// TestApprovalOfFailedStart: a start that fails, and has run nothing, does not use
// the approval up.
func TestApprovalOfFailedStart(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.root, "policy.json"), []byte(`{"rules":[{"verdict":"ask"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "dir")
	bin := t.TempDir() // with a runner that cannot be executed
	program, err := exec.LookPath("space-job")
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(program)
	if err == nil {
		syscall.ForkLock.RLock() // what is forked while it is open for writing keeps it from being executed
		err = os.WriteFile(filepath.Join(bin, "space-job"), b, 0o700)
		syscall.ForkLock.RUnlock()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(bin, "space-runner"), []byte("no program"), 0o700)
	}
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	said := s.fails(4, "start", "-C", dir, "echo later")
	_, id, _ := strings.Cut(said, "as request ")
	id, _, _ = strings.Cut(id, ":")
	if _, err := s.actions().Approve(api.ApproveRequest{ID: id, Via: api.ViaClient}); err != nil {
		t.Fatal(err)
	}
	start := []string{"start", "-C", dir, "--approval", id, "echo later"}
	stays := func(why string) {
		t.Helper()
		if got := s.run("approvals", "--json"); !strings.Contains(got, `"request":"`+id+`"`) || !strings.Contains(got, `"state":"approved"`) {
			t.Errorf("%s: %s", why, got)
		}
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	s.fails(2, start...)
	stays("the folder is gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	full := exec.Command("sh", append([]string{"-c", `ulimit -f 1; exec space-job "$@"`, "sh"}, start...)...)
	full.Env = s.command().Env
	if out, err := full.CombinedOutput(); err == nil {
		t.Fatalf("it began: %s", out)
	}
	stays("nothing can be written")
	broken := s.command(start...)
	broken.Path = filepath.Join(bin, "space-job")
	if out, err := broken.CombinedOutput(); err == nil || !strings.Contains(string(out), "space-runner") {
		t.Fatalf("%v: %s", err, out)
	}
	stays("the runner is broken")
	s.run(start...)
	s.fails(4, start...) // it was used
	audit, err := os.ReadFile(filepath.Join(s.root, "audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	if n, back := strings.Count(string(audit), `"decision":"consume"`), strings.Count(string(audit), `"decision":"put back"`); n != 2 || back != 1 {
		t.Errorf("consumed %d times, put back %d times: %s", n, back, audit)
	}
}

func (f *fronts) policy(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.root, "policy.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
