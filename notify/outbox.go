package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// State says how far a message has come, or a part of it.
type State string

const (
	None      State = "none"      // there is nobody to bring it to
	Pending   State = "pending"   // not yet, or to be tried again
	Delivered State = "delivered" // it is there
	Failed    State = "failed"    // given up; a sink is tried again when somebody asks for it
	Limited   State = "limited"   // of a wake: it is in the inbox, and a limit stopped the waking
)

// Target is how far a message has come with one of those who are to have it.
type Target struct {
	State        State      `json:"state"`
	Attempts     int        `json:"attempts"`
	Error        string     `json:"error"`   // of the last attempt, "" where it succeeded
	NextAt       *time.Time `json:"next_at"` // of the next attempt, null where there is none
	Limit        string     `json:"limit,omitempty"`
	RetryAfterMS int64      `json:"retry_after_ms,omitempty"`
	Again        bool       `json:"again,omitempty"` // somebody has asked for another attempt
}

// Targets are all who are to have a message.
type Targets struct {
	Thread Target            `json:"thread"`
	Seq    int64             `json:"seq"`   // of the entry in the thread, 0 until it is there
	Inbox  Target            `json:"inbox"` // of the starter
	Wakes  map[string]Target `json:"wakes"` // by member: the starter, and those that were asked for
	Sinks  map[string]Target `json:"sinks"` // by name: those that there were when the job ended; nil until that is known
}

// state is that of the message: pending while anybody may still get it.
func (t *Targets) state() State {
	s := Delivered
	if t.Sinks == nil {
		return Pending
	}
	for _, one := range t.all() {
		switch one.State {
		case Pending:
			return Pending
		case Failed:
			s = Failed
		}
	}
	return s
}

func (t *Targets) all() []Target {
	all := []Target{t.Thread, t.Inbox}
	for _, one := range t.Wakes {
		all = append(all, one)
	}
	for _, one := range t.Sinks {
		all = append(all, one)
	}
	return all
}

// Entry is a file of the outbox: a message that not everybody has.
type Entry struct {
	Job         jobdir.ID `json:"job"`
	Member      string    `json:"member"` // who started the job, "" where that is not known
	Kind        string    `json:"kind"`   // of the member: agent or person
	Wake        []string  `json:"wake"`   // who is to be woken besides
	Hops        int       `json:"hops"`   // those of the starter
	ThreadAfter int64     `json:"thread_after"`
	CreatedAt   time.Time `json:"created_at"`
	Above       bool      `json:"above,omitempty"` // Seq is one of the parent's thread
	Targets
}

// NewEntry is an entry of which nobody has anything yet.
func NewEntry(member, kind string, wake []string, hops int, threadAfter int64, now time.Time) Entry {
	e := Entry{Member: member, Kind: kind, Wake: wake, Hops: hops, ThreadAfter: threadAfter, CreatedAt: now.UTC().Truncate(time.Millisecond)}
	e.Thread.State, e.Inbox.State = Pending, Pending
	if member == "" {
		e.Inbox.State = None
	}
	e.Wakes = map[string]Target{}
	for _, name := range wake {
		e.Wakes[name] = Target{State: Pending}
	}
	return e
}

// entryOf is the entry of a job whose own was lost, as far as cmd tells.
func entryOf(c *jobdir.Cmd) Entry {
	e := NewEntry(c.StartedBy.Member, c.StartedBy.Kind, c.Wake, 0, 0, c.CreatedAt)
	e.Job = c.ID
	return e
}

func parseEntry(b []byte, id jobdir.ID) (*Entry, error) {
	if record.IsBlank(b) {
		return nil, errors.New("is empty")
	}
	var e Entry
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, err
	}
	if e.Job != id {
		return nil, fmt.Errorf("belongs to job %q", e.Job)
	}
	if e.Wakes == nil {
		e.Wakes = map[string]Target{}
	}
	for _, t := range e.all() {
		switch t.State {
		case None, Pending, Delivered, Failed, Limited:
		default:
			return nil, fmt.Errorf("has the state %q", t.State)
		}
	}
	return &e, nil
}

// damagedPrefix begins the name of an entry that was set aside.
const damagedPrefix = ".damaged-"

func outboxDir(root *jobdir.Root) string { return filepath.Join(root.Path(), record.Outbox) }

func entryPath(root *jobdir.Root, id jobdir.ID) string {
	return filepath.Join(outboxDir(root), string(id))
}

// maxEntry is the largest entry that is read: there may be many wakes.
const maxEntry = 1 << 20

