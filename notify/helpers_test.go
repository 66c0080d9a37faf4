package notify

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// roleEnv makes the test binary a helper: a daemon or a starter that can be
// killed.
const roleEnv = "NOTIFY_TEST_ROLE"

var roles = map[string]func(arg string) int{}

func TestMain(m *testing.M) {
	if name := os.Getenv(roleEnv); name != "" {
		os.Unsetenv(roleEnv)
		os.Exit(roles[name](os.Args[1]))
	}
	os.Exit(m.Run())
}

// helper is a command that runs this binary as a helper.
func helper(t testing.TB, role string, order any) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(order)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], string(b))
	c.Env = append(os.Environ(), roleEnv+"="+role)
	c.Stderr = os.Stderr
	return c
}

// patience fails a test that waits for what never comes.
const patience = time.Minute

func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s after %v", what, patience)
		}
	}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func newRoot(t testing.TB) *jobdir.Root {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "notify-test-") // in memory: there are thousands of files
	if err != nil {
		dir = t.TempDir()
	} else {
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	root := must[*jobdir.Root](t)(jobdir.OpenRoot(filepath.Join(dir, "root")))
	if err := root.Create(); err != nil {
		t.Fatal(err)
	}
	return root
}

// testJob is a job made by hand. The test is its runner.
type testJob struct {
	t    testing.TB
	root *jobdir.Root
	id   jobdir.ID
	lock *os.File
}

const testID jobdir.ID = "j6c1f0a2b9d3e"

// at is the nth id after testID.
func at(n int) jobdir.ID {
	id := testID
	for range n {
		id = id.Next()
	}
	return id
}

