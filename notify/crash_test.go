package notify

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	_ "unsafe" // for linkname

	"space-job/jobdir"
	"space-job/notify/thread"
)

// threadCrash is the variable of that name in package thread, whose steps are
// steps of a delivery, too.
//
//go:linkname threadCrash space-job/notify/thread.testOnlyCrash
var threadCrash func(point string)

func init() {
	roles["follow"] = followRole
	roles["claim"] = claimRole
}

// A crashOrder is what the process that dies is told.
type crashOrder struct {
	Root  string
	Point string // "": none
	Job   jobdir.ID
	Stay  bool // do not end when there is nothing left
	Above bool // the root has joined the thread of the root beside it: see parentBeside
}

func (o crashOrder) arm() {
	if o.Point != "" {
		crashAt(o.Point)
		threadCrash = testOnlyCrash
	}
}

// followRole is a daemon that ends when the outbox is empty. What it brings to
// others it writes into files beside the root.
func followRole(arg string) int {
	var o crashOrder
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	root, err := jobdir.OpenRoot(o.Root)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	lock, err := TakeLock(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer lock.Close()
	o.arm()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if !o.Stay {
		go func() {
			for entriesLeft(root) {
				time.Sleep(time.Millisecond)
			}
			stop()
		}()
	}
	hooks := fileHooks(o.Root)
	if o.Above {
		hooks.Parent = func() (*Parent, error) { return parentBeside(o.Root) }
	}
	if err := Follow(ctx, root, hooks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// parentBeside is the thread of another root, in which ann of this one takes part.
func parentBeside(root string) (*Parent, error) {
	other, err := jobdir.OpenRoot(root + ".parent")
	if err != nil {
		return nil, err
	}
	th := thread.Open(other)
	return &Parent{
		Space: "child",
		Has:   func(member string) bool { return member == "ann" },
		JobEnd: func(_ context.Context, e JobEnd) (JobTold, error) {
			seq, _, err := th.PostJob(thread.JobEnd{Job: e.Message.Job, Space: "child", Text: e.Message.Text, Hops: e.Hops, After: e.After})
			told := map[string]Target{"bob": {State: Failed, Error: "no such member"}}
			if e.Starter != "" {
				told[e.Starter] = Target{State: Pending}
			}
			return JobTold{Seq: seq, Targets: told}, err
		},
		Woken: func(string, string) Target { return Target{State: Delivered, Attempts: 1} },
	}, nil
}

// entriesLeft: also a wake that is to be run, without an entry.
func entriesLeft(root *jobdir.Root) bool {
	if Waiting(root) {
		return true
	}
	items, err := thread.Open(root).PendingWakes()
	return err != nil || len(items) > 0
}

// fileHooks write what comes out of a root into files beside it, a line each.
func fileHooks(root string) Hooks {
	note := func(file, line string) error {
		f, err := os.OpenFile(root+"."+file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
		if err == nil {
			_, err = f.WriteString(line + "\n")
			f.Close()
		}
		return err
	}
	return Hooks{
		Sink: func(c SinkConfig) Sink {
			return sinkFunc(func(m Message) error { return note("sink-"+c.Name, m.Key) })
		},
		Wake:    func(_ context.Context, m thread.Member, it thread.Item) error { return note("wake-"+m.Name, it.ID) },
		Desktop: func(_ context.Context, m Message) error { return note("desktop", m.Key) },
	}
}

type sinkFunc func(Message) error

func (f sinkFunc) Deliver(_ context.Context, m Message) error { return f(m) }

// claimRole writes an entry for a job that never appears.
func claimRole(arg string) int {
	var o crashOrder
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		return 2
	}
	root, err := jobdir.OpenRoot(o.Root)
	if err != nil {
		return 2
	}
	o.arm()
	c, err := NewClaim(root, NewEntry("", "", nil, 0, 0, time.Now()))
	if err == nil {
		err = c.Set(o.Job)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

type crashWay int

const (
	claiming crashWay = iota // the starter
	agent                    // the daemon, at the end of an agent's job
	person                   // the daemon, at the end of a person's
	thread_                  // as agent; the step is one of package thread
	above                    // the daemon of a root that has joined another thread
)

// crashTable is every step that a kill -9 could fall into between the start of a
// job and the end of its entry.
var crashTable = []struct {
	point string
	way   crashWay
}{
	{"claim.written", claiming},
	{"claim.named", claiming},

	{"follow.ended", agent},
	{"follow.posted", agent},
	{"follow.woken", agent},
	{"follow.put", agent},
	{"follow.marked", agent},
	{"follow.receipt", agent},
	{"follow.removed", agent},
	{"sink.asked", agent},
	{"wake.run", agent},
	{"wake.noted", agent},
	{"desktop.shown", person},

	{"parent.told", above},

	{"post.appended", thread_},
	{"post.synced", thread_},
	{"item.marked", thread_},
	{"item.written", thread_},
}

// TestCrashTableIsWhole: the table has the points of the source, and no others.
func TestCrashTableIsWhole(t *testing.T) {
	t.Parallel()
	want := map[string]token.Position{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.Ident); !ok || f.Name != "crash" {
				return true
			}
			lit, ok := call.Args[0].(*ast.BasicLit)
			if !ok {
				t.Fatalf("%s: a crash point that this test cannot read", fset.Position(call.Pos()))
			}
			point, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			want[point] = fset.Position(call.Pos())
			return true
		})
	}
	got := map[string]bool{}
	for _, c := range crashTable {
		if got[c.point] {
			t.Errorf("the table has %s twice", c.point)
		}
		got[c.point] = true
		if c.way != thread_ && want[c.point].Line == 0 {
			t.Errorf("the table has %q, and the source does not", c.point)
		}
	}
	for point, where := range want {
		if strings.HasPrefix(point, "wait.") {
			continue // of a job elsewhere: cmd/space-job has a test that kills its programs there
		}
		if !got[point] {
			t.Errorf("%s: no row for crash point %q", where, point)
		}
	}
}

// TestCrash kills the starter or the daemon at each point, three times in a row,
// and lets another daemon go on. Nothing is lost, and nothing is repeated in the
// thread and in inboxes; a sink and a waker may be asked again, with the same key.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, c := range crashTable {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			root := newRoot(t)
			o := crashOrder{Root: root.Path(), Point: c.point, Job: testID}
			if c.way == claiming {
				wantKilled(t, helper(t, "claim", o))
				o.Point = ""
				if err := helper(t, "follow", o).Run(); err != nil {
					t.Error(err)
				}
				if all := posted(t, root); len(all) != 0 || Waiting(root) {
					t.Errorf("%v, %v", all, outbox(t, root))
				}
				// The next start with that id is not kept from it.
				notified(t, root, jobdir.Cmd{ID: testID}, entryBy("", "")).end(jobdir.Exited, 0)
				if err := helper(t, "follow", o).Run(); err != nil {
					t.Error(err)
				}
				wantDelivered(t, root, testID)
				return
			}
			if c.way == above {
				crashAbove(t, root, o)
				return
			}
			starter, kind, command := "ann", thread.Agent, "true"
			if c.way == person {
				kind, command = thread.Person, ""
			}
			addMember(t, root, starter, kind, command)
			addMember(t, root, "bob", thread.Agent, "true")
			if _, err := AddSink(root, SinkConfig{Name: "file", Command: "true"}); err != nil {
				t.Fatal(err)
			}
			j := notified(t, root, jobdir.Cmd{Name: "n"}, entryBy(starter, kind, "bob"))
			j.end(jobdir.Exited, 7)
			wantKilled(t, helper(t, "follow", o))
			for range 2 { // a later one may find nothing to do, and end
				_ = helper(t, "follow", o).Run()
			}
			o.Point = ""
			for range 2 {
				if err := helper(t, "follow", o).Run(); err != nil {
					t.Error(err)
				}
			}
			r := wantDelivered(t, root, j.id)
			if r.state() != Delivered {
				t.Errorf("%+v", r)
			}
			for _, member := range []string{starter, "bob"} {
				if it := wantItem(t, root, member, j.id); it.Seq != r.Seq {
					t.Errorf("%+v", it)
				}
			}
			want := map[string]string{"sink-file": KeyOf(j.id), "wake-bob": string(j.id), "wake-ann": string(j.id)}
			if c.way == person {
				delete(want, "wake-ann")
				want["desktop"] = KeyOf(j.id)
			}
			for file, key := range want {
				got := beside(t, root, file)
				if len(got) == 0 {
					t.Errorf("%s: never", file)
				}
				for _, k := range got {
					if k != key {
						t.Errorf("%s: %q, want %q", file, k, key)
					}
				}
			}
		})
	}
}

