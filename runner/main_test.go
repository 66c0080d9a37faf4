package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// The test binary is every program of these tests. As "space-runner" it is the
// runner; with roleEnv in its environment it is the helper of that name.
const roleEnv = "RUNNER_TEST_ROLE"

// roles are the helpers; each file of tests adds its own in an init. A helper
// returns its exit code.
var roles = map[string]func(args []string) int{
	"start": startRole,
}

func init() {
	if os.Args[0] == "space-runner" {
		crashAsTold()
		reportRaces()
		runtime.LockOSThread()
		Main()
	}
}

// crashAsTold makes this process kill itself at the point that a file named
// crash in the root directory names.
func crashAsTold() {
	b, err := os.ReadFile(filepath.Join(os.Getenv(record.EnvHome), "crash"))
	if err == nil {
		crashAt(strings.TrimSpace(string(b)))
	}
}

// crashAt makes this process kill itself at a point.
func crashAt(point string) {
	testOnlyCrash = func(p string) {
		if p == point {
			_ = unix.Kill(unix.Getpid(), unix.SIGKILL)
			select {}
		}
	}
}

// raceReport is where a runner's race detector reports to, in its root.
const raceReport = "races"

// reportRaces has this process's races reported, which would otherwise go where
// a runner's stderr does, to nobody. The root's cleanup looks there.
func reportRaces() {
	if raceDetector {
		_ = unix.Close(2)
		_, err := unix.Open(filepath.Join(os.Getenv(record.EnvHome), raceReport), unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND, 0o600)
		if err != nil { // a full disk, say
			_, _ = unix.Open(os.DevNull, unix.O_WRONLY, 0)
		}
	}
}

var (
	binDir     string // of the programs below; any user may enter it
	testBinary string
	runnerPath string // the test binary as space-runner
)

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		f, ok := roles[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "no helper named %q\n", name)
			os.Exit(99)
		}
		os.Unsetenv(roleEnv)
		os.Exit(f(os.Args[1:]))
	}
	os.Unsetenv(record.EnvJob) // these tests may themselves be a job
	becomeSubreaper()
	code := 1
	if err := makePrograms(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(binDir)
	for _, p := range ownChildren() {
		fmt.Fprintf(os.Stderr, "left at the end of the tests: process %d (%s)\n", p.pid, p.comm)
		_ = p.signal(unix.SIGKILL)
		code = 1
	}
	os.Exit(code)
}

func makePrograms() (err error) {
	if binDir, err = os.MkdirTemp("", "space-runner-test-"); err != nil {
		return err
	}
	if err := os.Chmod(binDir, 0o755); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		return err
	}
	testBinary = filepath.Join(binDir, "runner.test")
	if err := os.WriteFile(testBinary, b, 0o755); err != nil {
		return err
	}
	runnerPath = filepath.Join(binDir, "space-runner")
	return os.Symlink("runner.test", runnerPath)
}

// ownChildren are the children of this process that nobody has waited for,
// after a while for those that are just going.
func ownChildren() (left []process) {
	eventually(5*time.Second, func() bool {
		reapStrangers()
		all, _ := everyProcess()
		left = left[:0]
		for _, p := range all {
			if p.ppid == os.Getpid() {
				left = append(left, p)
			}
		}
		return len(left) == 0
	})
	return left
}

// procs keeps apart what shares a process: Start sets the umask for a moment,
// and zombies belong either to a command of command below or to nobody.
var procs struct {
	sync.Mutex
	owned map[int]bool // commands that somebody waits for
}

// reapStrangers waits for the children that ended and that no command owns:
// runners, and orphans of jobs whose runner was killed.
func reapStrangers() {
	procs.Lock()
	defer procs.Unlock()
	for _, pid := range ownKids() {
		if !procs.owned[pid] {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

func childrenByScan() (kids []int) {
	all, _ := everyProcess()
	for _, p := range all {
		if p.ppid == os.Getpid() {
			kids = append(kids, p.pid)
		}
	}
	return kids
}

// startCommand starts a command that the caller waits for by wait.
func startCommand(t testing.TB, c *exec.Cmd) (wait func() error) {
	t.Helper()
	procs.Lock()
	err := c.Start()
	if err == nil {
		if procs.owned == nil {
			procs.owned = map[int]bool{}
		}
		procs.owned[c.Process.Pid] = true
	}
	procs.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		err := c.Wait()
		procs.Lock()
		delete(procs.owned, c.Process.Pid)
		procs.Unlock()
		return err
	}
}

// runCommand runs a command and returns what it wrote to stdout and stderr.
func runCommand(t testing.TB, c *exec.Cmd) (string, error) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = w, w
	wait := startCommand(t, c)
	w.Close()
	out, _ := io.ReadAll(r)
	r.Close()
	return string(out), wait()
}

// helper is the command that runs a helper.
func helper(role string, args ...string) *exec.Cmd {
	c := exec.Command(testBinary, args...)
	c.Env = append(os.Environ(), roleEnv+"="+role)
	return c
}

// writeProgram writes a file that is executed. What is forked while it is open for
// writing would keep it from being.
func writeProgram(t testing.TB, path string, b []byte, mode fs.FileMode) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, b, mode); err != nil {
		t.Fatal(err)
	}
}

