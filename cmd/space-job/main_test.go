package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"space-job/cmd/internal/cli"
	"space-job/cmd/internal/daemon"
	"space-job/jobdir"
	"space-job/notify"
	"space-job/runner"
)

// The runner forks the command from the main thread.
func init() { runtime.LockOSThread() }

// TestMain builds the programs, so that the tests run what users run. The test
// binary is all three of them, too, and can be told to die at a step: it is what
// newArmedSpace has, and costs twice as much to start.
func TestMain(m *testing.M) {
	programs := map[string]func(){
		"space-job":    armed(cli.Main),
		"space-runner": runner.Main,
		"space-jobd":   armed(daemon.Main),
	}
	// Tests that a script runs in its background begin with INT ignored, and so would
	// all that they run, which then rightly heeds no Ctrl-C.
	if programs[filepath.Base(os.Args[0])] == nil && signal.Ignored(os.Interrupt) {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	testscript.Main(built{m}, programs)
}

// built are tests of programs that are built before.
type built struct{ m *testing.M }

// armedDir has the test binary under the names of the programs.
var armedDir string

func (b built) Run() int {
	armedDir, _, _ = strings.Cut(os.Getenv("PATH"), string(os.PathListSeparator))
	if raceDetector {
		return b.m.Run()
	}
	dir, err := os.MkdirTemp("", "space-job-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("../../scripts/build", dir)
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build of the programs:", err)
		return 1
	}
	err = os.Chmod(dir, 0o755) // some tests are other users
	if err == nil {
		err = os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return b.m.Run()
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			root := filepath.Join(env.WorkDir, "root")
			env.Setenv("SPACE_JOB_HOME", root)
			env.Setenv("SPACE_JOB", "")
			env.Setenv("NO_COLOR", "")
			env.Defer(func() { stopAll(root) })
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":      exits,
			"id":         id,
			"field":      field,
			"killrunner": killRunner,
			"gone":       gone,
			"repeat":     repeat,
			"delivered":  delivered,
			"killdaemon": killDaemon,
			"daemonruns": daemonRuns,
			"daemonenv":  daemonEnv,
			"until":      until,
		},
	})
}

// TestDoctorInterrupted: Ctrl-C leaves nothing behind, neither where the root
// would be made.
func TestDoctorInterrupted(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	c := exec.Command("space-job", "doctor")
	c.Env = append(os.Environ(), "SPACE_JOB_HOME="+filepath.Join(above, "not", "yet"))
	var out strings.Builder
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var trial []string
	for end := time.Now().Add(patience); len(trial) == 0 && time.Now().Before(end); {
		trial, _ = filepath.Glob(filepath.Join(above, ".space-job-doctor-*"))
	}
	_ = c.Process.Signal(os.Interrupt)
	err := c.Wait()
	if code := c.ProcessState.ExitCode(); len(trial) == 0 || code != 130 && code != 0 { // 0: it was faster
		t.Errorf("%q was there; exit code %d, %v\n%s", trial, code, err, out.String())
	}
	if left, err := os.ReadDir(above); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// stopAll leaves nothing of a script running.
func stopAll(root string) {
	run := func(args ...string) string {
		c := exec.Command("space-job", args...)
		c.Env = append(os.Environ(), "SPACE_JOB_HOME="+root)
		out, _ := c.Output()
		return string(out)
	}
	args := []string{"cancel"}
	for line := range strings.Lines(run("list", "--json", "--all", "--state", "running", "--state", "lost")) {
		var doc struct{ Job string }
		if json.Unmarshal([]byte(line), &doc) == nil {
			args = append(args, doc.Job)
		}
	}
	if len(args) > 1 {
		run(args...)
	}
	run("daemon", "stop")
}

// exits CODE PROG ARG...: runs a program that must exit with CODE.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROG ARG...")
	}
	code := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// id NAME: stdout was one id; put it into a variable, and its last six digits
// into NAME_END.
func id(ts *testscript.TestScript, neg bool, args []string) {
	s := strings.TrimSuffix(ts.ReadFile("stdout"), "\n")
	if len(s) != 13 || s[0] != 'j' || strings.ContainsAny(s, " \n") {
		ts.Fatalf("stdout is no id: %q", s)
	}
	ts.Setenv(args[0], s)
	ts.Setenv(args[0]+"_END", s[7:])
}

