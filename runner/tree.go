package runner

import (
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// mark is what a process's first environment says of where it belongs.
type mark struct {
	job, root string // "" where it names none
	blank     bool   // it is empty, or may not be read
}

func markOf(pid int) mark {
	environ := firstEnvironment(pid)
	job, root := jobOf(environ)
	return mark{job, root, environ == ""}
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

// search finds the processes of one job among all that there are, by what they
// bear: for where the job's orphans do not come to its runner, or there is no
// runner any more.
type search struct {
	id, root string  // the job
	session  int     // the command's process, whose session it leads, 0 if there is none
	from     uint64  // when that started
	me       int     // the process that searches: none of the job's
	below    bool    // me's children are the job's
	runner   process // none of them either
	stuck    stuck
}

// isRunner: the job's runner stays while something can write to the log, and
// what is below it is the job's.
func (s *search) isRunner(p process) bool {
	return s.runner.pid != 0 && p.pid == s.runner.pid && p.start == s.runner.start
}

// other reports whether a process began as part of another job that exists: a
// runner that a job started, say.
func (s *search) other(m mark) bool {
	if m.job == "" || m.job == s.id {
		return false
	}
	root := m.root
	if !path.IsAbs(root) {
		root = s.root
	}
	var st unix.Stat_t
	return unix.Lstat(root+"/"+record.Jobs+"/"+m.job, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// membership is whether a process is one of the job's.
type membership int

const (
	ours     membership = iota
	apart               // it is not, nor is what is below it
	expiring            // it runs no code any more, and its children have, or get, another parent
)

// of is the membership of a process below one of the job's. One is apart if it
// began as part of another job, or is the daemon of a root, which any command of
// a job may have been the one to start: a daemon's environment names its root and
// no job. What says nothing may be about to end, and its environment be gone
// already, so that this cannot be told any more, and need not be.
func (s *search) of(p process, m mark) membership {
	switch {
	case m.job == "" && path.IsAbs(m.root) && record.IsDaemon(m.root, p.pid, p.start), s.other(m):
		return apart
	case m.blank && !p.runsCode() && !s.stuck.add(p, time.Now()):
		return expiring
	}
	return ours
}

// stuck remembers who has been about to end, and since when. The kernel may hold a
// process up in its end for as long as it likes, where a file of it cannot be closed:
// then it counts as any that cannot be ended. Nil remembers nothing.
type stuck map[int]since

type since struct {
	start uint64
	at    time.Time
}

// endsWithin is far longer than a process with much memory takes to give it back.
const endsWithin = 5 * time.Second

// add reports whether a process that is about to end has been so for too long.
func (s stuck) add(p process, now time.Time) bool {
	e, ok := s[p.pid]
	if !ok || e.start != p.start {
		if s != nil {
			s[p.pid] = since{p.start, now}
		}
		return false
	}
	return now.Sub(e.at) > endsWithin
}

func (s *search) bears(m mark) bool {
	return s.id != "" && m.job == s.id && (m.root == "" || path.Clean(m.root) == s.root)
}

// among is every live process of the job that can be found: those that bear its
// id, those of the command's session, and what is below either. Other jobs, the
// daemon, and what is below them are left out. It is not sure of that where
// somebody has ended meanwhile.
func (s *search) among(all []process, look func(pid int) mark) (live []process, sure bool) {
	marks := map[int]mark{}
	at := func(pid int) mark {
		m, ok := marks[pid]
		if !ok {
			m = look(pid)
			marks[pid] = m
		}
		return m
	}
	sure = true
	session := s.ownSession(all, at)
	runs := slices.ContainsFunc(all, func(p process) bool { return s.isRunner(p) })
	kids := map[int][]process{}
	var queue []process
	for _, p := range all {
		kids[p.ppid] = append(kids[p.ppid], p)
		switch {
		case p.pid == s.me || p.pid == 1:
		case s.isRunner(p):
		case s.below && p.ppid == s.me, runs && p.ppid == s.runner.pid, session != 0 && p.sid == session, s.bears(at(p.pid)):
			queue = append(queue, p)
		}
	}
	seen := map[int]bool{s.me: true, 1: true}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if seen[p.pid] {
			continue
		}
		seen[p.pid] = true
		membership := ours
		if !p.zombie {
			membership = s.of(p, at(p.pid))
		}
		switch {
		case membership == apart:
			continue
		case membership == expiring:
			sure = false
		case !p.zombie:
			live = append(live, p)
		}
		queue = append(queue, kids[p.pid]...)
	}
	return live, sure
}

// ownSession is the command's session if it is still that: its number may have
// become a stranger's, who may have gone and left a session behind. So either
// its leader is there, or a member bears the job's id (or nothing at all).
func (s *search) ownSession(all []process, at func(pid int) mark) int {
	if s.session == 0 {
		return 0
	}
	borne := false
	for _, p := range all {
		if p.pid == s.session {
			if p.start != s.from {
				return 0
			}
			return s.session
		}
		if p.sid == s.session && !borne {
			m := at(p.pid)
			borne = m.blank || s.bears(m)
		}
	}
	if borne {
		return s.session
	}
	return 0
}

// withParents reports whether the parent of everybody is among them: nobody
// ended while they were looked at.
func withParents(all []process) bool {
	there := map[int]bool{0: true}
	for _, p := range all {
		there[p.pid] = true
	}
	return !slices.ContainsFunc(all, func(p process) bool { return !there[p.ppid] })
}

// treeByMarks is the tree as a search finds it. It is not sure where a parent
// has ended during the look.
func (r *supervisor) treeByMarks() (live []process, sure bool) {
	all, sure := everyProcess()
	sure = sure && withParents(all)
	s := search{id: r.id, root: r.root, session: r.child, from: r.childFrom, me: unix.Getpid(), below: true, stuck: r.stuck}
	live, surely := s.among(all, markOf)
	return live, sure && surely
}
