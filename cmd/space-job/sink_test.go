package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// space is a root of a test's own, with the programs as users run them.
type space struct {
	t    testing.TB
	root string
	bin  string // where its programs are
}

func newSpace(t testing.TB) *space {
	t.Helper()
	return newSpaceOf(t, filepath.Dir(pathOf(t, "space-job")))
}

// newArmedSpace is a space whose programs can be told to die at a step.
func newArmedSpace(t testing.TB) *space {
	t.Helper()
	return newSpaceOf(t, armedDir)
}

func newSpaceOf(t testing.TB, bin string) *space {
	s := &space{t, filepath.Join(t.TempDir(), "root"), bin}
	t.Cleanup(func() {
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(s.root, "daemon.log"))
			t.Logf("daemon.log:\n%s", b)
		}
		stopAll(s.root)
		_, _ = s.try("daemon", "stop")
	})
	return s
}

func (s *space) command(args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, "space-job"), args...)
	c.Env = append(os.Environ(), "SPACE_JOB_HOME="+s.root, "SPACE_JOB=", "SPACE_MEMBER=",
		"PATH="+s.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return c
}

func (s *space) try(args ...string) (string, error) {
	c := s.command(args...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		err = fmt.Errorf("space-job %q: %w: %s", args, err, stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n"), err
}

func (s *space) run(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// sink is the state of a sink, how many messages wait for it, and its error.
func (s *space) sink(name string) string {
	s.t.Helper()
	for line := range strings.Lines(s.run("sink", "list", "--json")) {
		var e struct {
			Sink, State string
			Waiting     int
			Error       *string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatal(err)
		}
		if e.Sink == name {
			text := fmt.Sprint(e.State, " ", e.Waiting)
			if e.Error != nil {
				text += " " + *e.Error
			}
			return text
		}
	}
	return "none"
}

// await waits until get returns something that begins with want.
func (s *space) await(what string, get func() string, want string) {
	s.t.Helper()
	got := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = get(); strings.HasPrefix(got, want) {
			return
		}
	}
	s.t.Fatalf("%s: %q, want %q", what, got, want)
}

func (s *space) awaitSink(name, want string) {
	s.t.Helper()
	s.await("sink "+name, func() string { return s.sink(name) }, want)
}

// killDaemon kills the daemon with -9, and returns when it is gone.
func (s *space) killDaemon() {
	s.t.Helper()
	var d struct{ PID int }
	b, err := os.ReadFile(filepath.Join(s.root, "daemon.lock"))
	if err == nil {
		err = json.Unmarshal(b, &d)
	}
	if err != nil || d.PID <= 1 || syscall.Kill(d.PID, syscall.SIGKILL) != nil {
		s.t.Fatalf("no daemon to kill: %s, %v", b, err)
	}
	s.noDaemon(d.PID)
}

// TestN1SinkDownWhenTheJobEnds: what a far end does not take waits, through
// daemons that are killed before, during and after the end of the job, and
// keeps nobody else waiting.
func TestN1SinkDownWhenTheJobEnds(t *testing.T) {
	t.Parallel()
	var (
		code     atomic.Int64 // what the server answers with
		mu       sync.Mutex
		keys     = map[string]int{} // of what it has taken
		attempts atomic.Int64
	)
	code.Store(403)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var m struct{ Key, Job string }
		if json.Unmarshal(b, &m) != nil || m.Key != "job/"+m.Job || r.Header.Get("Idempotency-Key") != m.Key {
			t.Errorf("body %s, key %q", b, r.Header.Get("Idempotency-Key"))
		}
		attempts.Add(1)
		answer := int(code.Load())
		if answer == 200 {
			mu.Lock()
			keys[m.Key]++
			mu.Unlock()
		}
		w.WriteHeader(answer)
		fmt.Fprint(w, "not now")
	}))
	defer server.Close()
	s := newSpace(t)
	dir := t.TempDir()
	s.run("sink", "add", "refuses", "--webhook", server.URL+"/secret")
	s.run("sink", "add", "down", "--webhook", "http://127.0.0.1:1/secret")
	s.run("sink", "add", "hangs", "--command", "test -e "+dir+"/up || exec sleep 100")
	s.run("sink", "add", "works", "--command", `echo "$SPACE_JOB_KEY" >>`+dir+`/got; cat >>`+dir+`/text`)

	job := s.run("start", "--notify", "--name", "unit tests", "until test -e "+dir+"/end; do sleep 0.05; done; exit 7")
	s.await("daemon.lock", func() string {
		b, _ := os.ReadFile(filepath.Join(s.root, "daemon.lock"))
		return string(b)
	}, "{")
	s.killDaemon() // before the end
	if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.try("wait", job)

	// The next command starts a daemon. The sink that hangs delays nobody.
	began := time.Now()
	s.awaitSink("refuses", "failed 1 "+server.URL+"/...: 403 Forbidden: not now")
	s.awaitSink("down", "retrying 1 http://127.0.0.1:1/...: dial tcp 127.0.0.1:1: connect: connection refused")
	s.awaitSink("works", "ok 0") // only by now: before there is anything to deliver, nothing waits
	s.await("the thread", func() string { return fmt.Sprint(strings.Count(s.run("thread", "read"), "JOB "+job+" exited exit=7 ")) }, "1")
	if got := s.sink("hangs"); got != "ok 1" { // its first attempt goes on
		t.Errorf("hangs: %s", got)
	}
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("one that hangs for 10 s delayed the others: %v", took)
	}
	var status struct {
		Notify struct {
			State string
			Sinks map[string]struct {
				State    string
				Attempts int
				Error    string
			}
		}
	}
	if err := json.Unmarshal([]byte(s.run("status", "--json", job)), &status); err != nil {
		t.Fatal(err)
	}
	if n := status.Notify; n.State != "pending" || n.Sinks["refuses"].State != "failed" || n.Sinks["refuses"].Attempts != 1 || n.Sinks["works"].State != "delivered" || n.Sinks["down"].Attempts == 0 || n.Sinks["down"].Error == "" {
		t.Errorf("status: %+v", n)
	}

	s.killDaemon() // after the end, while one attempt goes on
	s.awaitSink("refuses", "failed 1 ")
	s.awaitSink("down", "retrying 1 ")
	if n := attempts.Load(); n != 1 {
		t.Errorf("%d attempts at what was refused for good", n)
	}

	// With the daemon stopped on purpose, it is said that nothing goes on.
	s.run("daemon", "stop")
	for _, args := range [][]string{{"list"}, {"retry", "down"}} {
		c := exec.Command("space-job", append([]string{"sink"}, args...)...)
		c.Env = append(os.Environ(), "SPACE_JOB_HOME="+s.root)
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "warning: the daemon was stopped, and nothing is delivered") {
			t.Errorf("sink %q: %s, %v", args, out, err)
		}
	}
	s.hasDaemon()

	// Everybody is up again.
	code.Store(200)
	if err := os.WriteFile(filepath.Join(dir, "up"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("sink", "add", "down", "--webhook", server.URL)
	for _, name := range []string{"refuses", "down"} {
		if got := s.run("sink", "retry", name); name == "refuses" && got != "trying again for refuses: 1 message" { // the other one may have it by now
			t.Errorf("%q", got)
		}
		s.awaitSink(name, "ok 0")
	}
	s.await("hangs", func() string { // its attempt may have begun before it was up
		if got := s.sink("hangs"); !strings.HasPrefix(got, "retrying") {
			return got
		}
		s.run("sink", "retry", "hangs")
		return ""
	}, "ok 0")
	s.await("status", func() string {
		_ = json.Unmarshal([]byte(s.run("status", "--json", job)), &status)
		return status.Notify.State
	}, "delivered")
	mu.Lock()
	if len(keys) != 1 || keys["job/"+job] < 2 { // two sinks lead there
		t.Errorf("arrived: %v", keys)
	}
	mu.Unlock()
	if b, err := os.ReadFile(filepath.Join(dir, "got")); err != nil || string(b) != "job/"+job+"\n" {
		t.Errorf("the sink that works: %q, %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "text")); err != nil || !strings.HasPrefix(string(b), "JOB "+job+" exited exit=7 ") || !strings.HasSuffix(string(b), "\n") {
		t.Errorf("the text: %q, %v", b, err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.root, "outbox", "j*")); len(left) != 0 {
		t.Errorf("left in the outbox: %q", left)
	}
}
