package record

import "golang.org/x/sys/unix"

// ErrLocked is what Lock and LockShared return when another holds the lock.
const ErrLocked = unix.EWOULDBLOCK

// Lock takes the exclusive lock of an open file without waiting. The file must
// be open for writing.
func Lock(fd int) error { return lock(fd, unix.F_WRLCK, false) }

// LockWait takes the exclusive lock, waiting for it.
func LockWait(fd int) error { return lock(fd, unix.F_WRLCK, true) }

// LockShared takes a shared lock without waiting.
func LockShared(fd int) error { return lock(fd, unix.F_RDLCK, false) }

func lock(fd int, kind int16, wait bool) error {
	cmd, how := unix.F_OFD_SETLK, unix.LOCK_NB
	if wait {
		cmd, how = unix.F_OFD_SETLKW, 0
	}
	_, err := IgnoringEINTR(func() (int, error) {
		return 0, unix.FcntlFlock(uintptr(fd), cmd, &unix.Flock_t{Type: kind})
	})
	if noOFD(err) {
		if kind == unix.F_WRLCK {
			how |= unix.LOCK_EX
		} else {
			how |= unix.LOCK_SH
		}
		_, err = IgnoringEINTR(func() (int, error) { return 0, unix.Flock(fd, how) })
	}
	if err == unix.EACCES || err == unix.EAGAIN {
		return ErrLocked
	}
	return err
}

// Held reports whether someone holds the exclusive lock of an open file.
func Held(fd int) (bool, error) {
	lk := unix.Flock_t{Type: unix.F_RDLCK}
	_, err := IgnoringEINTR(func() (int, error) {
		return 0, unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lk)
	})
	if noOFD(err) {
		return heldByFlock(fd)
	}
	return lk.Type != unix.F_UNLCK, err
}

// noOFD: kernels before 3.15 and gVisor have no open-file-description locks.
func noOFD(err error) bool { return err == unix.EINVAL || err == unix.ENOSYS }

func heldByFlock(fd int) (bool, error) {
	_, err := IgnoringEINTR(func() (int, error) { return 0, unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		return true, nil
	}
	if err == nil {
		err = unix.Flock(fd, unix.LOCK_UN)
	}
	return false, err
}