// readEntry reads an entry. It is whole, as entries get their name when they
// are: one that cannot be read is damaged.
func readEntry(path string, id jobdir.ID) (*Entry, error) {
	b, err := readFile(path)
	if err != nil {
		if irregular(path) {
			err = &damagedEntry{path, jobdir.ErrNotRegular}
		}
		return nil, err
	}
	e, err := parseEntry(b, id)
	if err != nil {
		return nil, &damagedEntry{path, err}
	}
	return e, nil
}

// readFile reads a file of at most maxEntry bytes. Few are longer than a page.
func readFile(path string) ([]byte, error) {
	b, err := record.ReadFile(-1, path, make([]byte, 4<<10))
	if err == nil && len(b) == 4<<10 {
		b, err = record.ReadFile(-1, path, make([]byte, maxEntry))
	}
	return b, err
}

// irregular reports whether there is something that is no file.
func irregular(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && !info.Mode().IsRegular()
}

type damagedEntry struct {
	path string
	why  error
}

func (e *damagedEntry) Error() string { return e.path + " is damaged: " + e.why.Error() }
func (e *damagedEntry) Unwrap() error { return e.why }

// setAside takes a damaged entry out of the way, and says where to. What was set
// aside before stays, where it cannot be replaced.
func (e *damagedEntry) setAside() (aside string, err error) {
	for n := range 100 {
		aside = filepath.Join(filepath.Dir(e.path), damagedPrefix+filepath.Base(e.path))
		if n > 0 {
			aside += "-" + strconv.Itoa(n)
		}
		err = os.Rename(e.path, aside)
		if !errors.Is(err, fs.ErrExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.EISDIR) {
			break
		}
	}
	return aside, err
}

// Claim is the entry of a job that is about to be started. It is locked: a
// daemon that looks meanwhile leaves it alone, though there is no such job.
type Claim struct {
	root  *jobdir.Root
	dir   string
	entry Entry
	file  *os.File // nil: no id was claimed, or it is over
}

// NewClaim prepares an entry, and does all of it that can fail early.
func NewClaim(root *jobdir.Root, e Entry) (*Claim, error) {
	dir, err := root.MakeDir(record.Outbox)
	if err != nil {
		return nil, err
	}
	return &Claim{root: root, dir: dir, entry: e}, nil
}

// Set writes the entry for a job that is about to appear, instead of that for an
// id that was taken. A start waits for no disk, as the job's own directory is not
// synced then either: the daemon makes the entry durable as soon as it sees it.
func (c *Claim) Set(id jobdir.ID) error {
	c.Drop()
	c.entry.Job = id
	for {
		err := c.create(id)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		// A start with this id was killed, or is under way.
		if done, err := c.takeOver(id); done || err != nil {
			return err
		}
	}
}

