package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"space-job/jobdir"
	"space-job/notify"
)

// TestWithoutDaemonProgram: start --notify fails before anything is created, and
// a plain start does not care.
func TestWithoutDaemonProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"space-job", "space-runner"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		syscall.ForkLock.RLock() // what is forked while it is open for writing keeps it from being executed
		err = os.WriteFile(filepath.Join(dir, name), b, 0o700)
		syscall.ForkLock.RUnlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	t.Cleanup(func() { stopAll(root) })
	start := func(args ...string) (string, error) {
		c := exec.Command(filepath.Join(dir, "space-job"), args...)
		c.Env = append(os.Environ(), "SPACE_JOB_HOME="+root, "SPACE_JOB=")
		out, err := c.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{{"start", "--notify", "true"}, {"daemon"}, {"daemon", "--detach"}} {
		out, err := start(args...)
		if err == nil || !strings.Contains(out, "no such file or directory") || !strings.Contains(out, "belongs beside space-job") {
			t.Errorf("%q: %v, %s", args, err, out)
		}
		if _, err := os.Lstat(root); !os.IsNotExist(err) {
			t.Fatalf("%q made a root", args)
		}
	}
	if out, err := start("start", "true"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Lstat(filepath.Join(root, "outbox")); !os.IsNotExist(err) {
		t.Error("a plain start made an outbox")
	}
	if out, err := start("start", "--json", "--notify", "true"); err == nil || !strings.Contains(out, `"code":"unavailable"`) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := start("doctor"); err != nil || !strings.Contains(out, "start --notify is refused") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestStarterThatStops: a daemon whose starter is stopped before it has said who has
// the lock says so itself, and so does one of a starter that hands over no pipe.
func TestStarterThatStops(t *testing.T) {
	t.Parallel()
	for _, piped := range []bool{true, false} {
		s := newSpace(t)
		root, err := jobdir.OpenRoot(s.root)
		if err == nil {
			err = root.Create()
		}
		if err != nil {
			t.Fatal(err)
		}
		lock, err := notify.TakeLock(root)
		if err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		c := exec.Command(pathOf(t, "space-jobd"), "--inherited")
		c.Env = append(os.Environ(), "SPACE_JOB_HOME="+s.root)
		if c.ExtraFiles = []*os.File{lock.File()}; piped {
			c.ExtraFiles = append(c.ExtraFiles, r)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lock.Close()
		s.await("a daemon that is ready", func() string {
			d, held := notify.DaemonOf(root)
			return fmt.Sprint(held && d.PID == c.Process.Pid && d.Ready)
		}, "true")
		r.Close()
		w.Close()
		s.run("daemon", "stop")
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// TestRootMadeAnew: a root that is removed under its daemon and made again at the same
// path has one daemon, the new one, so nobody is told of anything twice.
func TestRootMadeAnew(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.hasDaemon()
	var old struct{ PID int }
	b, err := os.ReadFile(filepath.Join(s.root, "daemon.lock"))
	if err == nil {
		err = json.Unmarshal(b, &old)
	}
	if err == nil && old.PID > 1 { // which may be slow to see it
		err = syscall.Kill(old.PID, syscall.SIGSTOP)
		defer func() { _ = syscall.Kill(old.PID, syscall.SIGKILL) }()
	}
	if err == nil {
		err = os.RemoveAll(s.root)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.run("member", "add", "ann", "--kind", "agent", "--wake-command", "cat >>"+s.wokenFile())
	job := s.run("start", "--notify", "--member", "ann", "true")
	s.await("the wake", s.woken, job)
	if err := syscall.Kill(old.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	s.await("the end of the first daemon", func() string { return fmt.Sprint(syscall.Kill(old.PID, 0)) }, syscall.ESRCH.Error())
	if got := s.woken(); got != job {
		t.Errorf("woken for %q", got)
	}
}
