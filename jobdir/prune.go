package jobdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"space-job/jobdir/record"
)

// Retention is how long an ended job is kept by default.
const Retention = 7 * 24 * time.Hour

// TrialPrefix is how the name of a directory begins in which somebody tries out
// whether jobs can be run: a root of its own, beside the jobs.
const TrialPrefix = ".space-job-doctor-"

// hiddenAge is how old a hidden directory must be to count as left over: a
// start, or a removal, takes far less.
const hiddenAge = time.Hour

// PruneReport says what Prune did.
type PruneReport struct {
	Removed  []ID     // newest first
	Recorded []ID     // lost jobs that were written down, and are kept from now on; newest first
	Kept     int      // jobs that are still there
	Swept    []string // hidden leftovers of jobs, and keys of no job, by path below the root
	Errors   []error  // what could not be done; the rest was
}

// Prune removes the jobs that ended more than olderThan before now, unless
// veto says to keep one. veto may be nil. A job whose end is in the future or
// cannot be read stays, and so does one whose lock is held, one that cannot be
// read, and everything that is not a job of this user and this format.
func (r *Root) Prune(olderThan time.Duration, now time.Time, veto func(ID) bool) (PruneReport, error) {
	var report PruneReport
	if veto == nil {
		veto = func(ID) bool { return false }
	}
	var ids []ID
	var hidden []string
	err := eachName(r.jobs(), func(b []byte) {
		name := string(b)
		if id, ok := record.ParseID(name); ok {
			ids = append(ids, id)
		} else if strings.HasPrefix(name, record.BuildPrefix) || strings.HasPrefix(name, record.GonePrefix) {
			hidden = append(hidden, name)
		}
	})
	if err != nil {
		return report, err
	}
	slices.SortFunc(ids, func(a, b ID) int { return strings.Compare(string(b), string(a)) })
	for _, id := range ids {
		switch removed, err := r.Job(id).prune(olderThan, now, veto, &report); {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			report.Errors = append(report.Errors, err)
			fallthrough
		case !removed:
			report.Kept++
		}
	}
	for i, name := range hidden {
		hidden[i] = filepath.Join(record.Jobs, name)
	}
	err = eachName(r.path, func(name []byte) {
		if strings.HasPrefix(string(name), TrialPrefix) {
			hidden = append(hidden, string(name))
		}
	})
	if err != nil {
		report.Errors = append(report.Errors, err)
	}
	for _, name := range hidden {
		if swept, err := r.sweep(name, now); err != nil {
			report.Errors = append(report.Errors, err)
		} else if swept {
			report.Swept = append(report.Swept, name)
		}
	}
	if err := r.sweepKeys(&report); err != nil {
		report.Errors = append(report.Errors, err)
	}
	return report, nil
}

// prune looks at one job and removes it if its time has come.
func (j *Job) prune(olderThan time.Duration, now time.Time, veto func(ID) bool, report *PruneReport) (removed bool, err error) {
	d, err := j.open()
	if err != nil {
		return false, passDamaged(err)
	}
	defer d.close()
	if !ours(d.fd) {
		return false, nil
	}
	c, err := j.readCmd(d)
	if err != nil {
		return false, passDamaged(err)
	}
	state, exit, err := j.look(d)
	if err != nil {
		return false, passDamaged(err)
	}
	if exit == nil {
		if state != Lost {
			return false, nil
		}
		recorded, err := j.RecordLost(now)
		if recorded {
			report.Recorded = append(report.Recorded, j.id)
		}
		if errors.Is(err, ErrForeign) || errors.Is(err, ErrNewerFormat) {
			return false, nil // not ours to write down
		}
		return false, err
	}
	if c.ReadOnly() || exit.At.IsZero() || exit.At.After(now) || now.Sub(exit.At) < olderThan {
		return false, nil
	}
	if held, err := d.held(); err != nil || held {
		return false, err // survivors are writing still
	}
	if exit.Left > 0 && j.foreign(d.readProcess()) {
		return false, nil // survivors elsewhere, whose lock is not seen here
	}
	if veto(j.id) || !d.current() {
		return false, nil
	}
	gone := record.GonePrefix + string(j.id)
	if err := j.root.hide(string(j.id), gone); err != nil {
		return false, j.failed("remove", "", err)
	}
	report.Removed = append(report.Removed, j.id)
	if err := os.RemoveAll(filepath.Join(j.root.jobs(), gone)); err != nil {
		report.Errors = append(report.Errors, err)
	}
	return true, nil
}

// hide renames a job away: from then on it does not exist, however long the
// removing takes.
func (r *Root) hide(name, gone string) error {
	d, err := openDir(r.jobs())
	if err != nil {
		return err
	}
	defer d.close()
	err = record.RenameNoReplace(d.fd, name, gone)
	if err == syscall.EEXIST { // left over by one that was killed
		if err = os.RemoveAll(filepath.Join(d.path, gone)); err == nil {
			err = record.RenameNoReplace(d.fd, name, gone)
		}
	}
	return err
}

// passDamaged: a job that cannot be read is for check to report. It is kept,
// and stops nothing.
func passDamaged(err error) error {
	if errors.As(err, new(*DamagedError)) {
		return nil
	}
	return err
}

func ours(fd int) bool {
	var st syscall.Stat_t
	return syscall.Fstat(fd, &st) == nil && int(st.Uid) == os.Geteuid()
}

// sweep removes a hidden directory, by its path below the root, that a starter,
// a prune or a trial left behind.
func (r *Root) sweep(name string, now time.Time) (bool, error) {
	path := filepath.Join(r.path, name)
	d, err := openDir(path)
	if err != nil {
		return false, nil // gone, or nothing that we made
	}
	defer d.close()
	var st syscall.Stat_t
	if err := syscall.Fstat(d.fd, &st); err != nil || int(st.Uid) != os.Geteuid() || now.Sub(modTime(&st)) < hiddenAge {
		return false, nil
	}
	if held, err := d.held(); err != nil || held {
		return false, err
	}
	if err := os.RemoveAll(path); err != nil {
		return false, err
	}
	return true, nil
}

// sweepKeys removes the keys whose job is gone. A key is written before its
// job appears, but under its lock all the while.
func (r *Root) sweepKeys(report *PruneReport) error {
	var names []string
	err := eachName(r.keys(), func(name []byte) {
		if len(name) >= 32 && record.IsHex(string(name)) { // a hash
			names = append(names, string(name))
		}
	})
	for _, name := range names {
		if r.sweepKey(filepath.Join(r.keys(), name)) {
			report.Swept = append(report.Swept, filepath.Join(record.Keys, name))
		}
	}
	return err
}

func (r *Root) sweepKey(path string) bool {
	f, err := openKey(path, 0)
	if err != nil {
		return false
	}
	defer f.close()
	if record.Lock(f.fd) != nil || !f.current() {
		return false
	}
	if id, ok := f.id(); ok {
		if _, err := os.Lstat(r.Job(id).Dir()); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return os.Remove(path) == nil
}
