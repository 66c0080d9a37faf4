package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"space-job/jobdir"
)

// CodeAskAgain is what a wait exits with that ended before the job.
const CodeAskAgain = 75

// WaitRequest is jobs to wait for.
type WaitRequest struct {
	Jobs    []string
	Any     bool          // until the first has ended
	Timeout time.Duration // 0: none
	Look    bool          // do not wait: only look
}

// WaitResult is how the jobs stand after the wait.
type WaitResult struct {
	Jobs []Entry // in the order given; for Any the first to end
	Code int     // 0 if all are, else the first other one in that order
}

// Resolve is the ids of jobs that a caller named.
func (a *Actions) Resolve(given []string) ([]string, error) {
	if a.away != nil {
		return given, nil // the Space does
	}
	jobs, err := a.jobs(given)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(jobs))
	for i, j := range jobs {
		out[i] = string(j.ID())
	}
	return out, nil
}

func checkWait(req *WaitRequest) error {
	if len(req.Jobs) == 0 {
		return &Error{Code: InvalidArgument, Message: "job: no id is given", Hint: "see which there are: space-job list"}
	}
	if req.Timeout < 0 {
		return invalid("timeout", req.Timeout.String(), "is not above zero")
	}
	return nil
}

// Wait waits until all jobs, or any, have ended.
func (a *Actions) Wait(ctx context.Context, req WaitRequest) (WaitResult, error) {
	if a.away != nil {
		return a.waitThere(ctx, req)
	}
	var res WaitResult
	if err := checkWait(&req); err != nil {
		return res, err
	}
	jobs, err := a.jobs(req.Jobs)
	if err != nil {
		return res, err
	}
	limited := ctx
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, req.Timeout)
		defer cancel()
	}
	look := await
	if req.Look {
		look = hasEnded
	}
	ended, err := look(limited, jobs, req.Any)
	if ctx.Err() != nil {
		return res, ctx.Err()
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return res, err
	}
	inTime := err == nil
	if req.Any && inTime {
		jobs = jobs[ended : ended+1]
	}
	for _, j := range jobs {
		info, err := readInfo(j)
		if err != nil {
			return res, err
		}
		res.Jobs = append(res.Jobs, a.entry(info))
	}
	if !inTime {
		res.Code = CodeAskAgain
		return res, nil
	}
	for i := range res.Jobs {
		if c := res.Jobs[i].Code(); c != 0 {
			res.Code = c
			break
		}
	}
	return res, nil
}

// await waits for all jobs; or for the first, and says which it is.
func await(ctx context.Context, jobs []*jobdir.Job, first bool) (int, error) {
	if first { // of those that have ended, the first in the order given
		if i, err := hasEnded(ctx, jobs, true); !errors.Is(err, context.DeadlineExceeded) {
			return i, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type end struct {
		i   int
		err error
	}
	ends := make(chan end, len(jobs))
	for i, j := range jobs {
		go func() {
			_, err := j.WaitEnd(ctx)
			ends <- end{i, jobFault(j, err)}
		}()
	}
	for range jobs {
		e := <-ends
		if e.err != nil || first {
			return e.i, e.err
		}
	}
	return 0, nil
}

// hasEnded looks once at what await waits for. What has not ended is a deadline
// that is exceeded.
func hasEnded(_ context.Context, jobs []*jobdir.Job, first bool) (int, error) {
	for i, j := range jobs {
		s, err := j.State()
		switch {
		case err != nil:
			return i, jobFault(j, err) // a damaged one has no end
		case s != jobdir.Running && first:
			return i, nil
		case s == jobdir.Running && !first:
			return i, context.DeadlineExceeded
		}
	}
	if first {
		return 0, context.DeadlineExceeded
	}
	return 0, nil
}

// Code is the exit code that stands for how a job ended.
func (e *Entry) Code() int {
	if e.State == jobdir.Running {
		return CodeAskAgain
	}
	return jobdir.EndCode(e.State, e.ExitCode)
}

// Before is how long the command of a job took the last time that it ran to
// its end in the same directory. The newest 200 jobs are looked at.
func (a *Actions) Before(given string) (time.Duration, bool) {
	const most = 200
	j, err := a.job(given)
	if err != nil {
		return 0, false
	}
	this, err := j.Read()
	if err != nil || this.Cmd == nil {
		return 0, false
	}
	l, err := a.root.List(most)
	if err != nil {
		return 0, false
	}
	for _, id := range l.Newest {
		if id >= this.ID {
			continue
		}
		info, err := a.root.Job(id).Read()
		if err == nil && info.State == jobdir.Exited && info.Timing != nil && info.Cmd != nil &&
			info.Cmd.Cwd == this.Cmd.Cwd && slices.Equal(info.Cmd.Argv, this.Cmd.Argv) {
			return time.Duration(info.Timing.DurationMS) * time.Millisecond, true
		}
	}
	return 0, false
}
