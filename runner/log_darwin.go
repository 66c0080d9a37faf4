package runner

import "golang.org/x/sys/unix"

const (
	fSetPipeSize = -1 // no such call: the kernel sizes pipes itself
	blockSize    = 4096
	maxRSSUnit   = 1 // of Rusage.Maxrss, in bytes
	fionread     = 0x4004667f
)

// pending is how many bytes a pipe holds.
func pending(pipe int) int {
	n, err := unix.IoctlGetInt(pipe, fionread)
	if err != nil {
		return 0
	}
	return n
}
