package runner

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// What a runner listens to. The user's two signals, and not TERM: those the Go
// runtime leaves blocked in the threads that it makes, so that they are read
// where the loop reads them; it unblocks TERM, HUP and INT in every new thread,
// whatever the process began with, and there they are lost.
const (
	sigLook = unix.SIGUSR1 // the cancel file has been filled in
	sigStop = unix.SIGUSR2 // cancel: the disk takes no request
)

// stopValue comes with a sigStop that is meant, where the system can send one: a
// plain kill -USR2 cancels nothing.
const stopValue = 0x6a6f62

// resetIgnoredSignals gives every ignored signal its default disposition.
func resetIgnoredSignals() {
	for sig := 1; sig <= lastSignal; sig++ {
		if getHandler(sig) == sigIgnore {
			setHandler(sig, sigDefault)
		}
	}
}

// ignoreTermination makes the process deaf to the signals that would end it
// while its mask is empty, which is the moment of the fork: a child inherits
// the mask of the thread that forks it. The Go runtime resets in the child what
// it handles itself, so the command still starts with default dispositions.
// CHLD stays: ignored, it would throw exit statuses away.
func ignoreTermination() {
	for sig := 1; sig <= lastSignal; sig++ {
		switch syscall.Signal(sig) {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGCONT, unix.SIGURG,
			32, 33, 34, // a C library's own, where one is linked: see catchUnused
			unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, // stop, do not end; not reset in the child
			unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP: // the runner's own faults
			continue
		}
		if h := getHandler(sig); h != sigDefault && h != sigIgnore {
			setHandler(sig, sigIgnore)
		}
	}
	catchUnused()
}
