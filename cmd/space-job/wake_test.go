package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWakerCommand: it gets the item, fails once, and is run again with the same.
func TestWakerCommand(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	dir := t.TempDir()
	s.run("member", "add", "bob", "--kind", "agent", "--wake-command",
		"cat >>"+dir+"/items; echo \"up, $SPACE_MEMBER\"; test -e "+dir+"/once || { touch "+dir+"/once; exit 3; }")
	job := s.run("start", "--member", "bob", "--notify", "echo hello; exit 7")
	wake := func() string {
		var status struct {
			Notify struct {
				State string
				Wakes map[string]struct {
					State    string
					Attempts int
				}
			}
		}
		if err := json.Unmarshal([]byte(s.run("status", "--json", job)), &status); err != nil {
			t.Fatal(err)
		}
		return status.Notify.State + " " + status.Notify.Wakes["bob"].State
	}
	s.await("the wake", wake, "delivered delivered")
	b, err := os.ReadFile(filepath.Join(dir, "items"))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if err != nil || len(lines) != 2 {
		t.Fatalf("%q, %v", lines, err)
	}
	for _, line := range lines {
		var it struct {
			Item, Kind, To, Job, Text string
			JobState                  string `json:"job_state"`
			ExitCode                  int    `json:"exit_code"`
		}
		if err := json.Unmarshal([]byte(line), &it); err != nil || it.Item != job || it.Kind != "job_end" || it.To != "bob" ||
			it.Job != job || it.JobState != "exited" || it.ExitCode != 7 || !strings.HasPrefix(it.Text, "JOB "+job+" exited exit=7 ") {
			t.Errorf("item %s: %v", line, err)
		}
	}
	log, err := os.ReadFile(filepath.Join(s.root, "daemon.log"))
	if err != nil || strings.Count(string(log), "waker of bob, "+job+": up, bob\n") != 2 || !strings.Contains(string(log), "it ended with exit code 3") {
		t.Errorf("%s, %v", log, err)
	}
}

// TestWakerPane: a member that was added inside of tmux is woken there, though
// the daemon knows nothing of that server.
func TestWakerPane(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("there is no tmux")
	}
	s := newSpace(t)
	dir := t.TempDir()
	sockets, err := os.MkdirTemp("", "tmux") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(sockets, "s")
	tmux := func(args ...string) string {
		t.Helper()
		c := exec.Command("tmux", append([]string{"-S", socket}, args...)...)
		c.Env = append(os.Environ(), "TMUX=", "SPACE_JOB_HOME="+s.root, "SPACE_JOB=", "SPACE_MEMBER=", "SHELL=/bin/sh")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	defer os.RemoveAll(sockets)
	pane := tmux("-f", "/dev/null", "new-session", "-d", "-P", "-F", "#{pane_id}", "-x", "200",
		"space-job member add bob --kind agent --wake-pane \"$TMUX_PANE\" >"+dir+"/added 2>&1; exec head -n 1 >"+dir+"/typed")
	defer func() { _ = exec.Command("tmux", "-S", socket, "kill-server").Run() }()
	s.await("the front", func() string { return tmux("display-message", "-p", "-t", pane, "#{pane_current_command}") }, "head")
	if b, err := os.ReadFile(filepath.Join(dir, "added")); err != nil || !strings.HasPrefix(string(b), "added bob\n") {
		t.Fatalf("%q, %v", b, err)
	}
	job := s.run("start", "--member", "bob", "--notify", "echo secret")
	s.await("what is typed", func() string {
		b, _ := os.ReadFile(filepath.Join(dir, "typed"))
		return string(b)
	}, "You have a new item: run space-job inbox --take\n")
	if got := s.run("inbox", "--member", "bob"); !strings.Contains(got, job) {
		t.Errorf("inbox: %q", got)
	}
}
