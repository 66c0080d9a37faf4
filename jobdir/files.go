package jobdir

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"space-job/jobdir/record"
)

// dir is an open directory. What is read through it belongs together even when
// the job is renamed away meanwhile.
type dir struct {
	fd   int
	path string
}

// openDir opens a directory, never through a symbolic link at its end.
// ErrNotFound is the only error for one that is not there.
func openDir(path string) (dir, error) {
	fd, err := record.Open(-1, path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return dir{}, ErrNotFound
	}
	if err != nil {
		return dir{}, Pathless(err)
	}
	return dir{fd, path}, nil
}

func (d dir) close() { _ = syscall.Close(d.fd) }

// current reports whether the directory still has its name: a job that is
// being removed is renamed first.
func (d dir) current() bool { return named(d.fd, d.path) }

// named reports whether path names the open file.
func named(fd int, path string) bool {
	var open, there syscall.Stat_t
	return syscall.Fstat(fd, &open) == nil && syscall.Lstat(path, &there) == nil &&
		open.Dev == there.Dev && open.Ino == there.Ino
}

// open opens a regular file of the directory. A FIFO or a device in its place
// is refused, and never waited for.
func (d dir) open(name string, flags int) (int, error) {
	fd, _, err := d.openStat(name, flags)
	return fd, err
}

func (d dir) openStat(name string, flags int) (int, syscall.Stat_t, error) {
	var st syscall.Stat_t
	fd, err := record.Open(d.fd, name, flags|syscall.O_NONBLOCK, 0)
	if err != nil {
		switch err = Pathless(err); err {
		case syscall.ELOOP, syscall.ENXIO, syscall.EISDIR: // a symbolic link, a socket, a directory
			err = ErrNotRegular
		}
		return -1, st, err
	}
	if err = syscall.Fstat(fd, &st); err == nil && st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		err = ErrNotRegular
	}
	if err != nil {
		_ = syscall.Close(fd)
		return -1, st, err
	}
	return fd, st, nil
}

// written reports whether a file has any content. Most jobs have files that are
// empty from their beginning to their end: these need not be opened.
func (d dir) written(name string) bool {
	size, _, ok := record.StatRegular(d.fd, name)
	return ok && size > 0
}

// Limits on what is read into memory. A command line is at most some MiB in
// any kernel, and JSON makes at most six bytes of one.
const (
	maxCmd    = 32 << 20
	maxRecord = 64 << 10
)

var errTooLong = errors.New("is too long")

// read reads a small file whole.
func (d dir) read(name string, limit int) ([]byte, error) {
	fd, st, err := d.openStat(name, syscall.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	if st.Size > int64(limit) {
		return nil, errTooLong
	}
	// One byte more than there is: a read that falls short has met the end. What
	// is returned has no room to spare, as it may be kept for thousands of jobs.
	var small [record.ReservedSize + 1]byte
	buf := small[:]
	if st.Size >= int64(len(buf)) {
		buf = make([]byte, st.Size+1)
	}
	for n := 0; ; {
		m, err := pread(fd, buf[n:], int64(n))
		if err != nil {
			return nil, err
		}
		if n += m; n > limit {
			return nil, errTooLong
		}
		if m == 0 || n < len(buf) && int64(n) >= st.Size {
			return bytes.Clone(buf[:n]), nil
		}
		if n == len(buf) { // it is growing
			buf = append(buf, make([]byte, len(buf))...)
		}
	}
}

// readRecord reads a record into v. It reports false for one that is absent:
// not there, reserved but not written, or of no valid JSON. An error means
// that it could not be told.
func (d dir) readRecord(name string, v any) (bool, error) {
	b, err := d.read(name, maxRecord)
	switch {
	case err == nil:
		return parseRecord(b, v), nil
	case err == syscall.ENOENT, err == ErrNotRegular, err == errTooLong:
		return false, nil
	}
	return false, &fs.PathError{Op: "read", Path: d.path + "/" + name, Err: err}
}

func parseRecord(b []byte, v any) bool { return !record.IsBlank(b) && json.Unmarshal(b, v) == nil }

// readExit reads the end of a job.
func (d dir) readExit() (ExitRead, error) {
	b, err := d.read(record.Exit, maxRecord)
	switch {
	case err == nil:
		return parseExit(b), nil
	case err == syscall.ENOENT, err == ErrNotRegular, err == errTooLong:
		return nil, nil
	}
	return nil, &fs.PathError{Op: "read", Path: d.path + "/" + record.Exit, Err: err}
}

// parseExit is nil for a record that cannot be true, as for one that is torn.
func parseExit(b []byte) ExitRead {
	var r record.ExitRecord
	if !parseRecord(b, &r) || r.LogBytes < 0 || r.Left < 0 || strings.Trim(r.Signal, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-") != "" {
		return nil
	}
	switch r.State {
	case Exited:
		if r.ExitCode != nil && *r.ExitCode >= 0 && *r.ExitCode <= 255 {
			return &r
		}
	case Cancelled, TimedOut, Lost:
		if r.ExitCode == nil {
			return &r
		}
	}
	return nil
}

// readProcess reads pid, nil where it names no runner.
func (d dir) readProcess() *record.ProcessRecord {
	var r record.ProcessRecord
	if ok, _ := d.readRecord(record.Pid, &r); !ok || r.RunnerPID <= 1 {
		return nil
	}
	return &r
}

// held reports whether a runner holds the lock.
func (d dir) held() (bool, error) {
	fd, err := d.open(record.Pid, syscall.O_RDONLY)
	if err == syscall.ENOENT || err == ErrNotRegular {
		return false, nil // nothing that a runner could hold
	}
	if err == nil {
		defer syscall.Close(fd)
		var held bool
		if held, err = record.Held(fd); err == nil {
			return held, nil
		}
	}
	return false, &fs.PathError{Op: "look at the lock of", Path: d.path + "/" + record.Pid, Err: err}
}

// look derives the state.
func (d dir) look() (State, ExitRead, error) {
	first, err := d.readExit()
	if err != nil || first != nil {
		return Derive(first, false, nil), first, err
	}
	held, err := d.held()
	if err != nil || held {
		return Derive(nil, held, nil), nil, err
	}
	again, err := d.readExit()
	return Derive(nil, false, again), again, err
}

func pread(fd int, b []byte, off int64) (int, error) {
	n, err := record.IgnoringEINTR(func() (int, error) { return syscall.Pread(fd, b, off) })
	return max(n, 0), err
}

// Pathless takes the outermost path off an error: who reports it knows the object
// better.
func Pathless(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// shortage reports an error that says nothing about the file: this process, or
// the system, has run out of something.
func shortage(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