// crashAbove: what is for the parent is there once, ann is told there, and bob, who
// does not take part in its thread, here.
func crashAbove(t *testing.T, root *jobdir.Root, o crashOrder) {
	parent := must[*jobdir.Root](t)(jobdir.OpenRoot(root.Path() + ".parent"))
	if err := parent.Create(); err != nil {
		t.Fatal(err)
	}
	addMember(t, root, "ann", thread.Agent, "true")
	addMember(t, root, "bob", thread.Agent, "true")
	if _, err := AddSink(root, SinkConfig{Name: "file", Command: "true"}); err != nil {
		t.Fatal(err)
	}
	o.Above = true
	j := notified(t, root, jobdir.Cmd{Name: "n"}, entryBy("ann", thread.Agent, "bob"))
	j.end(jobdir.Exited, 7)
	for range 3 {
		wantKilled(t, helper(t, "follow", o))
	}
	o.Point = ""
	if err := helper(t, "follow", o).Run(); err != nil {
		t.Error(err)
	}
	r, ok := readReceipt(root.Job(j.id))
	if !ok || r.state() != Delivered || r.Seq != 1 || r.Wakes["ann"].State != Delivered || r.Wakes["bob"].State != Delivered {
		t.Fatalf("%+v", r)
	}
	read := must[thread.Read](t)(thread.Open(parent).Read(thread.Range{}))
	if len(read.Entries) != 1 || read.Entries[0].Key != "child/"+string(j.id) || !strings.Contains(read.Entries[0].Text, "\nRead more in the Space child with ") {
		t.Errorf("%+v", read)
	}
	if all := must[thread.Read](t)(thread.Open(root).Read(thread.Range{})); len(all.Entries) != 0 {
		t.Errorf("%+v", all)
	}
	if it := wantItem(t, root, "bob", j.id); it.Seq != 1 {
		t.Errorf("%+v", it)
	}
	if _, err := thread.Open(root).Item("ann", string(j.id)); err == nil {
		t.Error("ann has an item here, too")
	}
	if got := beside(t, root, "sink-file"); len(got) == 0 {
		t.Error("the sink has nothing")
	}
}

