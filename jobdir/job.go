package jobdir

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"space-job/jobdir/record"
)

// Job is one job directory.
type Job struct {
	root  *Root
	id    ID
	whole atomic.Bool // cmd has been read once and fits; it never changes
}

// ID is the job's id.
func (j *Job) ID() ID { return j.id }

// Dir is the job's directory.
func (j *Job) Dir() string { return filepath.Join(j.root.jobs(), string(j.id)) }

func (j *Job) path(file string) string { return filepath.Join(j.Dir(), file) }

// open opens the job's directory.
func (j *Job) open() (dir, error) {
	if _, ok := record.ParseID(string(j.id)); !ok {
		return dir{}, ErrNotFound // never touches a path
	}
	d, err := openDir(j.Dir())
	switch {
	case err == nil || err == ErrNotFound:
		return d, err
	case err == syscall.ENOTDIR || err == syscall.ELOOP:
		return d, &DamagedError{j.id, "is not a directory"}
	}
	return d, j.damaged("", err)
}

// damaged is the error for a file, or for the directory itself, that cannot be
// read. One thing is not held against the job: that this process has run out
// of something.
func (j *Job) damaged(file string, err error) error {
	if shortage(err) {
		return &fs.PathError{Op: "read", Path: j.path(file), Err: err}
	}
	if file == "" {
		return &DamagedError{j.id, err.Error()}
	}
	return &DamagedError{j.id, file + ": " + err.Error()}
}

var errMissing = errors.New("is missing")

// readCmd reads cmd, and derives what an older or newer version left out.
func (j *Job) readCmd(d dir) (*Cmd, error) {
	b, err := d.read(record.Cmd, maxCmd)
	if err == syscall.ENOENT {
		if !d.current() {
			return nil, ErrNotFound
		}
		err = errMissing
	}
	if err != nil {
		return nil, j.damaged(record.Cmd, err)
	}
	c, err := ParseCmd(b)
	if err != nil {
		return nil, &DamagedError{j.id, err.Error()}
	}
	if c.ID == "" {
		c.ID = j.id
	}
	if c.ID != j.id {
		return nil, &DamagedError{j.id, "cmd: belongs to job " + clean(string(c.ID))}
	}
	if c.CreatedAt.IsZero() {
		c.CreatedAt = j.id.Time().UTC()
	}
	j.whole.Store(true)
	return c, nil
}

// look derives the state from an open directory.
func (j *Job) look(d dir) (State, ExitRead, error) {
	state, exit, err := d.look()
	if err != nil {
		return "", nil, j.damaged("", err)
	}
	if exit == nil && state == Lost && !d.current() {
		return "", nil, ErrNotFound // being removed: its files are going one by one
	}
	return state, exit, nil
}

// State is the cheap look: exit, lock, exit again. The errors are ErrNotFound,
// *DamagedError, and those of reading.
func (j *Job) State() (State, error) {
	d, err := j.open()
	if err != nil {
		return "", err
	}
	defer d.close()
	if !j.whole.Load() {
		if _, err := j.readCmd(d); err != nil {
			return "", err
		}
	}
	state, _, err := j.look(d)
	return state, err
}

// Alive reports whether a runner holds the lock of the job, whatever else its
// files say: a damaged job, too, may have one.
func (j *Job) Alive() (bool, error) {
	d, err := j.open()
	if err != nil {
		return false, err
	}
	defer d.close()
	return d.held()
}

// Info is what the files of a job say.
type Info struct {
	ID      ID
	Dir     string
	Cmd     *Cmd   // nil when damaged
	State   State  // "" when damaged
	Damaged string // why the directory cannot be read as a job, else ""

	Process *record.ProcessRecord // nil: not started yet, or not readable; what it names need not live any more
	Timing  *record.TimingRecord  // nil unless State is exited, cancelled or timed_out
	Exit    *record.ExitRecord    // nil: running, or lost and not yet written down
	Dropped *record.DroppedRecord // nil: nothing is missing in the log
	Cancel  *record.CancelRecord  // nil: nobody asked

	LogBytes     int64      // present size
	LastOutputAt *time.Time // nil: no output yet
	Foreign      bool       // lost as seen from another boot: shown so, not to be written down here
}

// Read reads everything that the files say. The only errors are ErrNotFound
// and those of reading: a damaged job is described, see Info.Damaged.
func (j *Job) Read() (*Info, error) { return j.readInfo(false) }

// ReadBrief is Read for a list of thousands: Info.Process is left out where
// Info.Timing says when the job started.
func (j *Job) ReadBrief() (*Info, error) { return j.readInfo(true) }

func (j *Job) readInfo(brief bool) (*Info, error) {
	info := &Info{ID: j.id, Dir: j.Dir()}
	err := j.read(info, brief)
	var damaged *DamagedError
	if errors.As(err, &damaged) {
		info.Cmd, info.State, info.Damaged = nil, "", damaged.Reason
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return info, nil
}

func (j *Job) read(info *Info, brief bool) error {
	d, err := j.open()
	if err != nil {
		return err
	}
	defer d.close()

	// A damaged job shows what can be read all the same.
	cmd, damage := j.readCmd(d)
	var exit ExitRead
	var state State
	if damage == nil {
		state, exit, damage = j.look(d)
	} else if errors.As(damage, new(*DamagedError)) {
		exit, _ = d.readExit()
	}
	if damage != nil && !errors.As(damage, new(*DamagedError)) {
		return damage
	}
	info.Cmd, info.State, info.Exit = cmd, state, exit

	switch state {
	case Exited, Cancelled, TimedOut:
		var timing record.TimingRecord
		if ok, _ := d.readRecord(record.Timing, &timing); ok {
			info.Timing = &timing
		}
	}
	if !brief || info.Timing == nil || info.Timing.StartedAt.IsZero() {
		info.Process = d.readProcess()
	}
	info.Foreign = state == Lost && exit == nil && j.foreign(info.Process)
	if d.written(record.Cancel) {
		var cancel record.CancelRecord
		if ok, _ := d.readRecord(record.Cancel, &cancel); ok {
			info.Cancel = &cancel
		}
	}
	if d.written(record.Dropped) {
		if fd, err := d.open(record.Dropped, syscall.O_RDONLY); err == nil {
			info.Dropped, _ = readDropped(fd)
			_ = syscall.Close(fd)
		}
	}
	if size, modified, ok := record.StatRegular(d.fd, record.Log); ok && size > 0 {
		at := modified.UTC()
		info.LogBytes, info.LastOutputAt = size, &at
	}
	return damage
}

// foreign reports whether a free lock proves nothing: the file system is one
// that several kernels share, and another of them took the lock. A process
// record that names this machine in an earlier boot is no foreigner: that boot
// is over.
func (j *Job) foreign(p *record.ProcessRecord) bool {
	if !j.root.network() {
		return false
	}
	if p == nil || p.BootID == "" {
		// Nobody has signed yet. A start takes far less than an hour.
		return time.Since(j.id.Time()) < hiddenAge
	}
	return !here(p.BootID, record.BootID()) && !here(p.MachineID, record.MachineID())
}

// here: a machine or boot without a name, "", is not provably this one.
func here(theirs, ours string) bool { return theirs != "" && theirs == ours }
