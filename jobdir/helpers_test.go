package jobdir

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"space-job/jobdir/record"
)

const testID ID = "j6c1f0a2b9d3e"

func newRoot(t testing.TB) *Root {
	t.Helper()
	r, err := OpenRoot(filepath.Join(scratch(t), "root"))
	if err == nil {
		err = r.Create()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// scratch is a temporary directory, in memory where there is one: the tests
// make thousands of files.
func scratch(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "jobdir-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func cmdJSON(id ID) string {
	c := Cmd{Format: 1, ID: id, Argv: []string{"true"}, Cwd: "/", CreatedAt: id.Time()}
	return string(c.Marshal())
}

// The content of a file that is something else.
const (
	isDir     = "\x00directory"
	isFIFO    = "\x00fifo"
	isSymlink = "\x00symlink"
)

// makeJob makes a job by hand. Files that are not named are those of a job
// that has just been started: cmd, pid and log, dropped and cancel reserved.
func makeJob(t testing.TB, r *Root, id ID, files map[string]string) *Job {
	t.Helper()
	j := r.Job(id)
	if err := os.Mkdir(j.Dir(), 0o700); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{record.Cmd: cmdJSON(id), record.Pid: "", record.Log: "", record.Dropped: "", record.Cancel: ""}
	for name, content := range files {
		all[name] = content
	}
	for name, content := range all {
		putFile(t, j.path(name), content)
	}
	return j
}

func problemText(p Problem) string {
	if p.File == "" {
		return p.Name + ": " + p.What
	}
	return p.Name + "/" + p.File + ": " + p.What
}

const missing = "\x00missing"

func putFile(t testing.TB, path, content string) {
	t.Helper()
	var err error
	switch content {
	case missing:
	case isDir:
		err = os.Mkdir(path, 0o700)
	case isFIFO:
		err = syscall.Mkfifo(path, 0o600)
	case isSymlink:
		err = os.Symlink("/etc/passwd", path)
	default:
		err = os.WriteFile(path, []byte(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hold locks a file as a runner does. Another open file is another holder,
// also inside one process.
func hold(t testing.TB, path string) (release func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		err = record.Lock(int(f.Fd()))
	}
	if err != nil {
		t.Fatalf("lock %s: %v", path, err)
	}
	t.Cleanup(func() { f.Close() })
	return func() { f.Close() }
}

func exitJSON(state State, code any, at time.Time) string {
	return fmt.Sprintf(`{"state":%q,"exit_code":%v,"signal":"","error":"","log_bytes":0,"left":0,"at":%q}`+"\n",
		state, code, at.UTC().Format(record.TimeFormat))
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

// within fails a test that waits for what never comes.
const within = 10 * time.Second
