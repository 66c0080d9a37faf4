package api

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"space-job/notify"
)

// TestDaemonNotReady: a daemon that has just been started is not told of what is
// new, which would end it: it looks by itself.
func TestDaemonNotReady(t *testing.T) {
	t.Parallel()
	a := newRootActions(t)
	lock, err := notify.TakeLock(a.root)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	daemon := exec.Command("sleep", "100") // as one that does not catch a SIGHUP yet
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	if err := lock.SignFor(daemon.Process.Pid, time.Now()); err != nil {
		t.Fatal(err)
	}
	if r, held := notify.DaemonOf(a.root); !held || r.PID != daemon.Process.Pid || r.Ready {
		t.Errorf("%v, %+v", held, r)
	}
	a.wakeDaemon()
	// A second signal would come after the first.
	_ = daemon.Process.Signal(syscall.SIGTERM)
	_ = daemon.Wait()
	if s := daemon.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGTERM {
		t.Errorf("ended by %v", s.Signal())
	}
	if err := lock.Sign("", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := lock.SignFor(os.Getpid(), time.Now()); err != nil { // by a starter that comes late
		t.Fatal(err)
	}
	if r, held := notify.DaemonOf(a.root); !held || !r.Ready {
		t.Errorf("%v, %+v", held, r)
	}
}
