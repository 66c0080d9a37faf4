package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"space-job/jobdir"
)

func store(t *testing.T) (*Store, *time.Time) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	root, err := jobdir.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	return &Store{root, func() time.Time { return now }}, &now
}

func deploy() Start {
	return Start{Command: "make deploy", Cwd: "/src", Real: "/src", Env: []string{"TOKEN"}, Space: Local, By: Who{"ann", "agent"}, Values: []string{"PATH=/bin", "TOKEN=secret"}}
}

func ask(t *testing.T, s *Store, start Start) *Question {
	t.Helper()
	q, err := s.Ask(start, "why")
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func approve(t *testing.T, s *Store, id string) {
	t.Helper()
	if _, err := s.Answer(id, true, Who{"me", "person"}, "terminal", nil); err != nil {
		t.Fatal(err)
	}
}

// TestOnce: a question is decided once, and an approval is used once, by one of
// many that try.
func TestOnce(t *testing.T) {
	s, _ := store(t)
	start := deploy()
	q := ask(t, s, start)
	if again := ask(t, s, start); again.ID != q.ID || again.State != Pending {
		t.Errorf("the same start is another question: %+v", again)
	}
	b, err := os.ReadFile(s.path(q.ID))
	if err != nil || bytes.Contains(b, []byte("secret")) {
		t.Errorf("%s, %v", b, err)
	}
	var state *StateError
	if _, err := s.Consume(q.ID, &start, nil); !errors.As(err, &state) || state.State != Pending {
		t.Errorf("a pending one is used: %v", err)
	}
	var decided, used atomic.Int32
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			other := &Store{s.Root, s.Now}
			if _, err := other.Answer(q.ID, true, Who{}, "terminal", nil); err == nil {
				decided.Add(1)
			} else if !errors.As(err, new(*StateError)) {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	for i := range 20 {
		wg.Go(func() {
			start, other := deploy(), &Store{s.Root, s.Now}
			if _, err := other.Consume(q.ID, &start, nil); err == nil {
				used.Add(1)
			} else if !errors.Is(err, ErrNoQuestion) {
				t.Errorf("%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if decided.Load() != 1 || used.Load() != 1 {
		t.Errorf("decided %d times, used %d times", decided.Load(), used.Load())
	}
	if _, err := s.Consume(q.ID, &start, nil); !errors.Is(err, ErrNoQuestion) {
		t.Errorf("replayed: %v", err)
	}
}

// TestOther: an approval is for the very start.
func TestOther(t *testing.T) {
	s, _ := store(t)
	q := ask(t, s, deploy())
	approve(t, s, q.ID)
	for name, change := range map[string]func(*Start){
		"command":          func(s *Start) { s.Command += " " },
		"argv":             func(s *Start) { s.Command, s.Argv = "", []string{"make", "deploy"} },
		"argv in one":      func(s *Start) { s.Command, s.Argv = "", []string{"make deploy"} },
		"until":            func(s *Start) { s.Until = json.RawMessage(`{"command":"make deploy"}`) },
		"folder":           func(s *Start) { s.Cwd = "/" },
		"where it leads":   func(s *Start) { s.Real = "/other" },
		"value":            func(s *Start) { s.Values = []string{"PATH=/bin", "TOKEN=other"} },
		"PATH":             func(s *Start) { s.Values = []string{"PATH=/tmp:/bin", "TOKEN=secret"} },
		"another name":     func(s *Start) { s.Env = []string{"TOKEN", "PATH"} },
		"no variables":     func(s *Start) { s.Env, s.Values = nil, []string{"PATH=/bin"} },
		"Space":            func(s *Start) { s.Space = "other" },
		"member":           func(s *Start) { s.By.Member = "bob" },
		"kind":             func(s *Start) { s.By.Kind = "person" },
		"nobody":           func(s *Start) { s.By = Who{} },
		"moved a boundary": func(s *Start) { s.Values = []string{"PATH=/bin", "TOKEN=secretx"}; s.Command = "make deploy" },
	} {
		start := deploy()
		change(&start)
		if _, err := s.Consume(q.ID, &start, nil); !errors.Is(err, ErrOther) {
			t.Errorf("%s: %v", name, err)
		}
	}
	start := deploy()
	start.Values = []string{"TOKEN=secret", "PATH=/bin"} // in another order
	if _, err := s.Consume(q.ID, &start, nil); err != nil {
		t.Error(err)
	}
}

func TestTimes(t *testing.T) {
	s, now := store(t)
	start := deploy()
	q := ask(t, s, start)
	*now = now.Add(Waits - time.Minute)
	approve(t, s, q.ID)
	*now = now.Add(Holds - time.Second)
	if err := s.Check(q.ID, &start); err != nil {
		t.Error(err)
	}
	was := *now
	*now = now.Add(time.Second)
	if _, err := s.Consume(q.ID, &start, nil); !errors.Is(err, ErrNoQuestion) {
		t.Errorf("after 15 minutes: %v", err)
	}
	*now = was.Add(-time.Hour)
	if _, err := s.Consume(q.ID, &start, nil); !errors.Is(err, ErrNoQuestion) {
		t.Errorf("with the clock set back: %v", err)
	}
	*now = was.Add(2 * Holds)
	if n, err := s.Sweep(); n != 1 || err != nil {
		t.Errorf("%d swept, %v", n, err)
	}
	q = ask(t, s, start)
	if _, err := s.Answer(q.ID, false, Who{}, "terminal", nil); err != nil {
		t.Fatal(err)
	}
	if again := ask(t, s, start); again.ID != q.ID || again.State != Denied {
		t.Errorf("%+v", again)
	}
	if _, err := s.Consume(q.ID, &start, nil); !errors.As(err, new(*StateError)) {
		t.Errorf("a denied one is used: %v", err)
	}
	*now = now.Add(Holds)
	q = ask(t, s, start)
	if q.State != Pending {
		t.Errorf("%+v", q)
	}
	*now = now.Add(Waits)
	if _, err := s.Answer(q.ID, true, Who{}, "terminal", nil); !errors.Is(err, ErrNoQuestion) {
		t.Errorf("after a day: %v", err)
	}
}

func TestBounds(t *testing.T) {
	s, _ := store(t)
	for i := range MaxQuestions {
		start := deploy()
		start.Argv, start.Command = []string{"make", strings.Repeat("x", i)}, ""
		ask(t, s, start)
	}
	if _, err := s.Ask(deploy(), ""); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	first := deploy()
	first.Argv, first.Command = []string{"make", ""}, ""
	ask(t, s, first) // it is there
	long := deploy()
	long.Command = strings.Repeat("x", MaxShown)
	if _, err := s.Ask(long, ""); !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	strange := deploy()
	strange.Command = "a\xff"
	s, _ = store(t)
	if _, err := s.Ask(strange, ""); !errors.Is(err, ErrIllegible) {
		t.Error(err)
	}
}

// TestTampered: what was not written here is no approval, and what is shown is
// what was asked about.
func TestTampered(t *testing.T) {
	s, now := store(t)
	start := deploy()
	q := ask(t, s, start)
	approve(t, s, q.ID)
	path := s.path(q.ID)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	for name, do := range map[string]func() error{
		"empty": func() error { return os.WriteFile(path, nil, 0o600) },
		"half":  func() error { return os.WriteFile(path, whole[:len(whole)/2], 0o600) },
		"another command shown": func() error {
			return os.WriteFile(path, bytes.ReplaceAll(whole, []byte("make deploy"), []byte("make tests!")), 0o600)
		},
		"another member": func() error {
			return os.WriteFile(path, bytes.ReplaceAll(whole, []byte(`"ann"`), []byte(`"bob"`)), 0o600)
		},
		"another state": func() error {
			return os.WriteFile(path, bytes.ReplaceAll(whole, []byte(`"approved"`), []byte(`"yes"`)), 0o600)
		},
		"no time": func() error {
			return os.WriteFile(path, bytes.ReplaceAll(whole, []byte(`"decided_at"`), []byte(`"x"`)), 0o600)
		},
		"writable by others":  func() error { return os.Chmod(path, 0o622) },
		"a link":              func() error { return errors.Join(os.Rename(path, path+"x"), os.Symlink(path+"x", path)) },
		"a folder":            func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a folder for others": func() error { return os.Chmod(dir, 0o722) },
		"a linked folder":     func() error { return errors.Join(os.Rename(dir, dir+"x"), os.Symlink(dir+"x", dir)) },
	} {
		if err := do(); err != nil {
			t.Fatal(name, err)
		}
		if _, err := s.Consume(q.ID, &start, nil); err == nil {
			t.Errorf("%s: used", name)
		}
		if _, err := s.Answer(q.ID, true, Who{}, "terminal", nil); err == nil {
			t.Errorf("%s: decided", name)
		}
		if q, err := s.Ask(start, ""); err == nil && q.State != Pending {
			t.Errorf("%s: %+v", name, q)
		}
		_ = os.Chmod(dir, 0o700)
		if info, err := os.Lstat(dir); err == nil && info.Mode()&os.ModeSymlink != 0 {
			_ = os.Remove(dir)
			_ = os.Rename(dir+"x", dir)
		}
		_ = os.RemoveAll(dir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(q.ID, &start); err != nil {
			t.Fatal(name, err)
		}
	}
	for _, id := range []string{"", "..", "../policy.json", "a", "a/../../x", strings.Repeat("a", 17) + "x", "A" + strings.Repeat("0", 16), "b" + strings.Repeat("0", 16)} {
		if ValidID(id) {
			t.Errorf("%q is an id", id)
		}
		if _, err := s.Consume(id, &start, nil); !errors.Is(err, ErrNoQuestion) {
			t.Errorf("%q: %v", id, err)
		}
	}
	// What was left behind goes, what is damaged stays for a day.
	left := filepath.Join(dir, jobdir.TempPrefix+"a")
	damaged := filepath.Join(dir, "a"+strings.Repeat("0", 16))
	unfinished := filepath.Join(s.Root.Path(), jobdir.TempPrefix+File+"-1")
	for _, path := range []string{left, damaged, unfinished} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, bad, err := s.List(); len(bad) != 1 || err != nil {
		t.Errorf("%v, %v", bad, err)
	}
	for _, c := range []struct {
		after time.Duration
		left  int
	}{{0, 3}, {2 * time.Hour, 1}, {Waits, 0}} {
		*now = now.Add(c.after)
		if _, err := s.Sweep(); err != nil {
			t.Error(err)
		}
		n := 0
		for _, path := range []string{left, damaged, unfinished} {
			if _, err := os.Lstat(path); err == nil {
				n++
			}
		}
		if n != c.left {
			t.Errorf("after %v %d are left, want %d", c.after, n, c.left)
		}
	}
}

// TestAddRule: the rule decides from then on, and nothing else is changed.
func TestAddRule(t *testing.T) {
	s, _ := store(t)
	path := filepath.Join(s.Root.Path(), File)
	start := deploy()
	start.Env = nil
	q := ask(t, s, start)
	if err := os.WriteFile(path, []byte(`{"personal":true,"rules":[{"command":"rm *","verdict":"deny"},{"verdict":"ask"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := s.AddRule(q, Allow); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	pol := Load(s.Root.Path())
	if len(pol.Rules) != 3 || !pol.Personal || pol.Decide(start.Request()).Rule != 2 || pol.Decide(start.Request()).Verdict != Allow {
		t.Errorf("%+v", pol)
	}
	for _, change := range []func(*Start){
		func(s *Start) { s.Command = "make deploy " },
		func(s *Start) { s.Real = "/other" },
		func(s *Start) { s.By.Member = "bob" },
		func(s *Start) { s.By.Member = "" },
		func(s *Start) { s.Env = []string{"PATH"} },
	} {
		other := start
		change(&other)
		if d := pol.Decide(other.Request()); d.Verdict != Ask {
			t.Errorf("%+v: %+v", other, d)
		}
	}
	if err := os.WriteFile(path, []byte(`{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddRule(q, Allow); err == nil {
		t.Error("a damaged policy was replaced")
	}
	if b, _ := os.ReadFile(path); string(b) != "{" {
		t.Errorf("%s", b)
	}
}

// TestAudit: lines stay whole, whoever writes, and whatever was left.
func TestAudit(t *testing.T) {
	s, _ := store(t)
	if err := s.Audit(Line{Decision: "ask", Start: deploy()}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Root.Path(), AuditLog)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"torn`)
	f.Close()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 10 {
				long := deploy()
				long.Command = strings.Repeat("x", 100<<10)
				if err := s.Audit(Line{Decision: "deny", Start: long}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b, err := os.ReadFile(path)
	if err != nil || bytes.Contains(b, []byte("secret")) {
		t.Error(err)
	}
	good, torn := 0, 0
	for line := range bytes.Lines(b) {
		var l Line
		if json.Unmarshal(line, &l) == nil && !l.At.IsZero() && (l.Decision == "ask" || l.Bytes == 100<<10 && len(l.Start.Command) == maxAudited) {
			good++
		} else {
			torn++
		}
	}
	if good != 101 || torn != 1 {
		t.Errorf("%d good, %d torn", good, torn)
	}
	if err := os.Truncate(path, largeAudit+1); err != nil {
		t.Fatal(err)
	}
	if err := s.Audit(Line{Decision: "ask"}); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path + ".old"); err != nil || info.Size() <= largeAudit {
		t.Error(err)
	}
	_ = os.Remove(path)
	if err := os.Symlink(path+"x", path); err != nil {
		t.Fatal(err)
	}
	if err := s.Audit(Line{Decision: "ask"}); err == nil {
		t.Error("written through a link")
	}
}
