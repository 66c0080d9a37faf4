package record

import "golang.org/x/sys/unix"

// Reserve sets ReservedSize bytes aside for a file. APFS copies on write, so
// blanks are written and the record goes over them.
func Reserve(fd int) error { return reserveByWriting(fd, ReservedSize) }

// Punch frees a range of a file, which reads as zeros from then on. The size
// stays. ENOTSUP where the file system has no holes.
func Punch(fd int, off, n int64) error {
	// fpunchhole_t is {flags, reserved, offset, length}: the head of an fstore_t.
	err := unix.FcntlFstore(uintptr(fd), unix.F_PUNCHHOLE, &unix.Fstore_t{Offset: off, Length: n})
	if err == unix.ENOTTY || err == unix.EINVAL {
		return unix.ENOTSUP
	}
	return err
}

// RenameNoReplace gives a file or directory another name in the same
// directory, or fails with EEXIST where that name is taken.
func RenameNoReplace(dir int, from, to string) error {
	err := unix.RenameatxNp(dir, from, dir, to, unix.RENAME_EXCL)
	if err == unix.ENOSYS || err == unix.ENOTSUP || err == unix.EINVAL {
		return renameByLink(dir, from, to)
	}
	return err
}

// syncFD asks the drive itself to write: fsync on macOS does not.
func syncFD(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_FULLFSYNC, 0)
	if err == unix.ENOTSUP || err == unix.EINVAL || err == unix.ENOTTY {
		err = unix.Fsync(fd)
	}
	return err
}
