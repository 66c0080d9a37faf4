package main

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"space-job/cmd/internal/api"
	"space-job/jobdir"
	"space-job/notify"
)

// joinCrashes are the steps at which a program of a parent or a child is killed,
// and what is under way then.
var joinCrashes = []struct{ point, act string }{
	{"join.pending", "join"}, {"join.answered", "join"}, {"join.member", "join"}, {"join.written", "join"}, {"join.done", "join"},
	{"admit.checked", "join above"}, {"admit.saved", "join above"}, {"admit.added", "join above"},
	{"post.waits", "post"}, {"post.kept", "post"},
	{"post.sent", "send"}, {"post.removed", "send"},
	{"parent.told", "job"}, {"follow.put", "job"}, {"follow.marked", "job"}, {"follow.receipt", "job"}, {"follow.removed", "job"},
	{"job_end.posted", "job above"}, {"job_end.told", "job above"},
	{"wake.run", "wake"}, {"woken.note", "wake"}, {"woken.noted", "wake"},
}

// TestJoinCrashTableIsWhole: each step of package api and of the daemon is in it.
func TestJoinCrashTableIsWhole(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, c := range joinCrashes {
		tested[c.point] = true
	}
	for _, c := range elsewhereCrashes {
		tested[c.point] = true
	}
	for _, dir := range []string{"../internal/api", "../internal/daemon"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 1 {
					return true
				}
				if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != "crash" {
					return true
				}
				if lit, ok := call.Args[0].(*ast.BasicLit); ok {
					if point, _ := strconv.Unquote(lit.Value); !tested[point] {
						t.Errorf("%s: nobody is killed at %s", name, point)
					}
				}
				return true
			})
		}
	}
}

// TestJoinCrash: killed at any step, nothing is lost and nothing is there twice.
// A waker is run again at most, for the same item.
func TestJoinCrash(t *testing.T) {
	t.Parallel()
	for _, acts := range [...]string{"join, join above", "post, send, wake", "job, job above"} {
		t.Run(acts, func(t *testing.T) {
			t.Parallel()
			joinCrash(t, acts)
		})
	}
}

// joinCrash has one parent, and goes through some of the table.
func joinCrash(t *testing.T, acts string) {
	p := newParentOf(newArmedSpace(t))
	p.run("member", "add", "boss", "--kind", "person")
	count := func(text string) int {
		n := 0
		for line := range strings.SplitSeq(p.texts(), ";") {
			if strings.HasPrefix(line, text) {
				n++
			}
		}
		return n
	}
	for i, c := range joinCrashes {
		if !slices.Contains(strings.Split(acts, ", "), c.act) {
			continue
		}
		me := fmt.Sprintf("m%d", i)
		text := "text of " + c.point
		switch c.act {
		case "join", "join above":
			s := newArmedSpace(t)
			link := p.run("thread", "invite")
			if c.act == "join" {
				s.arm(c.point)
				s.refused([]string{"killed"}, "thread", "join", link, "--member", me)
				s.died()
			} else {
				p.arm(c.point)
				s.refused([]string{"cannot be reached"}, "thread", "join", link, "--member", me)
				p.died()
				p.hasDaemon()
			}
			other := newArmedSpace(t)
			if c.point != "join.pending" && c.point != "admit.checked" {
				other.await(c.point, func() string { // a daemon that has just been started may not serve yet
					_, err := other.try("thread", "join", link, "--member", me)
					return fmt.Sprint(err != nil && strings.Contains(err.Error(), "is used already: @"+me), err)
				}, "true")
			}
			s.await(c.point, func() string {
				_, err := s.try("thread", "join", link, "--member", me)
				return fmt.Sprint(err == nil || c.point == "join.done" || !strings.Contains(err.Error(), "cannot be reached"), err)
			}, "true")
			if left := s.files(); !strings.Contains(left, "join.json") || strings.Contains(left, "join.pending") || !strings.Contains(left, "members") {
				t.Errorf("%s: %s", c.point, left)
			}
			s.run("thread", "post", "--member", me, text)
			if n := count(text); n != 1 {
				t.Errorf("%s: %d", c.point, n)
			}
			s.run("daemon", "stop")
			continue
		}
		s := p.childOf(t, me)
		switch c.act {
		case "post":
			p.killDaemon()
			s.arm(c.point)
			s.refused([]string{"killed"}, "thread", "post", "--member", me, text)
			s.died()
			s.run("thread", "post", "--member", me, "after "+c.point)
			p.hasDaemon()
			p.await(c.point, func() string { return fmt.Sprint(count("after " + c.point)) }, "1")
			want := 0 // the caller was told nothing, and nothing was kept
			if c.point == "post.kept" {
				want = 1
			}
			if n := count(text); n != want {
				t.Errorf("%s: %d", c.point, n)
			}
		case "send":
			p.killDaemon()
			s.run("thread", "post", "--member", me, text)
			s.arm(c.point)
			p.hasDaemon()
			s.died()
			s.hasDaemon()
			p.await(c.point, func() string { return fmt.Sprint(count(text)) }, "1")
			s.await("an empty outbox", func() string {
				left, _ := filepath.Glob(filepath.Join(s.root, "outbox", "posts", "[0-9]*"))
				return fmt.Sprint(len(left))
			}, "0")
		case "job", "job above":
			at := s
			if c.act == "job above" {
				at = p
			}
			at.arm(c.point)
			job := s.run("start", "--notify", "--member", me, "--wake", "boss", "true")
			at.died()
			at.hasDaemon()
			s.await(c.point, func() string {
				return string(s.notified(job).State)
			}, "delivered")
			if n := count("JOB " + job); n != 1 {
				t.Errorf("%s: %d", c.point, n)
			}
			for _, name := range []string{"boss", me} {
				if n := p.told(name, job); n != 1 {
					t.Errorf("%s: %s has %d items", c.point, name, n)
				}
			}
			if ids := slices.Compact(strings.Fields(s.woken())); len(ids) != 1 { // again for the same
				t.Errorf("%s: woken for %q", c.point, ids)
			}
		case "wake":
			s.arm(c.point)
			p.run("thread", "post", "--member", "boss", "@"+me+" wake up")
			s.died()
			first := strings.Fields(s.woken())
			s.hasDaemon()
			p.run("thread", "post", "--member", "boss", "@"+me+" again")
			s.await("the second", func() string {
				ids := strings.Fields(s.woken())
				return fmt.Sprint(len(ids) > 0 && ids[len(ids)-1] != first[0])
			}, "true")
			ids := strings.Fields(s.woken())
			want := 3 // again for the same
			if c.point == "woken.noted" {
				want = 2
			}
			if len(ids) != want || ids[len(ids)-2] != ids[0] {
				t.Errorf("%s: woken for %q", c.point, ids)
			}
		}
		s.run("daemon", "stop")
	}
}