// helperArgv is the argv of a job that runs a helper.
func helperArgv(role string, args ...string) []string {
	return append([]string{"env", roleEnv + "=" + role, testBinary}, args...)
}

// eventually reports whether f came true within d.
func eventually(d time.Duration, f func() bool) bool {
	pause := time.Millisecond
	for end := time.Now().Add(d); ; {
		if f() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
		pause = min(2*pause, 10*time.Millisecond)
	}
}

// patience is how long anything may take that should take no time at all.
const patience = time.Minute

// waitFor fails the test unless f comes true.
func waitFor(t testing.TB, what string, f func() bool) {
	t.Helper()
	if !eventually(patience, f) {
		t.Fatalf("waited %v for: %s", patience, what)
	}
}

// rootFileEnv names an empty file that every root gets: what a runner, whose
// environment is fixed, is to find there.
const rootFileEnv = "RUNNER_TEST_ROOT_FILE"

// A testRoot is a root of one test. At the test's end no process that knows it
// by its environment may be left.
type testRoot struct {
	t    testing.TB
	path string
}

func newRoot(t testing.TB) *testRoot {
	t.Helper()
	path, err := os.MkdirTemp(binDir, "root-")
	if err != nil {
		t.Fatal(err)
	}
	r := &testRoot{t, path}
	r.make()
	t.Cleanup(func() {
		r.noneLeft()
		if b, err := os.ReadFile(filepath.Join(path, raceReport)); err == nil && len(b) > 0 {
			t.Errorf("a runner said: %s", b)
		}
		os.RemoveAll(path)
	})
	return r
}

func (r *testRoot) make() {
	r.t.Helper()
	for _, dir := range []string{r.path, filepath.Join(r.path, record.Jobs), filepath.Join(r.path, record.Keys)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
	if name := os.Getenv(rootFileEnv); name != "" {
		if err := os.WriteFile(filepath.Join(r.path, name), nil, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
}

// processes are those that live and have this root in their first environment.
func (r *testRoot) processes() (out []process) {
	all, _ := everyProcess()
	for _, p := range all {
		if p.zombie {
			continue
		}
		if _, home := jobOf(firstEnvironment(p.pid)); home == r.path {
			out = append(out, p)
		}
	}
	return out
}

// noneLeft ends every process of the root, and fails the test that left one.
func (r *testRoot) noneLeft() {
	var left []process
	if !eventually(5*time.Second, func() bool { left = r.processes(); return len(left) == 0 }) {
		r.t.Errorf("processes of the test that are left at its end: %v", left)
		eventually(5*time.Second, func() bool {
			left = r.processes()
			for _, p := range left {
				_ = p.signal(unix.SIGKILL)
			}
			return len(left) == 0
		})
	}
	reapStrangers()
}

// spec is a job with this test's environment.
func (r *testRoot) spec(argv ...string) Spec {
	return Spec{
		Runner: runnerPath,
		Root:   r.path,
		Argv:   argv,
		Env:    append(os.Environ(), record.EnvHome+"="+r.path),
		Cwd:    "/",
		Describe: func(id record.ID, created time.Time) []byte {
			return describe(id, created, argv)
		},
	}
}

// describe is a cmd file as far as these tests need one.
func describe(id record.ID, created time.Time, argv []string) []byte {
	b, err := json.Marshal(map[string]any{
		"format": 1, "id": id, "name": "", "argv": argv, "cwd": "/", "env": []string{},
		"timeout_s": nil, "key": "", "created_at": created.UTC().Format(record.TimeFormat), "max_log": 0,
	})
	if err != nil {
		panic(err)
	}
	return append(b, '\n')
}

func (r *testRoot) sh(script string) *testJob {
	r.t.Helper()
	return r.start(r.spec("/bin/sh", "-c", script))
}
func (r *testRoot) run(argv ...string) *testJob { r.t.Helper(); return r.start(r.spec(argv...)) }

// start starts a job of which nothing is left after the test.
func (r *testRoot) start(s Spec) *testJob {
	r.t.Helper()
	id, err := lockedStart(s)
	if err != nil {
		r.t.Fatalf("start: %v", err)
	}
	return r.job(id)
}

// lockedStart is Start for a process that does more than one thing at a time.
func lockedStart(s Spec) (record.ID, error) {
	procs.Lock()
	defer procs.Unlock()
	return Start(s)
}

// job is a job of this root, stopped at the test's end.
func (r *testRoot) job(id record.ID) *testJob {
	j := &testJob{r.t, id, filepath.Join(r.path, record.Jobs, string(id))}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := Cancel(ctx, j.dir, record.CancelRecord{At: time.Now(), By: "cleanup"}); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.t.Errorf("cancel of %s at the test's end: %v", id, err)
		}
		var e record.ExitRecord
		if b, err := os.ReadFile(j.file(record.Exit)); err == nil && json.Unmarshal(b, &e) == nil && e.Left == 0 && e.State != record.Lost {
			return // a look at every process costs more than the job did; noneLeft and TestMain look, too
		}
		if _, left, err := StopLeft(ctx, j.dir); len(left) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
			r.t.Errorf("processes of %s at the test's end: %v, %v", id, left, err)
		}
	})
	return j
}

