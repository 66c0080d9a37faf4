package notify

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// TestN2ManyEndTogether: 50 jobs ending in the same 10 ms are 50 messages, and
// ten restarts add none.
func TestN2ManyEndTogether(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	addMember(t, root, "ann", thread.Agent, "")
	d := follow(t, root, Hooks{})
	var jobs []*testJob
	for i := range 50 {
		jobs = append(jobs, notified(t, root, jobdir.Cmd{ID: at(i)}, entryBy("ann", thread.Agent)))
	}
	for i, j := range jobs {
		j.end(jobdir.Exited, i)
	}
	for _, j := range jobs {
		wantDelivered(t, root, j.id)
		if it := wantItem(t, root, "ann", j.id); it.Wake.State != thread.WakeNone {
			t.Errorf("%+v", it)
		}
	}
	d.stop()
	for range 10 {
		follow(t, root, Hooks{}).stop()
	}
	for i, j := range jobs {
		r := wantDelivered(t, root, j.id)
		e := posted(t, root)[j.id][0]
		if want := fmt.Sprintf("JOB %s exited exit=%d ", j.id, i); !strings.HasPrefix(e.Text, want) || e.Author.Kind != thread.Daemon || len(e.Mentions) != 0 {
			t.Errorf("%+v, want %q", e, want)
		}
		if r.state() != Delivered {
			t.Errorf("%+v", r)
		}
	}
	if left := outbox(t, root); len(left) != 0 {
		t.Errorf("left in the outbox: %v", left)
	}
}

// TestHurryingSink: a webhook that asks for the next attempt at once does not
// take the pauses away that grow with each failure.
func TestHurryingSink(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	h := Hooks{Sink: sinksOf(t, root, map[string]*fakeSink{"hurries": {answer: func(context.Context, Message, int) error {
		return &RetryError{After: time.Millisecond, Err: errors.New("429")}
	}}})}
	follow(t, root, h, func(f *follower) { f.backoff = func(int) time.Duration { return time.Hour } })
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	j.end(jobdir.Exited, 0)
	waitFor(t, "429", func() bool { return target(root, j.id, "hurries").Error == "429" })
	if got := target(root, j.id, "hurries"); got.NextAt == nil || time.Until(*got.NextAt) < 59*time.Minute {
		t.Errorf("%+v", got)
	}
}

// TestLostIsToldOnce: whatever was killed, a lost job is written down and told
// of once; a job that nobody asked to be told of is written down too.
func TestLostIsToldOnce(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	before := notified(t, root, jobdir.Cmd{ID: at(0)}, entryBy("", ""))
	silent := makeJob(t, root, jobdir.Cmd{ID: at(1)})
	lives := notified(t, root, jobdir.Cmd{ID: at(2)}, entryBy("", ""))
	before.die()
	silent.die()
	d := follow(t, root, Hooks{}, quick)
	wantDelivered(t, root, before.id)
	waitFor(t, "record of the other", func() bool { return must[*jobdir.Info](t)(root.Job(silent.id).Read()).Exit != nil })
	lives.die() // while it is followed
	wantDelivered(t, root, lives.id)
	d.stop()
	follow(t, root, Hooks{}, quick).stop()
	for _, id := range []jobdir.ID{before.id, lives.id} {
		wantDelivered(t, root, id)
		if e := posted(t, root)[id][0]; !strings.HasPrefix(e.Text, "JOB "+string(id)+" lost exit=- - log=0B | ") {
			t.Errorf("%q", e.Text)
		}
	}
	if len(posted(t, root)) != 2 {
		t.Errorf("%v", posted(t, root))
	}
}

// TestStarterHoldsItsEntry: an entry without a job is dropped only when nobody
// holds it any more.
func TestStarterHoldsItsEntry(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	d := follow(t, root, Hooks{}, quick)
	claims := map[int]*Claim{}
	for i := range 3 {
		claims[i] = must[*Claim](t)(NewClaim(root, entryBy("", "")))
		if err := claims[i].Set(at(i)); err != nil {
			t.Fatal(err)
		}
	}
	// A later entry whose job is there: when it is through, the others were seen.
	for i := range 3 {
		j := notified(t, root, jobdir.Cmd{ID: at(10 + i)}, entryBy("", ""))
		j.end(jobdir.Exited, 0)
		wantDelivered(t, root, j.id)
	}
	for i := range 3 {
		if _, err := os.Lstat(entryPath(root, at(i))); err != nil {
			t.Fatal(err)
		}
	}
	// One appears after all, one was killed, one could not be started.
	j := makeJob(t, root, jobdir.Cmd{ID: at(0), Notify: true})
	claims[0].Release()
	claims[1].Release()
	claims[2].Drop()
	j.end(jobdir.Exited, 3)
	wantDelivered(t, root, at(0))
	waitFor(t, "empty outbox", func() bool { return len(outbox(t, root)) == 0 })
	d.stop()
	if all := posted(t, root); len(all) != 4 {
		t.Errorf("%v", all)
	}
}

