package record

import "golang.org/x/sys/unix"

// ErrLocked is what Lock and LockShared return when another holds the lock.
const ErrLocked = unix.EWOULDBLOCK

// Lock takes the exclusive lock of an open file. Readers take a shared one for
// an instant, so it is tried again for a moment before it counts as held.
func Lock(fd int) error {
	for range 20 {
		err := flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err != ErrLocked {
			return err
		}
		_, _ = unix.Select(0, nil, nil, nil, &unix.Timeval{Usec: 1000})
	}
	return ErrLocked
}

// LockWait takes the exclusive lock, waiting for it.
func LockWait(fd int) error { return flock(fd, unix.LOCK_EX) }

// LockShared takes a shared lock without waiting.
func LockShared(fd int) error { return flock(fd, unix.LOCK_SH|unix.LOCK_NB) }

// Held reports whether someone holds the exclusive lock of an open file.
func Held(fd int) (bool, error) {
	err := flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	if err == ErrLocked {
		return true, nil
	}
	if err == nil {
		err = flock(fd, unix.LOCK_UN)
	}
	return false, err
}

func flock(fd, how int) error {
	_, err := IgnoringEINTR(func() (int, error) { return 0, unix.Flock(fd, how) })
	return err
}
