package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	way "space-job/cmd/internal/space"
)

// container is a namespace of processes and one of mounts, with a folder that only
// it has.
type container struct {
	t    *testing.T
	init *exec.Cmd
	root string
}

func newContainer(t *testing.T) *container {
	t.Helper()
	own := t.TempDir()
	c := &container{t: t, root: own + "/root"}
	flags := []string{"--mount", "--pid", "--fork", "--mount-proc", "--kill-child"}
	if os.Geteuid() != 0 {
		flags = append(flags, "--user", "--map-root-user")
	}
	// The first process of it takes the orphans away, as that of a real one does.
	script := `mount -t tmpfs -o mode=700 own ` + own + ` && echo ready && trap : CHLD && while :; do sleep 1000 & wait; done`
	c.init = exec.Command("unshare", append(flags, "sh", "-c", script)...)
	c.init.Stderr = os.Stderr
	out, err := c.init.StdoutPipe()
	if err == nil {
		err = c.init.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	ready := make([]byte, 6)
	if n, err := out.Read(ready); err != nil || n == 0 {
		t.Skip("no container can be made here")
	}
	return c
}

// first is the number of its first process.
func (c *container) first() int {
	c.t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(c.init.Process.Pid) + "/task/" + strconv.Itoa(c.init.Process.Pid) + "/children")
	pid, bad := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || bad != nil {
		c.t.Fatalf("%q, %v, %v", b, err, bad)
	}
	return pid
}

// stop stops the container, and all that runs in it.
func (c *container) stop() {
	_ = c.init.Process.Kill()
	_ = c.init.Wait()
}

func (c *container) reach() way.Space {
	prefix := []string{"nsenter", "-t", strconv.Itoa(c.first()), "-m", "-p"}
	if os.Geteuid() != 0 {
		prefix = append(prefix, "-U", "--preserve-credentials")
	}
	return way.Space{Exec: append(prefix, "env", "SPACE_JOB_HOME="+c.root), Program: pathOf(c.t, "space-job")}
}

// TestContainer: jobs in a container, whose root is nowhere else. When it stops
// halfway through a read, that is said.
func TestContainer(t *testing.T) {
	t.Parallel()
	c := newContainer(t)
	here := newSpace(t)
	here.spaces(map[string]way.Space{"local:dev": c.reach()})
	job := here.run("--space", "local:dev", "start", "echo $SPACE_JOB; readlink /proc/self/ns/pid; exit 6")
	here.fails(6, "--space", "local:dev", "wait", job)
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	if log := here.run("--space", "local:dev", "logs", job); !strings.HasPrefix(log, job+"\npid:[") || strings.HasSuffix(log, ns) {
		t.Errorf("%q, and here %s", log, ns)
	}
	if _, err := os.Stat(c.root); err == nil {
		t.Error("its root is seen here")
	}
	// A tree that moved away is stopped, too.
	job = here.run("--space", "local:dev", "start", "setsid sleep 1000 & echo up; sleep 1000")
	if got := here.run("--space", "local:dev", "cancel", job); !strings.Contains(got, "cancelled") {
		t.Error(got)
	}

	job = here.run("--space", "local:dev", "start", "echo before; sleep 1000")
	read := here.command("--space", "local:dev", "logs", job, "--offset", "7", "--follow-ms", "25000")
	var once bytes.Buffer
	read.Stderr = &once
	follow := here.command("--space", "local:dev", "logs", job, "--offset", "0", "-f")
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	talk, err := follow.StderrPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 64)
	if n, err := out.Read(got); err != nil || string(got[:n]) != "before\n" {
		t.Fatalf("%q, %v", got[:n], err)
	}
	// Now the log is as long as the place that this one waits at.
	if err := read.Start(); err != nil {
		t.Fatal(err)
	}
	here.await("two that wait over there", func() string { return strconv.Itoa(c.waiting()) }, "2")
	c.stop()
	// One read fails; what follows has patience, and says so.
	if err := read.Wait(); err == nil || strings.Count(once.String(), "\n") != 2 || !strings.Contains(once.String(), "space local:dev: ") || !strings.Contains(once.String(), "logs "+job+" --offset 7") {
		t.Errorf("%v: %s", err, once.String())
	}
	line, err := bufio.NewReader(talk).ReadString('\n')
	if err != nil || !strings.Contains(line, "warning: space local:dev: ") || !strings.Contains(line, "it is tried again") {
		t.Errorf("%q, %v", line, err)
	}
	_ = follow.Process.Signal(os.Interrupt)
	if err := follow.Wait(); follow.ProcessState.ExitCode() != 130 {
		t.Errorf("%v", err)
	}
}

// waiting are the calls over there that wait for something.
func (c *container) waiting() (n int) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, path := range all {
		env, _ := os.ReadFile(path)
		args, _ := os.ReadFile(filepath.Dir(path) + "/cmdline")
		if !strings.Contains(string(env), "SPACE_JOB_HOME="+c.root+"\x00") || !strings.Contains(string(args), "\x00--request\x00") {
			continue
		}
		files, _ := filepath.Glob(filepath.Dir(path) + "/fd/*")
		for _, f := range files {
			if what, _ := os.Readlink(f); what == "anon_inode:inotify" { // it has been asked, and looks at the job
				n++
			}
		}
	}
	return n
}
