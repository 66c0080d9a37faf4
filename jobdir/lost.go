package jobdir

import (
	"io/fs"
	"syscall"
	"time"

	"space-job/jobdir/record"
)

// RecordLost writes down that a job is lost, if it is. It reports false when
// the job is running or has an end already, or another process is writing it
// down. The errors include ErrForeign, ErrNewerFormat and *DamagedError.
func (j *Job) RecordLost(now time.Time) (recorded bool, err error) {
	d, err := j.open()
	if err != nil {
		return false, err
	}
	defer d.close()
	c, err := j.readCmd(d)
	if err != nil {
		return false, err
	}
	state, exit, err := j.look(d)
	if err != nil || state != Lost || exit != nil {
		return false, err
	}
	switch {
	case c.ReadOnly():
		return false, j.failed("record", record.Exit, ErrNewerFormat)
	case j.foreign(d.readProcess()):
		return false, j.failed("record", record.Exit, ErrForeign)
	}

	// No runner is alive, and readers still see the lock as free: a shared one.
	switch pid, err := d.open(record.Pid, syscall.O_RDONLY); err {
	case nil:
		defer syscall.Close(pid)
		if err := record.LockShared(pid); err == record.ErrLocked {
			return false, nil
		} else if err != nil {
			return false, j.failed("lock", record.Pid, err)
		}
	case syscall.ENOENT, ErrNotRegular: // nothing that a runner could hold
	default:
		return false, j.failed("open", record.Pid, err)
	}
	// No other recorder.
	cmd, err := d.open(record.Cmd, syscall.O_RDWR)
	if err != nil {
		return false, j.failed("open", record.Cmd, err)
	}
	defer syscall.Close(cmd)
	if err := record.Lock(cmd); err == record.ErrLocked {
		return false, nil
	} else if err != nil {
		return false, j.failed("lock", record.Cmd, err)
	}
	if exit, err := d.readExit(); err != nil || exit != nil {
		return false, err
	}
	if !d.current() {
		return false, ErrNotFound
	}
	if err := j.writeLost(d, now); err != nil {
		return false, err
	}
	return true, nil
}

// writeLost commits the record, under the locks.
func (j *Job) writeLost(d dir, now time.Time) error {
	r := record.ExitRecord{State: Lost, At: now}
	if log, st, err := d.openStat(record.Log, syscall.O_RDONLY); err == nil {
		r.LogBytes = st.Size
		_ = syscall.Close(log)
	}

	fd, err := d.open(record.ReservedExit, syscall.O_RDWR)
	if err != nil {
		// Used up by the torn record, or never there. What is no file in its
		// place goes.
		if err == ErrNotRegular {
			err = record.Clear(d.fd, record.ReservedExit)
		}
		if err != nil && err != syscall.ENOENT {
			return j.failed("open", record.ReservedExit, err)
		}
		fd, err = record.Open(d.fd, record.ReservedExit, syscall.O_RDWR|syscall.O_CREAT|syscall.O_EXCL, 0o600)
		if err == nil {
			err = syscall.Fchmod(fd, 0o600)
		}
		if err != nil {
			return j.failed("make", record.ReservedExit, err)
		}
	}
	defer syscall.Close(fd)
	if err := record.Write(fd, r.Append(nil)); err != nil {
		return j.failed("write", record.ReservedExit, err)
	}
	if err := record.Sync(fd); err != nil {
		return j.failed("sync", record.ReservedExit, err)
	}
	// What is there is torn: look found no record in it.
	if err := record.Clear(d.fd, record.Exit); err != nil {
		return j.failed("remove", record.Exit, err)
	}
	if err := record.RenameNoReplace(d.fd, record.ReservedExit, record.Exit); err != nil {
		return j.failed("rename", record.ReservedExit, err)
	}
	if err := record.Sync(d.fd); err != nil {
		return j.failed("sync", "", err)
	}
	return j.root.syncJobs()
}

func (j *Job) failed(op, file string, err error) error {
	return &fs.PathError{Op: op, Path: j.path(file), Err: Pathless(err)}
}

func (r *Root) syncJobs() error {
	d, err := openDir(r.jobs())
	if err == nil {
		err = record.Sync(d.fd)
		d.close()
	}
	if err != nil {
		return &fs.PathError{Op: "sync", Path: r.jobs(), Err: err}
	}
	return nil
}
