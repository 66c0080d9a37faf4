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

// group is what can be reached where there is no /proc: the command's process
// group, as one. What has left it is beyond reach, and whether anything has is
// known only where orphans come to the runner.
func (r *supervisor) group() (live []process, sure bool) {
	if r.child != 0 && unix.Kill(-r.child, 0) != unix.ESRCH {
		return []process{{pid: r.child, comm: "the process group", group: true}}, true
	}
	return nil, r.childless.Load()
}

// treeByMarks is every live process of the job that can be found where the
// system does not bring its orphans to the runner: below this process, of the
// command's session, or with the job's id in its first environment. Other jobs
// and what is below them are left out. It is not sure where a parent has ended
// during the look.
func (r *supervisor) treeByMarks() (live []process, sure bool) {
	all, sure := everyProcess()
	me := unix.Getpid()
	there := map[int]bool{0: true}
	kids := map[int][]process{}
	var queue []process
	session := r.child
	for _, p := range all {
		if p.pid == session && p.start != r.childFrom {
			session = 0 // the number is a stranger's by now
		}
	}
	for _, p := range all {
		there[p.pid] = true
		kids[p.ppid] = append(kids[p.ppid], p)
		if p.pid == me || p.pid == 1 {
			continue
		}
		if p.ppid == me || session != 0 && p.sid == session {
			queue = append(queue, p)
		} else if id, _ := jobOf(firstEnvironment(p.pid)); id == r.id && r.id != "" {
			queue = append(queue, p)
		}
	}
	for _, p := range all {
		sure = sure && there[p.ppid]
	}
	seen := map[int]bool{me: true}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if seen[p.pid] || isOtherJob(p.pid, r.id, r.root) {
			continue
		}
		seen[p.pid] = true
		if !p.zombie {
			live = append(live, p)
		}
		queue = append(queue, kids[p.pid]...)
	}
	return live, sure
}