// TestClaimOfATakenID: the entry goes along with the id.
func TestClaimOfATakenID(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	other := notified(t, root, jobdir.Cmd{ID: at(0)}, entryBy("ann", thread.Agent))
	c := must[*Claim](t)(NewClaim(root, entryBy("bob", thread.Agent)))
	for _, id := range []jobdir.ID{at(0), at(1)} { // as runner.Start does
		if err := c.Set(id); err != nil {
			t.Fatal(err)
		}
	}
	c.Release()
	for id, member := range map[jobdir.ID]string{other.id: "ann", at(1): "bob"} {
		if e := must[*Entry](t)(readEntry(entryPath(root, id), id)); e.Member != member {
			t.Errorf("%s: %+v", id, e)
		}
	}
	// A start that was killed has left an entry and no job: the next one with
	// that id has it.
	next := must[*Claim](t)(NewClaim(root, entryBy("eve", thread.Agent)))
	if err := next.Set(at(1)); err != nil {
		t.Fatal(err)
	}
	if e := must[*Entry](t)(readEntry(entryPath(root, at(1)), at(1))); e.Member != "eve" {
		t.Errorf("%+v", e)
	}
	if dropped, err := dropIfNone(root, at(1)); dropped || err != nil {
		t.Errorf("dropped under the starter's hands: %v, %v", dropped, err)
	}
	next.Drop()
	next.Drop()
	if names := outbox(t, root); !slices.Equal(names, []string{string(at(0))}) {
		t.Errorf("%v", names)
	}
}

// TestDamagedEntryIsSetAside: a line says where, the message comes all the same,
// and the rest goes on.
func TestDamagedEntryIsSetAside(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	addMember(t, root, "ann", thread.Agent, "")
	bad := notified(t, root, jobdir.Cmd{ID: at(0)}, entryBy("ann", thread.Agent))
	good := notified(t, root, jobdir.Cmd{ID: at(1)}, entryBy("ann", thread.Agent))
	for i, content := range []string{"", `{"job":"j6c1f0a2b9d3e"`, `{"job":"j000000000000"}`, "\x00\x00", `[]`, `{"job":"j6c1f0a2b9d3e","thread":{"state":"???"}}`} {
		if err := os.WriteFile(entryPath(root, bad.id), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		d := follow(t, root, Hooks{}, quick)
		aside := filepath.Join(outboxDir(root), damagedPrefix+string(bad.id))
		d.log.has(t, "set aside as "+aside)
		waitFor(t, "entry made anew", func() bool {
			e, err := readEntry(entryPath(root, bad.id), bad.id)
			return err == nil && e.Member == "ann"
		})
		if i == 5 {
			bad.end(jobdir.Exited, 0)
			good.end(jobdir.Exited, 0)
			wantDelivered(t, root, bad.id)
			wantDelivered(t, root, good.id)
			wantItem(t, root, "ann", bad.id)
		}
		d.stop()
	}
	// What is no file.
	for i, put := range []func(path string) error{
		func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		func(path string) error { return os.Symlink("/dev/null", path) },
		func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		j := notified(t, root, jobdir.Cmd{ID: at(3 + i)}, entryBy("ann", thread.Agent))
		path := entryPath(root, j.id)
		if err := errors.Join(os.MkdirAll(filepath.Join(outboxDir(root), damagedPrefix+string(j.id)), 0o700), os.Remove(path), put(path)); err != nil {
			t.Fatal(err)
		}
		if n, err := RetrySink(root, "none"); n != 0 || err != nil {
			t.Error(n, err)
		}
		d := follow(t, root, Hooks{}, quick)
		j.end(jobdir.Exited, 0)
		waitFor(t, "receipt", func() bool { _, ok := readReceipt(root.Job(j.id)); return ok })
		wantDelivered(t, root, j.id)
		wantItem(t, root, "ann", j.id)
		d.stop()
	}
	// What is no file of a job at all.
	if err := os.WriteFile(entryPath(root, at(9)), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	follow(t, root, Hooks{}, quick).log.has(t, "no job that it could be of")
}

// TestDamagedJobWaits: nothing is made up of a job that cannot be read.
func TestDamagedJobWaits(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	cmd := must[[]byte](t)(os.ReadFile(j.path(record.Cmd)))
	j.write(record.Cmd, "{")
	j.end(jobdir.Exited, 0)
	d := follow(t, root, Hooks{}, quick)
	d.log.has(t, "is damaged")
	waitFor(t, "reason in the status", func() bool { return strings.Contains(entryError(root, j.id), "damaged") })
	if len(posted(t, root)) != 0 {
		t.Error("posted")
	}
	j.write(record.Cmd, string(cmd)) // repaired
	wantDelivered(t, root, j.id)
}

func entryError(root *jobdir.Root, id jobdir.ID) string {
	e, err := readEntry(entryPath(root, id), id)
	if err != nil {
		return ""
	}
	return e.lastError()
}

// fakeSink answers as a test says.
type fakeSink struct {
	mu     sync.Mutex
	answer func(ctx context.Context, m Message, n int) error
	got    []Message
}

func (s *fakeSink) Deliver(ctx context.Context, m Message) error {
	s.mu.Lock()
	s.got = append(s.got, m)
	n := len(s.got)
	s.mu.Unlock()
	return s.answer(ctx, m, n)
}

func (s *fakeSink) count() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.got) }

// sinksOf makes a hook of fakes, and configures them.
func sinksOf(t *testing.T, root *jobdir.Root, fakes map[string]*fakeSink) func(SinkConfig) Sink {
	t.Helper()
	for name := range fakes {
		if _, err := AddSink(root, SinkConfig{Name: name, Command: "true"}); err != nil {
			t.Fatal(err)
		}
	}
	return func(c SinkConfig) Sink { return fakes[c.Name] }
}

