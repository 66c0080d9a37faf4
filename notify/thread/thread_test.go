package thread

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"space-job/jobdir"
)

// newThread is a thread in a root of its own, in memory where there is one. A
// warning fails the test, unless it sets Warn.
func newThread(t testing.TB) *Thread {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "thread-test-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return openThread(t, filepath.Join(dir, "root"))
}

func openThread(t testing.TB, path string) *Thread {
	t.Helper()
	root, err := jobdir.OpenRoot(path)
	if err != nil {
		t.Fatal(err)
	}
	th := Open(root)
	th.Warn = func(s string) { t.Errorf("warning: %s", s) }
	return th
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func jobID(n int) jobdir.ID { return jobdir.ID(fmt.Sprintf("j%012x", n)) }

// TestPostJobOnce: the end of a job is posted once, also by a process that
// knows nothing of what was posted before.
func TestPostJobOnce(t *testing.T) {
	th := newThread(t)
	if end := must(th.End())(t); end != 0 {
		t.Fatalf("end %d of an empty thread", end)
	}
	for i := 1; i <= 5; i++ {
		seq, existed, err := th.PostJob(JobEnd{Job: jobID(i), Text: "JOB\n    @bob CLAIM x | files: y | until: 1h"})
		if seq != int64(i) || existed || err != nil {
			t.Fatalf("job %d: %d, %v, %v", i, seq, existed, err)
		}
	}
	other := openThread(t, th.root.Path())
	for i := 1; i <= 5; i++ {
		for _, th := range []*Thread{th, other} {
			seq, existed, err := th.PostJob(JobEnd{Job: jobID(i), Text: "again", After: int64(i - 1)})
			if seq != int64(i) || !existed || err != nil {
				t.Fatalf("job %d again: %d, %v, %v", i, seq, existed, err)
			}
		}
	}
	done := must(other.PostJobs([]JobEnd{{Job: jobID(6)}, {Job: jobID(2)}, {Job: jobID(6)}, {Job: jobID(7)}}))(t)
	if want := []PostedJob{{6, false}, {2, true}, {6, true}, {7, false}}; fmt.Sprint(done) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", done, want)
	}
	if seq, existed, err := th.PostJob(JobEnd{Job: jobID(7), After: 6}); seq != 7 || !existed || err != nil {
		t.Errorf("what another process posted: %d, %v, %v", seq, existed, err)
	}
	if end := must(th.End())(t); end != 7 {
		t.Errorf("end %d", end)
	}
}

func TestPutItem(t *testing.T) {
	th := newThread(t)
	must(th.AddMember(Member{Name: "bob", Kind: Agent, WakeCommand: "cat"}))(t)
	it := Item{ID: string(jobID(1)), Kind: KindJobEnd, To: "bob", From: Author{daemonName, Daemon}, Text: "one", Wake: Wake{State: WakePending}}
	must(th.PutItem(it))(t)
	it.Text = "two"
	if got := must(th.PutItem(it))(t); got.Text != "one" {
		t.Errorf("an item was put twice: %+v", got)
	}
	pending := must(th.PendingWakes())(t)
	if len(pending) != 1 || pending[0].Text != "one" || pending[0].State != Unread {
		t.Fatalf("pending: %+v", pending)
	}
	next := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	if err := th.WakeResult(pending[0], errors.New("no"), next); err != nil {
		t.Fatal(err)
	}
	pending = must(th.PendingWakes())(t)
	if len(pending) != 1 || pending[0].Wake.Attempts != 1 || pending[0].Wake.Error != "no" || !pending[0].Wake.NextAt.Equal(next) {
		t.Fatalf("pending: %+v", pending)
	}
	if err := th.WakeResult(pending[0], nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if pending := must(th.PendingWakes())(t); len(pending) != 0 {
		t.Errorf("pending: %+v", pending)
	}
	if got := must(th.Item("bob", it.ID))(t); got.Wake.State != WakeDone || got.Wake.Attempts != 2 {
		t.Errorf("%+v", got)
	}
	if hops := must(th.HopsOf("bob"))(t); hops != 0 {
		t.Errorf("hops %d", hops)
	}
}

// TestRootThatIsALink: the first item of all arrives there, too.
func TestRootThatIsALink(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	link := th.root.Path() + ".link"
	if err := th.root.Create(); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(th.root.Path(), link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(link) })
	th = openThread(t, link)
	crowd(t, th, 1)
	if p := must(th.Post(Post{Author: ann, Text: "@a0 hello"}))(t); len(p.Items) != 1 {
		t.Errorf("%+v", p)
	}
	if all := must(th.Inbox("a0"))(t); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}
