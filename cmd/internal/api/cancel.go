package api

import (
	"context"
	"errors"
	"strings"
	"sync"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/runner"
)

// CancelRequest is jobs to stop.
type CancelRequest struct {
	Jobs   []string
	Reason string
	Nested bool // the running jobs that were started from within them, too
}

// CancelResult is how one job ended.
type CancelResult struct {
	Job        jobdir.ID    `json:"job"`
	State      jobdir.State `json:"state"`
	ExitCode   *int         `json:"exit_code"`
	DurationMS *int64       `json:"duration_ms"`
	Ended      bool         `json:"already_ended"`  // before it was asked to
	Stopped    int          `json:"stopped"`        // processes that an ended job had left
	Left       []Process    `json:"left_processes"` // null where they cannot be looked at
	Nested     []NestedJob  `json:"nested"`         // running jobs that were started from within
	Error      *Error       `json:"error"`
}

// NestedJob is a job that was started from within another.
type NestedJob struct {
	Job   jobdir.ID    `json:"job"`
	State jobdir.State `json:"state"` // running: it goes on
}

// Cancel stops jobs and everything that they started, all at once, and returns
// when they have ended. Of a job that has ended it stops the processes that it
// left. The results are in the order given; what went wrong with one is in its
// result.
func (a *Actions) Cancel(ctx context.Context, req CancelRequest) ([]CancelResult, error) {
	if a.away != nil {
		return a.cancelThere(ctx, req)
	}
	if err := checkCancel(&req); err != nil {
		return nil, err
	}
	jobs, err := a.jobs(req.Jobs)
	if err != nil {
		return nil, err
	}
	results := a.cancelAll(ctx, jobs, req.Reason)
	for i := range results {
		a.nested(ctx, &results[i], req)
	}
	return results, ctx.Err()
}

func checkCancel(req *CancelRequest) error {
	switch {
	case len(req.Jobs) == 0:
		return &Error{Code: InvalidArgument, Message: "job: no id is given", Hint: "see which there are: space-job list"}
	case strings.IndexByte(req.Reason, 0) >= 0:
		return invalid("reason", req.Reason, "holds a NUL byte")
	case len(req.Reason) > MaxReason:
		return invalid("reason", req.Reason, "is too long: at most 1024 bytes")
	}
	return nil
}

func (a *Actions) cancelAll(ctx context.Context, jobs []*jobdir.Job, reason string) []CancelResult {
	results := make([]CancelResult, len(jobs))
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() { results[i] = a.cancel(ctx, j, reason) })
	}
	all.Wait()
	return results
}

// nested stops, or at least names, the jobs from within a cancelled one.
func (a *Actions) nested(ctx context.Context, res *CancelResult, req CancelRequest) {
	if res.Error != nil {
		return
	}
	// A job may start another while it is being stopped, so look again.
	for ctx.Err() == nil {
		inner, err := a.inner(res.Job)
		if err != nil {
			res.Error = AsError(fault(err))
			return
		}
		if !req.Nested {
			for _, j := range inner {
				res.Nested = append(res.Nested, NestedJob{j.ID(), jobdir.Running})
			}
			return
		}
		if len(inner) == 0 {
			return
		}
		for _, r := range a.cancelAll(ctx, inner, req.Reason) {
			res.Nested = append(res.Nested, NestedJob{r.Job, r.State})
			if r.Error != nil {
				res.Error = r.Error
			}
		}
		if res.Error != nil {
			return
		}
	}
}

func (a *Actions) cancel(ctx context.Context, j *jobdir.Job, reason string) CancelResult {
	res := CancelResult{Job: j.ID(), Left: []Process{}, Nested: []NestedJob{}}
	state, alive, err := alive(j)
	if alive {
		if err = a.ask(ctx, j, reason); err == nil {
			state, err = stateOf(j)
		}
	} else {
		res.Ended = true
	}
	var info *jobdir.Info
	if err == nil {
		info, err = readInfo(j)
	}
	if err != nil {
		res.State, res.Error = state, AsError(fault(err))
		return res
	}
	e := entry(info)
	res.State, res.ExitCode, res.DurationMS = state, e.ExitCode, e.DurationMS
	if info.Foreign {
		res.Error = &Error{Code: Unavailable, Message: "job " + string(j.ID()) + " ran on another machine, so what it left cannot be looked for here"}
		return res
	}
	var left []runner.Process
	switch {
	case res.Ended || state != jobdir.Cancelled:
		res.Stopped, left, err = runner.StopLeft(ctx, j.Dir())
	case info.Exit != nil && info.Exit.Left > 0: // else all are gone, and a look at every process costs time
		left, err = runner.Left(j.Dir())
	}
	res.Left = processesOf(left)
	if err != nil {
		if left == nil {
			res.Left = nil
		}
		res.Error = AsError(fault(err))
	} else if len(left) > 0 {
		res.Error = &Error{Code: Unavailable, Message: "job " + string(j.ID()) + ": processes that could not be stopped: " + processes(res.Left)}
	}
	return res
}

// alive is a job's state and whether there is a runner to ask: a damaged job's
// may live. Only the lock tells.
func alive(j *jobdir.Job) (jobdir.State, bool, error) {
	state, err := stateOf(j)
	if err != nil || state != Damaged {
		return state, state == jobdir.Running, err
	}
	held, err := j.Alive()
	if errors.As(err, new(*jobdir.DamagedError)) { // no directory at all
		return state, false, nil
	}
	return state, held, jobFault(j, err)
}

// ask asks the runner, and waits until the job has ended.
func (a *Actions) ask(ctx context.Context, j *jobdir.Job, reason string) error {
	if info, err := j.Read(); err == nil && info.Cmd != nil && info.Cmd.ReadOnly() {
		return &Error{Code: Unavailable, Message: "job " + string(j.ID()) + " was started by a newer space-job, which has to cancel it"}
	}
	return runner.Cancel(ctx, j.Dir(), record.CancelRecord{At: a.now(), By: a.caller(), Reason: reason})
}

func processes(l []Process) string {
	var b []byte
	for i, p := range l {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, p.String()...)
	}
	return string(b)
}

// inner are the running jobs that were started from within a job, or from
// within a job that was, and so on.
func (a *Actions) inner(outer jobdir.ID) ([]*jobdir.Job, error) {
	ids, err := a.root.IDs()
	if err != nil {
		return nil, err
	}
	parents := make(map[jobdir.ID]jobdir.ID)
	parent := func(id jobdir.ID) jobdir.ID {
		p, ok := parents[id]
		if !ok {
			if info, err := a.root.Job(id).Read(); err == nil && info.Cmd != nil {
				p = jobdir.ID(info.Cmd.StartedBy.Job)
			}
			parents[id] = p
		}
		return p
	}
	var inner []*jobdir.Job
	for _, id := range ids {
		if id <= outer { // newest first: what is inner came later
			break
		}
		j := a.root.Job(id)
		if s, err := stateOf(j); err != nil || s != jobdir.Running {
			continue
		}
		up := id
		for next := parent(up); next >= outer && next < up; next = parent(up) {
			if up = next; up == outer {
				inner = append(inner, j)
				break
			}
		}
	}
	return inner, nil
}