func (c *Claim) create(id jobdir.ID) error {
	temp := jobdir.TempPrefix + string(id) + "-" + strconv.Itoa(os.Getpid())
	f, err := os.OpenFile(filepath.Join(c.dir, temp), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = record.Lock(int(f.Fd()))
	if err == nil {
		err = f.Chmod(0o600) // whatever the umask
	}
	if err == nil {
		_, err = f.Write(jobdir.Line(&c.entry))
	}
	crash("claim.written")
	if err == nil {
		err = inDir(c.dir, func(d int) error { return record.RenameNoReplace(d, temp, string(id)) })
	}
	crash("claim.named")
	if err != nil {
		_ = os.Remove(f.Name())
		f.Close()
		return &fs.PathError{Op: "write", Path: filepath.Join(c.dir, string(id)), Err: jobdir.Pathless(err)}
	}
	c.file = f
	return nil
}

// takeOver makes the entry of a start that was killed this one's. One that has a
// job is left as it is: this start will not get that id.
func (c *Claim) takeOver(id jobdir.ID) (done bool, err error) {
	path := filepath.Join(c.dir, string(id))
	f, err := lockEntry(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if _, err := os.Lstat(c.root.Job(id).Dir()); err == nil {
		f.Close()
		return true, nil
	}
	if err := record.Write(int(f.Fd()), jobdir.Line(&c.entry)); err != nil {
		f.Close()
		return false, &fs.PathError{Op: "write", Path: path, Err: jobdir.Pathless(err)}
	}
	c.file = f
	return true, nil
}

// Drop takes the entry back: there will be no such job. It may be called at any
// time, and twice.
func (c *Claim) Drop() {
	if c.file != nil {
		_ = os.Remove(filepath.Join(c.dir, string(c.entry.Job)))
		c.Release()
	}
}

// Release lets go of the entry: its job can be seen.
func (c *Claim) Release() {
	if c.file != nil {
		c.file.Close()
		c.file = nil
	}
}

// saveWithin is how long a daemon waits for a starter, or for who asks for
// another attempt, before it goes on without the lock: they may have been
// stopped, and all that can be lost is that somebody asked.
const saveWithin = 100 * time.Millisecond

// lockEntry opens and locks what has the path, waiting for who has it: not longer
// than within, or for good where that is 0. The error is fs.ErrNotExist where
// there is nothing.
func lockEntry(path string, within time.Duration) (*os.File, error) {
	lock := record.LockWait
	if within > 0 {
		end := time.Now().Add(within)
		lock = func(fd int) error {
			for {
				if err := record.Lock(fd); err != record.ErrLocked || time.Now().After(end) {
					return passLocked(err)
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
	for {
		fd, err := record.Open(-1, path, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		f := os.NewFile(uintptr(fd), path)
		if err := lock(fd); err != nil {
			f.Close()
			return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
		}
		if named(f, path) {
			return f, nil
		}
		f.Close() // replaced or removed meanwhile
	}
}

func passLocked(err error) error {
	if err == record.ErrLocked {
		return nil
	}
	return err
}

// named reports whether path names the open file.
func named(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(open, there)
}

// dropIfNone removes the entry of a job that is not there, unless its starter
// holds it still.
func dropIfNone(root *jobdir.Root, id jobdir.ID) (dropped bool, err error) {
	path := entryPath(root, id)
	fd, err := record.Open(-1, path, syscall.O_RDWR|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := record.Lock(fd); err != nil {
		return false, passLocked(err)
	}
	if !named(f, path) {
		return false, nil
	}
	// The lock is ours: who was to make the job visible has done so, or never will.
	if _, err := os.Lstat(root.Job(id).Dir()); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return true, os.Remove(path)
}

// saveEntry replaces an entry by what is known of it now. What somebody has asked
// to be tried again meanwhile is noted in e; it returns of which sinks that is.
// With sync it is durable.
func saveEntry(root *jobdir.Root, e *Entry, sync bool) (asked []string, err error) {
	path := entryPath(root, e.Job)
	f, err := lockEntry(path, saveWithin)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if now, err := readEntry(path, e.Job); err == nil {
		asked = e.takeRequests(now)
	}
	return asked, jobdir.ReplaceFile(path, jobdir.Line(e), sync)
}

// requested reports whether somebody has asked for another attempt.
func (e *Entry) requested() bool {
	for _, t := range e.Sinks {
		if t.Again {
			return true
		}
	}
	return false
}

// takeRequests makes the attempts due that somebody has asked for, and returns
// of which sinks they are.
func (e *Entry) takeRequests(now *Entry) (asked []string) {
	for name, there := range now.Sinks {
		if t, ok := e.Sinks[name]; ok && there.Again && (t.State == Failed || t.State == Pending) {
			t.State, t.NextAt, t.Again = Pending, nil, false
			e.Sinks[name] = t
			asked = append(asked, name)
		}
	}
	return asked
}

// inDir opens a directory for a moment.
func inDir(path string, f func(fd int) error) error {
	fd, err := record.Open(-1, path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return f(fd)
}

// syncEntries makes new entries durable.
func syncEntries(root *jobdir.Root, ids []jobdir.ID) error {
	for _, id := range ids {
		fd, err := record.Open(-1, entryPath(root, id), syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // delivered by now
		}
		if err != nil {
			return err
		}
		err = record.Sync(fd)
		syscall.Close(fd)
		if err != nil {
			return &fs.PathError{Op: "sync", Path: entryPath(root, id), Err: err}
		}
	}
	return jobdir.SyncDir(outboxDir(root))
}

// outboxIDs are the jobs that have an entry, oldest first.
func outboxIDs(root *jobdir.Root) ([]jobdir.ID, error) { return idsIn(outboxDir(root)) }

// idsIn are the ids that files of a directory have for a name, oldest first; none
// where there is no directory.
func idsIn(dir string) ([]jobdir.ID, error) {
	var ids []jobdir.ID
	err := inDir(dir, func(fd int) error {
		return record.EachName(fd, func(name []byte) {
			if id, ok := record.ParseID(string(name)); ok {
				ids = append(ids, id)
			}
		})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(ids)
	return ids, err
}

// Waiting reports whether there is anything in the outbox. It is cheap, most of
// all where there never was.
func Waiting(root *jobdir.Root) bool {
	if ids, err := outboxIDs(root); err == nil && len(ids) > 0 {
		return true
	}
	ids, err := waitIDs(root)
	return err == nil && len(ids) > 0
}

// Entries are the messages that not everybody has, oldest job first. Those that
// cannot be read are left out: the daemon sets them aside.
func Entries(root *jobdir.Root) ([]Entry, error) {
	ids, err := outboxIDs(root)
	if err != nil {
		return nil, err
	}
	all := make([]Entry, 0, len(ids))
	for _, id := range ids {
		if e, err := readEntry(entryPath(root, id), id); err == nil {
			all = append(all, *e)
		}
	}
	return all, nil
}

// RetrySink asks for another attempt at everything that a sink has not got: what
// has failed for good, and what waits for its time. It returns how many messages
// that is. A daemon does the rest.
func RetrySink(root *jobdir.Root, name string) (int, error) {
	ids, err := outboxIDs(root)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, id := range ids {
		err := changeEntry(root, id, func(e *Entry) bool {
			t, ok := e.Sinks[name]
			if !ok || t.State != Failed && t.State != Pending {
				return false
			}
			t.State, t.NextAt, t.Again = Pending, nil, true
			e.Sinks[name] = t
			n++
			return true
		})
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// changeEntry calls f with an entry while nobody else writes it, and saves it
// if f says that it is another now. One that is gone, or that cannot be read, is
// left to the daemon.
func changeEntry(root *jobdir.Root, id jobdir.ID, f func(*Entry) bool) error {
	path := entryPath(root, id)
	lock, err := lockEntry(path, 0)
	if errors.Is(err, fs.ErrNotExist) || err != nil && irregular(path) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	e, err := readEntry(path, id)
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, new(*damagedEntry)) {
		return nil
	}
	if err != nil || !f(e) {
		return err
	}
	return jobdir.ReplaceFile(path, jobdir.Line(e), true)
}

// Keeps is what a prune asks before it removes a job: whether its message is
// still on its way. One that has failed for good keeps no job.
func Keeps(root *jobdir.Root) func(jobdir.ID) bool {
	return func(id jobdir.ID) bool {
		e, err := readEntry(entryPath(root, id), id)
		if errors.Is(err, fs.ErrNotExist) {
			return false
		}
		return err != nil || e.state() == Pending
	}
}

// Receipt is the notified file of a job: everybody has the message, or will not
// have it.
type Receipt struct {
	At time.Time `json:"at"`
	Targets
}

// writeReceipt makes the receipt of a job durable.
func writeReceipt(j *jobdir.Job, t Targets, now time.Time) error {
	r := Receipt{At: now.UTC().Truncate(time.Millisecond), Targets: t}
	if irregular(filepath.Join(j.Dir(), record.Notified)) {
		_ = inDir(j.Dir(), func(d int) error { return record.Clear(d, record.Notified) })
	}
	return jobdir.ReplaceFile(filepath.Join(j.Dir(), record.Notified), jobdir.Line(&r), true)
}

func readReceipt(j *jobdir.Job) (*Receipt, bool) {
	b, err := readFile(filepath.Join(j.Dir(), record.Notified))
	if err != nil {
		return nil, false
	}
	var r Receipt
	if record.IsBlank(b) || json.Unmarshal(b, &r) != nil || r.At.IsZero() {
		return nil, false
	}
	return &r, true
}

// Status is how far the message of a job has come, for who asks.
type Status struct {
	State State  `json:"state"` // none: the job was started without notify
	Error string `json:"error"` // why it does not go on, as far as that is known
	*Targets
}

// StatusOf looks at the entry, then at the receipt of a job that was started
// with notify. Nothing is made up: with neither it is pending.
func StatusOf(root *jobdir.Root, id jobdir.ID) Status {
	for range 2 { // the entry goes when the receipt is there: look at both again
		e, err := readEntry(entryPath(root, id), id)
		switch {
		case err == nil:
			s := Status{State: e.state(), Targets: &e.Targets}
			if s.State == Pending {
				if _, held := DaemonOf(root); !held {
					s.Error = "no daemon"
				} else {
					s.Error = e.lastError()
				}
			}
			return s
		case !errors.Is(err, fs.ErrNotExist):
			return Status{State: Pending, Error: err.Error()}
		}
		if r, ok := readReceipt(root.Job(id)); ok {
			return Status{State: r.state(), Targets: &r.Targets}
		}
	}
	return Status{State: Pending, Error: "no outbox entry"}
}

// lastError is why a message that is not delivered is not.
func (t *Targets) lastError() string {
	for _, one := range []struct {
		what string
		Target
	}{{"thread", t.Thread}, {"inbox", t.Inbox}} {
		if one.Error != "" {
			return one.what + ": " + one.Error
		}
	}
	for _, group := range []struct {
		what string
		of   map[string]Target
	}{{"wake", t.Wakes}, {"sink", t.Sinks}} {
		for _, name := range slices.Sorted(maps.Keys(group.of)) {
			if e := group.of[name].Error; e != "" && group.of[name].State != Limited {
				return group.what + " " + name + ": " + e
			}
		}
	}
	return ""
}
