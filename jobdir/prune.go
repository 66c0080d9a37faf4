package jobdir

import "time"

// Retention is how long an ended job is kept by default.
const hiddenAge = time.Hour

const Retention = 7 * 24 * time.Hour

// RecordLost writes down that a job is lost, if it is. It reports false when
// the job is running or has an end already, or another process is writing it
// down. The errors include ErrForeign, ErrNewerFormat and *DamagedError.
func (j *Job) RecordLost(now time.Time) (recorded bool, err error) { panic("TODO") }

// PruneReport says what Prune did.
type PruneReport struct {
	Removed  []ID     // newest first
	Recorded []ID     // lost jobs that were written down, and are kept from now on
	Kept     int      // jobs that are still there
	Swept    []string // hidden leftovers, and keys of no job
	Errors   []error  // what could not be done; the rest was
}

// Prune removes the jobs that ended more than olderThan before now, unless
// veto says to keep one. veto may be nil.
func (r *Root) Prune(olderThan time.Duration, now time.Time, veto func(ID) bool) (PruneReport, error) {
	panic("TODO")
}

// Problem is something wrong with an entry of the jobs directory.
type Problem struct {
	ID   ID     // "" when the entry has no id's name
	Name string // the entry
	File string // the file in it, "" when it is the entry itself
	What string
}

// Check verifies every job directory, and changes nothing.
func (r *Root) Check() ([]Problem, error) { panic("TODO") }
