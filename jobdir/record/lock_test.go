package record

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// within fails a test that waits for what never comes.
const within = 10 * time.Second

// holder starts a process that locks path, and returns what it says.
func holder(t *testing.T, how, path string) (says *bufio.Reader, kill func()) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "RECORD_TEST_LOCK="+how+":"+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		_, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	kill = func() {
		once.Do(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
	t.Cleanup(kill)
	return bufio.NewReader(out), kill
}

func expect(t *testing.T, r *bufio.Reader, want string) {
	t.Helper()
	timer := time.AfterFunc(within, func() { panic("the other process says nothing") })
	defer timer.Stop()
	if got, err := r.ReadString('\n'); got != want+"\n" {
		t.Fatalf("the other process says %q, %v; want %q", got, err, want)
	}
}

func openFile(t *testing.T, path string) int {
	t.Helper()
	fd, err := Open(unix.AT_FDCWD, path, unix.O_RDWR|unix.O_CREAT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func wantHeld(t *testing.T, fd int, want bool) {
	t.Helper()
	if held, err := Held(fd); held != want || err != nil {
		t.Errorf("held %v, %v; want %v", held, err, want)
	}
}

// TestLock: a child holds, the parent looks, and a kill frees at once.
func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	fd := openFile(t, path)
	wantHeld(t, fd, false)
	says, kill := holder(t, "exclusive", path)
	expect(t, says, "<nil>")
	for range 100 { // looking takes nothing
		wantHeld(t, fd, true)
	}
	if err := Lock(fd); err != ErrLocked {
		t.Errorf("Lock: %v", err)
	}
	if err := LockShared(fd); err != ErrLocked {
		t.Errorf("LockShared: %v", err)
	}
	readOnly, err := Open(unix.AT_FDCWD, path, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(readOnly)
	wantHeld(t, readOnly, true)

	kill() // returns when the process has been waited for
	wantHeld(t, fd, false)
	if err := Lock(fd); err != nil {
		t.Errorf("Lock of what the dead held: %v", err)
	}
	wantHeld(t, readOnly, true)
}

// TestRecorder: who writes down that a job is lost keeps runners and other
// recorders out, and no reader takes it for a runner.
func TestRecorder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pid, cmd := filepath.Join(dir, Pid), filepath.Join(dir, Cmd)
	pidFD, cmdFD := openFile(t, pid), openFile(t, cmd)
	says, killPid := holder(t, "shared", pid)
	expect(t, says, "<nil>")
	says, killCmd := holder(t, "exclusive", cmd)
	expect(t, says, "<nil>")
	for range 100 {
		wantHeld(t, pidFD, false)
	}
	if err := Lock(pidFD); err != ErrLocked {
		t.Errorf("a runner beside a recorder: %v", err)
	}
	if err := LockShared(pidFD); err != nil {
		t.Errorf("a second recorder, on pid: %v", err)
	}
	if err := Lock(cmdFD); err != ErrLocked {
		t.Errorf("a second recorder, on cmd: %v", err)
	}
	killPid()
	killCmd()
	if err := Lock(cmdFD); err != nil {
		t.Errorf("after the recorder was killed: %v", err)
	}
	if err := Lock(pidFD); err != nil { // from shared to exclusive
		t.Errorf("after the recorder was killed: %v", err)
	}
}

// TestLockWait: the wait ends when the holder is killed.
func TestLockWait(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	fd := openFile(t, path)
	first, kill := holder(t, "exclusive", path)
	expect(t, first, "<nil>")
	second, _ := holder(t, "wait", path)
	expect(t, second, "waiting")
	wantHeld(t, fd, true)
	kill()
	expect(t, second, "<nil>")
	wantHeld(t, fd, true)
}

// TestLockPassesThroughExec: the lock belongs to the open file, so the runner
// has it from the starter without an instant in which it is free.
func TestLockPassesThroughExec(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	fd := openFile(t, path)
	mine, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := Lock(int(mine.Fd())); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("cat")
	cmd.ExtraFiles = []*os.File{mine}
	stop, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	mine.Close()
	wantHeld(t, fd, true)
	stop.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, fd, false)
}
