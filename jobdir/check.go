package jobdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"space-job/jobdir/record"
)

// Problem is something wrong with an entry of the jobs directory.
type Problem struct {
	ID   ID     // "" when the entry has no id's name
	Name string // the entry
	File string // the file in it, "" when it is the entry itself
	What string
}

// Check verifies every job directory, and changes nothing. A job that is lost
// is no problem: that is a state. Hidden directories are not looked at: they
// are no jobs, and Prune sweeps them.
func (r *Root) Check() ([]Problem, error) {
	var names []string
	err := eachName(r.jobs(), func(name []byte) { names = append(names, string(name)) })
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all []Problem
	for _, name := range names {
		id, ok := record.ParseID(name)
		switch {
		case ok:
			problems, err := r.Job(id).check()
			if err != nil && !errors.Is(err, ErrNotFound) {
				return all, err
			}
			all = append(all, problems...)
		case strings.HasPrefix(name, record.BuildPrefix), strings.HasPrefix(name, record.GonePrefix):
		default:
			all = append(all, Problem{Name: name, What: "is no job"})
		}
	}
	return all, nil
}

func (j *Job) check() (problems []Problem, err error) {
	report := func(file, format string, args ...any) {
		problems = append(problems, Problem{j.id, string(j.id), file, fmt.Sprintf(format, args...)})
	}
	d, err := j.open()
	var damaged *DamagedError
	if errors.As(err, &damaged) {
		report("", "%s", damaged.Reason)
		return problems, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.close()
	var st syscall.Stat_t
	if err := syscall.Fstat(d.fd, &st); err != nil {
		return nil, j.failed("stat", "", err)
	}
	if int(st.Uid) != os.Geteuid() {
		report("", "is owned by uid %d", st.Uid)
	}
	if mode := st.Mode & 0o7777; mode != 0o700 {
		report("", "has mode %04o, not 0700", mode)
	}

	c, err := j.readCmd(d)
	if errors.As(err, &damaged) {
		report(record.Cmd, "%s", strings.TrimPrefix(damaged.Reason, record.Cmd+": "))
	} else if err != nil {
		return nil, err
	} else if c.ReadOnly() {
		return problems, nil // what its files should hold is not known here
	} else if len(c.Argv) == 0 {
		report(record.Cmd, "has no argv")
	}

	size := int64(-1)
	for _, name := range []string{
		record.Cmd, record.Pid, record.Log, record.Dropped, record.Cancel,
		record.Timing, record.Exit, record.ReservedTiming, record.ReservedExit, record.Notified,
	} {
		fd, st, err := d.openStat(name, syscall.O_RDONLY)
		switch {
		case err == syscall.ENOENT:
			if name == record.Pid || name == record.Log {
				report(name, "is missing")
			}
			continue
		case err != nil && shortage(err):
			return problems, j.failed("open", name, err)
		case err != nil:
			if name != record.Cmd || c != nil { // or that is reported already
				report(name, "%v", err)
			}
			continue
		}
		_ = syscall.Close(fd)
		if mode := st.Mode & 0o7777; mode != 0o600 {
			report(name, "has mode %04o, not 0600", mode)
		}
		if name == record.Log {
			size = st.Size
		}
	}
	if err := syscall.Lstat(j.path(record.Pipe), &st); err == nil && st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		report(record.Pipe, "is not a FIFO")
	}

	exit, err := d.readExit()
	if err == nil && exit == nil {
		if _, err := os.Lstat(j.path(record.Exit)); err == nil && d.current() {
			report(record.Exit, "holds no end: it counts as absent")
		}
	}
	if exit != nil && exit.At.IsZero() {
		report(record.Exit, "does not say when")
	}
	if exit != nil && size >= 0 && size < exit.LogBytes {
		report(record.Log, "has %d bytes, and had %d at the end", size, exit.LogBytes)
	}
	j.checkRecord(d, record.Pid, new(record.ProcessRecord), report)
	j.checkRecord(d, record.Timing, new(record.TimingRecord), report)
	j.checkRecord(d, record.Cancel, new(record.CancelRecord), report)
	j.checkDropped(d, size, report)

	if !d.current() { // removed meanwhile: what is missing is no problem
		return nil, ErrNotFound
	}
	return problems, nil
}

// checkRecord reports a record that is written and not valid.
func (j *Job) checkRecord(d dir, name string, v any, report func(file, format string, args ...any)) {
	b, err := d.read(name, maxRecord)
	if err != nil || record.IsBlank(b) {
		return
	}
	if err := json.Unmarshal(b, v); err != nil {
		report(name, "%s", inWords(err))
		return
	}
	switch r := v.(type) {
	case *record.ProcessRecord:
		if r.RunnerPID < 0 || r.RunnerPID == 1 || r.ChildPID < 0 || r.ChildPID == 1 { // 0 is not known, or not started
			report(name, "names processes that cannot be: runner %d, command %d", r.RunnerPID, r.ChildPID)
		}
	case *record.TimingRecord: // of the wall clock nothing is known: it may have been set
		if r.DurationMS < 0 || r.UserMS < 0 || r.SysMS < 0 || r.MaxRSSBytes < 0 {
			report(name, "has a duration, a time or a size below zero")
		}
	}
}

func (j *Job) checkDropped(d dir, size int64, report func(file, format string, args ...any)) {
	fd, err := d.open(record.Dropped, syscall.O_RDONLY)
	if err != nil {
		return
	}
	defer syscall.Close(fd)
	var b [1]byte
	n, err := pread(fd, b[:], 0)
	if err != nil || n == 0 || record.IsBlank(b[:n]) {
		return
	}
	r, err := readDropped(fd)
	switch {
	case err != nil:
		report(record.Dropped, "%v", err)
	case r == nil && !j.takenBack(d):
		report(record.Dropped, "names nothing that is missing")
	case r == nil:
	case r.Hole != nil && size >= 0 && r.Hole.To > size:
		report(record.Dropped, "has a hole up to %d in a log of %d bytes", r.Hole.To, size)
	}
}

// takenBack reports whether the dropped record says that nothing is missing:
// somebody has cut the log, and what was missing went, too.
func (j *Job) takenBack(d dir) bool {
	b, err := d.read(record.Dropped, maxRecord)
	var r record.DroppedRecord
	return err == nil && json.Unmarshal(b, &r) == nil && r.Seq > 0 && r.Hole == nil && r.Unwritten == nil
}
