package runner

import (
	"context"
	"io/fs"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// askEvery is how often a runner that was asked to cancel is signalled again: it
// is deaf for the moment of its fork.
const askEvery = 100 * time.Millisecond

// A tree that obeys is gone, and its end recorded, within a few milliseconds,
// and a look costs some microseconds: for the time of obeying a canceller looks
// every millisecond, then less and less often.
const obeying = 50 * time.Millisecond

// Cancel asks the runner of the job in dir to stop it, and returns when the job
// has ended: its exit is there, or nobody holds its lock. The request is a file
// that the first canceller fills in; the runner does the killing. A job that
// has ended already is left as it is. Errors are *fs.PathError, or ctx's.
func Cancel(ctx context.Context, dir string, req record.CancelRecord) error {
	d, err := record.Open(unix.AT_FDCWD, dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	if over, err := ended(d); over || err != nil {
		return err
	}
	sig := sigLook
	switch err := fillCancel(d, req); err {
	case nil:
	case unix.EROFS, unix.ENOSPC, unix.EDQUOT, unix.EIO:
		sig = sigStop // the disk takes no request: the signal is one
	default:
		return &fs.PathError{Op: "write", Path: path.Join(dir, record.Cancel), Err: err}
	}
	crash("cancel.written")
	boot := record.BootID()
	pause := time.Millisecond
	first := time.Now()
	for asked := (time.Time{}); ; {
		var runner process
		now := time.Now()
		ask := now.Sub(asked) >= askEvery
		if ask {
			asked = now
			if runner, ask = namedRunner(d, boot); !ask && now.Sub(first) >= askEvery {
				runner, ask = findRunner(d, dir) // it was stopped before it could say who it is
			}
		}
		// Whoever was named before this look is the runner if the lock is held in it.
		if over, err := ended(d); over || err != nil {
			return err
		}
		if ask {
			runner.ask(sig)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		if now.Sub(first) > obeying {
			pause = min(pause*2, 10*time.Millisecond)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// ended reports whether the job's end is recorded or its lock is free.
func ended(dir int) (bool, error) {
	if whole(dir, record.Exit) {
		return true, nil
	}
	held, err := heldAt(dir)
	if e, ok := err.(*fs.PathError); ok && e.Err == unix.ENOENT {
		return true, nil
	}
	return !held, err
}

// fillCancel writes the request, unless somebody else's is there already.
func fillCancel(dir int, req record.CancelRecord) error {
	fd, err := unix.Openat(dir, record.Cancel, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := record.LockWait(fd); err != nil {
		return err
	}
	if filled(dir, record.Cancel) {
		return nil
	}
	err = record.Write(fd, req.Append(nil))
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}

// namedRunner is the process that the pid file names, if it is of this boot. No pid
// yet: the cancel file is enough, the runner looks at it after its fork.
func namedRunner(dir int, boot string) (process, bool) {
	p, ok := readPid(dir)
	return process{pid: p.RunnerPID, start: p.RunnerStart}, ok && p.BootID == boot
}

// ask sends sig to a runner, if its start time proves that it is still the
// same process.
func (p process) ask(sig unix.Signal) {
	if sig == sigStop {
		_ = p.queue(sig, stopValue)
	} else {
		_ = p.signal(sig)
	}
	_ = p.signal(unix.SIGCONT) // somebody may have stopped it
}

func readPid(dir int) (record.ProcessRecord, bool) {
	b, err := readRecord(dir, record.Pid)
	if err != nil {
		return record.ProcessRecord{}, false
	}
	return record.ParseProcess(b)
}
