package thread

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestRule goes through all that the rule can be asked.
func TestRule(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	many := func(n int, d time.Duration) []time.Time { return slices.Repeat([]time.Time{ago(d)}, n) }
	recents := []struct {
		name  string
		at    []time.Time
		full  bool
		retry time.Duration
	}{
		{"none", nil, false, 0},
		{"nineteen just now", many(19, 0), false, 0},
		{"nineteen and one of a minute ago", append(many(19, time.Second), ago(WakeWindow)), false, 0},
		{"nineteen and one of almost a minute ago", append(many(19, time.Second), ago(WakeWindow-time.Millisecond)), true, time.Millisecond},
		{"twenty just now", many(20, 0), true, WakeWindow},
		{"twenty of half a minute", many(20, 30*time.Second), true, 30 * time.Second},
		{"twenty-two, three of them about to go", append(many(19, time.Second), many(3, 50*time.Second)...), true, 10 * time.Second},
		{"a hundred of a minute ago", many(100, WakeWindow), false, 0},
		{"a hundred in the future", many(100, -time.Second), false, 0},
	}
	for _, from := range []string{Person, Agent, Daemon, ""} {
		for _, to := range []string{Person, Agent} {
			for hops := range 6 {
				for _, r := range recents {
					want := verdict{wake: true}
					if from == Agent {
						want.hops = hops
					}
					if from == Agent && to == Agent {
						want.hops = hops + 1
						switch {
						case hops >= 3:
							want.wake, want.limit = false, LimitHops
						case r.full:
							want.wake, want.limit, want.retryAfter = false, LimitRate, r.retry
						}
					}
					got := rule(mention{from: from, to: to, hops: hops, recent: slices.Clone(r.at), now: now})
					if got != want {
						t.Errorf("%q to %q, %d hops, %s: %+v, want %+v", from, to, hops, r.name, got, want)
					}
				}
			}
		}
	}
}

func TestBaseHops(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind         string
		taken, reply int
		want         int
	}{
		{Agent, -1, -1, 0}, {Agent, 0, -1, 0}, {Agent, 2, -1, 2}, {Agent, -1, 3, 3}, {Agent, 0, 3, 0}, {Agent, 3, 0, 3}, {Agent, 2, 1, 2},
		{Person, -1, -1, 0}, {Person, 3, -1, 0}, {Person, -1, 3, 0}, {Person, 3, 3, 0},
	} {
		if got := baseHops(c.kind, c.taken, c.reply); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// crowd adds agents called a0, a1, ... and a person called ann.
func crowd(t testing.TB, th *Thread, agents int) {
	t.Helper()
	must(th.AddMember(Member{Name: "ann", Kind: Person}))(t)
	for i := range agents {
		must(th.AddMember(Member{Name: fmt.Sprintf("a%d", i), Kind: Agent, WakeCommand: "cat"}))(t)
	}
}

func agent(n int) Author { return Author{fmt.Sprintf("a%d", n), Agent} }

var ann = Author{"ann", Person}

// TestHops: a chain of agents that take and mention stops after three hops,
// whoever replies to what; a person starts a new one.
func TestHops(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 7)
	must(th.Post(Post{Author: ann, Text: "@a0 begin"}))(t)
	for i := range 5 {
		it := must(th.Take(fmt.Sprintf("a%d", i), Taker{}, false))(t)
		if it.Hops != i {
			t.Fatalf("a%d took an item of %d hops", i, it.Hops)
		}
		if hops := must(th.HopsOf(agent(i).Member))(t); hops != i {
			t.Errorf("a%d has %d hops", i, hops)
		}
		p := must(th.Post(Post{Author: agent(i), Text: fmt.Sprintf("@a%d go on", i+1)}))(t)
		wake := p.Items[0].Wake
		if i < MaxHops && (wake.State != WakePending || wake.Limit != "") || i >= MaxHops && (wake.State != WakeLimited || wake.Limit != LimitHops) {
			t.Errorf("hop %d: %+v", i+1, wake)
		}
		if p.Entry.Hops != i+1 || p.Items[0].Hops != i+1 {
			t.Errorf("hop %d: the entry has %d, the item %d", i+1, p.Entry.Hops, p.Items[0].Hops)
		}
	}
	// The limited ones wake nobody, and wait in the inbox all the same.
	if pending := must(th.PendingWakes())(t); len(pending) != 0 { // all were taken, or limited
		t.Errorf("pending: %+v", pending)
	}
	if _, err := th.Take("a5", Taker{}, true); err != ErrNoItem {
		t.Errorf("who waits was woken by what a limit stopped: %v", err)
	}
	if it := must(th.Take("a5", Taker{}, false))(t); it.Hops != 5 {
		t.Errorf("%+v", it)
	}
	// Not even a person's item that waits besides makes the chain shorter: the
	// newest that was taken counts. One that is answered counts no more.
	must(th.Answer(agent(5), must(th.Inbox("a5"))(t)[0].ID, "done"))(t)
	if hops := must(th.HopsOf("a5"))(t); hops != 0 {
		t.Errorf("after the answer: %d hops", hops)
	}
	// A reply to an entry carries on its chain.
	last := must(th.End())(t)
	p := must(th.Post(Post{Author: agent(6), Text: "@a0 hm", ReplyTo: last}))(t)
	if p.Items[0].Wake.Limit != LimitHops {
		t.Errorf("a reply: %+v of %+v", p.Items[0].Wake, p.Entry)
	}
	// A person is never limited.
	if p := must(th.Post(Post{Author: ann, Text: "@a0 @a1 again", ReplyTo: last}))(t); p.Items[0].Hops != 0 || p.Items[0].Wake.State != WakePending {
		t.Errorf("%+v", p.Items)
	}
	// And is woken by anybody, at any depth.
	if p := must(th.Post(Post{Author: agent(4), Text: "@ann help"}))(t); p.Items[0].Wake.State != WakeNone || p.Items[0].Hops != 4 {
		t.Errorf("%+v", p.Items)
	}
}

