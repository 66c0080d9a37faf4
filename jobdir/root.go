package jobdir

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"space-job/jobdir/record"
)

// ID names a job. See [record.ID].
type ID = record.ID

// State is where a job stands. See [record.State].
type State = record.State

// The states of a job. It only ever goes from Running to one of the others,
// once.
const (
	Running   = record.Running
	Exited    = record.Exited
	Cancelled = record.Cancelled
	TimedOut  = record.TimedOut
	Lost      = record.Lost
)

// Errors that callers match with errors.Is.
var (
	ErrNotFound    = errors.New("no such job")                               // never was, or has been removed
	ErrNotRegular  = errors.New("is not a regular file")                     // a file of a job that is something else
	ErrForeign     = errors.New("ran on another machine")                    // only that machine may write the job down
	ErrNewerFormat = errors.New("was written by a newer version: read-only") // cmd has a format above Format
)

// RootError is a root that is refused.
type RootError struct {
	Path   string
	Reason string
}

func (e *RootError) Error() string { return fmt.Sprintf("root: %q %s", e.Path, e.Reason) }

// InvalidIDError is a string that cannot name a job.
type InvalidIDError struct{ Given string }

func (e *InvalidIDError) Error() string {
	return fmt.Sprintf("job %q: not an id (j and 12 hex digits, or the last 4 and more of them)", e.Given)
}

// AmbiguousError is the end of more than one id.
type AmbiguousError struct {
	Given      string
	Candidates []ID // newest first
}

func (e *AmbiguousError) Error() string {
	ids := make([]string, len(e.Candidates))
	for i, id := range e.Candidates {
		ids[i] = string(id)
	}
	return fmt.Sprintf("job %q: fits %d jobs: %s", e.Given, len(ids), strings.Join(ids, " "))
}

// DamagedError is a job whose files cannot be read as one.
type DamagedError struct {
	ID     ID
	Reason string
}

func (e *DamagedError) Error() string { return fmt.Sprintf("job %s is damaged: %s", e.ID, e.Reason) }

// Root is the directory that holds all jobs of a user.
type Root struct {
	path    string
	whole   bool        // all its directories were there, and good, when it was opened
	network func() bool // whether it lies on a network file system; a seam for tests
}

// DefaultRoot is $SPACE_JOB_HOME, else $XDG_STATE_HOME/space-job, else
// ~/.local/state/space-job. A variable that is set but not absolute is an
// error, never passed over.
func DefaultRoot() (string, error) {
	for _, v := range []struct{ name, below string }{
		{record.EnvHome, ""},
		{"XDG_STATE_HOME", "space-job"},
		{"HOME", ".local/state/space-job"},
	} {
		dir := os.Getenv(v.name)
		if dir == "" {
			continue
		}
		if !filepath.IsAbs(dir) {
			return "", &RootError{dir, "is not an absolute path (" + v.name + ")"}
		}
		return filepath.Join(dir, v.below), nil
	}
	return "", &RootError{"", "cannot be: none of " + record.EnvHome + ", XDG_STATE_HOME and HOME is set"}
}

// OpenRoot opens a root for reading. One that does not exist yet is empty; one
// that another user owns, or others may write, is refused with a *RootError. So
// is one whose jobs or keys are a symbolic link.
func OpenRoot(path string) (*Root, error) {
	if !filepath.IsAbs(path) {
		return nil, &RootError{path, "is not an absolute path"}
	}
	r := &Root{path: filepath.Clean(path)}
	r.network = sync.OnceValue(func() bool {
		info, err := r.FileSystem()
		return err == nil && info.Network
	})
	for i, dir := range r.dirs() {
		exists, err := checkDir(dir, i == 0)
		if err != nil {
			return nil, err
		}
		if !exists {
			return r, nil
		}
	}
	r.whole = true
	return r, nil
}

