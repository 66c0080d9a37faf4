package runner

import "golang.org/x/sys/unix"

const (
	fSetPipeSize = unix.F_SETPIPE_SZ
	blockSize    = 4096
	maxRSSUnit   = 1024 // of Rusage.Maxrss, in bytes
)

// pending is how many bytes a pipe holds.
func pending(pipe int) int {
	n, err := unix.IoctlGetInt(pipe, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}
