package jobdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"space-job/jobdir/record"
)

// ReadOwn reads a regular file of at most so many bytes that this user owns, and
// on which nobody else has a permission of forbidden (0o022: to write it). It never
// follows a symbolic link at the end of the path, nor waits for a FIFO.
func ReadOwn(path string, most int64, forbidden uint32) ([]byte, error) {
	fail := func(op string, err error) ([]byte, error) { return nil, &fs.PathError{Op: op, Path: path, Err: err} }
	fd, err := record.Open(-1, path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return fail("stat", err)
	}
	mode := uint32(st.Mode)
	switch {
	case mode&syscall.S_IFMT != syscall.S_IFREG:
		return fail("read", errors.New("is not a regular file"))
	case int(st.Uid) != os.Geteuid():
		return fail("read", fmt.Errorf("is owned by uid %d, not by uid %d", st.Uid, os.Geteuid()))
	case mode&forbidden&0o022 != 0:
		return fail("read", fmt.Errorf("may be written by others (mode %04o)", mode&0o7777))
	case mode&forbidden != 0:
		return fail("read", fmt.Errorf("may be read by others (mode %04o)", mode&0o7777))
	case st.Size > most:
		return fail("read", fmt.Errorf("has more than %d bytes", most))
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		return fail("read", fmt.Errorf("has more than %d bytes", most))
	}
	return b, err
}

// LockFile makes a file that is there to be locked, where there is none, and waits
// for its lock, which is held until unlock is called or the process has ended.
func LockFile(path string) (unlock func(), err error) {
	fd, err := record.Open(-1, path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, fs.ErrPermission) { // made under a umask that takes our own rights away
		_ = os.Chmod(path, 0o600)
		fd, err = record.Open(-1, path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_NONBLOCK, 0o600)
	}
	if err != nil {
		return nil, err
	}
	_ = syscall.Fchmod(fd, 0o600) // whatever the umask
	if err := record.LockWait(fd); err != nil {
		_ = syscall.Close(fd)
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { _ = syscall.Close(fd) }, nil
}
