//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// compare tries how the tools behave, one after another, and prints a table
// for the README. Each cell is what was seen, not what a manual says.
func (b *bench) compare() {
	trials := []struct {
		what string
		f    func(t tool) string
	}{
		{"`exit 7` is kept as", func(t tool) string { return endOf(t, "exit 7") }},
		{"`kill -9 $$` is kept as", func(t tool) string { return endOf(t, "kill -9 $$") }},
		{"waiting for that exits with", waitCode},
		{"four lines, one by `echo x >/dev/stderr`: in the log", reopened},
		{"a background child writes after the end: in the log", late},
		{"a cancel of a tree of four leaves", treeLeft},
		{"the terminal of the caller closes", hangup},
		{"`kill -9` of the tool: the job", func(t tool) string { lives, _ := toolKilled(t); return lives }},
		{"... and its `exit 7` is kept as", func(t tool) string { _, says := toolKilled(t); return says }},
	}
	all := []tool{&spaceJob{path: b.spaceJob}, &nohup{}, &nq{}, &taskSpooler{}, &tmux{}, &gob{}}
	ts := b.tools(all...)
	heads, rules := []string{""}, []string{"---"}
	for _, t := range ts {
		heads, rules = append(heads, t.Name()), append(rules, "---")
	}
	fmt.Println(machine(b.dir))
	fmt.Println()
	line := func(cells []string) { fmt.Println("| " + strings.Join(cells, " | ") + " |") }
	line(heads)
	line(rules)
	for _, trial := range trials {
		say("%s ...", trial.what)
		cells := []string{trial.what}
		for _, t := range ts {
			cell := "does not start"
			if up := b.setup([]tool{t}); len(up) == 1 {
				cell = trial.f(t)
				closeAll(up)
			}
			cells = append(cells, cell)
		}
		line(cells)
	}
}

const nothing = "nothing"

// says is what the tool tells about a job when asked as its user would ask.
func says(t tool, id string) string {
	switch t := t.(type) {
	case *taskSpooler:
		out, _ := call(t.env, "tsp", "-i", id)
		first, _, _ := strings.Cut(out, "\n")
		first, ok := strings.CutPrefix(first, "Exit status: ")
		if !ok {
			return nothing
		}
		return strings.TrimPrefix(first, "died with exit code ")
	case *gob: // "✗ (7)" at the end of the line of the last run
		out, _ := call(t.env, "gob", "runs", id)
		f := strings.Fields(out)
		if len(f) < 2 {
			return nothing
		}
		return strings.Trim(strings.Join(f[max(0, len(f)-2):], " "), "✗✓ ()")
	case *spaceJob:
		out, err := call(t.env, t.path, "status", "--json", id)
		var job struct {
			State string
			Code  *int `json:"exit_code"`
		}
		if err != nil || json.Unmarshal([]byte(out), &job) != nil {
			return nothing
		}
		if job.Code != nil {
			return strconv.Itoa(*job.Code)
		}
		return job.State
	}
	end, err := t.Wait(id, 3*time.Second)
	if err != nil || end == "" {
		return nothing
	}
	return end
}

func endOf(t tool, script string) string {
	id, err := t.Start("sh", "-c", script)
	if err != nil {
		return err.Error()
	}
	if _, err := t.Wait(id, 3*time.Second); err != nil {
		return nothing
	}
	return says(t, id)
}

// waitCode is what a script gets that waits for a killed job, 137 to a shell.
func waitCode(t tool) string {
	id, err := t.Start("sh", "-c", "kill -9 $$")
	if err != nil {
		return err.Error()
	}
	switch t := t.(type) {
	case *spaceJob:
		_, err = call(t.env, t.path, "wait", id)
	case *taskSpooler:
		_, err = call(t.env, "tsp", "-w", id)
	case *gob:
		_, err = call(t.env, "gob", "await", id)
	default:
		return "-"
	}
	return strconv.Itoa(exitCode(err))
}