// field PATH VALUE: the last line of stdout is JSON in which PATH, with dots, is
// VALUE, as JSON or the text of a string, in which \n is a newline. A list's
// elements have numbers.
func field(ts *testscript.TestScript, neg bool, args []string) {
	lines := strings.Split(strings.TrimSpace(ts.ReadFile("stdout")), "\n")
	var v any
	d := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		ts.Fatalf("stdout: %v", err)
	}
	for key := range strings.SplitSeq(args[0], ".") {
		switch in := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = in[key]; !ok {
				ts.Fatalf("there is no field %s", args[0])
			}
		case []any:
			n, _ := strconv.Atoi(key)
			if n >= len(in) {
				ts.Fatalf("there is no element %s", args[0])
			}
			v = in[n]
		default:
			ts.Fatalf("there is no field %s", args[0])
		}
	}
	got, ok := v.(string)
	if !ok {
		b, _ := json.Marshal(v)
		got = string(b)
	}
	want := strings.ReplaceAll(args[1], `\n`, "\n")
	if (got == want) == neg {
		ts.Fatalf("%s is %q, want %q", args[0], got, want)
	}
}

// killRunner ID: kills the runner of a job as a reboot would.
func killRunner(ts *testscript.TestScript, neg bool, args []string) {
	path := filepath.Join(ts.Getenv("SPACE_JOB_HOME"), "jobs", args[0], "pid")
	within(ts, "a pid", func() bool {
		var pid struct {
			Runner int `json:"runner_pid"`
		}
		b, err := os.ReadFile(path)
		if err != nil || json.Unmarshal(b, &pid) != nil || pid.Runner <= 1 {
			return false
		}
		ts.Check(syscall.Kill(pid.Runner, syscall.SIGKILL))
		return true
	})
}

// gone FILE: FILE holds pids, and none of them runs, or will not in a moment.
func gone(ts *testscript.TestScript, neg bool, args []string) {
	for word := range strings.FieldsSeq(ts.ReadFile(args[0])) {
		pid, err := strconv.Atoi(word)
		ts.Check(err)
		if neg {
			if err := syscall.Kill(pid, 0); err != nil {
				ts.Fatalf("process %d: %v", pid, err)
			}
			continue
		}
		within(ts, "the end of process "+word, func() bool {
			if err := syscall.Kill(pid, 0); err == syscall.ESRCH {
				return true
			}
			// A zombie that init has not come to is gone all the same.
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && strings.Contains(string(b), ") Z ")
		})
	}
}

// repeat N FILE TEXT: makes a file of N times TEXT, with %d for the count and \n
// for a newline.
func repeat(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.NewReplacer("%d", strconv.Itoa(i), `\n`, "\n").Replace(args[2]))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(b.String()), 0o600))
}

// delivered ID: everybody has the message of a job, or will have in a moment.
func delivered(ts *testscript.TestScript, neg bool, args []string) {
	root := ts.Getenv("SPACE_JOB_HOME")
	within(ts, "receipt of "+args[0], func() bool {
		_, err := os.Lstat(filepath.Join(root, "outbox", args[0]))
		_, receipt := os.Lstat(filepath.Join(root, "jobs", args[0], "notified"))
		return os.IsNotExist(err) && receipt == nil
	})
}

// daemonPID is the daemon that runs, when one runs.
func daemonPID(ts *testscript.TestScript) (pid int) {
	within(ts, "a daemon", func() bool {
		root, err := jobdir.OpenRoot(ts.Getenv("SPACE_JOB_HOME"))
		ts.Check(err)
		r, held := notify.DaemonOf(root)
		pid = r.PID
		return held && pid != 0
	})
	return pid
}

// killDaemon kills the daemon, and waits until it is gone.
func killDaemon(ts *testscript.TestScript, neg bool, args []string) {
	pid := daemonPID(ts)
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
	root, err := jobdir.OpenRoot(ts.Getenv("SPACE_JOB_HOME"))
	ts.Check(err)
	within(ts, "end of the daemon", func() bool { _, held := notify.DaemonOf(root); return !held })
}

// daemonRuns: a daemon runs, or will in a moment; then it is the same one.
func daemonRuns(ts *testscript.TestScript, neg bool, args []string) {
	pid := strconv.Itoa(daemonPID(ts))
	if before := ts.Getenv("DAEMON"); before != "" && len(args) > 0 && before != pid {
		ts.Fatalf("another daemon runs: %s, not %s", pid, before)
	}
	ts.Setenv("DAEMON", pid)
}

// daemonEnv prints the environment that the daemon was started with.
func daemonEnv(ts *testscript.TestScript, neg bool, args []string) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", daemonPID(ts)))
	ts.Check(err)
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", daemonPID(ts)))
	ts.Check(err)
	if cwd != "/" {
		ts.Fatalf("the daemon runs in %s", cwd)
	}
	_, err = ts.Stdout().Write([]byte(strings.ReplaceAll(string(b), "\x00", "\n")))
	ts.Check(err)
}

// until exists FILE: waits for a file with something in it.
func until(ts *testscript.TestScript, neg bool, args []string) {
	within(ts, args[1], func() bool {
		info, err := os.Stat(ts.MkAbs(args[1]))
		return err == nil && info.Size() > 0
	})
}

// within waits for something that another process does.
func within(ts *testscript.TestScript, what string, done func() bool) {
	for end := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			ts.Fatalf("no %s after %v", what, patience)
		}
	}
}