// beside are the lines of a file of fileHooks.
func beside(t testing.TB, root *jobdir.Root, file string) []string {
	t.Helper()
	b, err := os.ReadFile(root.Path() + "." + file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// TestN2KilledBetweenPostAndMark: fifty times over fifty jobs, and still fifty
// messages.
func TestN2KilledBetweenPostAndMark(t *testing.T) {
	t.Parallel()
	times := 50
	if testing.Short() {
		times = 10
	}
	root := newRoot(t)
	addMember(t, root, "ann", thread.Agent, "")
	for i := range 50 {
		notified(t, root, jobdir.Cmd{ID: at(i)}, entryBy("ann", thread.Agent)).end(jobdir.Exited, i)
	}
	o := crashOrder{Root: root.Path(), Point: "follow.posted"}
	for range times {
		wantKilled(t, helper(t, "follow", o))
	}
	o.Point = ""
	if err := helper(t, "follow", o).Run(); err != nil {
		t.Error(err)
	}
	for i := range 50 {
		wantDelivered(t, root, at(i))
		wantItem(t, root, "ann", at(i))
	}
	b, err := os.ReadFile(filepath.Join(root.Path(), "thread", "log"))
	if err != nil {
		t.Fatal(err)
	}
	seq := int64(0)
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		var e thread.Entry
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if seq++; e.Seq != seq {
			t.Fatalf("entry %d has seq %d", seq, e.Seq)
		}
	}
	if seq != 50 {
		t.Errorf("%d entries", seq)
	}
}

// TestLockOfAKilledDaemon: the kernel frees it.
func TestLockOfAKilledDaemon(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	c := helper(t, "follow", crashOrder{Root: root.Path(), Stay: true})
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a daemon", func() bool { _, held := DaemonOf(root); return held })
	if _, err := TakeLock(root); err == nil {
		t.Error("two have the lock")
	}
	_ = c.Process.Signal(syscall.SIGKILL)
	_ = c.Wait()
	must[*Lock](t)(TakeLock(root)).Close()
}
