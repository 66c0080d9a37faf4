package until

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// asNobody runs one test of this binary as a user whom permissions and limits
// bind.
func asNobody(t *testing.T, name string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "until-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, self, program)
	c := exec.Command(program, "-test.run=^"+name+"$", "-test.v")
	c.Dir = dir
	c.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	const nobody = 65534
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
	t.Logf("as nobody:\n%s", out)
}

// copyFile copies a program, by another program: what a test beside this one starts
// meanwhile would hold a file that is written here, and one that somebody writes
// cannot be executed.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
}
