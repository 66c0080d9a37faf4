//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tool is one way to run a command in the background.
type tool interface {
	Name() string
	Setup(dir string) error // a fresh folder of its own
	Start(argv ...string) (id string, err error)
	Wait(id string, limit time.Duration) (end string, err error) // how the tool says that the job ended
	Log(id string) string                                        // the file that has the output, "" if none
	Stop(id string) error
	Close()
	folder() string
}

const (
	ours      = "space-job"
	floorName = "floor"
	look      = 50 * time.Microsecond // between two looks at a file
)

var (
	errNoRecord = errors.New("keeps no record of the end")
	errNoStop   = errors.New("has no way to stop a job")
	errTooLong  = errors.New("no end was recorded in time")
)

// tools are those that are installed and asked for, the floor first.
func (b *bench) tools(all ...tool) []tool {
	if len(all) == 0 {
		all = []tool{&floor{}, &spaceJob{path: b.spaceJob}, &nq{}, &taskSpooler{}, &tmux{}, &dtach{}, &gob{}}
	}
	return slices.DeleteFunc(all, func(t tool) bool {
		switch t.Name() {
		case floorName:
			return false
		case ours:
			return b.spaceJob == ""
		}
		if b.names != nil && !slices.Contains(b.names, t.Name()) {
			return true
		}
		program := map[string]string{"task-spooler": "tsp"}[t.Name()]
		if program == "" {
			program = t.Name()
		}
		_, err := exec.LookPath(program)
		return err != nil
	})
}

// setup gives every tool a folder and returns those that came up.
func (b *bench) setup(ts []tool) []tool {
	return slices.DeleteFunc(ts, func(t tool) bool {
		dir, err := os.MkdirTemp(b.dir, t.Name()+"-")
		fail(err)
		if err := t.Setup(dir); err != nil {
			say("  %s is left out: %v", t.Name(), err)
			return true
		}
		return false
	})
}

func closeAll(ts []tool) {
	for _, t := range ts {
		t.Close()
	}
	killDescendants()
}

// place is what all tools share: a folder, an environment, numbers for jobs.
type place struct {
	dir  string
	env  []string
	last int
}

func (p *place) in(dir string, env ...string) {
	p.dir, p.env, p.last = dir, append(os.Environ(), env...), 0
}
func (p *place) next() string   { p.last++; return filepath.Join(p.dir, strconv.Itoa(p.last)) }
func (p *place) folder() string { return p.dir }
func (p *place) Close()         {}

// exitFile waits for a file with a number.
func exitFile(name string, limit time.Duration) (string, error) {
	var end string
	if !poll(limit, look, func() bool {
		b, _ := os.ReadFile(name)
		end = strings.TrimSpace(string(b))
		return len(b) > 0 && b[len(b)-1] == '\n'
	}) {
		return "", errTooLong
	}
	return end, nil
}

// floor is what a shell does with no runner at all. The command "true" is the
// shell's own here, so that the floor is as low as it can be.
type floor struct{ place }

func (t *floor) Name() string           { return floorName }
func (t *floor) Setup(dir string) error { t.in(dir); return nil }
func (t *floor) Start(argv ...string) (string, error) {
	id := t.next()
	_, err := call(t.env, append([]string{"/bin/sh", "-c",
		`setsid sh -c '"$@"; echo $? >"$0.exit"' "$0" "$@" </dev/null >"$0.log" 2>&1 &`, id}, argv...)...)
	return id, err
}
func (t *floor) Wait(id string, limit time.Duration) (string, error) {
	return exitFile(id+".exit", limit)
}
func (t *floor) Log(id string) string { return id + ".log" }
func (t *floor) Stop(string) error    { return errNoStop }

// nohup is what people type: the output in a file, the number of the process.
type nohup struct{ place }

func (t *nohup) Name() string           { return "nohup" }
func (t *nohup) Setup(dir string) error { t.in(dir); return nil }
func (t *nohup) Start(argv ...string) (string, error) {
	log := t.next()
	pid, err := call(t.env, append([]string{"/bin/sh", "-c", `nohup "$@" </dev/null >"$0" 2>&1 & echo $!`, log}, argv...)...)
	return log + "." + pid, err
}
func (t *nohup) Wait(string, time.Duration) (string, error) { return "", errNoRecord }
func (t *nohup) Log(id string) string                       { return strings.TrimSuffix(id, filepath.Ext(id)) }
func (t *nohup) Stop(id string) error                       { return killNumber(id) }

