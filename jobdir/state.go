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
