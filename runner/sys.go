package runner

import (
	"strconv"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// closeListed marks every descriptor from first up close-on-exec, as the
// directory that lists them has them, or else as many as there may be.
func closeListed(list string, first int) {
	dir, err := record.Open(unix.AT_FDCWD, list, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		err = record.EachName(dir, func(name []byte) {
			if fd, err := strconv.Atoi(string(name)); err == nil && fd >= first {
				unix.CloseOnExec(fd)
			}
		})
		unix.Close(dir)
	}
	if err != nil {
		var lim unix.Rlimit
		_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &lim)
		for fd := first; fd < int(min(lim.Cur, 1<<16)); fd++ {
			unix.CloseOnExec(fd)
		}
	}
}

// raiseLimits raises every soft limit to its hard one: the caller's soft limits
// are the job's.
func raiseLimits() {
	for what := range limits {
		var lim unix.Rlimit
		if unix.Getrlimit(what, &lim) == nil && lim.Cur < lim.Max {
			lim.Cur = lim.Max
			_ = unix.Setrlimit(what, &lim)
		}
	}
}
