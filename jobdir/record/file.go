package record

import (
	"io/fs"

	"golang.org/x/sys/unix"
)

// Write replaces the whole of a reserved file by b, in place: one write at the
// start, then the length. It allocates nothing where the blocks are reserved.
func Write(fd int, b []byte) error {
	for off := 0; off < len(b); {
		n, err := ignoringEINTR(func() (int, error) { return unix.Pwrite(fd, b[off:], int64(off)) })
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
	fd, err := ignoringEINTR(func() (int, error) {
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

// Sync makes the bytes of a file, or the entries of a directory, durable. A
// file system that cannot sync a directory (EINVAL) is left as it is.
func Sync(fd int) error {
	_, err := ignoringEINTR(func() (int, error) { return 0, syncFD(fd) })
	if err == unix.EINVAL || err == unix.ENOSYS || err == unix.ENOTSUP {
		return nil
	}
	return err
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != unix.EINTR {
			return n, err
		}
	}
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
