package runner

import (
	"context"
	"io/fs"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// Process is a process of a job that has ended and that still runs.
type Process struct {
	PID  int
	Name string
}

// Left finds the processes of the ended or lost job in dir that still run: those
// of its session in the same boot, those with its id in their first
// environment, and what is below either. Other jobs are not among them. It fails
// where processes cannot be looked at.
func Left(dir string) ([]Process, error) {
	find, err := leftOf(dir)
	if err != nil {
		return nil, err
	}
	procs, _, err := find()
	return public(procs), err
}

// StopLeft ends the processes that Left finds, as a cancel ends a tree, and
// returns how many it ended and which it could not. The job's records stay as
// they are.
func StopLeft(ctx context.Context, dir string) (stopped int, remaining []Process, err error) {
	find, err := leftOf(dir)
	if err != nil {
		return 0, nil, err
	}
	if rest, _, err := find(); err != nil || len(rest) == 0 {
		return 0, nil, err
	}
	s := newStopper(time.Now(), func() ([]process, bool) {
		procs, sure, err := find()
		return procs, sure || err != nil
	})
	for !s.turn(time.Now()) {
		if err := sleep(ctx, time.Until(s.next)); err != nil {
			return 0, public(s.rest), err
		}
	}
	for _, p := range s.rest {
		delete(s.stopped, p.pid)
	}
	return len(s.stopped), public(s.rest), nil
}

func public(procs []process) []Process {
	var out []Process
	for _, p := range procs {
		out = append(out, Process{PID: p.pid, Name: p.comm})
	}
	return out
}

// leftOf is how the leftovers of the job in dir are found.
func leftOf(dir string) (find func() (live []process, sure bool, err error), err error) {
	d, err := record.Open(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(d)
	s := search{id: path.Base(dir), root: path.Dir(path.Dir(dir)), me: unix.Getpid(), stuck: stuck{}}
	if p, ok := readPid(d); ok && p.BootID == record.BootID() { // else its numbers are another boot's
		s.session, s.from = p.ChildPID, p.ChildStart
		s.runner = process{pid: p.RunnerPID, start: p.RunnerStart}
	}
	return func() (live []process, sure bool, err error) {
		all, ok := everyProcess()
		if !ok {
			return nil, false, &fs.PathError{Op: "look for processes in", Path: "/proc", Err: unix.ENOENT}
		}
		live, sure = s.among(all, markOf)
		return live, sure, nil
	}, nil
}