// killNumber sends TERM to the process whose number is the extension of id.
func killNumber(id string) error {
	pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Ext(id), "."))
	if err != nil || pid <= 1 {
		return fmt.Errorf("no process number in %q", id)
	}
	return syscall.Kill(pid, syscall.SIGTERM)
}

type spaceJob struct {
	place
	path string
}

func (t *spaceJob) Name() string { return ours }
func (t *spaceJob) Setup(dir string) error {
	t.in(dir, "SPACE_JOB_HOME="+filepath.Join(dir, "home"))
	return nil
}
func (t *spaceJob) Start(argv ...string) (string, error) {
	return call(t.env, append([]string{t.path, "start", "--"}, argv...)...)
}
func (t *spaceJob) file(id, name string) string {
	return filepath.Join(t.dir, "home", "jobs", id, name)
}

// Wait reads the file that holds the end, as it does for the floor and nq.
func (t *spaceJob) Wait(id string, limit time.Duration) (string, error) {
	var end struct {
		State string
		Code  *int `json:"exit_code"`
	}
	if !poll(limit, look, func() bool {
		b, err := os.ReadFile(t.file(id, "exit"))
		return err == nil && json.Unmarshal(b, &end) == nil
	}) {
		return "", errTooLong
	}
	if end.Code == nil {
		return end.State, nil
	}
	return strconv.Itoa(*end.Code), nil
}
func (t *spaceJob) Log(id string) string { return t.file(id, "log") }
func (t *spaceJob) Stop(id string) error { _, err := call(t.env, t.path, "cancel", id); return err }

// nq runs the jobs of one folder one after another, so every job gets its own.
type nq struct{ place }

func (t *nq) Name() string           { return "nq" }
func (t *nq) Setup(dir string) error { t.in(dir); return nil }
func (t *nq) Start(argv ...string) (string, error) {
	dir := t.next()
	id, err := call(append(t.env[:len(t.env):len(t.env)], "NQDIR="+dir), append([]string{"nq"}, argv...)...)
	return filepath.Join(dir, id), err
}

// Wait reads the last line that nq adds to the log.
func (t *nq) Wait(id string, limit time.Duration) (string, error) {
	var end string
	if !poll(limit, look, func() bool {
		last := lastBytes(id, 64)
		for _, how := range []string{"\n[exited with status ", "\n[killed by signal "} {
			if i := bytes.LastIndex(last, []byte(how)); i >= 0 {
				n, _, _ := strings.Cut(string(last[i+len(how):]), ".")
				end = n
				if strings.Contains(how, "signal") {
					end = "signal " + n
				}
				return true
			}
		}
		return false
	}) {
		return "", errTooLong
	}
	return end, nil
}
func (t *nq) Log(id string) string { return id }
func (t *nq) Stop(id string) error { return killNumber(id) } // as its manual says

func lastBytes(name string, n int64) []byte {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil
	}
	n = min(n, st.Size())
	b := make([]byte, n)
	_, _ = f.ReadAt(b, st.Size()-n)
	return b
}

type taskSpooler struct{ place }

func (t *taskSpooler) Name() string { return "task-spooler" }
func (t *taskSpooler) Setup(dir string) error {
	t.in(dir, "TS_SOCKET="+filepath.Join(dir, "socket"), "TMPDIR="+dir, "TS_MAXFINISHED=30000", "TS_MAXCONN=1000")
	_, err := call(t.env, "tsp", "-S", "300") // slots: jobs that may run at once
	return err
}
func (t *taskSpooler) Start(argv ...string) (string, error) {
	return call(t.env, append([]string{"tsp"}, argv...)...)
}
func (t *taskSpooler) Wait(id string, limit time.Duration) (string, error) {
	type result struct{ err error }
	done := make(chan result, 1)
	go func() { _, err := call(t.env, "tsp", "-w", id); done <- result{err} }()
	select {
	case r := <-done:
		if exitCode(r.err) < 0 {
			return "", r.err
		}
		return strconv.Itoa(exitCode(r.err)), nil
	case <-time.After(limit):
		return "", errTooLong
	}
}
func (t *taskSpooler) Log(id string) string { name, _ := call(t.env, "tsp", "-o", id); return name }
func (t *taskSpooler) Stop(id string) error { _, err := call(t.env, "tsp", "-k", id); return err }
func (t *taskSpooler) Close()               { _, _ = call(t.env, "tsp", "-K") }

