package thread

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	crashN    = flag.Int("crash.n", 40, "posters of the random crash test")
	crashSeed = flag.Uint64("crash.seed", 0, "seed of the random crash test (0: another one each time)")
)

// crashTable is every point at which a process may be killed while it writes,
// and what it is doing. What follows is the same for all: see testCrash.
var crashTable = []struct {
	point string
	doing []string
}{
	{"post.appended", []string{"post", "claim", "blocked", "job", "answer"}},
	{"post.synced", []string{"post", "claim", "blocked", "job", "answer"}},
	{"post.claims", []string{"claim", "blocked"}},
	{"wake.counted", []string{"post", "blocked"}},
	{"item.marked", []string{"post", "blocked", "put"}},
	{"item.written", []string{"post", "blocked", "put", "take", "answer", "woken"}},
	{"post.done", []string{"post", "claim", "blocked", "job", "answer"}},
	{"answer.posted", []string{"answer"}},
}

// TestCrashTableIsWhole: the table has the points of the source, and no others.
func TestCrashTableIsWhole(t *testing.T) {
	want := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "crash" {
					point, err := strconv.Unquote(call.Args[0].(*ast.BasicLit).Value)
					if err != nil {
						t.Fatal(err)
					}
					want[point] = true
				}
			}
			return true
		})
	}
	for _, c := range crashTable {
		if !want[c.point] {
			t.Errorf("the table has %q, and the source does not, or it has it twice", c.point)
		}
		delete(want, c.point)
	}
	for point := range want {
		t.Errorf("no row for crash point %q", point)
	}
}

// TestCrash kills a process at each point, and looks at what another one finds.
func TestCrash(t *testing.T) {
	for _, c := range crashTable {
		for _, doing := range c.doing {
			t.Run(c.point+" "+doing, func(t *testing.T) {
				t.Parallel()
				testCrash(t, c.point, doing)
			})
		}
	}
}

func testCrash(t *testing.T, point, doing string) {
	th := newThread(t)
	crowd(t, th, 2)
	must(th.Post(Post{Author: ann, Text: "@a0 begin"}))(t)                             // 1: e1 of a0
	must(th.Post(Post{Author: agent(0), Text: "CLAIM x | files: src | until: 1h"}))(t) // 2
	id := string(jobID(7))
	o := order{Root: th.root.Path(), Do: doing, Author: agent(0), Crash: point}
	want := "@a0 begin|CLAIM x | files: src | until: 1h"
	switch doing {
	case "post":
		o.Text = "@a1 hello"
	case "claim":
		o.Text = "CLAIM y | files: docs | until: 1h"
	case "blocked":
		o.Do, o.Text = "post", "BLOCKED x | needs: y | from @a1"
	case "job":
		o.Text, o.Item = "JOB", id
	case "put":
		o.Text, o.Item = "JOB", id
	case "answer":
		must(th.Take("a0", Taker{}, false))(t)
		o.Text, o.Item = "@a1 here you are", "e1"
	case "woken":
		o.Item = "e1"
	}
	switch doing {
	case "put", "take", "woken":
	default:
		want += "|" + o.Text
	}
	if !killed(t, o) {
		t.Fatal("the process was not killed")
	}

	// Whoever comes next finds it done, or does it again and it is done once.
	again := o
	again.Crash = ""
	th = openThread(t, th.root.Path())
	for range 3 {
		switch doing {
		case "job":
			if seq, existed, err := th.PostJob(JobEnd{Job: jobID(7), Text: "JOB"}); seq != 3 || !existed || err != nil {
				t.Fatalf("%d, %v, %v", seq, existed, err)
			}
		case "put":
			must(th.PutItem(Item{ID: id, Kind: KindJobEnd, To: "a0", Text: "JOB", Wake: Wake{State: WakePending}}))(t)
		case "answer":
			it := must(th.Item("a0", "e1"))(t)
			if it.State != Answered {
				p := must(th.Answer(agent(0), "e1", o.Text))(t)
				if p.Entry.Seq != 3 {
					t.Fatalf("answered by %+v", p.Entry)
				}
			}
		}
		// Any writer brings up to date what was left.
		w := must(th.open())(t)
		w.close()
		if got := texts(contents(t, th)); got != want {
			t.Fatalf("entries %q, want %q", got, want)
		}
	}
	wantItems := map[string]string{"e1": Unread}
	switch doing {
	case "put":
		wantItems[id] = Unread
	case "take":
		wantItems["e1"] = Taken
	case "answer":
		delete(wantItems, "e1")
	}
	got := map[string]string{}
	for _, it := range must(th.Inbox("a0"))(t) {
		got[it.ID] = it.State
	}
	if fmt.Sprint(got) != fmt.Sprint(wantItems) {
		t.Errorf("items of a0: %v, want %v", got, wantItems)
	}
	items := must(th.Inbox("a1"))(t)
	switch doing {
	case "post", "blocked", "answer":
		if len(items) != 1 || items[0].ID != "e3" || items[0].Wake.State != WakePending || items[0].Hops != 1 {
			t.Errorf("items of a1: %+v", items)
		}
		if pending := must(th.PendingWakes())(t); len(pending) == 0 || pending[len(pending)-1].To != "a1" {
			t.Errorf("pending: %+v", pending)
		}
		w := must(th.open())(t)
		if n := len(w.recentWakes(time.Now())); n != 1 {
			t.Errorf("%d wakes are counted", n)
		}
		w.close()
	default:
		if len(items) != 0 {
			t.Errorf("items of a1: %+v", items)
		}
	}
	claims := "a0:x"
	switch doing {
	case "claim":
		claims = "a0:x a0:y"
	case "blocked":
		claims = "a0:x(a1)"
	}
	if got := claimsOf(t, th); got != claims {
		t.Errorf("claims %q, want %q", got, claims)
	}
	if doing == "woken" {
		if err := th.WakeResult(must(th.Item("a0", "e1"))(t), nil, time.Time{}); err != nil {
			t.Error(err)
		}
		if pending := must(th.PendingWakes())(t); len(pending) != 0 {
			t.Errorf("pending: %+v", pending)
		}
	}
	// Nothing half written is in the way of the next.
	next := int64(len(contents(t, th)) + 1)
	if p := must(th.Post(Post{Author: ann, Text: "@a1 next"}))(t); p.Entry.Seq != next || p.Items[0].ID != "e"+strconv.FormatInt(p.Entry.Seq, 10) {
		t.Errorf("%+v", p)
	}
}

