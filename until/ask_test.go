package until

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestAskers: each kind tells of an answer that is not the usual one, of
// nothing else but that the time has come to look again, and ends when it is
// stopped, also while it waits.
func TestAskers(t *testing.T) {
	t.Parallel()
	for name, mk := range map[string]func(time.Duration, []*question) asker{
		"this system's": newAsker,
		"timer":         func(d time.Duration, q []*question) asker { return newTimerAsker(d, q) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "x")
			never, later := askPath(filepath.Join(file, "y")), askPath(file)
			never.usual.Store(uint32(never.do()))
			later.usual.Store(uint32(later.do()))
			if e := syscall.Errno(later.usual.Load()); e != syscall.ENOENT {
				t.Fatalf("a path that is not there: %v", e)
			}
			a := mk(anyway/3, []*question{never, later})
			switch a := a.(type) {
			case *timerAsker:
				a.t.Reset(time.Millisecond)
			case interface {
				set(first, pace time.Duration) syscall.Errno
			}:
				a.set(time.Millisecond, time.Millisecond)
			}
			for range 2 {
				if i, _, ok := a.wait(); i != -1 || !ok {
					t.Fatalf("after three ticks: question %d, %v", i, ok)
				}
			}
			write(t, file, "")
			// The name below it answers otherwise, too, and is asked first.
			if i, errno, ok := a.wait(); i != 0 || errno != syscall.ENOTDIR || !ok {
				t.Fatalf("question %d: %v, %v", i, errno, ok)
			}
			never.usual.Store(uint32(never.do()))
			if i, errno, ok := a.wait(); i != 1 || errno != 0 || !ok {
				t.Fatalf("question %d: %v, %v", i, errno, ok)
			}
			later.usual.Store(0)

			ended := make(chan bool)
			go func() {
				for {
					if _, _, ok := a.wait(); !ok {
						close(ended)
						return
					}
				}
			}()
			a.stop()
			<-ended
			a.close()
		})
	}
}
