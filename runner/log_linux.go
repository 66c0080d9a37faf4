package runner

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	fSetPipeSize = unix.F_SETPIPE_SZ
	blockSize    = 4096
	seekHole     = unix.SEEK_HOLE
	seekData     = unix.SEEK_DATA
	maxRSSUnit   = 1024 // of Rusage.Maxrss, in bytes
)

// splice moves up to max bytes from a pipe to a place in a file, without
// waiting for the pipe. It is a raw system call: in a flood, telling the Go
// scheduler of each one costs half as much again as the bytes do.
func splice(pipe, file int, off int64, max int) (int, error) {
	for {
		n, _, err := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(pipe), 0, uintptr(file), uintptr(unsafe.Pointer(&off)),
			uintptr(max), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		switch err {
		case 0:
			return int(n), nil
		case unix.EINTR:
			continue
		}
		return 0, err
	}
}

// throwAway takes up to max bytes out of the pipe.
func throwAway(max int) (int, error) {
	for {
		n, err := unix.Splice(fdPipe, nil, fdNull, nil, max, unix.SPLICE_F_NONBLOCK)
		switch {
		case err == unix.EINTR:
			continue
		case noCall(err):
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
