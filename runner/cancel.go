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
	sig := sigLook
	written := false
	pause := time.Millisecond
	for asked := (time.Time{}); ; {
		if over, err := ended(d); over || err != nil {
			return err
		}
		if !written {
			written = true
			switch err := fillCancel(d, req); err {
			case nil:
			case unix.EROFS, unix.ENOSPC, unix.EDQUOT, unix.EIO:
				sig = sigStop // the disk takes no request: the signal is one
			default:
				return &fs.PathError{Op: "write", Path: path.Join(dir, record.Cancel), Err: err}
			}
			crash("cancel.written")
		}
		if now := time.Now(); now.Sub(asked) >= askEvery {
			asked = now
			signalRunner(d, sig)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(pause*2, 10*time.Millisecond)
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

// signalRunner sends sig to the runner, if its pid file names a process that is
// provably it: same boot, same start time, and the lock held throughout. No
// pid yet: the file is enough, the runner looks at it after its fork.
func signalRunner(dir int, sig unix.Signal) {
	p, ok := readPid(dir)
	if !ok || p.BootID != record.BootID() {
		return
	}
	if over, err := ended(dir); over || err != nil {
		return
	}
	runner := process{pid: p.RunnerPID, start: p.RunnerStart}
	if sig == sigStop {
		_ = runner.queue(sig, stopValue)
	} else {
		_ = runner.signal(sig)
	}
	_ = runner.signal(unix.SIGCONT) // somebody may have stopped it
}

func readPid(dir int) (record.ProcessRecord, bool) {
	b, err := readRecord(dir, record.Pid)
	if err != nil {
		return record.ProcessRecord{}, false
	}
	return record.ParseProcess(b)
}
