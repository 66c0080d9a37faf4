//go:build linux || darwin

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestOneContract makes the same calls through the command line, through MCP on
// stdio and through MCP over HTTP, and compares what they return.
func TestOneContract(t *testing.T) {
	t.Parallel()
	f := newFronts(t, "alice")
	cli := func(args ...string) any { return f.run(t, args...) }

	first := f.run(t, "start", "--cwd", "/", "--env", "A=1", "-n", "first", "echo out; echo err >&2; exit 3").(map[string]any)
	id := first["job"].(string)
	f.run(t, "wait", id)

	for name, c := range map[string]struct {
		cli  []string
		tool string
		args map[string]any
	}{
		"logs":             {[]string{"logs", id, "--offset", "0"}, "space_job", map[string]any{"action": "logs", "job": id, "offset": 0}},
		"logs at the end":  {[]string{"logs", id}, "space_job", map[string]any{"action": "logs", "job": id}},
		"logs by its end":  {[]string{"logs", id[5:], "--max", "2", "--offset", "1"}, "space_job", map[string]any{"action": "logs", "job": id[5:], "max": 2, "offset": 1}},
		"status":           {[]string{"status", id}, "space_job", map[string]any{"action": "status", "job": id}},
		"cancel, ended":    {[]string{"cancel", id}, "space_job", map[string]any{"action": "cancel", "job": id}},
		"no such job":      {[]string{"status", "j000000000000"}, "space_job", map[string]any{"action": "status", "job": "j000000000000"}},
		"no id":            {[]string{"logs", "x"}, "space_job", map[string]any{"action": "logs", "job": "x"}},
		"waits too long":   {[]string{"logs", id, "--follow-ms", "25001"}, "space_job", map[string]any{"action": "logs", "job": id, "follow_ms": 25001}},
		"no such state":    {[]string{"list", "--state", "x"}, "space_job", map[string]any{"action": "list", "state": "x"}},
		"no such folder":   {[]string{"start", "--cwd", "/nowhere", "true"}, "space_job", map[string]any{"action": "start", "cwd": "/nowhere", "command": "true"}},
		"no such member":   {[]string{"start", "--wake", "nobody", "true"}, "space_job", map[string]any{"action": "start", "wake": []string{"nobody"}, "command": "true"}},
		"a long key":       {[]string{"start", "--key", strings.Repeat("k", 300), "true"}, "space_job", map[string]any{"action": "start", "key": strings.Repeat("k", 300), "command": "true"}},
		"no pull request":  {[]string{"start", "--until-pr-checks", "owner/repo#abc"}, "space_job", map[string]any{"action": "start", "until": map[string]any{"pr_checks": "owner/repo#abc"}}},
		"a port too high":  {[]string{"start", "--until-port", "65536"}, "space_job", map[string]any{"action": "start", "until": map[string]any{"port": 65536}}},
		"until another":    {[]string{"start", "--until-job", "j000000000000"}, "space_job", map[string]any{"action": "start", "until": map[string]any{"job": "j000000000000"}}},
		"a post too large": {[]string{"thread", "post", strings.Repeat("x", 9000)}, "space_thread", map[string]any{"action": "post", "text": strings.Repeat("x", 9000)}},
	} {
		t.Run(name, func(t *testing.T) {
			want := faultOf(cli(c.cli...))
			for front, session := range f.sessions() {
				if got := faultOf(call(t, session, c.tool, c.args)); !equal(got, want) {
					t.Errorf("%s:\n%s\nthe command line:\n%s", front, show(got), show(want))
				}
			}
		})
	}

	t.Run("start", func(t *testing.T) {
		want := f.record(t, id)
		for front, session := range f.sessions() {
			res := call(t, session, "space_job", map[string]any{"action": "start", "name": "first", "cwd": "/",
				"env": map[string]any{"A": "1"}, "command": "echo out; echo err >&2; exit 3"}).(map[string]any)
			if res["state"] != "running" || res["existing"] != false {
				t.Fatalf("%s: %v", front, res)
			}
			if got := f.record(t, res["job"].(string)); !equal(got, want) {
				t.Errorf("%s:\n%s\nthe command line:\n%s", front, show(got), show(want))
			}
		}
	})
	t.Run("list", func(t *testing.T) {
		f.run(t, append([]string{"wait"}, f.jobs(t)...)...)
		want := f.run(t, "list", "--all")
		for front, session := range f.sessions() {
			got := call(t, session, "space_job", map[string]any{"action": "list"}).(map[string]any)
			if !equal(got["jobs"], want) || got["total"] != float64(len(want.([]any))) || got["more"] != 0.0 {
				t.Errorf("%s:\n%s\nthe command line:\n%s", front, show(got), show(want))
			}
		}
	})
}

