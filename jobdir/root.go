package jobdir

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"space-job/jobdir/record"
)

// ID names a job. See [record.ID].
type ID = record.ID

// State is where a job stands. See [record.State].
type State = record.State

// The states of a job. It only ever goes from Running to one of the others,
// once.
const (
	Running   = record.Running
	Exited    = record.Exited
	Cancelled = record.Cancelled
	TimedOut  = record.TimedOut
	Lost      = record.Lost
)

// Errors that callers match with errors.Is.
var (
	ErrNotFound    = errors.New("no such job")                               // never was, or has been removed
	ErrNotRegular  = errors.New("is not a regular file")                     // a file of a job that is something else
	ErrForeign     = errors.New("ran on another machine")                    // only that machine may write the job down
	ErrNewerFormat = errors.New("was written by a newer version: read-only") // cmd has a format above Format
)

// RootError is a root that is refused.
type RootError struct {
	Path   string
	Reason string
}

func (e *RootError) Error() string { return fmt.Sprintf("root %q: %s", e.Path, e.Reason) }

// InvalidIDError is a string that cannot name a job.
type InvalidIDError struct{ Given string }

func (e *InvalidIDError) Error() string {
	return fmt.Sprintf("job %q: not an id (j and 12 hex digits, or the last 4 and more of them)", e.Given)
}

// AmbiguousError is the end of more than one id.
type AmbiguousError struct {
	Given      string
	Candidates []ID // newest first
}

func (e *AmbiguousError) Error() string {
	ids := make([]string, len(e.Candidates))
	for i, id := range e.Candidates {
		ids[i] = string(id)
	}
	return fmt.Sprintf("job %q: fits %d jobs: %s", e.Given, len(ids), strings.Join(ids, " "))
}

// DamagedError is a job whose files cannot be read as one.
type DamagedError struct {
	ID     ID
	Reason string
}

func (e *DamagedError) Error() string { return fmt.Sprintf("job %s is damaged: %s", e.ID, e.Reason) }

// Root is the directory that holds all jobs of a user.
type Root struct{ path string }

// DefaultRoot is $SPACE_JOB_HOME, else $XDG_STATE_HOME/space-job, else
// ~/.local/state/space-job. A variable that is set but not absolute is an
// error, never passed over.
func DefaultRoot() (string, error) { panic("TODO") }

// OpenRoot opens a root for reading. One that does not exist yet is empty; one
// that another user owns, or others may write, is refused with a *RootError.
func OpenRoot(path string) (*Root, error) { panic("TODO") }

// Create makes the root and its directories with mode 0700, whatever the
// umask, and checks those that exist.
func (r *Root) Create() error { panic("TODO") }

// Path is the root's absolute path.
func (r *Root) Path() string { return r.path }

// IDs lists all jobs, newest first. It reads names only.
func (r *Root) IDs() ([]ID, error) { panic("TODO") }

// NewestIDs lists the n newest jobs, newest first, and counts all. It is what
// a list of a few among many thousands should call.
func (r *Root) NewestIDs(n int) (ids []ID, total int, err error) { panic("TODO") }

// Resolve turns what a caller gave into the id of a job that exists: an id in
// full, or the end of exactly one, four hex digits at least. The errors are
// *InvalidIDError, ErrNotFound and *AmbiguousError.
func (r *Root) Resolve(s string) (ID, error) { panic("TODO") }

// Newest is the newest job, or ErrNotFound.
func (r *Root) Newest() (ID, error) { panic("TODO") }

// Job is a handle for a job, whether it exists or not. It does no I/O.
func (r *Root) Job(id ID) *Job { return &Job{root: r, id: id} }

// FSInfo describes the file system of a root.
type FSInfo struct {
	Type        string // "ext4", "nfs", or the number in hex where it has no known name
	Network     bool   // a lock there proves something only inside the kernel that took it
	ReadOnly    bool
	TotalBytes  uint64
	FreeBytes   uint64 // for this user
	TotalInodes uint64 // 0: the file system does not count them
	FreeInodes  uint64
}

// FileSystem looks at the file system that holds the root, or will hold it.
func (r *Root) FileSystem() (FSInfo, error) { panic("TODO") }

// Job is one job directory.
type Job struct {
	root *Root
	id   ID
}

// ID is the job's id.
func (j *Job) ID() ID { return j.id }

// Dir is the job's directory.
func (j *Job) Dir() string { return filepath.Join(j.root.path, record.Jobs, string(j.id)) }

// State is the cheap look: exit, lock, exit again. The errors are ErrNotFound,
// *DamagedError, and those of reading.
func (j *Job) State() (State, error) { panic("TODO") }

// Read reads everything that the files say. The only errors are ErrNotFound
// and those of reading: a damaged job is described, see Info.Damaged.
func (j *Job) Read() (*Info, error) { panic("TODO") }

// Info is what the files of a job say.
type Info struct {
	ID      ID
	Dir     string
	Cmd     *Cmd   // nil when damaged
	State   State  // "" when damaged
	Damaged string // why the directory cannot be read as a job, else ""

	Process *record.ProcessRecord // nil: not started yet, or not readable
	Timing  *record.TimingRecord  // nil unless State is exited, cancelled or timed_out
	Exit    *record.ExitRecord    // nil: running, or lost and not yet written down
	Dropped *record.DroppedRecord // nil: nothing is missing in the log
	Cancel  *record.CancelRecord  // nil: nobody asked

	LogBytes     int64      // present size
	LastOutputAt *time.Time // nil: no output yet
	Foreign      bool       // lost as seen from another boot: shown so, not to be written down here
}

// ExitRead is what one look at exit found: nil when it is absent, empty, torn
// or says nothing valid.
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
