package jobdir

import "space-job/jobdir/record"

// ExitRead is what one look at exit found: nil when it is absent, empty, torn
// or says nothing that can be true.
type ExitRead = *record.ExitRecord

// Derive is the state of a job from what was looked at, in this order: exit,
// the lock on pid, exit again. The second look closes the gap in which a job
// ends between the first look and the lock.
func Derive(first ExitRead, held bool, again ExitRead) State {
	switch {
	case first != nil:
		return first.State
	case held:
		return Running
	case again != nil:
		return again.State
	}
	return Lost
}

// Exit codes that stand for an end without an exit code of its own.
const (
	CodeTimedOut  = 124
	CodeLost      = 125
	CodeCancelled = 143
)

// EndCode is the exit code that stands for how a job ended; code is its own,
// nil where it has none.
func EndCode(s State, code *int) int {
	switch {
	case s == Exited && code != nil:
		return *code
	case s == TimedOut:
		return CodeTimedOut
	case s == Cancelled:
		return CodeCancelled
	}
	return CodeLost
}