// Create makes the root and its directories with mode 0700, whatever the
// umask, and checks those that exist.
func (r *Root) Create() error {
	if r.whole {
		return nil
	}
	for i, dir := range r.dirs() {
		exists, err := checkDir(dir, i == 0)
		if err != nil {
			return err
		}
		if exists {
			continue
		}
		if i == 0 {
			if err := makeParents(filepath.Dir(dir)); err != nil {
				return err
			}
		}
		if err := makeDir(dir); err != nil {
			return err
		}
		if _, err := checkDir(dir, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// Forget removes what Create has made, and a file, where nothing else is in it.
func (r *Root) Forget(file string) error {
	entries, err := os.ReadDir(r.path)
	if err != nil {
		return err
	}
	dirs := r.dirs()
	for _, e := range entries {
		if path := filepath.Join(r.path, e.Name()); e.Name() != file && path != dirs[1] && path != dirs[2] {
			return nil
		}
	}
	for _, dir := range dirs[1:] {
		if err := syscall.Rmdir(dir); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(r.path, file)); err != nil {
		return err
	}
	return syscall.Rmdir(r.path)
}

// MakeDir makes a directory below the root with mode 0700, whatever the umask,
// and returns its path. One that is there and is a symbolic link, or that others
// could have written, is refused.
func (r *Root) MakeDir(elem ...string) (string, error) {
	if err := r.Create(); err != nil {
		return "", err
	}
	dir := r.path
	for _, name := range elem {
		dir = filepath.Join(dir, name)
		exists, err := checkDir(dir, false)
		if err == nil && !exists {
			if err = makeDir(dir); err == nil {
				_, err = checkDir(dir, false)
			}
		}
		if err != nil {
			return "", err
		}
	}
	return dir, nil
}

// MakeDurableDir is MakeDir for a directory that a power failure must not take
// away with what was synced in it.
func (r *Root) MakeDurableDir(elem ...string) (string, error) {
	_, there, err := r.Dir(elem...)
	if err != nil {
		return "", err
	}
	dir, err := r.MakeDir(elem...)
	if err != nil || there {
		return dir, err
	}
	parent := r.path + "/" // the root may be a symbolic link
	for _, name := range elem {
		if err := SyncDir(parent); err != nil {
			return "", err
		}
		parent = filepath.Join(parent, name)
	}
	return dir, nil
}

// Dir is a directory below the root as MakeDir makes it: its path, and whether
// it is there. The same are refused.
func (r *Root) Dir(elem ...string) (dir string, exists bool, err error) {
	dir = r.path
	for _, name := range elem {
		dir = filepath.Join(dir, name)
		if exists, err = checkDir(dir, false); err != nil || !exists {
			return dir, false, err
		}
	}
	return dir, exists, nil
}

// Path is the root's absolute path.
func (r *Root) Path() string { return r.path }

func (r *Root) dirs() [3]string { return [3]string{r.path, r.jobs(), r.keys()} }
func (r *Root) jobs() string    { return filepath.Join(r.path, record.Jobs) }
func (r *Root) keys() string    { return filepath.Join(r.path, record.Keys) }

// checkDir refuses a directory whose files somebody else could have made. The
// root may be a symbolic link, the directories in it are opened only as such.
func checkDir(path string, mayBeLink bool) (exists bool, err error) {
	look := syscall.Lstat
	if mayBeLink {
		look = syscall.Stat
	}
	var st syscall.Stat_t
	_, err = record.IgnoringEINTR(func() (int, error) { return 0, look(path, &st) })
	switch {
	case err == syscall.ENOENT:
		return false, nil
	case err == syscall.ENOTDIR, err == syscall.ELOOP, err == syscall.ENAMETOOLONG, err == syscall.EACCES:
		return false, &RootError{path, "cannot be reached: " + err.Error()}
	case err != nil:
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	case st.Mode&syscall.S_IFMT == syscall.S_IFLNK:
		return false, &RootError{path, "is a symbolic link"}
	case st.Mode&syscall.S_IFMT != syscall.S_IFDIR:
		return false, &RootError{path, "is not a directory"}
	case int(st.Uid) != os.Geteuid():
		return false, &RootError{path, fmt.Sprintf("is owned by uid %d, not by uid %d", st.Uid, os.Geteuid())}
	case st.Mode&0o022 != 0:
		return false, &RootError{path, fmt.Sprintf("may be written by others (mode %04o)", st.Mode&0o7777)}
	}
	return true, nil
}

// makeParents is mkdir -p that also works under a umask that takes the
// owner's own rights away.
func makeParents(path string) error {
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeParents(filepath.Dir(path)); err != nil {
		return err
	}
	return makeDir(path)
}

// makeDir makes a directory, or repairs the mode of one that another process
// has just made under an odd umask.
func makeDir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o700 == 0o700 {
		return err
	}
	return os.Chmod(path, 0o700)
}

// IDs lists all jobs, newest first. It reads names only.
func (r *Root) IDs() ([]ID, error) {
	l, err := r.List(math.MaxInt)
	return l.Newest, err
}

// Listing is what one reading of the names of all jobs tells.
type Listing struct {
	Newest []ID // newest first
	Total  int  // how many jobs there are
	Some   []ID // a sample, oldest first
}

// The sample of a Listing: the oldest few of the first names in the order of
// the file system, whatever that is. To find the oldest of all costs more, and
// tells little more.
const (
	sampledNames = 256
	sampledIDs   = 8
)

// List lists the n newest jobs. It is what a list of a few among many thousands
// should call.
func (r *Root) List(n int) (Listing, error) {
	var l Listing
	// Twice what is asked for is kept; when that is full, the older half goes.
	var names, some []idName
	var floor idName
	err := r.eachID(func(name idName) {
		if l.Total++; l.Total <= sampledNames {
			some = append(some, name)
		}
		if n <= 0 || slices.Compare(name[:], floor[:]) <= 0 {
			return
		}
		names = append(names, name)
		if len(names)/2 >= n {
			slices.SortFunc(names, compareNewestFirst)
			names = names[:n]
			floor = names[n-1]
		}
	})
	l.Newest = newestFirst(names)
	l.Newest = l.Newest[:min(max(n, 0), len(l.Newest))]
	l.Some = newestFirst(some)
	slices.Reverse(l.Some)
	l.Some = l.Some[:min(sampledIDs, len(l.Some))]
	return l, err
}

// Resolve turns what a caller gave into the id of a job that exists: an id in
// full, or the end of exactly one, four hex digits at least. The errors are
// *InvalidIDError, ErrNotFound and *AmbiguousError.
func (r *Root) Resolve(s string) (ID, error) {
	if id, ok := record.ParseID(s); ok {
		switch _, err := os.Lstat(r.Job(id).Dir()); {
		case err == nil:
			return id, nil
		case errors.Is(err, fs.ErrNotExist):
			return "", ErrNotFound
		default:
			return "", err
		}
	}
	if len(s) < minEnd || len(s) >= len(idName{}) || !record.IsHex(s) {
		return "", &InvalidIDError{s}
	}
	var names []idName
	err := r.eachID(func(n idName) {
		if strings.HasSuffix(string(n[:]), s) {
			names = append(names, n)
		}
	})
	if err != nil {
		return "", err
	}
	switch ids := newestFirst(names); len(ids) {
	case 0:
		return "", ErrNotFound
	case 1:
		return ids[0], nil
	default:
		return "", &AmbiguousError{s, ids}
	}
}

// minEnd is the shortest end of an id that may stand for it.
const minEnd = 4

// Newest is the newest job, or ErrNotFound.
func (r *Root) Newest() (ID, error) {
	l, err := r.List(1)
	if err == nil && l.Total == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return "", err
	}
	return l.Newest[0], nil
}

// idName is an id without a string of its own: a directory has many thousands.
type idName [13]byte

func compareNewestFirst(a, b idName) int { return slices.Compare(b[:], a[:]) }

func newestFirst(names []idName) []ID {
	slices.SortFunc(names, compareNewestFirst)
	ids := make([]ID, len(names))
	for i, n := range names {
		ids[i] = ID(n[:])
	}
	return ids
}

// eachID calls f for every id among the names in jobs, in no order.
func (r *Root) eachID(f func(idName)) error {
	return eachName(r.jobs(), func(name []byte) {
		if len(name) != len(idName{}) {
			return
		}
		if name[0] == 'j' && record.IsHex(string(name[1:])) {
			f(idName(name))
		}
	})
}

// eachName calls f for every name in a directory, in no order; one that does
// not exist is empty. f must not keep the name.
func eachName(path string, f func(name []byte)) error {
	d, err := openDir(path)
	if err == ErrNotFound {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "list", Path: path, Err: err}
	}
	defer d.close()
	if err := record.EachName(d.fd, f); err != nil {
		return &fs.PathError{Op: "list", Path: path, Err: err}
	}
	return nil
}

// Job is a handle for a job, whether it exists or not. It does no I/O.
func (r *Root) Job(id ID) *Job { return &Job{root: r, id: id} }

// FSInfo describes the file system of a root.
type FSInfo struct {
	Type        string // "ext4", "nfs", or the number in hex where it has no known name
	Network     bool   // a lock there proves something only inside the kernel that took it
	ReadOnly    bool
	TotalBytes  uint64
	FreeBytes   uint64 // for this user
	TotalInodes uint64 // 0: the file system does not count them
	FreeInodes  uint64
}

// FileSystem looks at the file system that holds the root, or will hold it.
func (r *Root) FileSystem() (FSInfo, error) {
	for path := r.path; ; path = filepath.Dir(path) {
		info, err := statFS(path)
		if err == syscall.ENOENT && path != "/" {
			continue // not made yet: its parent
		}
		if err != nil {
			err = &fs.PathError{Op: "statfs", Path: path, Err: err}
		}
		return info, err
	}
}
