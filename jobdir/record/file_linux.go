package record

import "golang.org/x/sys/unix"

// Reserve sets ReservedSize bytes aside for a file, which stays empty.
func Reserve(fd int) error {
	_, err := IgnoringEINTR(func() (int, error) {
		return 0, unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, ReservedSize)
	})
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return reserveByWriting(fd, ReservedSize)
	}
	return err
}

// Punch frees a range of a file, which reads as zeros from then on. The size
// stays. ENOTSUP where the file system has no holes.
func Punch(fd int, off, n int64) error {
	_, err := IgnoringEINTR(func() (int, error) {
		return 0, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if err == unix.ENOSYS {
		return unix.ENOTSUP
	}
	return err
}

// RenameNoReplace gives a file or directory another name in the same
// directory, or fails with EEXIST where that name is taken.
func RenameNoReplace(dir int, from, to string) error {
	err := unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	if err == unix.ENOSYS || err == unix.EINVAL {
		return renameByLink(dir, from, to)
	}
	return err
}

func syncFD(fd int) error { return unix.Fsync(fd) }
