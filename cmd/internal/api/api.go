// Package api is what can be done with the jobs of a root, each action defined
// once: Start, Logs, Status, Cancel, List, Wait, Prune, Check, Doctor. The
// fronts (the command line first of all) parse a request, call an action and
// encode what it returns; they decide nothing.
//
// Requests and results are plain structs; the json tags of the results are the
// shapes that every front shows. Every failure is an [*Error].
//
// Actions that read never create anything, not even the root. An action that
// starts a job leaves the runner as a child of the calling process: one that lives
// on calls [Reap] when a child of it has ended.
//
// In a root that has joined the thread of another Space, what concerns the thread
// and the inboxes of those who have joined is asked of that (see package link), and
// [Actions.Answer] is the other end: what a child asks for is done here as that
// member. What is said while the parent cannot be reached waits, under its key.
package api

import (
	"os"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// Actions are the actions on the jobs of one root.
type Actions struct {
	root *jobdir.Root
	now  func() time.Time

	bound *thread.Author // who asks, in every call; nil: see Identity

	entries *thread.Thread // what thread returns is the same as
	served  *served
	carry   Carrier // nil: runCarrier
	local   bool    // the thread is that of this root, whatever it has joined

	away *elsewhere // the jobs are those of another Space; nil: of the root

	// The key of what is posted, "" for none: see thread.Post.
	key      string
	keyAfter int64
}

// Open opens the root that the environment names: $SPACE_JOB_HOME, else
// $XDG_STATE_HOME/space-job, else ~/.local/state/space-job. It need not exist.
func Open() (*Actions, error) {
	path, err := jobdir.DefaultRoot()
	if err != nil {
		return nil, fault(err)
	}
	return OpenRoot(path)
}

// OpenRoot opens a root by its path.
func OpenRoot(path string) (*Actions, error) {
	root, err := jobdir.OpenRoot(path)
	if err != nil {
		return nil, fault(err)
	}
	return &Actions{root: root, now: time.Now, entries: thread.Open(root), served: new(served)}, nil
}

// job is the job that a caller named, or the newest one for "".
func (a *Actions) job(given string) (*jobdir.Job, error) {
	if given == "" {
		id, err := a.root.Newest()
		if err != nil {
			if f := AsError(fault(err)); f.Code == NotFound {
				return nil, &Error{Code: NotFound, Message: "there is no job yet", Hint: "start one: space-job start 'make test'", cause: err}
			}
			return nil, fault(err)
		}
		return a.root.Job(id), nil
	}
	id, err := a.root.Resolve(given)
	if err != nil {
		if f := AsError(fault(err)); f.Code == NotFound {
			return nil, notFound(given)
		}
		return nil, fault(err)
	}
	return a.root.Job(id), nil
}

// jobs are the jobs that a caller named, each once. One that is not there
// fails the whole call, before anything is done.
func (a *Actions) jobs(given []string) ([]*jobdir.Job, error) {
	out := make([]*jobdir.Job, 0, len(given))
	seen := make(map[jobdir.ID]bool, len(given))
	for _, g := range given {
		if g == "" {
			return nil, invalid("job", g, "is no id")
		}
		j, err := a.job(g)
		if err != nil {
			return nil, err
		}
		if !seen[j.ID()] {
			seen[j.ID()] = true
			out = append(out, j)
		}
	}
	return out, nil
}

// caller names who asks, for the record of a cancel.
func (a *Actions) caller() string {
	if a.bound != nil && a.bound.Member != "" {
		return a.bound.Member
	}
	if id := os.Getenv(record.EnvJob); id != "" {
		return "job " + id
	}
	if name := os.Getenv("LOGNAME"); name != "" {
		return name
	}
	return os.Getenv("USER")
}