// ids are the jobs that can be seen in the root.
func (r *testRoot) ids() (ids []record.ID) {
	r.t.Helper()
	for _, name := range r.names() {
		if id, ok := record.ParseID(name); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// names are all entries of jobs.
func (r *testRoot) names() (names []string) {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.path, record.Jobs))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

type testJob struct {
	t   testing.TB
	id  record.ID
	dir string
}

func (j *testJob) file(name string) string { return filepath.Join(j.dir, name) }

func (j *testJob) read(name string) string {
	j.t.Helper()
	b, err := os.ReadFile(j.file(name))
	if err != nil {
		j.t.Fatal(err)
	}
	return string(b)
}

func (j *testJob) log() string { j.t.Helper(); return j.read(record.Log) }

// held reports whether somebody holds the job's lock.
func (j *testJob) held() bool {
	j.t.Helper()
	f, err := os.Open(j.file(record.Pid))
	if err != nil {
		j.t.Fatal(err)
	}
	defer f.Close()
	held, err := record.Held(int(f.Fd()))
	if err != nil {
		j.t.Fatal(err)
	}
	return held
}

// exit is the exit record, and whether there is one.
func (j *testJob) exit() (e record.ExitRecord, ok bool) {
	j.t.Helper()
	b, err := os.ReadFile(j.file(record.Exit))
	if errors.Is(err, os.ErrNotExist) || err == nil && record.IsBlank(b) {
		return e, false
	}
	if err != nil {
		j.t.Fatal(err)
	}
	if err := json.Unmarshal(b, &e); err != nil {
		j.t.Fatalf("exit: %v in %q", err, b)
	}
	return e, true
}

// ended waits for the exit record.
func (j *testJob) ended() (e record.ExitRecord) {
	j.t.Helper()
	if !eventually(patience, func() (ok bool) { e, ok = j.exit(); return ok }) {
		j.t.Fatalf("no end of %s after %v; lock held: %v; pid: %q; processes: %+v", j.id, patience, j.held(), j.read(record.Pid), (&testRoot{j.t, filepath.Dir(filepath.Dir(j.dir))}).processes())
	}
	return e
}

// wantExit waits for the end, which must be the command's own with this code.
func (j *testJob) wantExit(code int) record.ExitRecord {
	j.t.Helper()
	e := j.ended()
	if e.State != record.Exited || e.ExitCode == nil || *e.ExitCode != code {
		j.t.Fatalf("exit is %s, want exited with %d", j.read(record.Exit), code)
	}
	return e
}

// wantState waits for the end, which must be this one.
func (j *testJob) wantState(want record.State) record.ExitRecord {
	j.t.Helper()
	e := j.ended()
	if e.State != want || e.ExitCode != nil && want != record.Exited {
		j.t.Fatalf("exit is %s, want %s", j.read(record.Exit), want)
	}
	return e
}

// process waits for the pid record.
func (j *testJob) process() (p record.ProcessRecord) {
	j.t.Helper()
	waitFor(j.t, "pid of "+string(j.id), func() bool {
		b, err := os.ReadFile(j.file(record.Pid))
		return err == nil && json.Unmarshal(b, &p) == nil
	})
	return p
}

// gone waits until the runner has let go of the job.
func (j *testJob) gone() {
	j.t.Helper()
	waitFor(j.t, "the lock of "+string(j.id), func() bool { return !j.held() })
}

// cancel cancels the job and returns how it ended.
func (j *testJob) cancel() record.ExitRecord {
	j.t.Helper()
	j.ask()
	return j.ended()
}

// ask cancels the job.
func (j *testJob) ask() {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := Cancel(ctx, j.dir, record.CancelRecord{At: time.Now(), By: "test"}); err != nil {
		j.t.Fatalf("cancel: %v", err)
	}
}

// logHas waits until the log holds s.
func (j *testJob) logHas(s string) {
	j.t.Helper()
	waitFor(j.t, fmt.Sprintf("%q in the log of %s", s, j.id), func() bool { return strings.Contains(j.log(), s) })
}

// killRunner ends the runner as a kill -9 does, and waits for it to be gone.
func (j *testJob) killRunner() {
	j.t.Helper()
	p := j.process()
	if err := (process{pid: p.RunnerPID, start: p.RunnerStart}).signal(unix.SIGKILL); err != nil {
		j.t.Fatalf("kill the runner: %v", err)
	}
	j.gone()
}

// dropped is the dropped record, empty when there is none.
func (j *testJob) dropped() (d record.DroppedRecord) {
	j.t.Helper()
	b := j.read(record.Dropped)
	if record.IsBlank([]byte(b)) {
		return d
	}
	if err := json.Unmarshal([]byte(b), &d); err != nil {
		j.t.Fatalf("dropped: %v in %q", err, b)
	}
	return d
}

// alive reports whether a process runs, and is no zombie.
func alive(pid int) bool {
	p, ok := readProcess(pid)
	return ok && !p.zombie
}

// pidIn waits for a file that holds a process id and a newline.
func pidIn(t testing.TB, path string) (pid int) {
	t.Helper()
	waitFor(t, "a pid in "+path, func() bool {
		b, err := os.ReadFile(path)
		if err != nil || !strings.HasSuffix(string(b), "\n") {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
		return err == nil
	})
	return pid
}

// A startOrder is what the start helper is told, as JSON in its argument.
type startOrder struct {
	Runner, Root, Cwd string
	Argv              []string
	Env               []string // added to the helper's own
	Timeout           time.Duration
	MaxLog            int64
	Crash             string // the point at which the starter kills itself
}

func (o *startOrder) spec() Spec {
	return Spec{
		Runner: o.Runner, Root: o.Root, Argv: o.Argv, Cwd: o.Cwd, Timeout: o.Timeout, MaxLog: o.MaxLog,
		Env:      append(os.Environ(), o.Env...),
		Describe: func(id record.ID, created time.Time) []byte { return describe(id, created, o.Argv) },
	}
}

// startRole starts a job as the space-job command does: from a process that
// then goes away. It prints the id.
func startRole(args []string) int {
	var o startOrder
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		fmt.Println(err)
		return 2
	}
	if o.Crash != "" {
		crashAt(o.Crash)
	}
	id, err := Start(o.spec())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(id)
	return 0
}

// order is a start helper's order for this root.
func (r *testRoot) order(argv ...string) startOrder {
	return startOrder{Runner: runnerPath, Root: r.path, Cwd: "/", Argv: argv, Env: []string{record.EnvHome + "=" + r.path}}
}

func (o startOrder) json() string {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// starter is the command that gives a start helper its order.
func starter(o startOrder) *exec.Cmd { return helper("start", o.json()) }

// started runs a starter, which must print an id.
func (r *testRoot) started(c *exec.Cmd) *testJob {
	r.t.Helper()
	out, err := runCommand(r.t, c)
	id, ok := record.ParseID(strings.TrimSpace(out))
	if err != nil || !ok {
		r.t.Fatalf("starter: %v, %q", err, out)
	}
	return r.job(id)
}

// unprivileged makes a command run as a user without rights, which needs root.
func unprivileged(t testing.TB, uid uint32, c *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	c.Dir = "/"
	return c
}

// rootOf makes a root that belongs to another user.
func rootOf(t testing.TB, uid int) *testRoot {
	t.Helper()
	r := newRoot(t)
	for _, dir := range []string{r.path, filepath.Join(r.path, record.Jobs), filepath.Join(r.path, record.Keys)} {
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Skip("needs root, to become another user")
		}
	}
	return r
}