// makeJob makes a running job, with a claim on an entry where there is one.
func makeJob(t testing.TB, root *jobdir.Root, cmd jobdir.Cmd) *testJob {
	t.Helper()
	if cmd.Argv == nil {
		cmd.Argv = []string{"true"}
	}
	if cmd.ID == "" {
		cmd.ID = testID
	}
	cmd.Format, cmd.Cwd, cmd.CreatedAt = 1, "/", cmd.ID.Time().UTC()
	j := &testJob{t: t, root: root, id: cmd.ID}
	hidden := filepath.Join(root.Path(), record.Jobs, record.BuildPrefix+string(j.id))
	if err := os.Mkdir(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		record.Cmd: string(cmd.Marshal()), record.Pid: "", record.Log: "", record.Dropped: "", record.Cancel: "",
		record.ReservedExit: "", record.ReservedTiming: "",
	} {
		if err := os.WriteFile(filepath.Join(hidden, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j.lock = must[*os.File](t)(os.OpenFile(filepath.Join(hidden, record.Pid), os.O_RDWR, 0))
	t.Cleanup(func() { j.lock.Close() })
	if err := record.Lock(int(j.lock.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(hidden, j.path("")); err != nil {
		t.Fatal(err)
	}
	return j
}

func (j *testJob) path(name string) string { return filepath.Join(j.root.Job(j.id).Dir(), name) }

func (j *testJob) write(name, content string) {
	j.t.Helper()
	if err := os.WriteFile(j.path(name), []byte(content), 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// die is what a runner does that is killed.
func (j *testJob) die() { j.lock.Close() }

// end records an end as a runner does, and goes.
func (j *testJob) end(state jobdir.State, code int) {
	j.t.Helper()
	r := record.ExitRecord{State: state, At: time.Now()}
	if state == jobdir.Exited {
		r.ExitCode = &code
	}
	j.endWith(r, 340)
}

func (j *testJob) endWith(r record.ExitRecord, durationMS int64) {
	j.t.Helper()
	if info, err := os.Stat(j.path(record.Log)); err == nil && r.LogBytes == 0 {
		r.LogBytes = info.Size()
	}
	if durationMS >= 0 {
		j.write(record.Timing, string(record.TimingRecord{DurationMS: durationMS, EndedAt: time.Now(), StartedAt: time.Now()}.Append(nil)))
	}
	j.write(record.ReservedExit, string(r.Append(nil)))
	if err := os.Rename(j.path(record.ReservedExit), j.path(record.Exit)); err != nil {
		j.t.Fatal(err)
	}
	j.die()
}

// notified starts a job as start --notify does.
func notified(t testing.TB, root *jobdir.Root, cmd jobdir.Cmd, e Entry) *testJob {
	t.Helper()
	cmd.Notify = true
	if cmd.ID == "" {
		cmd.ID = testID
	}
	cmd.StartedBy = jobdir.StartedBy{Member: e.Member, Kind: e.Kind}
	cmd.Wake = e.Wake
	c := must[*Claim](t)(NewClaim(root, e))
	if err := c.Set(cmd.ID); err != nil {
		t.Fatal(err)
	}
	j := makeJob(t, root, cmd)
	c.Release()
	return j
}

func entryBy(member, kind string, wake ...string) Entry {
	return NewEntry(member, kind, wake, 0, 0, time.Now())
}

// following runs Follow in this process until the test, or stop, ends it.
type following struct {
	stop func()
	log  *logLines
}

// quick makes retries and sweeps as fast as a test needs.
func quick(f *follower) {
	f.slow = 50 * time.Millisecond
	f.backoff = func(int) time.Duration { return 10 * time.Millisecond }
}

func follow(t testing.TB, root *jobdir.Root, h Hooks, set ...func(*follower)) *following {
	t.Helper()
	lines := &logLines{ch: make(chan string, 10000)}
	h.Log = log.New(lines, "", 0)
	f := must[*follower](t)(newFollower(root, h))
	for _, s := range set {
		s(f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		f.run(ctx)
		f.work.Wait()
		f.close()
		close(done)
	}()
	stop := func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			t.Error("Follow does not end")
		}
	}
	t.Cleanup(stop)
	return &following{stop, lines}
}

type logLines struct{ ch chan string }

func (l *logLines) Write(b []byte) (int, error) {
	select {
	case l.ch <- string(b):
	default:
	}
	return len(b), nil
}

// has waits for a line that has a part.
func (l *logLines) has(t testing.TB, part string) {
	t.Helper()
	end := time.After(patience)
	for {
		select {
		case line := <-l.ch:
			if strings.Contains(line, part) {
				return
			}
		case <-end:
			t.Fatalf("the log never says %q", part)
		}
	}
}

// posted are the entries of the thread about jobs, by job.
func posted(t testing.TB, root *jobdir.Root) map[jobdir.ID][]thread.Entry {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root.Path(), "thread", "log"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	all := map[jobdir.ID][]thread.Entry{}
	for line := range strings.Lines(string(b)) {
		var e thread.Entry
		if !strings.HasSuffix(line, "\n") || json.Unmarshal([]byte(line), &e) != nil {
			continue // torn: the next writer repairs it
		}
		if e.Job != "" {
			all[jobdir.ID(e.Job)] = append(all[jobdir.ID(e.Job)], e)
		}
	}
	return all
}

func outbox(t testing.TB, root *jobdir.Root) []string {
	t.Helper()
	entries, err := os.ReadDir(outboxDir(root))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// wantDelivered waits until everybody has the message of a job, once.
func wantDelivered(t testing.TB, root *jobdir.Root, id jobdir.ID) *Receipt {
	t.Helper()
	waitFor(t, "receipt of "+string(id), func() bool {
		_, err := os.Lstat(entryPath(root, id))
		return os.IsNotExist(err)
	})
	r, ok := readReceipt(root.Job(id))
	if !ok {
		t.Fatalf("job %s has no receipt", id)
	}
	if got := posted(t, root)[id]; len(got) != 1 || got[0].Seq != r.Seq {
		t.Fatalf("job %s has %d entries, and a receipt of %d: %+v", id, len(got), r.Seq, got)
	}
	return r
}

// wantItem is the one item about a job in an inbox.
func wantItem(t testing.TB, root *jobdir.Root, member string, id jobdir.ID) thread.Item {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root.Path(), "inbox", member, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(names, func(s string) bool { return filepath.Base(s) == string(id)+".json" }) {
		t.Fatalf("%s has no item %s: %v", member, id, names)
	}
	return must[thread.Item](t)(thread.Open(root).Item(member, string(id)))
}

func addMember(t testing.TB, root *jobdir.Root, name, kind, command string) {
	t.Helper()
	if _, err := thread.Open(root).AddMember(thread.Member{Name: name, Kind: kind, WakeCommand: command}); err != nil {
		t.Fatal(err)
	}
}

// wantKilled runs a helper that kills itself.
func wantKilled(t testing.TB, c *exec.Cmd) {
	t.Helper()
	err := c.Run()
	if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the helper did not come to its point: %v", err)
	}
}

func crashAt(point string) {
	testOnlyCrash = func(p string) {
		if p == point {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
}

func intp(n int) *int { return &n }
