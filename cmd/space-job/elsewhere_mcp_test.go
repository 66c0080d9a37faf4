package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	way "space-job/cmd/internal/space"

	"space-job/cmd/internal/api"
)

// TestSpaceArgument: the argument space of the tool is --space of the command line.
func TestSpaceArgument(t *testing.T) {
	t.Parallel()
	f := newFronts(t, "alice")
	there := newSpace(t)
	exec := []string{"env", "SPACE_JOB_HOME=" + there.root}
	b, err := json.Marshal(map[string]way.Space{"box": {Exec: exec, Program: pathOf(t, "space-job")}, "mine": {Exec: exec, Machine: true}, "none": {Exec: []string{"/nonesuch/x"}}})
	if err == nil {
		err = os.WriteFile(filepath.Join(f.root, way.File), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for front, session := range f.sessions() {
		tool := func(args map[string]any) any { return call(t, session, "space_job", args) }
		job := tool(map[string]any{"space": "box", "action": "start", "name": "from " + front, "command": `echo "$SECRET"; exit 3`, "cwd": "/",
			"env": map[string]any{"SECRET": "a 'b'\n\"c\""}}).(map[string]any)["job"].(string)
		offset, log := 0.0, ""
		for state := "running"; state == "running"; {
			res := tool(map[string]any{"space": "box", "action": "logs", "job": job, "offset": offset, "follow_ms": 20000}).(map[string]any)
			offset, log, state = res["next_offset"].(float64), log+res["text"].(string), res["state"].(string)
		}
		if log != "a 'b'\n\"c\"\n" {
			t.Errorf("%s: %q", front, log)
		}
		for name, c := range map[string]struct {
			cli  []string
			args map[string]any
		}{
			"status":         {[]string{"status", job, "--space", "box"}, map[string]any{"space": "box", "action": "status", "job": job}},
			"logs":           {[]string{"logs", job, "--space", "box"}, map[string]any{"space": "box", "action": "logs", "job": job}},
			"cancel":         {[]string{"cancel", job, "--space", "box"}, map[string]any{"space": "box", "action": "cancel", "job": job}},
			"no such job":    {[]string{"status", "j000000000000", "--space", "box"}, map[string]any{"space": "box", "action": "status", "job": "j000000000000"}},
			"waits too long": {[]string{"logs", "--space", "box", "--follow-ms", "25001"}, map[string]any{"space": "box", "action": "logs", "follow_ms": 25001}},
			"no such Space":  {[]string{"list", "--space", "bax"}, map[string]any{"space": "bax", "action": "list"}},
			"no prefix":      {[]string{"status", "--space", "none"}, map[string]any{"space": "none", "action": "status"}},
			"no name":        {[]string{"list", "--space", "../x"}, map[string]any{"space": "../x", "action": "list"}},
		} {
			want, got := faultOf(f.run(t, c.cli...)), faultOf(tool(c.args))
			if !equal(got, want) {
				t.Errorf("%s: %s:\n%s\nthe command line:\n%s", front, name, show(got), show(want))
			}
		}
		if got := tool(map[string]any{"space": "box", "action": "list"}).(map[string]any); got["total"] == 0.0 {
			t.Errorf("%s: %v", front, got)
		}
		for _, name := range []string{"", "local", host} {
			if got := tool(map[string]any{"space": name, "action": "list"}).(map[string]any); got["total"] != 0.0 {
				t.Errorf("%s: jobs of %q: %v", front, name, got)
			}
		}
		// A hint is for who has the tool.
		fault := tool(map[string]any{"space": "box", "action": "status", "job": "j000000000000"}).(map[string]any)["error"].(map[string]any)
		if fault["hint"] != "see which there are: space_job, action list" {
			t.Errorf("%s: %v", front, fault)
		}
		// A person's own machine is asked about, without any policy.
		fault = tool(map[string]any{"space": "mine", "action": "start", "command": "echo mine", "cwd": "/"}).(map[string]any)["error"].(map[string]any)
		if fault["code"] != string(api.ApprovalRequired) || !strings.Contains(fault["message"].(string), "the Space mine is a person's own machine") {
			t.Errorf("%s: %v", front, fault)
		}
	}
}

// TestMachine: a start in a Space that is a person's own machine goes through once,
// when a person has said so, and by a rule then.
func TestMachine(t *testing.T) {
	t.Parallel()
	here, there := newSpace(t), newSpace(t)
	here.spaces(map[string]way.Space{"mine": {Exec: []string{"env", "SPACE_JOB_HOME=" + there.root}, Machine: true}})
	ask := func(args ...string) string {
		t.Helper()
		said := here.fails(4, append([]string{"--space", "mine", "start"}, args...)...)
		_, id, _ := strings.Cut(said, "as request ")
		id, _, _ = strings.Cut(id, ":")
		if len(id) != 17 {
			t.Fatal(said)
		}
		return id
	}
	approve := func(id string, rule bool) {
		t.Helper()
		if _, err := here.actions().Approve(api.ApproveRequest{ID: id, Via: api.ViaClient, Rule: rule}); err != nil {
			t.Fatal(err)
		}
	}
	id := ask("-e", "A=1", "echo $A")
	if got := here.run("approvals", "--json"); !strings.Contains(got, `"space":"mine"`) || !strings.Contains(got, `"cwd":"~"`) {
		t.Error(got)
	}
	approve(id, false)
	here.fails(4, "--space", "mine", "start", "--approval", id, "-e", "A=2", "echo $A")  // other values
	here.fails(4, "--space", "mine", "start", "--approval", id, "-e", "A=1", "echo $A;") // another command
	here.run("--space", "mine", "start", "--approval", id, "-e", "A=1", "echo $A")
	here.fails(4, "--space", "mine", "start", "--approval", id, "-e", "A=1", "echo $A") // it was used
	if got := strings.Count(there.run("list", "--json")+"\n", "\n"); got != 1 {
		t.Errorf("%d jobs", got)
	}
	// A rule that allows is for one folder.
	if _, err := here.actions().Approve(api.ApproveRequest{ID: ask("true"), Via: api.ViaClient, Rule: true}); err == nil || !strings.Contains(err.Error(), "--cwd DIR") {
		t.Errorf("%v", err)
	}
	approve(ask("-C", "/usr", "true"), true)
	here.run("--space", "mine", "start", "-C", "/usr", "true")
	here.fails(4, "--space", "mine", "start", "-C", "/tmp", "true")
	// Reading is not asked about, and a start here is another matter.
	here.run("--space", "mine", "list")
	here.run("start", "true")
	// An approval is not used up by a start that never began.
	id = ask("-C", "/", "echo later")
	approve(id, false)
	here.spaces(map[string]way.Space{"mine": {Exec: []string{"false"}, Machine: true}})
	here.fails(1, "--space", "mine", "start", "-C", "/", "--approval", id, "echo later")
	here.spaces(map[string]way.Space{"mine": {Exec: []string{"env", "SPACE_JOB_HOME=" + there.root}, Machine: true}})
	here.run("--space", "mine", "start", "-C", "/", "--approval", id, "echo later")
	// Nor by one that is refused over there.
	dir := filepath.Join(t.TempDir(), "dir")
	for _, key := range [][]string{nil, {"--key", "k"}} {
		start := append([]string{"--space", "mine", "start", "-C", dir}, key...)
		id = ask(append(start[3:len(start):len(start)], "echo later")...)
		approve(id, false)
		start = append(start, "--approval", id, "echo later")
		here.fails(2, start...)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		here.run(start...)
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVersions: another version is said, a newer format is read and not written.
func TestVersions(t *testing.T) {
	t.Parallel()
	here, there := newSpace(t), newSpace(t)
	there.run("wait", there.run("start", "echo here"))
	touched := filepath.Join(t.TempDir(), "asked")
	version := func(hello, script string) way.Space {
		return way.Space{Exec: []string{"env", "SPACE_JOB_HOME=" + there.root, "sh", "-c", `"$@" | { read -r hello; echo '` + hello + `'; ` + script + `; }`, "sh"}, Program: pathOf(t, "space-job")}
	}
	here.spaces(map[string]way.Space{
		"other": version(`{"space_job":"v9.9","format":1}`, "cat"),
		"newer": version(`{"space_job":"v10","format":2,"what":"ever"}`, "cat"),
		"old":   {Exec: []string{"sh", "-c", `echo '{"error":{"code":"invalid_argument","message":"unknown flag: --request","hint":""}}'; exit 2`}},
		"fake":  {Exec: []string{"sh", "-c", `echo '{"space_job":"v10","format":2}'; read -r line && echo "$line" >` + touched}},
	})
	said := func(args ...string) string {
		t.Helper()
		c := here.command(args...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if got := said("--space", "other", "logs"); !strings.Contains(got, "warning: the Space other has space-job v9.9, and this is ") || !strings.HasSuffix(got, "here\n") {
		t.Error(got)
	}
	if got := said("--space", "newer", "logs"); !strings.Contains(got, "its jobs have a newer format") || !strings.HasSuffix(got, "here\n") {
		t.Error(got)
	}
	for _, args := range [][]string{{"start", "echo $SECRET"}, {"cancel", "ffff"}} {
		if got := here.fails(1, append([]string{"--space", "fake"}, args...)...); !strings.Contains(got, "a newer format is read, and not written") {
			t.Errorf("%q: %s", args, got)
		}
	}
	if _, err := os.Stat(touched); err == nil {
		t.Error("it was asked to write")
	}
	if got := here.fails(1, "--space", "old", "list"); !strings.Contains(got, "too old to be asked") {
		t.Error(got)
	}
	// The other end refuses what it may not understand.
	c := there.command("start", "--request", "-", "--json")
	c.Stdin = strings.NewReader(`{"format":2,"command":"true"}` + "\n")
	if out, err := c.Output(); err != nil || !strings.Contains(string(out), `"code":"unavailable"`) {
		t.Errorf("%s, %v", out, err)
	}
	for _, line := range []string{"", "{", "x\n", `{"command":"true"`, `{"command":"true","nonesuch":1}` + "\n", `{"command":"true"} {}` + "\n"} {
		c := there.command("start", "--request", "-", "--json")
		c.Stdin = strings.NewReader(line)
		if out, err := c.Output(); err != nil || !strings.Contains(string(out), `"code":"invalid_argument"`) {
			t.Errorf("%q: %s, %v", line, out, err)
		}
	}
	if got := strings.Count(there.run("list", "--json")+"\n", "\n"); got != 1 {
		t.Errorf("%d jobs", got)
	}
}
