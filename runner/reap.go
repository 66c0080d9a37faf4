package runner

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// started are the runners that are children of this process and were not waited
// for. A number in it is a child's own: only reap gives it back to the system.
var started children

type children struct {
	mu   sync.Mutex
	pids []int
}

func (c *children) add(pid int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pids = append(c.pids, pid)
}

// reap takes away a child that has ended. It reports whether it is gone.
func (c *children) reap(pid int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.pids, pid)
	if i < 0 {
		return true
	}
	if !gone(pid) {
		return false
	}
	c.pids = slices.Delete(c.pids, i, i+1)
	return true
}

func gone(pid int) bool {
	done, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
	return done != 0 && err != unix.EINTR
}

// Reap takes away the runners that this process has started and that have ended,
// and no other child of it. A process that lives on after Start calls it when it
// gets a CHLD: until then such a runner is a zombie. Whoever ends soon leaves them
// to init.
func Reap() {
	started.mu.Lock()
	defer started.mu.Unlock()
	started.pids = slices.DeleteFunc(started.pids, gone)
}
