package until

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

func newRoot(t testing.TB) *jobdir.Root {
	t.Helper()
	r, err := jobdir.OpenRoot(filepath.Join(t.TempDir(), "root"))
	if err == nil {
		err = r.Create()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// watch is a watch under way.
type watch struct {
	t    *testing.T
	w    *watcher
	log  lines
	stop context.CancelFunc
	done chan struct{}
	end  End
	err  error
}

// lines is a log that can be read while it is written.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String is the log without its times.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b strings.Builder
	for line := range strings.Lines(l.b.String()) {
		_, text, _ := strings.Cut(line, " ")
		b.WriteString(text)
	}
	return b.String()
}

// begin starts a watch, with times that set has changed.
func begin(t *testing.T, root *jobdir.Root, c Condition, set func(*watcher)) *watch {
	t.Helper()
	c, err := c.Resolve(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	w := &watch{t: t, done: make(chan struct{})}
	w.w = newWatcher(root, c, &w.log)
	if set != nil {
		set(w.w)
	}
	var ctx context.Context
	ctx, w.stop = context.WithCancel(context.Background())
	go func() {
		w.end, w.err = w.w.watch(ctx)
		close(w.done)
	}()
	t.Cleanup(func() {
		w.stop()
		<-w.done
	})
	return w
}

// says waits until the log has a text.
func (w *watch) says(text string) {
	w.t.Helper()
	within(w.t, fmt.Sprintf("%q in the log", text), func() bool { return strings.Contains(w.log.String(), text) })
}

// ends waits for the end.
func (w *watch) ends(code int, what string) {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(patience):
		w.t.Fatalf("the watch goes on:\n%s", w.log.String())
	}
	if w.err != nil || w.end.Code != code || !strings.Contains(w.end.What, what) {
		w.t.Fatalf("end %+v, %v, want %d and %q:\n%s", w.end, w.err, code, what, w.log.String())
	}
	if !strings.HasSuffix(w.log.String(), w.end.What+"\n") {
		w.t.Errorf("the end is not in the log:\n%s", w.log.String())
	}
}

// goesOn makes sure that the watch has not ended.
func (w *watch) goesOn() {
	w.t.Helper()
	select {
	case <-w.done:
		w.t.Fatalf("the watch has ended: %+v, %v\n%s", w.end, w.err, w.log.String())
	default:
	}
}

func within(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %v", what, patience)
		}
	}
}

// few makes sure that a log has few lines.
func few(t *testing.T, w *watch, most int) {
	t.Helper()
	if n := strings.Count(w.log.String(), "\n"); n > most {
		t.Errorf("%d lines:\n%s", n, w.log.String())
	}
}

// runningJob makes a job that runs, and returns what ends it.
func runningJob(t *testing.T, r *jobdir.Root, log string) (j *jobdir.Job, end func(exit string)) {
	t.Helper()
	id := record.NewID(time.Now())
	for ; ; id = record.NewID(time.Now()) {
		if err := os.Mkdir(r.Job(id).Dir(), 0o700); err == nil {
			break
		}
	}
	j = r.Job(id)
	cmd := jobdir.Cmd{Format: 1, ID: id, Argv: []string{"true"}, Cwd: "/", CreatedAt: id.Time()}
	for name, content := range map[string]string{record.Cmd: string(cmd.Marshal()), record.Pid: "", record.Log: log, record.Dropped: "", record.Cancel: ""} {
		write(t, filepath.Join(j.Dir(), name), content)
	}
	f, err := os.OpenFile(filepath.Join(j.Dir(), record.Pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := record.Lock(int(f.Fd())); err != nil {
		t.Fatal(err)
	}
	return j, func(exit string) {
		if exit != "" {
			write(t, filepath.Join(j.Dir(), record.ReservedExit), exit)
			if err := os.Rename(filepath.Join(j.Dir(), record.ReservedExit), filepath.Join(j.Dir(), record.Exit)); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
	}
}

func exited(code int) string {
	return fmt.Sprintf(`{"state":"exited","exit_code":%d,"signal":"","error":"","log_bytes":0,"left":0,"at":"2026-01-02T03:04:05.000Z"}`, code)
}

func ended(state jobdir.State) string {
	return fmt.Sprintf(`{"state":%q,"exit_code":null,"signal":"","error":"","log_bytes":0,"left":0,"at":"2026-01-02T03:04:05.000Z"}`, state)
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t testing.TB, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(content)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