// TestHintsForAgents: what an agent is told to do is what it can do with its tools.
func TestHintsForAgents(t *testing.T) {
	t.Parallel()
	f := newFronts(t, "alice")
	for front, session := range f.sessions() {
		for _, c := range []struct {
			tool string
			args map[string]any
			want string
		}{
			{"space_job", map[string]any{"action": "status"}, "action start"},
			{"space_job", map[string]any{"action": "status", "job": "j000000000000"}, "action list"},
			{"space_job", map[string]any{"action": "start", "command": "true", "wake": "nobody"}, "action members"},
			{"space_job", map[string]any{"action": "start", "until": map[string]any{"path": "x"}}, "file, port"},
			{"space_thread", map[string]any{"action": "answer", "item": "e9", "text": "x"}, "action inbox"},
			{"space_thread", map[string]any{"action": "claim", "what": "x"}, "files or branch"},
			{"space_thread", map[string]any{"action": "claim", "what": "x", "branch": "b"}, "15:04"},
			{"space_thread", map[string]any{"action": "done", "what": "x", "result": "y"}, "what comes next"},
			{"space_thread", map[string]any{"action": "blocked", "what": "x"}, "needs and from"},
			{"space_thread", map[string]any{"action": "release", "what": "x"}, "action claims"},
		} {
			e, ok := call(t, session, c.tool, c.args).(map[string]any)["error"].(map[string]any)
			if !ok {
				t.Errorf("%s: %v: no error", front, c.args)
				continue
			}
			hint := e["hint"].(string)
			if !strings.Contains(hint, c.want) || strings.Contains(hint, "--") || strings.Contains(hint, "space-job ") {
				t.Errorf("%s: %v: hint %q, want %q and no flags", front, c.args, hint, c.want)
			}
		}
	}
}

// TestAgentIsWoken: a client that is subscribed and idle hears that a job has
// ended and that its inbox has an item, on stdio and over HTTP.
func TestAgentIsWoken(t *testing.T) {
	t.Parallel()
	f := newFronts(t, "alice")
	for front, session := range f.sessions() {
		updated := f.updated[front]
		job := call(t, session, "space_job", map[string]any{"action": "start", "until": map[string]any{"file": filepath.Join(f.root, "go-"+front)}, "timeout": 60, "notify": true}).(map[string]any)["job"].(string)
		for _, uri := range []string{"space://inbox/alice", "space://job/" + job} {
			if err := session.Subscribe(t.Context(), &sdk.SubscribeParams{URI: uri}); err != nil {
				t.Fatalf("%s: subscribe: %v", front, err)
			}
		}
		if err := os.WriteFile(filepath.Join(f.root, "go-"+front), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{"space://inbox/alice": true, "space://job/" + job: true}
		for len(want) > 0 {
			select {
			case uri := <-updated:
				delete(want, uri)
			case <-time.After(patience):
				t.Fatalf("%s: not told of %v", front, want)
			}
		}
		if res := call(t, session, "space_job", map[string]any{"action": "status", "job": job}).(map[string]any); res["exit_code"] != 0.0 {
			t.Errorf("%s: the watcher: %v", front, res)
		}
		inbox := call(t, session, "space_thread", map[string]any{"action": "inbox", "take": true}).(map[string]any)["items"].([]any)
		if len(inbox) != 1 || inbox[0].(map[string]any)["job"] != job {
			t.Errorf("%s: the inbox: %v", front, inbox)
		}
		// One that has ended already is told of at once.
		ended := f.run(t, "start", "true").(map[string]any)["job"].(string)
		f.run(t, "wait", ended)
		again := "space://job/" + ended
		if err := session.Subscribe(t.Context(), &sdk.SubscribeParams{URI: again}); err != nil {
			t.Fatal(err)
		}
		select {
		case uri := <-updated:
			if uri != again {
				t.Errorf("%s: told of %s", front, uri)
			}
		case <-time.After(patience):
			t.Errorf("%s: not told of a job that had ended", front)
		}
	}
}

// fronts are the ways to one root.
type fronts struct {
	root    string
	env     []string
	stdio   *sdk.ClientSession
	http    *sdk.ClientSession
	updated map[string]chan string
}

func (f *fronts) sessions() map[string]*sdk.ClientSession {
	return map[string]*sdk.ClientSession{"stdio": f.stdio, "http": f.http}
}

func newFronts(t *testing.T, member string) *fronts {
	t.Helper()
	f := &fronts{root: filepath.Join(t.TempDir(), "root"), updated: make(map[string]chan string)}
	f.env = append(os.Environ(), "SPACE_JOB_HOME="+f.root, "SPACE_JOB=", "SPACE_MEMBER=")
	f.command(t, "member", "add", member, "--kind", "agent")
	f.env = append(f.env, "SPACE_MEMBER="+member)
	t.Cleanup(func() {
		f.command(t, "daemon", "stop")
		stopAll(f.root)
	})
	f.command(t, "daemon", "--detach", "--http", "0")

	server := exec.Command("space-job", "mcp", "--member", member)
	server.Env = f.env
	server.Stderr = os.Stderr
	f.stdio = f.connect(t, "stdio", &sdk.CommandTransport{Command: server})
	access := f.run(t, "mcp", "token", "--member", member).(map[string]any)
	f.http = f.connect(t, "http", &sdk.StreamableClientTransport{
		Endpoint:   access["url"].(string),
		HTTPClient: &http.Client{Transport: bearer(access["token"].(string))},
	})
	return f
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func (f *fronts) connect(t *testing.T, front string, transport sdk.Transport) *sdk.ClientSession {
	t.Helper()
	updated := make(chan string, 100)
	f.updated[front] = updated
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, req *sdk.ResourceUpdatedNotificationRequest) { updated <- req.Params.URI },
	})
	ctx, cancel := context.WithCancel(context.Background())
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		t.Fatalf("%s: connect: %v", front, err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		cancel()
	})
	return session
}

