package runner

import "golang.org/x/sys/unix"

const (
	fSetPipeSize = unix.F_SETPIPE_SZ
	blockSize    = 4096
	seekHole     = unix.SEEK_HOLE
	seekData     = unix.SEEK_DATA
	maxRSSUnit   = 1024 // of Rusage.Maxrss, in bytes
)

// splice moves up to max bytes from a pipe to a place in a file, without
// waiting for the pipe.
func splice(pipe, file int, off int64, max int) (int, error) {
	for {
		n, err := unix.Splice(pipe, nil, file, &off, max, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			return int(n), err
		}
	}
}

// throwAway takes up to max bytes out of the pipe.
func throwAway(max int) (int, error) {
	for {
		n, err := unix.Splice(fdPipe, nil, fdNull, nil, max, unix.SPLICE_F_NONBLOCK)
		switch err {
		case unix.EINTR:
			continue
		case unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP:
			return readPipe(make([]byte, min(max, pipeSmall)))
		}
		return int(n), err
	}
}

// pending is how many bytes a pipe holds.
func pending(pipe int) int {
	n, err := unix.IoctlGetInt(pipe, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}
