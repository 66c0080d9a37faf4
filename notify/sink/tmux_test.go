package sink

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"space-job/notify/thread"
)

// server is a tmux server of the test's own.
type server struct{ socket string }

func newServer(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("there is no tmux")
	}
	dir, err := os.MkdirTemp("", "tmux") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	s := &server{filepath.Join(dir, "s")}
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-S", s.socket, "kill-server").Run()
		os.RemoveAll(dir)
	})
	s.run(t, "-f", "/dev/null", "new-session", "-d", "-s", "main", "-x", "100", "-y", "20", "exec sleep 1000")
	s.run(t, "set-option", "-g", "remain-on-exit", "on")
	return s
}

func (s *server) run(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command("tmux", append([]string{"-S", s.socket}, args...)...)
	c.Env = append(os.Environ(), "TMUX=", "SHELL=/bin/sh")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// pane opens a pane in which a program is in front. Until something is, tmux goes by
// the first word of what is to be executed: that must be another one.
func (s *server) pane(t *testing.T, shell, front string) string {
	t.Helper()
	id := s.run(t, "new-window", "-d", "-P", "-F", "#{pane_id}", shell)
	s.until(t, id, "#{pane_current_command}", front)
	return id
}

// until waits for a format of a pane to hold a text.
func (s *server) until(t *testing.T, id, format, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if got = s.run(t, "display-message", "-p", "-t", id, format); got == want {
			return
		}
	}
	t.Fatalf("pane %s: %s is %q, want %q", id, format, got, want)
}

func (s *server) wake(t *testing.T, pane string) error {
	t.Helper()
	secret := thread.Item{ID: "e412", To: "bob", Text: "secret; touch /tmp/secret\n"}
	return Wake(t.Context(), thread.Member{Name: "bob", Kind: thread.Agent, WakePane: pane, WakeSocket: s.socket}, secret, nil)
}

func TestWakePane(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	typed := filepath.Join(t.TempDir(), "typed")
	pane := s.pane(t, "exec env head -n 2 >"+typed, "head")
	for i := range 2 {
		if i == 1 {
			pane = s.run(t, "display-message", "-p", "-t", pane, "#{session_name}:#{window_index}.#{pane_index}") // by another name
		}
		if err := s.wake(t, pane); err != nil {
			t.Fatal(err)
		}
	}
	s.until(t, pane, "#{pane_dead}", "1")
	if got, want := read(t, typed), strings.Repeat("You have a new item: run space-job inbox --take\n", 2); got != want {
		t.Errorf("typed %q, want %q", got, want)
	}
	if err := s.wake(t, pane); err == nil || err.Error() != "tmux pane "+pane+": its program has ended" {
		t.Error(err)
	}
}

func TestWakePaneRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	refused := func(pane, want string) {
		t.Helper()
		if err := s.wake(t, pane); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "tmux pane "+pane+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", pane, err, want)
		}
	}
	untouched := func(pane string) {
		t.Helper()
		if got := s.run(t, "capture-pane", "-p", "-t", pane); strings.Contains(got, "new item") {
			t.Errorf("%s: typed all the same: %q", pane, got)
		}
	}
	shell := s.pane(t, "exec sh", "sh")
	refused(shell, "a shell is in front there (sh), which would run the line")
	untouched(shell)
	// The shell is behind once it runs a program, and in front again after it.
	s.run(t, "send-keys", "-t", shell, "cat", "Enter")
	s.until(t, shell, "#{pane_current_command}", "cat")
	if err := s.wake(t, shell); err != nil {
		t.Error(err)
	}
	s.run(t, "send-keys", "-t", shell, "C-d")
	s.until(t, shell, "#{pane_current_command}", "sh")
	refused(shell, "a shell is in front")

	scrolled := s.pane(t, "exec env cat", "cat")
	s.run(t, "copy-mode", "-t", scrolled)
	refused(scrolled, "somebody is scrolling in it")
	s.run(t, "send-keys", "-t", scrolled, "-X", "cancel")
	untouched(scrolled)

	refused("%999", "there is no such pane")
	refused("nope:9.9", "there is no such pane")

	none := &server{s.socket + "-none"}
	if err := none.wake(t, "%0"); err == nil || !strings.Contains(err.Error(), "tmux pane %0: ") {
		t.Error(err)
	}
	if _, err := os.Stat(none.socket); err == nil {
		t.Error("a server was started")
	}
}

// TestWakePaneUsual: without a socket it is the user's usual server, whatever
// TMUX says; without tmux it is an error.
func TestWakePaneUsual(t *testing.T) {
	s := newServer(t)
	dir, err := os.MkdirTemp("", "tmux")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMUX_TMPDIR", dir)
	t.Setenv("TMUX", s.socket+",1,0")
	m := thread.Member{Name: "bob", Kind: thread.Agent, WakePane: "main:0.0"}
	if err := Wake(t.Context(), m, thread.Item{}, nil); err == nil {
		t.Error("the line went to the server that TMUX names")
	}
	usual := &server{filepath.Join(dir, "tmux-"+strconv.Itoa(os.Getuid()), "default")}
	c := exec.Command("tmux", "-f", "/dev/null", "new-session", "-d", "-s", "main", "exec env cat")
	c.Env = append(os.Environ(), "TMUX=")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Before PATH is changed, so that it is run after PATH is as it was.
	t.Cleanup(func() {
		if out, err := exec.Command("tmux", "-S", usual.socket, "kill-server").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		os.RemoveAll(dir)
	})
	usual.until(t, "main:", "#{pane_current_command}", "cat")
	m.WakePane = "main:"
	if err := Wake(t.Context(), m, thread.Item{}, nil); err != nil {
		t.Error(err)
	}
	t.Setenv("PATH", "/nope")
	if err := Wake(t.Context(), m, thread.Item{}, nil); err == nil || !strings.Contains(err.Error(), "tmux") {
		t.Error(err)
	}
}