func (f *fronts) command(t *testing.T, args ...string) []byte {
	t.Helper()
	c := exec.Command("space-job", args...)
	c.Env = f.env
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	var code *exec.ExitError
	if err != nil && !errors.As(err, &code) {
		t.Fatalf("space-job %v: %v: %s", args, err, errs.String())
	}
	return out
}

// run is what a command prints with --json: a document, or a list of them.
func (f *fronts) run(t *testing.T, args ...string) any {
	t.Helper()
	if args[0] == "start" { // flags end at the command
		args = append([]string{"start", "--json"}, args[1:]...)
	} else {
		args = append(args[:len(args):len(args)], "--json")
	}
	out := f.command(t, args...)
	var all []any
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("space-job %v: %v in %q", args, err, out)
		}
		all = append(all, v)
	}
	if args[0] == "list" && (len(all) != 1 || all[0].(map[string]any)["error"] == nil || all[0].(map[string]any)["job"] != nil) {
		return all
	}
	if len(all) == 0 {
		t.Fatalf("space-job %v printed nothing", args)
	}
	return all[0]
}

func (f *fronts) jobs(t *testing.T) (ids []string) {
	for _, j := range f.run(t, "list", "--all").([]any) {
		ids = append(ids, j.(map[string]any)["job"].(string))
	}
	return ids
}

// record is what a job's directory says was started, but for the time and the
// way of it.
func (f *fronts) record(t *testing.T, id string) any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(f.root, "jobs", id, "cmd"))
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	delete(v, "created_at")
	delete(v, "id")
	return v
}

func call(t *testing.T, session *sdk.ClientSession, tool string, args map[string]any) any {
	t.Helper()
	res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s %v: %v", tool, args, err)
	}
	_, failed := res.StructuredContent.(map[string]any)["error"].(map[string]any)
	if res.IsError != failed {
		t.Errorf("%s %v: isError is %v of %v", tool, args, res.IsError, res.StructuredContent)
	}
	if len(res.Content) != 1 || res.Content[0].(*sdk.TextContent).Text == "" {
		t.Errorf("%s %v: the text: %v", tool, args, res.Content)
	}
	return res.StructuredContent
}

// faultOf drops the hint of a fault: what to do about it is another thing on each
// front.
func faultOf(v any) any {
	if m, ok := v.(map[string]any); ok {
		if e, ok := m["error"].(map[string]any); ok {
			delete(e, "hint")
		}
	}
	return v
}

func equal(a, b any) bool { return show(a) == show(b) }

func show(v any) string {
	b, _ := json.MarshalIndent(v, "", " ")
	return string(b)
}
