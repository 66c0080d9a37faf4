package sink

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"space-job/jobdir"
)

func TestDesktopText(t *testing.T) {
	t.Parallel()
	m := message()
	for _, c := range []struct {
		name, state, title, body string
		timed                    bool
	}{
		{"unit tests", "exited", "Job: unit tests", "exited with 7 after 12m55s", true},
		{"unit tests", "timed_out", "Job: unit tests", "timed out after 12m55s", true},
		{"", "lost", "Job: j6c1f0a2b9d3e", "lost", false},
		{"--help", "exited", "Job: --help", "exited with 7 after 12m55s", true},
		{"a\nb\x1b[2J\u202ec", "exited", "Job: a b [2J c", "exited with 7 after 12m55s", true},
		{"\xff" + strings.Repeat("ä", 100), "exited", "Job: \ufffd" + strings.Repeat("ä", 58) + "...", "exited with 7 after 12m55s", true},
		{`" & (do shell script "x")`, "exited", `Job: " & (do shell script "x")`, "exited with 7 after 12m55s", true},
	} {
		m.Name, m.State = c.name, jobdir.State(c.state)
		m.DurationMS, m.ExitCode = nil, nil
		if c.state == "exited" {
			m.ExitCode = message().ExitCode
		}
		if c.timed {
			m.DurationMS = message().DurationMS
		}
		title, body := desktopText(m)
		if title != c.title || body != c.body {
			t.Errorf("%q: %q, %q; want %q, %q", c.name, title, body, c.title, c.body)
		}
	}
}

// TestDesktop with a program in the place of the real one.
func TestDesktop(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if err := Desktop(t.Context(), message()); err == nil {
		t.Error("no error without a desktop")
	}
	program := "notify-send"
	if runtime.GOOS == "darwin" {
		program = "osascript"
	}
	fake := func(script string) {
		syscall.ForkLock.RLock() // what is forked while it is open for writing keeps it from being executed
		err := os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"+script), 0o700)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	hostile := message()
	hostile.Name = "$(touch x) `touch y` <b>\"'\\"
	fake(`for a; do echo "$a"; done >` + dir + `/args`)
	if err := Desktop(t.Context(), hostile); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(dir, "args")); !strings.HasSuffix(got, "\nJob: "+hostile.Name+"\nexited with 7 after 12m55s\n") || strings.Contains(got, "JOB") {
		t.Errorf("arguments %q", got)
	}
	fake("echo 'no bus' >&2; exit 1")
	if err := Desktop(t.Context(), message()); err == nil || err.Error() != "exit status 1: no bus" {
		t.Error(err)
	}
}

// TestDesktopCancelled: nothing stays of a program that does not end, neither it
// nor what it waits for.
func TestDesktopCancelled(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	child := filepath.Join(dir, "child")
	for _, program := range []string{"notify-send", "osascript"} {
		script := "#!/bin/sh\nsleep 1000 &\necho $! >" + child + ".new\nmv " + child + ".new " + child + "\nwait\n"
		syscall.ForkLock.RLock() // what is forked while it is open for writing keeps it from being executed
		err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- Desktop(ctx, message()) }()
	await(t, child)
	cancel()
	if err := <-done; err == nil {
		t.Error("no error of a program that was killed")
	}
	gone(t, child)
}
