//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clients are the processes that this one started and waits for. What else
// becomes a zombie here is an orphan of theirs, and is reaped by its number:
// a wait for just any child would take the client's status away.
var clients = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

const prSetChildSubreaper = 36

func becomeSubreaper() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return os.NewSyscallError("prctl(PR_SET_CHILD_SUBREAPER)", errno)
	}
	return nil
}

// terminal, where it is set, is the controlling terminal of the next client,
// which runs in a session of its own there until shortly after its end.
var terminal *os.File

// begin starts a client.
func begin(cmd *exec.Cmd) error {
	clients.Lock()
	defer clients.Unlock()
	if terminal != nil {
		argv := append([]string{"/bin/sh", "-c", `"$@"; code=$?; sleep 0.5; exit $code`, "sh"}, cmd.Args...)
		cmd.Path, cmd.Args = argv[0], argv
		cmd.Stdin = terminal
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	clients.pids[cmd.Process.Pid] = true
	return nil
}

// finish waits for a client.
func finish(cmd *exec.Cmd) error {
	err := cmd.Wait()
	clients.Lock()
	delete(clients.pids, cmd.Process.Pid)
	clients.Unlock()
	return err
}

// call runs a client and returns what it wrote to its standard output, without
// the newline at the end.
func call(env []string, argv ...string) (string, error) {
	var out, talk bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &out, &talk
	if err := begin(cmd); err != nil {
		return "", err
	}
	err := finish(cmd)
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv[:min(2, len(argv))], " "), err, bytes.TrimSpace(talk.Bytes()))
	}
	return strings.TrimSuffix(out.String(), "\n"), err
}

// exitCode is the code in an error of call, 0 for nil, -1 where it has none.
func exitCode(err error) int {
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.ExitCode()
	}
	return -1
}

// process is one entry of /proc.
type process struct {
	pid, ppid int
	name      string
	zombie    bool
	ticks     int64 // user and system time
}

func readProcess(pid int) (process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	s := string(stat)
	from, to := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if from < 0 || to < from {
		return process{}, false
	}
	f := strings.Fields(s[to+1:]) // f[0] is field 3, the state
	p := process{pid: pid, name: s[from+1 : to], zombie: f[0] == "Z"}
	p.ppid, _ = strconv.Atoi(f[1])
	user, _ := strconv.ParseInt(f[11], 10, 64)
	system, _ := strconv.ParseInt(f[12], 10, 64)
	p.ticks = user + system
	return p, true
}

// descendants are all living processes below this one, clients too.
func descendants() []process {
	all := map[int]process{}
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if p, ok := readProcess(pid); ok {
			all[pid] = p
		}
	}
	self := os.Getpid()
	var below []process
	for _, p := range all {
		if p.zombie || p.pid == self {
			continue
		}
		for q, ok := p, true; ok; q, ok = all[q.ppid] {
			if q.ppid == self {
				below = append(below, p)
				break
			}
		}
	}
	return below
}

// reapOrphans waits for the zombies that are ours only because their parent
// went.
func reapOrphans() {
	clients.Lock()
	defer clients.Unlock()
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, f := range strings.Fields(string(b)) {
			pid, _ := strconv.Atoi(f)
			if p, ok := readProcess(pid); ok && p.zombie && !clients.pids[pid] {
				_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
			}
		}
	}
}

// reapMeanwhile reaps orphans until it is told to stop: some tools wait until
// what they killed is gone for good.
func reapMeanwhile() (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
				reapOrphans()
			}
		}
	}()
	return func() { close(done) }
}

// killDescendants ends everything below this process.
func killDescendants() {
	for range 200 {
		below := descendants()
		if len(below) == 0 {
			break
		}
		for _, p := range below {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond)
		reapOrphans()
	}
	reapOrphans()
}

// pss is the proportional set size of a process in kB: what it takes, shared
// pages divided by those who share them.
func pss(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	return field(b, "Pss:")
}

// voluntary counts the times that the threads of a process went to sleep.
func voluntary(pid int) (n int) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, t := range threads {
		b, _ := os.ReadFile(t)
		n += field(b, "voluntary_ctxt_switches:")
	}
	return n
}

func field(b []byte, key string) int {
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == key {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

// peakMemory runs a command and returns how long it took and the most memory
// it had. The kernel's figure for a child of this process would begin at the
// size of this process; so a small shell starts the command, and leaves it to
// us as an orphan.
func peakMemory(env []string, argv ...string) (took time.Duration, kB int64, err error) {
	clients.Lock() // no one else is to reap it
	defer clients.Unlock()
	cmd := exec.Command("/bin/sh", append([]string{"-c", `"$@" >/dev/null 2>&1 & echo $!`, "sh"}, argv...)...)
	cmd.Env = env
	begun := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return 0, 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return 0, 0, err
	}
	var status syscall.WaitStatus
	var usage syscall.Rusage
	for {
		_, err = syscall.Wait4(pid, &status, 0, &usage)
		if err != syscall.EINTR {
			break
		}
	}
	took = time.Since(begun)
	if err == nil && status.ExitStatus() != 0 {
		err = fmt.Errorf("%s: exit code %d", strings.Join(argv, " "), status.ExitStatus())
	}
	return took, usage.Maxrss, err
}

// poll tries f until it is content or the time is over.
func poll(limit, step time.Duration, f func() bool) bool {
	for end := time.Now().Add(limit); ; {
		if f() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(step)
	}
}

// named counts the living descendants with a name.
func named(names ...string) (n int) {
	for _, p := range descendants() {
		if slices.Contains(names, p.name) {
			n++
		}
	}
	return n
}

// killSleeps ends the jobs of this program that only sleep.
func killSleeps() {
	for range 100 {
		n := 0
		for _, p := range descendants() {
			if p.name == "sleep" {
				n++
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
		if n == 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
		reapOrphans()
	}
}