// tmux keeps the screen of a job and, when told to, the end of its program.
type tmux struct{ place }

func (t *tmux) Name() string { return "tmux" }
func (t *tmux) Setup(dir string) error {
	t.in(dir, "TMUX_TMPDIR="+dir, "TMUX=")
	_, err := call(t.env, "tmux", "-f", "/dev/null", "start-server", ";", "set", "-g", "exit-empty", "off", ";",
		"set", "-g", "remain-on-exit", "on", ";", "set", "-g", "history-limit", "100000")
	return err
}
func (t *tmux) Start(argv ...string) (string, error) {
	id := "s" + filepath.Base(t.next())
	_, err := call(t.env, append([]string{"tmux", "new-session", "-d", "-s", id}, argv...)...)
	return id, err
}
func (t *tmux) Wait(id string, limit time.Duration) (string, error) {
	var end string
	var err error
	dead := 0
	if !poll(limit, time.Millisecond, func() bool {
		var out string
		out, err = call(t.env, "tmux", "display-message", "-p", "-t", id,
			"#{pane_dead} #{pane_dead_status}#{?pane_dead_signal,signal #{pane_dead_signal},}")
		state, how, _ := strings.Cut(out, " ")
		end = how
		if state == "1" {
			dead++
		}
		return err != nil || how != "" || dead == 50 // it loses the status of some short jobs
	}) {
		return "", errTooLong
	}
	if err == nil && end == "" {
		end = "dead"
	}
	return end, err
}
func (t *tmux) Log(string) string { return "" }
func (t *tmux) Stop(id string) error {
	_, err := call(t.env, "tmux", "kill-session", "-t", id)
	return err
}
func (t *tmux) Close() { _, _ = call(t.env, "tmux", "kill-server") }

// dtach keeps a terminal and nothing else, so a shell writes log and end.
type dtach struct{ place }

func (t *dtach) Name() string           { return "dtach" }
func (t *dtach) Setup(dir string) error { t.in(dir); return nil }
func (t *dtach) Start(argv ...string) (string, error) {
	id := t.next()
	_, err := call(t.env, append([]string{"dtach", "-n", id + ".socket",
		"sh", "-c", `"$@" >"$0.log" 2>&1; echo $? >"$0.exit"`, id}, argv...)...)
	return id, err
}
func (t *dtach) Wait(id string, limit time.Duration) (string, error) {
	return exitFile(id+".exit", limit)
}
func (t *dtach) Log(id string) string { return id + ".log" }
func (t *dtach) Stop(string) error    { return errNoStop }

// gob takes the same command line for the same job, so each gets an argument
// of its own, through a shell that becomes the command.
type gob struct{ place }

func (t *gob) Name() string { return "gob" }
func (t *gob) Setup(dir string) error {
	t.in(dir, "HOME="+dir, "XDG_RUNTIME_DIR="+dir, "XDG_STATE_HOME="+dir, "XDG_CONFIG_HOME="+dir, "DO_NOT_TRACK=1")
	_, err := call(t.env, "gob", "list") // starts its daemon
	return err
}
func (t *gob) Start(argv ...string) (string, error) {
	out, err := call(t.env, append([]string{"gob", "add", "--", "sh", "-c", `exec "$@"`, filepath.Base(t.next())}, argv...)...)
	for _, f := range strings.FieldsFunc(out, func(r rune) bool { return strings.ContainsRune(" :\n", r) }) {
		if f != "Added" && f != "Started" && f != "job" {
			return f, err
		}
	}
	return "", errors.Join(err, fmt.Errorf("gob add said %q", out))
}
func (t *gob) Wait(id string, limit time.Duration) (string, error) {
	_, err := call(t.env, "gob", "await", id)
	if exitCode(err) < 0 {
		return "", err
	}
	return strconv.Itoa(exitCode(err)), nil
}
func (t *gob) Log(id string) string {
	m, _ := filepath.Glob(filepath.Join(t.dir, "gob", "logs", id+"*stdout*"))
	if len(m) == 0 {
		return ""
	}
	return m[0]
}
func (t *gob) Stop(id string) error { _, err := call(t.env, "gob", "stop", id); return err }
func (t *gob) Close()               { _, _ = call(t.env, "gob", "shutdown") }
