package until

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"space-job/jobdir/record"
)

const prSetChildSubreaper = 36

// adoptOrphans makes this process the parent of what a try leaves behind, so
// that it can be found wherever it went.
var adoptOrphans = sync.OnceFunc(func() {
	// Where the kernel refuses, what stays in the group is still found.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
})

// killFor bounds how long what is left is chased: what cannot die (another
// user's, stuck in the kernel) is left to the end of the job.
const killFor = 2 * time.Second

// killLeft kills the children that this process has after a try: they are what
// the try left behind. Their own children come to us as they die.
func (w *watcher) killLeft() {
	for end := time.Now().Add(killFor); time.Now().Before(end); {
		left := 0
		for _, pid := range children() {
			if n, _ := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); n == pid {
				left++ // gone; its children may have come
				continue
			}
			if !w.isOther(pid) && syscall.Kill(pid, syscall.SIGKILL) == nil {
				left++
			}
		}
		if left == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func children() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, l := range lists {
		b, _ := os.ReadFile(l)
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// isOther reports whether a process is no part of a try: it belongs to a job
// that the try started, or is the daemon.
func (w *watcher) isOther(pid int) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	if name, err := os.ReadFile(proc + "/comm"); err == nil && strings.TrimSpace(string(name)) == "space-jobd" {
		return true
	}
	environ, err := os.ReadFile(proc + "/environ")
	if err != nil {
		return false
	}
	var job, home string
	for kv := range strings.SplitSeq(string(environ), "\x00") {
		if v, ok := strings.CutPrefix(kv, record.EnvJob+"="); ok {
			job = v
		} else if v, ok := strings.CutPrefix(kv, record.EnvHome+"="); ok {
			home = v
		}
	}
	id, ok := record.ParseID(job)
	if !ok || job == os.Getenv(record.EnvJob) {
		return false
	}
	if !filepath.IsAbs(home) {
		home = w.root.Path()
	}
	info, err := os.Lstat(filepath.Join(home, record.Jobs, string(id)))
	return err == nil && info.IsDir()
}
