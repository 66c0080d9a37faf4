package record

import (
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// Write replaces the whole of a reserved file by b, in place: one write at the
// start, then the length. It allocates nothing where the blocks are reserved.
func Write(fd int, b []byte) error {
	for off := 0; off < len(b); {
		n, err := IgnoringEINTR(func() (int, error) { return unix.Pwrite(fd, b[off:], int64(off)) })
		if err != nil {
			return &fs.PathError{Op: "write", Path: "record", Err: err}
		}
		off += n
	}
	if err := unix.Ftruncate(fd, int64(len(b))); err != nil {
		return &fs.PathError{Op: "truncate", Path: "record", Err: err}
	}
	return nil
}

// Open opens a file of a directory, never following a symbolic link.
func Open(dir int, name string, flags int, perm uint32) (int, error) {
	fd, err := IgnoringEINTR(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, perm)
	})
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// reserveByWriting fills n bytes with blanks: what a file system that cannot
// preallocate offers. The file then reads as absent.
func reserveByWriting(fd int, n int) error {
	b := make([]byte, n)
	for i := range b {
		b[i] = ' '
	}
	_, err := unix.Pwrite(fd, b, 0)
	return err
}

// Clear takes away what is in the place of a record and is none. A directory
// that holds something is moved aside.
func Clear(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EISDIR || err == unix.EPERM {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	if err == unix.ENOTEMPTY || err == unix.EEXIST {
		err = unix.Renameat(dir, name, dir, name+".damaged")
	}
	if err == unix.ENOENT {
		err = nil
	}
	return err
}

// Sync makes the bytes of a file, or the entries of a directory, durable. A
// file system that cannot sync a directory (EINVAL) is left as it is.
func Sync(fd int) error {
	_, err := IgnoringEINTR(func() (int, error) { return 0, syncFD(fd) })
	if err == unix.EINVAL || err == unix.ENOSYS || err == unix.ENOTSUP {
		return nil
	}
	return err
}

// IgnoringEINTR calls f again for as long as a signal interrupts it.
func IgnoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// ReadFile reads the beginning of a file of a directory, never following a
// symbolic link. A FIFO is refused, and never waited for. What fills b may not
// be all.
func ReadFile(dir int, name string, b []byte) ([]byte, error) {
	fd, err := Open(dir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return readInto(b, fd)
}

// readInto reads until b is full or the file ends. A file of /proc comes in
// pieces.
func readInto(b []byte, fd int) ([]byte, error) {
	n := 0
	for n < len(b) {
		m, err := IgnoringEINTR(func() (int, error) { return unix.Pread(fd, b[n:], int64(n)) })
		if err != nil {
			return nil, err
		}
		if m <= 0 {
			break
		}
		n += m
	}
	return b[:n], nil
}

// StatRegular looks at a regular file of a directory without opening it. It
// reports false where there is none.
func StatRegular(dir int, name string) (size int64, modified time.Time, ok bool) {
	var st unix.Stat_t
	_, err := IgnoringEINTR(func() (int, error) { return 0, unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return 0, time.Time{}, false
	}
	return st.Size, time.Unix(st.Mtim.Unix()), true
}

// renameByLink is RenameNoReplace where the kernel has no such rename. A file
// is linked, which fails when the name is taken. A directory is renamed after
// a look: a job's directory is never empty, so a rename onto one fails too.
func renameByLink(dir int, from, to string) error {
	err := unix.Linkat(dir, from, dir, to, 0)
	switch err {
	case nil:
		return unix.Unlinkat(dir, from, 0)
	case unix.EPERM, unix.EISDIR, unix.ENOTSUP, unix.EACCES: // a directory, or no hard links here
		var st unix.Stat_t
		if unix.Fstatat(dir, to, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			return unix.EEXIST
		}
		err = unix.Renameat(dir, from, dir, to)
		if err == unix.ENOTEMPTY {
			return unix.EEXIST
		}
	}
	return err
}
