package thread

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"space-job/jobdir/record"
)

func syncFile(f *os.File) error {
	if err := record.Sync(int(f.Fd())); err != nil {
		return &fs.PathError{Op: "sync", Path: f.Name(), Err: err}
	}
	return nil
}

// maxFile is the largest of the small files, which are read whole.
const maxFile = 4 << 20

var (
	errNotRegular = errors.New("is not a regular file")
	errTooLong    = errors.New("is too long")
)

// openRegular opens a file, never following a symbolic link at its end and never
// waiting for a FIFO.
func openRegular(path string, flags int) (*os.File, error) {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errNotRegular}
	}
	if err != nil && (!missing(err) || flags&os.O_CREATE == 0) {
		return nil, err
	}
	f, err := openBlocking(path, flags)
	if err == nil && flags&os.O_CREATE != 0 && info == nil {
		err = f.Chmod(0o600) // whatever the umask
	}
	return f, err
}

// openBlocking is os.OpenFile without the calls by which that finds out that a
// regular file cannot be waited for: six to each open, and a post opens many.
func openBlocking(path string, flags int) (*os.File, error) {
	fd, err := record.IgnoringEINTR(func() (int, error) { return syscall.Open(path, flags|syscall.O_CLOEXEC, 0o600) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func readSmall(path string) ([]byte, error) {
	f, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = &fs.PathError{Op: "read", Path: path, Err: errTooLong}
	}
	return b, err
}

// shortage reports whether what failed may well succeed later.
func shortage(err error) bool {
	for _, e := range [...]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// names are the entries of a directory that are not hidden, sorted. One that
// is not there is empty.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if missing(err) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			out = append(out, e.Name())
		}
	}
	return out, err
}

// remove removes a file, if it is there.
func remove(path string) error {
	if err := os.Remove(path); err != nil && !missing(err) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	return nil
}

// clear sets aside what is in the place of a file and is none.
func (t *Thread) clear(path string) error {
	if info, err := os.Lstat(path); err != nil || info.Mode().IsRegular() {
		return nil
	}
	aside := path + ".damaged-" + strconv.FormatInt(t.now().Unix(), 10)
	return t.setAside(path, aside, path+" is not a regular file")
}

// openFile is openRegular for what can begin anew: what is no file is set aside.
func (t *Thread) openFile(path string, flags int) (*os.File, error) {
	f, err := openRegular(path, flags)
	if errors.Is(err, errNotRegular) {
		if err = t.clear(path); err == nil {
			f, err = openRegular(path, flags)
		}
	}
	return f, err
}

// setAside takes out of the way what cannot be used, and says so. What was set
// aside under this name before is replaced, or left where that cannot be.
func (t *Thread) setAside(path, aside, what string) error {
	err := os.Rename(path, aside)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR) {
		aside += "-" + strconv.FormatInt(t.now().UnixNano(), 10)
		err = os.Rename(path, aside)
	}
	if err != nil {
		return err
	}
	t.warn("%s: set aside as %s", what, aside)
	return nil
}
