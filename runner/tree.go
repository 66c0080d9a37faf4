package runner

import (
	"strings"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// isOtherJob reports whether a process began as part of another job that
// exists: a runner that a job started, say. Its first environment says so, and
// where that job's root is.
func isOtherJob(pid int, id, root string) bool {
	other, home := jobOf(firstEnvironment(pid))
	return isOther(other, home, id, root)
}

func isOther(other, home, id, root string) bool {
	if other == "" || other == id {
		return false
	}
	if !strings.HasPrefix(home, "/") {
		home = root
	}
	var st unix.Stat_t
	return unix.Lstat(home+"/"+record.Jobs+"/"+other, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// jobOf finds the job that an environment names, "" when there is none, and the
// root that it names.
func jobOf(environ string) (id, root string) {
	for kv := range strings.SplitSeq(environ, "\x00") {
		if v, ok := strings.CutPrefix(kv, record.EnvJob+"="); ok {
			if j, ok := record.ParseID(v); ok {
				id = string(j)
			}
		} else if v, ok := strings.CutPrefix(kv, record.EnvHome+"="); ok {
			root = v
		}
	}
	return id, root
}