// output is what the tool kept of a job's output.
func output(t tool, id string) string {
	switch t := t.(type) {
	case *tmux:
		out, _ := call(t.env, "tmux", "capture-pane", "-p", "-S", "-", "-t", id)
		return out
	case *gob: // two files
		var out string
		names, _ := filepath.Glob(filepath.Join(t.dir, "gob", "logs", id+"*"))
		for _, name := range names {
			b, _ := os.ReadFile(name)
			out += string(b)
		}
		return out
	}
	b, _ := os.ReadFile(t.Log(id))
	return string(b)
}

func reopened(t tool) string {
	id, err := t.Start("sh", "-c", "echo one; echo two >&2; echo three >/dev/stderr; echo four >&2")
	if err != nil {
		return err.Error()
	}
	time.Sleep(time.Second)
	out := output(t, id)
	var there []string
	for _, w := range []string{"one", "two", "three", "four"} {
		if strings.Contains(out, w) {
			there = append(there, w)
		}
	}
	if len(there) == 4 {
		return "all four"
	}
	return "only " + strings.Join(there, ", ")
}

func late(t tool) string {
	id, err := t.Start("sh", "-c", "(sleep 1.5; echo late) & echo early")
	if err != nil {
		return err.Error()
	}
	time.Sleep(2500 * time.Millisecond)
	if strings.Contains(output(t, id), "late") {
		return "yes"
	}
	return "no"
}

// treeLeft stops a job with a child, a child in a session of its own, and one
// there that ignores TERM.
func treeLeft(t tool) string {
	id, err := t.Start("sh", "-c",
		`sleep 601 & setsid sleep 602 & setsid sh -c 'trap "" TERM; exec sleep 603' & exec sleep 604`)
	if err != nil {
		return err.Error()
	}
	if !poll(10*time.Second, 10*time.Millisecond, func() bool { return named("sleep") == 4 }) {
		return "did not come up"
	}
	time.Sleep(100 * time.Millisecond) // the trap is set
	stop := reapMeanwhile()
	defer stop()
	begun := time.Now()
	if err := t.Stop(id); err != nil {
		return err.Error()
	}
	if poll(time.Until(begun.Add(12*time.Second)), 20*time.Millisecond, func() bool { return named("sleep") == 0 }) {
		return fmt.Sprintf("nothing (%.1f s)", time.Since(begun).Seconds())
	}
	return fmt.Sprintf("%d of 4 running", named("sleep"))
}

// hangup starts a job from a terminal that then goes away.
func hangup(t tool) string {
	master, slave, err := openTerminal()
	fail(err)
	defer master.Close()
	marker := filepath.Join(t.folder(), "marker")
	terminal = slave
	_, err = t.Start("sh", "-c", "sleep 1; echo done >"+marker)
	terminal = nil
	slave.Close()
	master.Close()
	if err != nil {
		return err.Error()
	}
	return livesOn(marker)
}

func livesOn(marker string) string {
	if poll(4*time.Second, 20*time.Millisecond, func() bool { _, err := os.Stat(marker); return err == nil }) {
		return "goes on"
	}
	return "dies"
}

// toolKilled kills every process of the tool while its job runs.
func toolKilled(t tool) (lives, said string) {
	prefix := map[string]string{ours: "space-", "nq": "nq", "task-spooler": "tsp", "tmux": "tmux", "gob": "gob"}[t.Name()]
	if prefix == "" {
		return "-", "-"
	}
	marker := filepath.Join(t.folder(), "marker")
	id, err := t.Start("sh", "-c", "sleep 2; echo done >"+marker+"; exit 7")
	if err != nil {
		return err.Error(), "-"
	}
	poll(5*time.Second, 10*time.Millisecond, func() bool { return named("sleep") == 1 })
	for _, p := range descendants() {
		if strings.HasPrefix(p.name, prefix) {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
	reapOrphans()
	lives = livesOn(marker)
	time.Sleep(300 * time.Millisecond)
	return lives, says(t, id)
}

// openTerminal makes a pseudo-terminal.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	var n, unlock int32
	for _, call := range []struct {
		request uintptr
		arg     *int32
	}{{syscall.TIOCGPTN, &n}, {syscall.TIOCSPTLCK, &unlock}} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), call.request, uintptr(unsafe.Pointer(call.arg))); errno != 0 {
			master.Close()
			return nil, nil, os.NewSyscallError("ioctl", errno)
		}
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(n)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		master.Close()
	}
	return master, slave, err
}
