package thread

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestPostTogether: of what is written together, each post has what became of it,
// as if it had been posted alone after those before it.
func TestPostTogether(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 3)
	key := func(s string) Post { return Post{Author: agent(0), Text: "once " + s, Key: s} }
	claim := func(n int) Post {
		return Post{Author: agent(n), Text: "CLAIM work | files: a.go | until: 30m", Claims: true}
	}
	var invalid *InvalidError
	var overlap *OverlapError
	type want struct {
		post Post
		seq  int64 // 0: it is refused
		as   any   // with such an error
	}
	all := []want{
		{Post{Author: ann, Text: "first"}, 1, nil}, // it writes; the others wait meanwhile
		{key("a"), 2, nil},
		{key("b"), 3, nil},
		{key("a"), 2, nil},
		{claim(1), 4, nil},
		{claim(2), 0, &overlap},
		{Post{Author: ann, Text: "@a1 go on"}, 5, nil},
		{Post{Author: ann, Text: "no", Key: "c", ReplyTo: 99}, 0, nil},
		{Post{Author: ann, Text: " ", Key: "d"}, 0, &invalid},
		{Post{Author: ann, Text: "yes", Key: "c", ReplyTo: 1}, 6, nil},
		{key("b"), 3, nil},
		{Post{Author: agent(1), Text: "RELEASE work"}, 7, nil},
		{claim(2), 8, nil},
		{Post{Author: ann, Text: "last"}, 9, nil},
	}
	lock := must(th.open())(t)
	var done sync.WaitGroup
	for i, c := range all {
		done.Go(func() {
			p, err := th.Again().Post(c.post)
			switch {
			case c.seq > 0:
				if err != nil || p.Entry.Seq != c.seq || p.Entry.Text != c.post.Text || p.Entry.Author != c.post.Author {
					t.Errorf("post %d: %+v, %v; want the entry %d", i, p, err, c.seq)
				}
				if len(p.Items) != len(p.Entry.Mentions) {
					t.Errorf("post %d: %+v", i, p.Items)
				}
			case c.as == nil && !errors.Is(err, ErrNoEntry), c.as != nil && !errors.As(err, c.as):
				t.Errorf("post %d: %+v, %v", i, p, err)
			}
		})
		for waits := false; !waits; time.Sleep(time.Millisecond) {
			th.line.mu.Lock()
			waits = th.line.busy && len(th.line.waiting) == i
			th.line.mu.Unlock()
		}
	}
	lock.close()
	done.Wait()
	if got := seqs(must(th.Read(Range{}))(t).Entries); got != "1 2 3 4 5 6 7 8 9" {
		t.Error(got)
	}
	if claims := must(th.Claims())(t); len(claims) != 1 || claims[0].Owner != agent(2) {
		t.Errorf("%+v", claims)
	}
	if items := must(th.Inbox("a1"))(t); len(items) != 1 {
		t.Errorf("%+v", items)
	}
	if s := must(th.open())(t); s.Seq != 9 {
		t.Errorf("%+v", s.state)
	} else {
		s.close()
	}
}

// TestPostNotNoted: what was done, and cannot be noted, is done again with the next
// entry. One of those who have posted together is told so.
func TestPostNotNoted(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 2)
	var warned []string
	w := must(th.open())(t)
	closed := w.st
	w.st = must(os.Open(w.st.Name()))(t) // which cannot be written
	var all []*posting
	for _, text := range []string{"one", "@a1 two", "three"} {
		d := must(th.check(Post{Author: ann, Text: text}))(t)
		q := &posting{t: th.Again(), post: d.Post, draft: d}
		q.t.Warn = func(s string) { warned = append(warned, s) }
		if w.prepare(q); q.err != nil {
			t.Fatal(q.err)
		}
		all = append(all, q)
	}
	w.commit(all)
	closed.Close()
	w.close()
	for i, q := range all {
		if q.err != nil || q.res.Entry.Seq != int64(i+1) || len(q.res.Items) != len(q.draft.mentions) {
			t.Errorf("%+v, %v", q.res, q.err)
		}
	}
	if len(warned) != 1 || !strings.HasPrefix(warned[0], "entry 3 is posted; that all was done that it asks for cannot be noted") {
		t.Errorf("%q", warned)
	}
	must(th.Post(Post{Author: ann, Text: "four"}))(t)
	if items := must(th.Inbox("a1"))(t); len(items) != 1 || items[0].ID != "e2" {
		t.Errorf("%+v", items)
	}
}

// TestPostGathers: few who post do not wait for one another, and of many nobody
// waits longer than it may.
func TestPostGathers(t *testing.T) {
	t.Parallel()
	var c queue
	now := time.Now()
	pause := func(n int, gathers bool) time.Duration {
		return c.pause(&posting{post: Post{Author: agent(n), Gather: gathers}}, now)
	}
	for n := range fewPost {
		if p := pause(n, true); p > 0 {
			t.Errorf("%d who post wait %v", n+1, p)
		}
	}
	if pause(fewPost, true) == 0 {
		t.Error("many do not wait")
	}
	for n := range 200 {
		if p := pause(n, true); p > maxGather {
			t.Errorf("%v", p)
		}
	}
	if pause(0, false) > 0 {
		t.Error("who may not wait does")
	}
	now = now.Add(2 * time.Second)
	if pause(0, true) > 0 || len(c.recent) != 1 {
		t.Errorf("%d are counted after they have stopped", len(c.recent))
	}
}