// TestN2Twice: a poster of the end of a job is killed between the entry and
// whatever it writes next, fifty times, and it is posted once each time.
func TestN2Twice(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	points := []string{"post.appended", "post.synced", "post.done"}
	for i := range 50 {
		o := order{Root: th.root.Path(), Do: "job", Item: string(jobID(i)), Text: "JOB", Crash: points[i%len(points)]}
		if !killed(t, o) {
			t.Fatal("the poster was not killed")
		}
		o.Crash = ""
		for range 1 + i%2 {
			if killed(t, o) {
				t.Fatal("killed")
			}
		}
	}
	if n := len(contents(t, th)); n != 50 {
		t.Errorf("%d entries of 50 jobs", n)
	}
}

// TestCrashAtRandom kills posters at any moment. What was said to be posted is
// there, nothing is twice, and each entry has its item.
func TestCrashAtRandom(t *testing.T) {
	t.Parallel()
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-crash.seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	th := newThread(t)
	crowd(t, th, 2)
	promised := map[string]bool{}
	for i := range *crashN {
		text := fmt.Sprintf("@a1 number %d", i)
		c, out := command(t, order{Root: th.root.Path(), Do: "post", Author: ann, Text: text, N: 1000, Ready: true})
		c.Stdout = nil
		said, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		in, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(said, make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		in.Close() // it begins
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
		_ = c.Process.Kill()
		posted, _ := io.ReadAll(said)
		_ = c.Wait()
		out.Write(posted)
		for s := range strings.FieldsSeq(out.String()) {
			promised[s+" "+text] = true
		}
		if strings.Contains(out.String(), "warning") && !strings.Contains(out.String(), "torn") {
			t.Errorf("%s", out.String())
		}
	}
	th.Warn = func(s string) {
		if !strings.Contains(s, "torn") {
			t.Error(s)
		}
	}
	w := must(th.open())(t)
	w.close()
	all := contents(t, th)
	for _, e := range all {
		delete(promised, fmt.Sprintf("%d %s", e.Seq, e.Text))
	}
	for p := range promised {
		if _, err := strconv.Atoi(strings.Fields(p)[0]); err == nil {
			t.Errorf("%q was posted and is not there", p)
		}
	}
	items := must(th.Inbox("a1"))(t)
	if len(items) != len(all) {
		t.Errorf("%d entries, %d items", len(all), len(items))
	}
	if pending := must(th.PendingWakes())(t); len(pending) != len(items) {
		t.Errorf("%d items, %d wakes", len(items), len(pending))
	}
	t.Logf("%d entries of %d posters", len(all), *crashN)
}

// TestDense: two processes that post at once give a dense sequence, and lose
// nothing.
func TestDense(t *testing.T) {
	t.Parallel()
	const each = 500
	th := newThread(t)
	crowd(t, th, 2)
	done := make(chan error, 2)
	for i := range 2 {
		c, out := command(t, order{Root: th.root.Path(), Do: "post", Author: agent(i), Text: fmt.Sprintf("of %d", i), N: each})
		go func() {
			err := c.Run()
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	count := map[string]int{}
	all := contents(t, th)
	for _, e := range all {
		count[e.Author.Member]++
	}
	if len(all) != 2*each || count["a0"] != each || count["a1"] != each {
		t.Errorf("%d entries: %v", len(all), count)
	}
}

// TestClaimRace: of twenty processes that claim the same ground at once, one
// has it, and the others are told who.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	const racers = 20
	crowd(t, th, racers)
	type result struct {
		n    int
		code int
		out  string
	}
	results := make(chan result, racers)
	start := make(chan struct{})
	for i := range racers {
		c, out := command(t, order{Root: th.root.Path(), Do: "claim", Author: agent(i), Text: fmt.Sprintf("CLAIM w%d | files: src/p%d, src/common | until: 1h", i, i), Ready: true})
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			<-start
			in.Close()
			_ = c.Wait()
			results <- result{i, c.ProcessState.ExitCode(), out.String()}
		}()
	}
	close(start)
	winner := -1
	var lost []result
	for range racers {
		switch r := <-results; r.code {
		case 0:
			if winner >= 0 {
				t.Errorf("a%d has it, and so has a%d", winner, r.n)
			}
			winner = r.n
		case 1:
			lost = append(lost, r)
		default:
			t.Errorf("%+v", r)
		}
	}
	for _, r := range lost {
		if want := fmt.Sprintf("@a%d has claimed \"w%d\"", winner, winner); !strings.Contains(r.out, want) || !strings.Contains(r.out, "src/common") {
			t.Errorf("a%d was told %q, not %q", r.n, r.out, want)
		}
	}
	if got, want := claimsOf(t, th), fmt.Sprintf("a%d:w%d", winner, winner); got != want || len(lost) != racers-1 {
		t.Errorf("claims %q, want %q; %d lost", got, want, len(lost))
	}
	if n := len(contents(t, th)); n != 1 {
		t.Errorf("%d entries", n)
	}
}

// TestTakeRace: an item is taken once.
func TestTakeRace(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 1)
	must(th.Post(Post{Author: ann, Text: "@a0 go"}))(t)
	taken := make(chan error, 8)
	for range cap(taken) {
		th := openThread(t, th.root.Path())
		go func() {
			_, err := th.Take("a0", Taker{}, false)
			taken <- err
		}()
	}
	n := 0
	for range cap(taken) {
		switch err := <-taken; err {
		case nil:
			n++
		case ErrNoItem:
		default:
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("taken %d times", n)
	}
}

// TestLease: what was taken is unread again when its time is over, or when the
// process that took it is gone.
func TestLease(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 1)
	must(th.Post(Post{Author: ann, Text: "@a0 go"}))(t)
	now := time.Now()
	th.now = func() time.Time { return now }
	state := func() string { return must(th.Item("a0", "e1"))(t).State }
	must(th.Take("a0", Taker{}, false))(t)
	now = now.Add(DefaultLease - time.Second)
	if s := state(); s != Taken {
		t.Errorf("within the hour: %s", s)
	}
	now = now.Add(2 * time.Second)
	if s := state(); s != Unread {
		t.Errorf("after it: %s", s)
	}
	c, _ := command(t, order{Root: th.root.Path(), Ready: true, Do: "take", Author: Author{"nobody", Agent}})
	in, err := c.StdinPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	it := must(th.Take("a0", Taker{PID: c.Process.Pid}, false))(t)
	now = now.Add(24 * time.Hour)
	if s := state(); s != Taken {
		t.Errorf("while its process lives: %s", s)
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if s := state(); s != Unread {
		t.Errorf("after that: %s", s)
	}
	// A later process of that number is another.
	it.Lease.PID = os.Getpid()
	if !it.Lease.over(now) {
		t.Error("a stranger holds it")
	}
	if _, err := th.Take("a0", Taker{PID: 1 << 29}, false); err == nil {
		t.Error("taken by no process")
	}
}