// TestPendingWakesOldestFirst: however far apart they are.
func TestPendingWakesOldestFirst(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 1)
	day := int64(24 * 60 * 60 * 1000)
	for _, n := range []int{30, 1, 60} {
		must(th.PutItem(Item{ID: string(jobID(n)), Kind: KindJobEnd, To: "a0", AtMS: int64(n) * day, Wake: Wake{State: WakePending}}))(t)
	}
	items := must(th.PendingWakes())(t)
	for i, n := range []int{1, 30, 60} {
		if len(items) != 3 || items[i].ID != string(jobID(n)) {
			t.Fatalf("%+v", items)
		}
	}
}

// TestRate: twenty wakes in any minute, whichever process asks; then there is
// room for as many as have left the window.
func TestRate(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	again := func() *Thread { // a process that knows nothing
		th = openThread(t, th.root.Path())
		th.now = func() time.Time { return now }
		return th
	}
	again()
	crowd(t, th, 2)
	post := func() Wake {
		t.Helper()
		return must(again().Post(Post{Author: agent(0), Text: "@a1 hello"}))(t).Items[0].Wake
	}
	for i := range MaxWakes {
		if wake := post(); wake.State != WakePending {
			t.Fatalf("wake %d: %+v", i+1, wake)
		}
		now = now.Add(time.Second)
	}
	if wake := post(); wake.State != WakeLimited || wake.Limit != LimitRate || wake.RetryAfterMS != 40_000 {
		t.Errorf("wake 21: %+v", wake)
	}
	// The end of a job wakes its starter all the same, others not.
	if it := must(again().PutItem(Item{ID: string(jobID(1)), Kind: KindJobEnd, To: "a1", Wake: Wake{State: WakePending}}))(t); it.Wake.State != WakePending {
		t.Errorf("%+v", it)
	}
	if it := must(again().WakeOther(agent(0), 1, Item{ID: string(jobID(2)), Kind: KindJobEnd, To: "a1"}))(t); it.Wake.Limit != LimitRate || it.Hops != 2 {
		t.Errorf("%+v", it)
	}
	if it := must(again().WakeOther(ann, 1, Item{ID: string(jobID(3)), Kind: KindJobEnd, To: "a1"}))(t); it.Wake.State != WakePending || it.Hops != 0 {
		t.Errorf("%+v", it)
	}
	now = now.Add(39 * time.Second)
	if wake := post(); wake.RetryAfterMS != 1000 {
		t.Errorf("a second too early: %+v", wake)
	}
	now = now.Add(time.Second)
	if wake := post(); wake.State != WakePending {
		t.Errorf("after the minute: %+v", wake)
	}
	if wake := post(); wake.State != WakeLimited {
		t.Errorf("one had left the window, and two came in: %+v", wake)
	}
	// What was put once is not counted again.
	now = now.Add(time.Hour)
	for range 2 * MaxWakes {
		if it := must(again().WakeOther(agent(0), 0, Item{ID: string(jobID(4)), Kind: KindJobEnd, To: "a1"}))(t); it.Wake.State != WakePending {
			t.Fatalf("%+v", it)
		}
	}
	if wake := post(); wake.State != WakePending {
		t.Errorf("%+v", wake)
	}
}
