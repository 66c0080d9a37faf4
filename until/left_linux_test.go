package until

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestU3EscapedChildren: what has left its session, and lost its parent, is
// found all the same; a job that a try has started is not touched, nor is the
// daemon.
func TestU3EscapedChildren(t *testing.T) {
	t.Parallel()
	if os.Getenv("UNTIL_TEST_ALONE") == "" {
		alone(t, "TestU3EscapedChildren")
		return
	}
	dir := t.TempDir()
	root := newRoot(t)
	j, _ := runningJob(t, root, "")
	daemon := filepath.Join(dir, "space-jobd")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, sleep, daemon)
	w := begin(t, root, Condition{Command: `cd ` + dir + `
		setsid sh -c 'echo $$ >>pid; setsid sh -c "echo \$\$ >>pid; sleep 777; :" & sleep 777; :' &
		(env -i setsid sleep 777 & echo $! >>pid)
		SPACE_JOB=` + string(j.ID()) + ` setsid sleep 778 & echo $! >>job
		setsid ./space-jobd 778 & echo $! >>job
		until test $(wc -l <pid) -ge 3; do sleep 0.01; done
		for p in $(cat job); do until grep -qx -e sleep -e space-jobd /proc/$p/comm; do sleep 0.01; done; done`}, func(w *watcher) { quick(w); w.alone = true })
	w.ends(0, "exited with 0")
	gone(t, dir+"/pid")
	b, err := os.ReadFile(dir + "/job")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil || !runs(pid) {
			t.Errorf("process %s was killed, though it is none of the try: %v", f, err)
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// alone runs one test of this binary in a process that has no other children.
func alone(t *testing.T, name string) {
	t.Helper()
	c := exec.Command("/proc/self/exe", "-test.run=^"+name+"$", "-test.v")
	c.Env = append(os.Environ(), "UNTIL_TEST_ALONE=1")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
		t.Fatalf("%v\n%s", err, out)
	}
}
