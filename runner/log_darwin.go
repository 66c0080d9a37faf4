package runner

import "golang.org/x/sys/unix"

const (
	fSetPipeSize = -1 // no such call: the kernel sizes pipes itself
	blockSize    = 4096
	seekHole     = 3
	seekData     = 4
	maxRSSUnit   = 1 // of Rusage.Maxrss, in bytes
	fionread     = 0x4004667f
)

// splice is not there on macOS.
func splice(_, _ int, _ int64, _ int) (int, error) { return 0, unix.ENOSYS }

// throwAway takes up to max bytes out of the pipe.
func throwAway(max int) (int, error) { return readPipe(make([]byte, min(max, pipeSmall))) }

// pending is how many bytes a pipe holds.
func pending(pipe int) int {
	n, err := unix.IoctlGetInt(pipe, fionread)
	if err != nil {
		return 0
	}
	return n
}
