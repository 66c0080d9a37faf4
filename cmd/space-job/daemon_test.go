package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o700); err != nil {
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
