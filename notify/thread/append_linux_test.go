package thread

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// What can only name the file, and not be synced, takes its place.
func init() {
	unsync = func(o order) {
		fds, _ := os.ReadDir("/proc/self/fd")
		for _, d := range fds {
			path := filepath.Join("/proc/self/fd", d.Name())
			if to, _ := os.Readlink(path); to == filepath.Join(o.Root, threadDir, logName) {
				fd, _ := strconv.Atoi(d.Name())
				if p, err := unix.Open(to, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
					_ = unix.Dup3(p, fd, unix.O_CLOEXEC)
				}
			}
		}
	}
}