func target(root *jobdir.Root, id jobdir.ID, sink string) Target {
	s := StatusOf(root, id)
	if s.Targets == nil {
		return Target{}
	}
	return s.Sinks[sink]
}

// TestN1Sinks: a sink that hangs delays neither the thread nor another sink; one
// that fails is tried again, also after a restart; one that refuses is parked
// until somebody asks.
func TestN1Sinks(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	refuse := true
	var mu sync.Mutex
	fakes := map[string]*fakeSink{
		"hangs": {answer: func(ctx context.Context, _ Message, _ int) error { <-ctx.Done(); return ctx.Err() }},
		"works": {answer: func(context.Context, Message, int) error { return nil }},
		"later": {answer: func(_ context.Context, _ Message, n int) error {
			if n <= 3 {
				return fmt.Errorf("attempt %d", n)
			}
			return nil
		}},
		"refuses": {answer: func(context.Context, Message, int) error {
			mu.Lock()
			defer mu.Unlock()
			if refuse {
				return &PermanentError{errors.New("403 Forbidden")}
			}
			return nil
		}},
		"asks": {answer: func(_ context.Context, _ Message, n int) error {
			if n == 1 {
				return &RetryError{After: time.Hour, Err: errors.New("429")}
			}
			return nil
		}},
	}
	h := Hooks{Sink: sinksOf(t, root, fakes)}
	d := follow(t, root, h, quick)
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	began := time.Now()
	j.end(jobdir.Exited, 0)
	waitFor(t, "entry in the thread", func() bool { return len(posted(t, root)[j.id]) == 1 })
	waitFor(t, "three sinks", func() bool {
		return target(root, j.id, "works").State == Delivered && target(root, j.id, "later").State == Delivered && target(root, j.id, "refuses").State == Failed
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if got := target(root, j.id, "later"); got.Attempts != 4 || got.Error != "" || fakes["later"].count() != 4 {
		t.Errorf("%+v", got)
	}
	waitFor(t, "429", func() bool { return target(root, j.id, "asks").Error == "429" })
	if got := target(root, j.id, "asks"); got.NextAt == nil || time.Until(*got.NextAt) < 59*time.Minute || got.State != Pending {
		t.Errorf("%+v", got)
	}
	if s := StatusOf(root, j.id); s.State != Pending || s.Thread.State != Delivered {
		t.Errorf("%+v", s)
	}
	d.stop() // while one hangs

	fakes["hangs"].answer = fakes["works"].answer
	follow(t, root, h, quick)
	waitFor(t, "the one that hung", func() bool { return target(root, j.id, "hangs").State == Delivered })
	if n := must[int](t)(RetrySink(root, "asks")); n != 1 {
		t.Errorf("%d messages are tried again", n)
	}
	waitFor(t, "the one that asked to wait", func() bool { return target(root, j.id, "asks").State == Delivered })
	if s := StatusOf(root, j.id); s.State != Failed {
		t.Errorf("%+v", s)
	}
	if Keeps(root)(j.id) {
		t.Error("what has failed for good keeps the job")
	}
	mu.Lock()
	refuse = false
	mu.Unlock()
	if n := must[int](t)(RetrySink(root, "refuses")); n != 1 {
		t.Errorf("%d messages are tried again", n)
	}
	r := wantDelivered(t, root, j.id)
	for name, s := range fakes {
		for _, m := range s.got {
			if m.Key != KeyOf(j.id) {
				t.Errorf("%s got key %q", name, m.Key)
			}
		}
		if r.Sinks[name].State != Delivered {
			t.Errorf("%s: %+v", name, r.Sinks[name])
		}
	}
	if n := fakes["works"].count(); n != 1 {
		t.Errorf("a sink that has it got it %d times", n)
	}
}

// TestDeadSinkIsAskedSeldom: with a hundred messages for it, one attempt at a
// time, further and further apart.
func TestDeadSinkIsAskedSeldom(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	dead := &fakeSink{answer: func(context.Context, Message, int) error { return errors.New("refused") }}
	h := Hooks{Sink: sinksOf(t, root, map[string]*fakeSink{"dead": dead})}
	d := follow(t, root, h, func(f *follower) {
		f.backoff = func(n int) time.Duration { return time.Duration(n) * time.Hour }
	})
	for i := range 100 {
		notified(t, root, jobdir.Cmd{ID: at(i)}, entryBy("", "")).end(jobdir.Exited, 0)
	}
	waitFor(t, "all entries", func() bool { return len(posted(t, root)) == 100 })
	waitFor(t, "an attempt", func() bool { return dead.count() > 0 })
	d.stop()
	if n := dead.count(); n != 1 {
		t.Errorf("%d attempts", n)
	}
	// Removed, nobody waits for it.
	if _, err := RemoveSink(root, "dead"); err != nil {
		t.Fatal(err)
	}
	follow(t, root, h, quick)
	waitFor(t, "empty outbox", func() bool { return len(outbox(t, root)) == 0 })
}

// TestStarterIsWoken: an agent, with its hops; others as the rule allows; a waker
// that fails is run again, with the same item.
func TestStarterIsWoken(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	addMember(t, root, "ann", thread.Agent, "true")
	addMember(t, root, "bob", thread.Agent, "true")
	addMember(t, root, "eve", thread.Agent, "")
	var mu sync.Mutex
	woken := map[string][]thread.Item{}
	h := Hooks{Wake: func(_ context.Context, m thread.Member, it thread.Item) error {
		mu.Lock()
		defer mu.Unlock()
		woken[m.Name] = append(woken[m.Name], it)
		if m.Name == "ann" && len(woken["ann"]) < 3 {
			return errors.New("no answer")
		}
		return nil
	}}
	follow(t, root, h, quick)
	e := entryBy("ann", thread.Agent, "bob", "eve", "gone")
	e.Hops = 3
	j := notified(t, root, jobdir.Cmd{Name: "tests"}, e)
	j.write(record.Log, "one\n")
	j.end(jobdir.Exited, 7)
	r := wantDelivered(t, root, j.id)
	mu.Lock()
	defer mu.Unlock()
	if len(woken["ann"]) != 3 || len(woken["bob"]) != 0 {
		t.Errorf("%d and %d wakers were run", len(woken["ann"]), len(woken["bob"]))
	}
	for _, it := range woken["ann"] {
		if it.ID != string(j.id) || it.Kind != thread.KindJobEnd || it.JobState != "exited" || *it.ExitCode != 7 || it.Hops != 3 || it.Seq != r.Seq ||
			!strings.HasPrefix(it.Text, "JOB "+string(j.id)+" exited exit=7 ") || !strings.Contains(it.Text, "\n    one\n") {
			t.Errorf("%+v", it)
		}
	}
	want := map[string]State{"ann": Delivered, "bob": Limited, "eve": Limited, "gone": Failed}
	for name, state := range want {
		if r.Wakes[name].State != state {
			t.Errorf("%s: %+v, want %s", name, r.Wakes[name], state)
		}
	}
	if r.Wakes["bob"].Limit != thread.LimitHops || r.Wakes["ann"].Attempts != 3 || r.state() != Failed {
		t.Errorf("%+v", r)
	}
	wantItem(t, root, "bob", j.id)
}

// TestMentionIsWoken: a mention's waker is run by the daemon, also one whose
// poster was killed before the item was there.
func TestMentionIsWoken(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	addMember(t, root, "ann", thread.Agent, "true")
	th := thread.Open(root)
	put := func(id string) {
		if _, err := th.PutItem(thread.Item{ID: id, Kind: thread.KindMention, To: "ann", Text: "hello", Wake: thread.Wake{State: thread.WakePending}}); err != nil {
			t.Fatal(err)
		}
	}
	put("e1")
	woken := make(chan string, 10)
	follow(t, root, Hooks{Wake: func(_ context.Context, _ thread.Member, it thread.Item) error { woken <- it.ID; return nil }})
	for _, id := range []string{"e1", "e2"} {
		select {
		case got := <-woken:
			if got != id {
				t.Errorf("woken for %s, want %s", got, id)
			}
		case <-time.After(patience):
			t.Fatal("not woken")
		}
		if id == "e1" {
			put("e2")
		}
	}
}

// TestPersonIsNotified: a person is shown a notification once, and where that
// fails the inbox has it; one with a waker is woken by that; the thread has the
// entry in every case.
func TestPersonIsNotified(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		command string
		desktop error
		want    State
		shown   int
		woken   int
	}{
		{"shown", "", nil, Delivered, 1, 0},
		{"no session", "", errors.New("no session bus"), None, 1, 0},
		{"waker", "true", nil, Delivered, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := newRoot(t)
			addMember(t, root, "pat", thread.Person, c.command)
			var shown, woken []string
			var mu sync.Mutex
			follow(t, root, Hooks{
				Desktop: func(_ context.Context, m Message) error {
					mu.Lock()
					defer mu.Unlock()
					shown = append(shown, m.Key)
					return c.desktop
				},
				Wake: func(_ context.Context, _ thread.Member, it thread.Item) error {
					mu.Lock()
					defer mu.Unlock()
					woken = append(woken, it.ID)
					return nil
				},
			}, quick)
			j := notified(t, root, jobdir.Cmd{}, entryBy("pat", thread.Person))
			j.end(jobdir.Exited, 0)
			r := wantDelivered(t, root, j.id)
			wantItem(t, root, "pat", j.id)
			mu.Lock()
			defer mu.Unlock()
			if len(shown) != c.shown || len(woken) != c.woken || r.Wakes["pat"].State != c.want || r.Inbox.State != Delivered {
				t.Errorf("shown %v, woken %v, %+v", shown, woken, r)
			}
			if s := StatusOf(root, j.id); s.State != Delivered {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestStatus: what status says, and that nothing is made up.
func TestStatus(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	j := notified(t, root, jobdir.Cmd{}, entryBy("ann", thread.Agent, "bob"))
	if s := StatusOf(root, j.id); s.State != Pending || s.Error != "no daemon" || s.Wakes["bob"].State != Pending || s.Inbox.State != Pending {
		t.Errorf("%+v", s)
	}
	lock := must[*Lock](t)(TakeLock(root))
	if s := StatusOf(root, j.id); s.State != Pending || s.Error != "" {
		t.Errorf("%+v", s)
	}
	lock.Close()
	if err := os.Remove(entryPath(root, j.id)); err != nil {
		t.Fatal(err)
	}
	if s := StatusOf(root, j.id); s.State != Pending || s.Error != "no outbox entry" || s.Targets != nil {
		t.Errorf("%+v", s)
	}
}

// TestPruneWaitsForTheMessage: a job is not removed under its message, and is
// when everybody has it.
func TestPruneWaitsForTheMessage(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	j.endWith(record.ExitRecord{State: jobdir.Exited, ExitCode: intp(0), At: time.Now().Add(-30 * 24 * time.Hour)}, 1)
	prune := func() int {
		report := must[jobdir.PruneReport](t)(root.Prune(jobdir.Retention, time.Now(), Keeps(root)))
		return len(report.Removed)
	}
	if n := prune(); n != 0 {
		t.Fatalf("removed %d", n)
	}
	d := follow(t, root, Hooks{})
	wantDelivered(t, root, j.id)
	d.stop()
	d = follow(t, root, Hooks{}, func(f *follower) { f.pruneAt = time.Now() })
	d.log.has(t, "jobs removed: 1")
	waitFor(t, "removal", func() bool { _, err := os.Lstat(root.Job(j.id).Dir()); return os.IsNotExist(err) })
}

// TestPruneHourly: what ended long ago is removed a while after the daemon's start,
// and from then on every hour.
func TestPruneHourly(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	began := time.Now()
	f := must[*follower](t)(newFollower(root, Hooks{}))
	defer f.close()
	ctx, cancel := context.WithCancel(t.Context())
	defer f.work.Wait()
	defer cancel()
	for i, at := range []time.Duration{firstPrune, firstPrune + time.Hour, firstPrune + 2*time.Hour} {
		j := makeJob(t, root, jobdir.Cmd{ID: testID})
		j.endWith(record.ExitRecord{State: jobdir.Exited, ExitCode: intp(0), At: began.Add(-30 * 24 * time.Hour)}, 1)
		due := f.pruneAt
		if d := due.Sub(began) - at; d < 0 || d > patience {
			t.Fatalf("%d: due in %v", i, due.Sub(began))
		}
		f.step(ctx, due.Add(-time.Millisecond))
		if f.pruneAt != due {
			t.Fatalf("%d: too soon", i)
		}
		if next := f.step(ctx, due); next.After(due.Add(time.Hour)) {
			t.Errorf("%d: comes again in %v", i, next.Sub(due))
		}
		(<-f.results)()
		if _, err := os.Lstat(root.Job(j.id).Dir()); !os.IsNotExist(err) {
			t.Errorf("%d: not removed: %v", i, err)
		}
	}
}

// TestRefusedMessageGoesWithItsJob: what a sink has refused keeps no job from being
// removed, and is not kept without it.
func TestRefusedMessageGoesWithItsJob(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	no := &fakeSink{answer: func(context.Context, Message, int) error { return &PermanentError{errors.New("410")} }}
	follow(t, root, Hooks{Sink: sinksOf(t, root, map[string]*fakeSink{"no": no})}, quick)
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	j.endWith(record.ExitRecord{State: jobdir.Exited, ExitCode: intp(0), At: time.Now().Add(-30 * 24 * time.Hour)}, 1)
	waitFor(t, "refusal", func() bool { return StatusOf(root, j.id).State == Failed })
	if report, err := root.Prune(jobdir.Retention, time.Now(), Keeps(root)); err != nil || len(report.Removed) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	waitFor(t, "empty outbox", func() bool { return len(outbox(t, root)) == 0 })
}

// TestThreadThatCannotBeWritten: an entry that cannot be posted is tried again.
func TestThreadThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	dir := filepath.Join(root.Path(), "thread")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // no directory
		t.Fatal(err)
	}
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	follow(t, root, Hooks{}, quick)
	j.end(jobdir.Exited, 0)
	waitFor(t, "reason in the status", func() bool { return strings.Contains(entryError(root, j.id), "thread") })
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	r := wantDelivered(t, root, j.id)
	if r.Thread.Attempts < 2 || r.Thread.Error != "" {
		t.Errorf("%+v", r.Thread)
	}
}

// TestWithoutEvents: where the kernel reports nothing, all of it comes a little
// later.
func TestWithoutEvents(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	addMember(t, root, "ann", thread.Agent, "true")
	woken := make(chan string, 1)
	sink := &fakeSink{answer: func(_ context.Context, _ Message, n int) error {
		if n == 1 {
			return &PermanentError{errors.New("403")}
		}
		return nil
	}}
	follow(t, root, Hooks{
		Sink: sinksOf(t, root, map[string]*fakeSink{"s": sink}),
		Wake: func(_ context.Context, _ thread.Member, it thread.Item) error { woken <- it.ID; return nil },
	}, func(f *follower) {
		f.watch.close()
		f.watch.events = nil
	})
	j := notified(t, root, jobdir.Cmd{}, entryBy("ann", thread.Agent))
	j.end(jobdir.Exited, 0)
	waitFor(t, "refusal", func() bool { return target(root, j.id, "s").State == Failed })
	if n := must[int](t)(RetrySink(root, "s")); n != 1 {
		t.Errorf("%d messages are tried again", n)
	}
	wantDelivered(t, root, j.id)
	<-woken
}

// TestN2TwoDaemons: one has the root, the other says who.
func TestN2TwoDaemons(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	if r, held := DaemonOf(root); held || r.PID != 0 {
		t.Errorf("%+v, %v", r, held)
	}
	first := must[*Lock](t)(TakeLock(root))
	if err := first.Sign("systemd", time.Now()); err != nil {
		t.Fatal(err)
	}
	var held *HeldError
	if _, err := TakeLock(root); !errors.As(err, &held) || held.Holder.PID != os.Getpid() || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid(), " since 2")) {
		t.Errorf("%v", err)
	}
	if r, held := DaemonOf(root); !held || r.PID != os.Getpid() || r.Service != "systemd" {
		t.Errorf("%+v, %v", r, held)
	}
	first.Close()
	// A process that another test is just starting has the lock, too, until it executes.
	waitFor(t, "the lock to be free", func() bool { _, held := DaemonOf(root); return !held })
	if r, _ := DaemonOf(root); r.PID != os.Getpid() {
		t.Errorf("%+v", r)
	}
	must[*Lock](t)(TakeLock(root)).Close()
}

// TestEnviron: the daemon's environment is a fixed list.
func TestEnviron(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	got := Environ(root, []string{"HOME=/h", "USER=u", "LOGNAME=u", "SHELL=/s", "PATH=/p", "LANG=C", "LC_ALL=C", "TZ=UTC", "XDG_STATE_HOME=/x",
		"DBUS_SESSION_BUS_ADDRESS=d", "DISPLAY=:0", "WAYLAND_DISPLAY=w", "SPACE_JOB=j6c1f0a2b9d3e", "SPACE_JOB_HOME=/other", "SPACE_MEMBER=ann",
		"TOKEN=secret", "HOMEX=1", "LD_PRELOAD=x", "GODEBUG=x", "=C:=x", "PATH"})
	want := []string{"HOME=/h", "USER=u", "LOGNAME=u", "SHELL=/s", "PATH=/p", "LANG=C", "LC_ALL=C", "TZ=UTC", "XDG_STATE_HOME=/x",
		"DBUS_SESSION_BUS_ADDRESS=d", "DISPLAY=:0", "WAYLAND_DISPLAY=w", "SPACE_JOB_HOME=" + root.Path()}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if again := Environ(root, got); !slices.Equal(again, got) {
		t.Errorf("not the same again: %q", again)
	}
	// And these are all.
	names := []string{"DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TZ", "USER", "WAYLAND_DISPLAY"}
	if all := slices.Sorted(maps.Keys(passed)); !slices.Equal(all, names) {
		t.Errorf("passed on are %q", all)
	}
}

// TestEndsWithItsRoot: a daemon does not outlive what it is for.
func TestEndsWithItsRoot(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	f := must[*follower](t)(newFollower(root, Hooks{}))
	quick(f)
	done := make(chan struct{})
	go func() {
		f.run(t.Context())
		f.close()
		close(done)
	}()
	if err := os.RemoveAll(root.Path()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
}

// TestEndsAtOnce: whatever hangs.
func TestEndsAtOnce(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	deaf := make(chan struct{})
	defer close(deaf)
	started := make(chan struct{}, 1)
	s := &fakeSink{answer: func(context.Context, Message, int) error { started <- struct{}{}; <-deaf; return nil }}
	h := Hooks{Sink: sinksOf(t, root, map[string]*fakeSink{"deaf": s})}
	notified(t, root, jobdir.Cmd{}, entryBy("", "")).end(jobdir.Exited, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Follow(ctx, root, h) }()
	<-started
	began := time.Now()
	cancel()
	select {
	case err := <-done:
		if err != nil || time.Since(began) > 900*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	case <-time.After(patience):
		t.Fatal("Follow does not end")
	}
}

// TestRetryWithoutDaemon: an attempt that was asked for while no daemon ran is
// made once, and the pauses between the attempts are as before.
func TestRetryWithoutDaemon(t *testing.T) {
	t.Parallel()
	root := testRoot(t)
	down := &fakeSink{answer: func(context.Context, Message, int) error {
		return &RetryError{After: time.Hour, Err: errors.New("down")}
	}}
	hooks := Hooks{Sink: sinksOf(t, root, map[string]*fakeSink{"down": down})}
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	j.end(jobdir.Exited, 0)
	e := must[*Entry](t)(readEntry(entryPath(root, j.id), j.id))
	later := time.Now().Add(time.Hour)
	e.Thread.State, e.Sinks = Delivered, map[string]Target{"down": {State: Failed, Attempts: 1, Error: "no", NextAt: &later}}
	if err := jobdir.ReplaceFile(entryPath(root, j.id), jobdir.Line(e), false); err != nil {
		t.Fatal(err)
	}
	if n, err := RetrySink(root, "down"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	follow(t, root, hooks, quick)
	waitFor(t, "an attempt", func() bool { return target(root, j.id, "down").Attempts >= 2 })
	if got := target(root, j.id, "down"); got.Again || got.NextAt == nil || down.count() != 1 {
		t.Errorf("%+v after %d attempts", got, down.count())
	}
}

// TestSinkThatCannotBeRead: what a sink is to have waits until its file is
// repaired, and so it does while it is not known which sinks there are.
func TestSinkThatCannotBeRead(t *testing.T) {
	t.Parallel()
	works := func(context.Context, Message, int) error { return nil }
	for _, c := range []struct {
		name    string
		path    string // below the root: what is damaged
		content string
	}{
		{"file", "sinks/b.json", "{"},
		{"directory", "sinks", "no directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root := newRoot(t)
			fakes := map[string]*fakeSink{"a": {answer: works}, "b": {answer: works}}
			h := Hooks{Sink: sinksOf(t, root, fakes)}
			path := filepath.Join(root.Path(), c.path)
			if err := os.Rename(path, path+".whole"); err != nil {
				t.Fatal(err)
			}
			write(t, path, c.content)
			d := follow(t, root, h, quick)
			j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
			j.end(jobdir.Exited, 0)
			waitFor(t, "entry in the thread", func() bool { return len(posted(t, root)[j.id]) == 1 })
			if c.name == "file" {
				waitFor(t, "reason in the status", func() bool { return strings.Contains(target(root, j.id, "b").Error, "damaged") })
				waitFor(t, "the other sink", func() bool { return target(root, j.id, "a").State == Delivered })
			} else {
				d.log.has(t, "sinks:")
				waitFor(t, "mark", func() bool {
					e, err := readEntry(entryPath(root, j.id), j.id)
					return err == nil && e.Thread.State == Delivered
				})
			}
			d.stop()
			if c.name == "directory" { // it cannot be replaced in one step
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			} else {
				follow(t, root, h, quick) // another one finds it as it is
			}
			if err := os.Rename(path+".whole", path); err != nil {
				t.Fatal(err)
			}
			if c.name == "directory" {
				follow(t, root, h, quick)
			}
			r := wantDelivered(t, root, j.id)
			if r.Sinks["a"].State != Delivered || r.Sinks["b"].State != Delivered || fakes["a"].count() != 1 || fakes["b"].count() != 1 {
				t.Errorf("%+v, %d and %d times", r.Sinks, fakes["a"].count(), fakes["b"].count())
			}
		})
	}
}

// TestRetryWhileOneIsTakenIn: of two that are asked for at a time none is lost.
func TestRetryWhileOneIsTakenIn(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	f := must[*follower](t)(newFollower(root, Hooks{}))
	defer f.close()
	e := must[*Entry](t)(readEntry(entryPath(root, j.id), j.id))
	for n := range 200 {
		later := time.Now().Add(time.Hour)
		e.Sinks = map[string]Target{"a": {State: Pending, NextAt: &later}, "b": {State: Pending, NextAt: &later}}
		if err := jobdir.ReplaceFile(entryPath(root, j.id), jobdir.Line(e), false); err != nil {
			t.Fatal(err)
		}
		f.jobs[j.id] = &followed{job: root.Job(j.id), entry: must[*Entry](t)(readEntry(entryPath(root, j.id), j.id))}
		must[int](t)(RetrySink(root, "a"))
		asked := make(chan error, 1)
		go func() {
			_, err := RetrySink(root, "b")
			asked <- err
		}()
		f.notice(j.id)
		if err := <-asked; err != nil {
			t.Fatal(err)
		}
		f.notice(j.id)
		for name, got := range f.jobs[j.id].entry.Sinks {
			if got.NextAt != nil {
				t.Fatalf("round %d: what was asked of %s is lost: %+v", n, name, got)
			}
		}
	}
}

// TestClockWasSetBack: what is to be tried again at a time that nothing was ever
// put off to was put off before the clock was set back. It is tried now.
func TestClockWasSetBack(t *testing.T) {
	t.Parallel()
	root := testRoot(t)
	addMember(t, root, "ann", thread.Agent, "true")
	sink := &fakeSink{answer: func(context.Context, Message, int) error { return nil }}
	woken := make(chan string, 10)
	hooks := Hooks{
		Sink: sinksOf(t, root, map[string]*fakeSink{"s": sink}),
		Wake: func(_ context.Context, _ thread.Member, it thread.Item) error { woken <- it.ID; return nil },
	}
	years := time.Now().Add(3 * 365 * 24 * time.Hour)
	th := thread.Open(root)
	it := must[thread.Item](t)(th.PutItem(thread.Item{ID: "e1", Kind: thread.KindMention, To: "ann", Text: "hello", Wake: thread.Wake{State: thread.WakePending}}))
	if err := th.WakeResult(it, errors.New("no"), years); err != nil {
		t.Fatal(err)
	}
	j := notified(t, root, jobdir.Cmd{}, entryBy("ann", thread.Agent))
	j.end(jobdir.Exited, 0)
	e := must[*Entry](t)(readEntry(entryPath(root, j.id), j.id))
	later := Target{State: Pending, Attempts: 1, Error: "no", NextAt: &years}
	e.Thread.State, e.Inbox, e.Sinks = Delivered, later, map[string]Target{"s": later}
	if err := jobdir.ReplaceFile(entryPath(root, j.id), jobdir.Line(e), false); err != nil {
		t.Fatal(err)
	}
	follow(t, root, hooks, quick)
	waitFor(t, "everybody to have it", func() bool { _, ok := readReceipt(root.Job(j.id)); return ok })
	got := []string{<-woken, <-woken}
	slices.Sort(got)
	if want := []string{"e1", string(j.id)}; !slices.Equal(got, want) || sink.count() != 1 {
		t.Errorf("woken for %q, want %q; %d messages", got, want, sink.count())
	}
}

// TestWakeThatCannotBeNoted: on a full disk a waker is not run over and over
// because it cannot be written down that it was.
func TestWakeThatCannotBeNoted(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	addMember(t, root, "ann", thread.Agent, "true")
	lock := filepath.Join(root.Path(), "thread", "lock")
	var mu sync.Mutex
	woken, tries := 0, 0
	h := Hooks{Wake: func(context.Context, thread.Member, thread.Item) error {
		mu.Lock()
		defer mu.Unlock()
		if woken++; woken > 1 {
			return nil
		}
		return errors.Join(os.Rename(lock, lock+".old"), os.Mkdir(lock, 0o700)) // nothing can be written
	}}
	j := notified(t, root, jobdir.Cmd{}, entryBy("ann", thread.Agent))
	j.end(jobdir.Exited, 0)
	follow(t, root, h, quick, func(f *follower) {
		f.backoff = func(int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			tries++
			return time.Millisecond
		}
	})
	waitFor(t, "many tries to note it, or another wake", func() bool { mu.Lock(); defer mu.Unlock(); return tries > 10 || woken > 1 })
	if err := errors.Join(os.Remove(lock), os.Rename(lock+".old", lock)); err != nil {
		t.Fatal(err)
	}
	r := wantDelivered(t, root, j.id)
	mu.Lock()
	defer mu.Unlock()
	if got := r.Wakes["ann"]; woken != 1 || got.State != Delivered || got.Attempts != 1 {
		t.Errorf("the waker was run %d times: %+v", woken, got)
	}
}

// TestMemberIsRemoved: a message that waits for its starter to be woken does not
// wait for ever when there is no such member any more.
func TestMemberIsRemoved(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	addMember(t, root, "ann", thread.Agent, "true")
	h := Hooks{Wake: func(context.Context, thread.Member, thread.Item) error {
		return errors.Join(errors.New("no answer"), thread.Open(root).RemoveMember("ann"))
	}}
	j := notified(t, root, jobdir.Cmd{}, entryBy("ann", thread.Agent))
	j.end(jobdir.Exited, 0)
	follow(t, root, h, quick)
	r := wantDelivered(t, root, j.id)
	if got := r.Wakes["ann"]; got.State != Failed || got.Error != thread.ErrNoMember.Error() {
		t.Errorf("%+v", got)
	}
	if thread.Open(root).WakesWaiting() {
		t.Error("a wake is waiting still")
	}
}

// TestN1SinkAddedJustBefore: a sink that is there when a job starts has its
// message, however shortly before it was added.
func TestN1SinkAddedJustBefore(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	works := &fakeSink{answer: func(context.Context, Message, int) error { return nil }}
	follow(t, root, Hooks{Sink: func(SinkConfig) Sink { return works }})
	for i := range 5 {
		name := fmt.Sprintf("s%d", i)
		if _, err := AddSink(root, SinkConfig{Name: name, Command: "true"}); err != nil {
			t.Fatal(err)
		}
		j := notified(t, root, jobdir.Cmd{ID: at(i)}, entryBy("", ""))
		j.end(jobdir.Exited, 0)
		waitFor(t, "message", func() bool { return StatusOf(root, j.id).State == Delivered })
		if got := target(root, j.id, name); got.State != Delivered {
			t.Errorf("sink %s, added before the start: %+v", name, got)
		}
	}
}

// TestReceiptThatIsNoFile: what is in its place does not keep a message in the
// outbox, nor the job of it.
func TestReceiptThatIsNoFile(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	if err := os.MkdirAll(filepath.Join(j.path(record.Notified), "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	j.end(jobdir.Exited, 0)
	follow(t, root, Hooks{}, quick)
	wantDelivered(t, root, j.id)
}

// TestLostWithAnExitThatIsNoFile: it is written down as lost, and told of.
func TestLostWithAnExitThatIsNoFile(t *testing.T) {
	t.Parallel()
	root := newRoot(t)
	j := notified(t, root, jobdir.Cmd{}, entryBy("", ""))
	for _, name := range []string{record.Exit, record.ReservedExit} {
		if err := errors.Join(os.RemoveAll(j.path(name)), os.MkdirAll(filepath.Join(j.path(name), "x"), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	j.die()
	follow(t, root, Hooks{}, quick)
	wantDelivered(t, root, j.id)
	if e := posted(t, root)[j.id][0]; !strings.HasPrefix(e.Text, "JOB "+string(j.id)+" lost ") {
		t.Errorf("%q", e.Text)
	}
}

// TestRefusedEndStopsNoOther: a message that the parent does not take is in the way
// of no other.
func TestRefusedEndStopsNoOther(t *testing.T) {
	t.Parallel()
	root := testRoot(t)
	var mu sync.Mutex
	first, told := jobdir.ID(""), map[jobdir.ID]bool{}
	h := Hooks{Parent: func() (*Parent, error) {
		return &Parent{
			Space: "child", Has: func(string) bool { return false },
			JobEnd: func(_ context.Context, e JobEnd) (JobTold, error) {
				mu.Lock()
				defer mu.Unlock()
				if first == "" {
					first = e.Message.Job
				}
				if e.Message.Job == first {
					return JobTold{}, fmt.Errorf("it is too odd: %w", ErrRefused)
				}
				told[e.Message.Job] = true
				return JobTold{Seq: int64(len(told))}, nil
			},
		}, nil
	}}
	for i := range 3 {
		j := notified(t, root, jobdir.Cmd{ID: at(i)}, entryBy("ann", thread.Agent))
		j.end(jobdir.Exited, 0)
	}
	follow(t, root, h, quick)
	waitFor(t, "the others", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(told) == 2
	})
}