// TestJoinCrashAtRandom: the daemons of a parent and of two children are killed
// again and again while both children post and run jobs. All that they were told
// is posted or waits is there once, what one of them posts in its order.
func TestJoinCrashAtRandom(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	p := newParentOf(newArmedSpace(t))
	children := map[string]*space{"ann": p.childOf(t, "ann"), "bob": p.childOf(t, "bob")}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(uint64(seed), 1))
	ctx, stop := context.WithTimeout(t.Context(), *joinCrashFor)
	defer stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	jobs := map[string]string{} // by id: whose
	posts := map[string][]string{}
	for me, s := range children {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				text := fmt.Sprintf("%s says %d", me, n)
				if _, err := s.try("thread", "post", "--member", me, text); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				posts[me] = append(posts[me], text)
				mu.Unlock()
				if n%4 != 0 {
					continue
				}
				job, err := s.try("start", "--notify", "--member", me, "true")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				jobs[job] = me
				mu.Unlock()
			}
		})
	}
	victims := []*space{p, p, children["ann"], children["bob"]}
	kills, killed := 0, map[*space]int{}
	for ctx.Err() == nil {
		s := victims[rnd.IntN(len(victims))]
		root, err := jobdir.OpenRoot(s.root)
		if err != nil {
			t.Fatal(err)
		}
		if d, held := notify.DaemonOf(root); held && d.PID > 1 && syscall.Kill(d.PID, syscall.SIGKILL) == nil {
			kills++
			killed[s] = d.PID
		}
		time.Sleep(time.Duration(rnd.IntN(150)) * time.Millisecond)
		_, _ = s.try("daemon", "--detach")
		time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
	}
	wg.Wait()
	for _, s := range append(victims, p) {
		s.noDaemon(killed[s])
		s.hasDaemon()
	}
	p.await("all jobs", func() string { return fmt.Sprint(strings.Count(";"+p.texts(), ";JOB ") >= len(jobs)) }, "true")
	for me, s := range children {
		s.await("an empty outbox", func() string {
			left, _ := filepath.Glob(filepath.Join(s.root, "outbox", "posts", "[0-9]*"))
			return fmt.Sprint(len(left))
		}, "0")
		if left, _ := filepath.Glob(filepath.Join(s.root, "outbox", "posts", "refused", "*")); len(left) > 0 {
			t.Errorf("refused: %q", left)
		}
		var got []string
		for text := range strings.SplitSeq(p.texts(), ";") {
			if strings.HasPrefix(text, me) {
				got = append(got, text)
			}
		}
		if !slices.Equal(got, posts[me]) {
			t.Errorf("%s:\n%q, want\n%q", me, got, posts[me])
		}
	}
	all := p.texts()
	for job, me := range jobs {
		if n := strings.Count(all, "JOB "+job+" "); n != 1 {
			t.Errorf("job %s is told of %d times", job, n)
		}
		p.await("job "+job+" in the inbox of "+me, func() string { return fmt.Sprint(p.told(me, job)) }, "1") // a moment after the entry
	}
	t.Logf("%d kills, %d and %d posts, %d jobs", kills, len(posts["ann"]), len(posts["bob"]), len(jobs))
}

var joinCrashFor = flag.Duration("join.crash", 2*time.Second, "how long TestJoinCrashAtRandom goes on")

// told is how often the end of a job is in the inbox of a member.
func (s *space) told(member, job string) (n int) {
	s.t.Helper()
	res, err := s.actions().Inbox(context.Background(), api.InboxRequest{Member: member})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, it := range res.Items {
		if it.Job == job {
			n++
		}
	}
	return n
}
