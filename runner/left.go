package runner

import (
	"context"
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
// environment, and what is below either. Other jobs are not among them.
func Left(dir string) ([]Process, error) {
	find, err := leftOf(dir)
	if err != nil {
		return nil, err
	}
	procs, _ := find()
	return public(procs), nil
}

// StopLeft ends the processes that Left finds, as a cancel ends a tree, and
// returns how many it ended and which it could not. The job's records stay as
// they are.
func StopLeft(ctx context.Context, dir string) (stopped int, remaining []Process, err error) {
	find, err := leftOf(dir)
	if err != nil {
		return 0, nil, err
	}
	s := newStopper(time.Now(), func() ([]process, bool) { procs, _ := find(); return procs, true })
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
func leftOf(dir string) (find func() ([]process, bool), err error) {
	id := path.Base(dir)
	root := path.Dir(path.Dir(dir))
	d, err := record.Open(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(d)
	p, ok := readPid(d)
	if !ok || p.BootID != record.BootID() {
		p.ChildPID = 0 // its numbers are another boot's
	}
	me := unix.Getpid()
	return func() ([]process, bool) {
		all, ok := everyProcess()
		return leftAmong(all, p, me, func(pid int) (string, string) { return jobOf(firstEnvironment(pid)) }, id, root), ok
	}, nil
}

// leftAmong picks from all processes those that the job left. jobOf reads the
// job and root out of a process's first environment.
func leftAmong(all []process, rec record.ProcessRecord, me int, jobOf func(int) (string, string), id, root string) []process {
	session := rec.ChildPID
	for _, p := range all {
		if p.pid == session && p.start != rec.ChildStart {
			session = 0 // the number is a stranger's by now
		}
	}
	kids := map[int][]process{}
	var queue []process
	for _, p := range all {
		kids[p.ppid] = append(kids[p.ppid], p)
		if p.pid == me || p.pid == 1 {
			continue
		}
		job, home := jobOf(p.pid)
		ours := job == id && (home == "" || path.Clean(home) == root)
		if ours && p.pid == rec.RunnerPID && p.start == rec.RunnerStart {
			continue // the runner stays while something can write to the log
		}
		if ours || session != 0 && p.sid == session && !isOther(job, home, id, root) {
			queue = append(queue, p)
		}
	}
	seen := map[int]bool{me: true}
	var out []process
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if seen[p.pid] {
			continue
		}
		seen[p.pid] = true
		if !p.zombie {
			out = append(out, p)
		}
		for _, k := range kids[p.pid] {
			if job, home := jobOf(k.pid); !isOther(job, home, id, root) {
				queue = append(queue, k)
			}
		}
	}
	return out
}
