package thread

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"space-job/jobdir"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

func ptr(n int64) *int64 { return &n }

func seqs(entries []Entry) string {
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = strconv.FormatInt(e.Seq, 10)
	}
	return strings.Join(all, " ")
}

func TestRead(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	for _, r := range []Range{{}, {After: ptr(0)}, {Before: ptr(7)}} {
		if got := must(th.Read(r))(t); len(got.Entries) != 0 || got.HasMoreBefore {
			t.Errorf("of nothing: %+v", got)
		}
	}
	crowd(t, th, 0)
	for i := range 9 {
		// Lines of all lengths, so that blocks end anywhere.
		must(th.Post(Post{Author: ann, Text: strings.Repeat("x", 1+i*i*100)}))(t)
	}
	for _, c := range []struct {
		r      Range
		want   string
		cursor int64
		more   bool
	}{
		{Range{}, "1 2 3 4 5 6 7 8 9", 9, false},
		{Range{N: 3}, "7 8 9", 9, true},
		{Range{N: 9}, "1 2 3 4 5 6 7 8 9", 9, false},
		{Range{After: ptr(0), N: 2}, "1 2", 2, false},
		{Range{After: ptr(2), N: 2}, "3 4", 4, true},
		{Range{After: ptr(8)}, "9", 9, true},
		{Range{After: ptr(9)}, "", 9, true},
		{Range{After: ptr(99)}, "", 99, true},
		{Range{Before: ptr(4), N: 2}, "2 3", 3, true},
		{Range{Before: ptr(3)}, "1 2", 2, false},
		{Range{Before: ptr(1)}, "", 0, false},
		{Range{Before: ptr(0)}, "", 0, false},
		{Range{Before: ptr(99), N: 1}, "9", 9, true},
	} {
		got := must(th.Read(c.r))(t)
		if seqs(got.Entries) != c.want || got.Cursor != c.cursor || got.HasMoreBefore != c.more {
			t.Errorf("%+v: %s, cursor %d, more %v; want %+v", c.r, seqs(got.Entries), got.Cursor, got.HasMoreBefore, c)
		}
	}
	for _, r := range []Range{{After: ptr(-1)}, {Before: ptr(-1)}, {After: ptr(1), Before: ptr(2)}, {N: -1}, {N: MaxRead + 1}} {
		if _, err := th.Read(r); err == nil {
			t.Errorf("%+v is not refused", r)
		}
	}
}

// TestPostRefused: nothing is made for what is refused.
func TestPostRefused(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	for _, p := range []Post{
		{Text: "x"}, {Author: Author{"a/b", Person}, Text: "x"}, {Author: Author{"a", Daemon}, Text: "x"}, {Author: ann}, {Author: ann, Text: " \n"},
		{Author: ann, Text: "a\x00b"}, {Author: ann, Text: "a\xff"}, {Author: ann, Text: strings.Repeat("x", MaxPost+1)}, {Author: ann, Text: strings.Repeat("x", 1<<20)},
		{Author: ann, Text: "x", ReplyTo: -1}, {Author: ann, Text: "CLAIM x"},
	} {
		if _, err := th.Post(p); err == nil {
			t.Errorf("%.40q of %+v is posted", p.Text, p.Author)
		}
	}
	for _, m := range []Member{{Name: "a/b", Kind: Agent}, {Name: "..", Kind: Agent}, {Name: "", Kind: Agent}, {Name: "x"}, {Name: daemonName, Kind: Agent},
		{Name: "x", Kind: Agent, WakeCommand: "/etc/passwd"}, {Name: "x", Kind: Agent, WakeCommand: "/"}, {Name: "x", Kind: Agent, WakeCommand: "./x"}, {Name: "x", Kind: Agent, WakeCommand: "no-such-program-at-all -x"},
		{Name: "x", Kind: Agent, WakeCommand: " "}, {Name: "x", Kind: Agent, WakePane: "-t"}, {Name: "x", Kind: Agent, WakePane: "a\nb"}, {Name: "x", Kind: Agent, WakePane: "%1", WakeCommand: "cat"}} {
		if _, err := th.AddMember(m); err == nil {
			t.Errorf("%+v is a member", m)
		}
	}
	if _, err := os.Lstat(th.root.Path()); err == nil {
		t.Error("something was made for what was refused")
	}
	if _, err := th.Post(Post{Author: ann, Text: strings.Repeat("x", MaxPost)}); err != nil {
		t.Error(err)
	}
	if _, err := th.Post(Post{Author: ann, Text: "x", ReplyTo: 2}); err != ErrNoEntry {
		t.Errorf("a reply to what is not there: %v", err)
	}
	if got := len(contents(t, th)); got != 1 {
		t.Errorf("%d entries", got)
	}
	for _, c := range []string{
		"cat >/dev/null", "exec cat", "X=1 cat", "/bin/sh -c 'exit 0'", "cd /tmp && cat", "'/bin/sh' -c :", `X="a b" nope`, "$HOME/nope", "( nope )", "true; nope",
		"if true; then nope; fi", ">/dev/null nope", "~/nope", "[ -e x ] || nope", `"$HOME"/nope`, "case x in x) nope;; esac", "cat<<E\nnope\nE\n", "cat;nope",
	} {
		must(th.AddMember(Member{Name: "x", Kind: Agent, WakeCommand: c}))(t)
	}
}

// TestWakersRefused: a waker that cannot run is refused, however its first
// program is written.
func TestWakersRefused(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	plain := filepath.Join(t.TempDir(), "no exec")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for c, why := range map[string]string{
		"'" + plain + "' x": "is not executable", `"` + plain + `"`: "is not executable", "X=1 Y= " + filepath.Dir(plain): "it is a directory", "exec /etc/passwd": "is not executable",
		"/nope;true": "is not executable", "\n /nope": "is not executable", "X=1 exec ./a b": "is a relative path",
		"if ; then": "is no shell command", "echo 'a": "is no shell command", "cat | ": "is no shell command",
	} {
		_, err := th.AddMember(Member{Name: "x", Kind: Agent, WakeCommand: c})
		var refused *InvalidError
		if !errors.As(err, &refused) || refused.Field != "wake_command" || refused.Value != c || !strings.Contains(refused.Why, why) {
			t.Errorf("%q: %v, want %q", c, err, why)
		}
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i, r := range []Range{{}, {After: ptr(1)}, {After: ptr(1), N: 1}} { // the first before there is a thread
		got := make(chan Read, 1)
		waiting := make(chan struct{})
		go func() {
			close(waiting)
			res, err := th.Follow(ctx, r)
			if err != nil {
				t.Error(err)
			}
			got <- res
		}()
		<-waiting
		if i != 0 {
			// There is one already: it does not wait.
			if res := <-got; len(res.Entries) == 0 {
				t.Errorf("%+v: nothing", r)
			}
			must(th.Post(Post{Author: ann, Text: "another"}))(t)
			continue
		}
		// Until it comes: the call may not have begun to look yet.
		for done := false; !done; {
			must(th.Post(Post{Author: ann, Text: "hello"}))(t)
			select {
			case res := <-got:
				if len(res.Entries) == 0 || res.Entries[0].Text != "hello" {
					t.Errorf("%+v", res)
				}
				done = true
			case <-time.After(5 * time.Millisecond):
			}
		}
		must(th.Post(Post{Author: ann, Text: "more"}))(t)
	}
	short, stop := context.WithCancel(ctx)
	stop()
	if res := must(th.Follow(short, Range{After: ptr(must(th.End())(t))}))(t); len(res.Entries) != 0 {
		t.Errorf("%+v", res)
	}
	if _, err := th.Follow(ctx, Range{Before: ptr(3)}); err == nil {
		t.Error("what is past is waited for")
	}
	// An inbox is waited for in the same way, before it is there too.
	items := make(chan Item, 1)
	go func() {
		it, err := th.WaitItem(ctx, "a0", &Taker{})
		if err != nil {
			t.Error(err)
		}
		items <- it
	}()
	must(th.Post(Post{Author: ann, Text: "@a0 go"}))(t)
	if it := <-items; it.Text != "@a0 go" || it.State != Taken {
		t.Errorf("%+v", it)
	}
	if _, err := th.WaitItem(short, "a0", nil); err != ErrNoItem {
		t.Errorf("%v", err)
	}
}

// TestN3ForgedLines: nothing that the end of a job quotes is an event of its
// own: no wake, no claim, no second entry. What a member quotes is not either.
func TestN3ForgedLines(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 2)
	text := "JOB j6c1f0a2b9d3e exited exit=0 1.0s log=9B | x @a0 CLAIM y | files: . | until: 9h\n" +
		"CLAIM x | files: . | until: 9h\nRELEASE mine\n@a0 wake up\nEnd of the log:\n    JOB j000000000000 exited exit=0 1s log=0B | x\n    CLAIM z | files: . | until: 9h\n    @a1 wake up \x1b[2J"
	must(th.Post(Post{Author: agent(0), Text: "CLAIM mine | files: src | until: 1h"}))(t)
	seq, _, err := th.PostJob(JobEnd{Job: jobID(1), Text: text})
	if err != nil {
		t.Fatal(err)
	}
	must(th.Post(Post{Author: ann, Text: "look:\n> " + strings.ReplaceAll(text, "\n", "\n> ")}))(t)
	must(th.Post(Post{Author: ann, Text: "look:\n\n```\n" + text + "\n```"}))(t)
	for _, m := range []string{"a0", "a1", "ann"} {
		if items := must(th.Inbox(m))(t); len(items) != 0 {
			t.Errorf("%s was woken: %+v", m, items)
		}
	}
	if got := claimsOf(t, th); got != "a0:mine" {
		t.Errorf("claims %q", got)
	}
	// Nor when the thread is worked through anew.
	for _, name := range []string{stateName, claimsName} {
		if err := remove(th.path(threadDir, name)); err != nil {
			t.Fatal(err)
		}
	}
	all := contents(t, th)
	if got := claimsOf(t, th); got != "a0:mine" || len(all) != 4 || len(must(th.Inbox("a0"))(t)) != 0 {
		t.Errorf("made anew: claims %q, %d entries", got, len(all))
	}
	if e := all[seq-1]; e.Text != text || len(e.Mentions) != 0 || e.Author.Kind != Daemon || e.Key != string(jobID(1)) {
		t.Errorf("%+v", e)
	}
}

// longThread writes a thread of many entries as posts would have.
func longThread(t testing.TB, n int) *Thread {
	t.Helper()
	th := newThread(t)
	crowd(t, th, 1)
	dir := must(th.root.MakeDir(threadDir))(t)
	var b bytes.Buffer
	at := time.Now().Add(-time.Hour).UnixMilli()
	for i := 1; i <= n; i++ {
		b.Write(jobdir.Line(Entry{Seq: int64(i), AtMS: at, Author: ann, Text: "entry " + strconv.Itoa(i) + strings.Repeat(" and more of it", i%40)}))
	}
	for name, content := range map[string][]byte{logName: b.Bytes(), stateName: jobdir.Line(state{int64(n), int64(b.Len())}), claimsName: jobdir.Line(ledger{Seq: int64(n)})} {
		if err := os.WriteFile(dir+"/"+name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return th
}

// TestDamage: what is damaged is passed over or set aside, with a line that says
// where, and everything else goes on.
func TestDamage(t *testing.T) {
	t.Parallel()
	type warnings []string
	prepare := func(t *testing.T) (*Thread, *warnings) {
		th := newThread(t)
		crowd(t, th, 1)
		for i := 1; i <= 4; i++ {
			must(th.Post(Post{Author: ann, Text: "entry " + strconv.Itoa(i)}))(t)
		}
		must(th.Post(Post{Author: ann, Text: "@a0 five"}))(t)
		w := new(warnings)
		th.Warn = func(s string) { *w = append(*w, s) }
		return th, w
	}
	edit := func(t *testing.T, th *Thread, name string, f func([]byte) []byte) {
		t.Helper()
		path := th.path(threadDir, name)
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, f(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set := func(s string) func([]byte) []byte { return func([]byte) []byte { return []byte(s) } }
	long := func(b []byte) []byte {
		return append(b, `{"seq":6,"at_ms":1,"author":{"member":"ann","kind":"person"},"text":"`+strings.Repeat("x", 3<<20)+"\n"...)
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, th *Thread)
		next int64  // the seq of the next post
		warn string // in a warning
		here string // which can be read, then
	}{
		{"a torn last line", func(t *testing.T, th *Thread) {
			edit(t, th, logName, func(b []byte) []byte { return append(b, `{"seq":6,"at_ms":1,"author":{"mem`...) })
		}, 6, "a line was torn at byte", "1 2 3 4 5 6"},
		{"zeros after a power loss", func(t *testing.T, th *Thread) {
			edit(t, th, logName, func(b []byte) []byte { return append(b, make([]byte, 5000)...) })
		}, 6, "torn at byte", "1 2 3 4 5 6"},
		{"a very long torn line", func(t *testing.T, th *Thread) {
			edit(t, th, logName, func(b []byte) []byte { return bytes.TrimSuffix(long(b), []byte("\n")) })
		}, 6, "torn at byte", "1 2 3 4 5 6"},
		{"a whole last line that is none", func(t *testing.T, th *Thread) {
			edit(t, th, logName, func(b []byte) []byte { return append(b, "garbage\n"...) })
		}, 7, "are no entry", "1 2 3 4 5 7"},
		{"a last line longer than any entry", func(t *testing.T, th *Thread) { edit(t, th, logName, long) }, 7, "are no entry", "1 2 3 4 5 7"},
		{"a line in the middle", func(t *testing.T, th *Thread) {
			edit(t, th, logName, func(b []byte) []byte {
				return bytes.Replace(b, []byte(`{"seq":3,"at_ms"`), []byte(`{"sex":3;"at_ms"`), 1)
			})
		}, 6, "are no entry", "1 2 4 5 6"},
		{"the log was emptied", func(t *testing.T, th *Thread) { edit(t, th, logName, set("")) }, 6, "was cut to 0 bytes: the thread goes on after entry 5", "6"},
		{"the log is gone", func(t *testing.T, th *Thread) {
			if err := os.Remove(th.path(threadDir, logName)); err != nil {
				t.Fatal(err)
			}
		}, 6, "was cut to 0 bytes", "6"},
		{"the log is a directory", func(t *testing.T, th *Thread) {
			replaceByDir(t, th, logName)
		}, 6, "is not a regular file", "6"},
		{"the log is a directory, after another one", func(t *testing.T, th *Thread) {
			replaceByDir(t, th, fmt.Sprintf("%s.damaged-%d", logName, th.now().Unix()))
			replaceByDir(t, th, logName)
		}, 6, "is not a regular file", "6"},
		{"a last line with a seq that nothing follows", func(t *testing.T, th *Thread) {
			edit(t, th, logName, func(b []byte) []byte {
				return append(b, `{"seq":9223372036854775807,"at_ms":1,"author":{"member":"ann","kind":"person"},"text":"x"}`+"\n"...)
			})
		}, 7, "are no entry", "1 2 3 4 5 7"},
		{"a state with a seq that nothing follows", func(t *testing.T, th *Thread) {
			edit(t, th, stateName, set(`{"seq":9223372036854775807,"offset":0}`))
		}, 6, "", "1 2 3 4 5 6"},
		{"the state is a directory", func(t *testing.T, th *Thread) { replaceByDir(t, th, stateName) }, 6, "state is not a regular file", "1 2 3 4 5 6"},
		{"the state is a link", func(t *testing.T, th *Thread) {
			path := th.path(threadDir, stateName)
			if err := errors.Join(os.Remove(path), os.Symlink("/dev/null", path)); err != nil {
				t.Fatal(err)
			}
		}, 6, "state is not a regular file", "1 2 3 4 5 6"},
		{"what is torn has a directory in its place", func(t *testing.T, th *Thread) {
			replaceByDir(t, th, damagedName)
			edit(t, th, logName, func(b []byte) []byte { return append(b, `{"seq":6,"at_ms":1,"author":{"mem`...) })
		}, 6, "damaged is not a regular file", "1 2 3 4 5 6"},
		{"no state", func(t *testing.T, th *Thread) { edit(t, th, stateName, set("")) }, 6, "", "1 2 3 4 5 6"},
		{"a state that is none", func(t *testing.T, th *Thread) { edit(t, th, stateName, set("\x00\x00")) }, 6, "", "1 2 3 4 5 6"},
		{"a state that is behind", func(t *testing.T, th *Thread) { edit(t, th, stateName, set(`{"seq":0,"offset":0}`)) }, 6, "", "1 2 3 4 5 6"},
		{"a state that is ahead", func(t *testing.T, th *Thread) { edit(t, th, stateName, set(`{"seq":9,"offset":99999}`)) }, 10, "was cut", "1 2 3 4 5 10"},
		{"claims that are none", func(t *testing.T, th *Thread) {
			must(th.Claims())(t)
			edit(t, th, claimsName, set("{"))
		}, 6, "", "1 2 3 4 5 6"},
		{"wakes that are none", func(t *testing.T, th *Thread) {
			if err := os.WriteFile(th.path(threadDir, wakesName), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, 6, "", "1 2 3 4 5 6"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			th, warned := prepare(t)
			c.do(t, th)
			must(th.Read(Range{}))(t)
			must(th.Read(Range{After: ptr(1)}))(t)
			must(th.End())(t)
			p := must(th.Post(Post{Author: ann, Text: "@a0 next"}))(t)
			if p.Entry.Seq != c.next {
				t.Errorf("the next post has the seq %d, want %d", p.Entry.Seq, c.next)
			}
			if !slices.ContainsFunc(*warned, func(s string) bool { return strings.Contains(s, c.warn) && strings.Contains(s, th.root.Path()) }) && c.warn != "" {
				t.Errorf("no warning of %q: %q", c.warn, *warned)
			}
			for _, r := range []Range{{}, {After: ptr(0)}, {Before: ptr(100)}} {
				if got := seqs(must(th.Read(r))(t).Entries); got != c.here {
					t.Errorf("%+v: %s, want %s", r, got, c.here)
				}
			}
			if end := must(th.End())(t); end != c.next {
				t.Errorf("end %d", end)
			}
			// Each mention is one item.
			var ids []string
			for _, it := range must(th.Inbox("a0"))(t) {
				ids = append(ids, it.ID)
			}
			if got, want := strings.Join(ids, " "), fmt.Sprintf("e5 e%d", c.next); got != want {
				t.Errorf("items %s, want %s", got, want)
			}
		})
	}
	t.Run("an item", func(t *testing.T) {
		t.Parallel()
		th, warned := prepare(t)
		must(th.Post(Post{Author: ann, Text: "@a0 six"}))(t)
		if err := os.WriteFile(th.itemPath("a0", Unread, "e5"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if items := must(th.Inbox("a0"))(t); len(items) != 1 || items[0].ID != "e6" || len(*warned) == 0 {
			t.Errorf("%+v, %q", items, *warned)
		}
		before := len(*warned)
		if it := must(th.Take("a0", Taker{}, false))(t); it.ID != "e6" {
			t.Errorf("%+v", it)
		}
		if len(*warned) != before+1 {
			t.Errorf("a take says %q", (*warned)[before:])
		}
		if last := (*warned)[len(*warned)-1]; !strings.Contains(last, "e5.json is damaged") || !strings.Contains(last, "set aside as") {
			t.Errorf("%q", last)
		}
		if _, err := os.Stat(th.path(inboxDir, "a0", ".damaged-e5.json")); err != nil {
			t.Error(err)
		}
	})
	t.Run("an inbox", func(t *testing.T) {
		t.Parallel()
		th, warned := prepare(t)
		if err := os.Symlink("/tmp", th.path(inboxDir, "a1")); err != nil {
			t.Fatal(err)
		}
		must(th.AddMember(Member{Name: "a1", Kind: Agent}))(t)
		for i := range 2 {
			if p := must(th.Post(Post{Author: ann, Text: "@a1 @a0 go"}))(t); p.Entry.Seq != int64(6+i) || len(p.Items) != 1 || p.Items[0].To != "a0" {
				t.Errorf("%+v", p)
			}
			if len(*warned) != i+1 || !strings.Contains((*warned)[i], "is not in the inbox of a1") {
				t.Errorf("%q", *warned)
			}
		}
	})
	t.Run("a member", func(t *testing.T) {
		t.Parallel()
		th, warned := prepare(t)
		if err := os.WriteFile(th.memberPath("bad"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		all := must(th.Members())(t)
		if slices.ContainsFunc(all, func(m Member) bool { return m.Name == "bad" }) || len(all) < 2 || len(*warned) != 1 || !strings.Contains((*warned)[0], "bad.json is damaged") {
			t.Errorf("%+v, %q", all, *warned)
		}
		must(th.Post(Post{Author: ann, Text: "@a0 go on"}))(t)
	})
}

// TestPrune: an answered item goes after its time, what waits stays.
func TestPrune(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 1)
	must(th.Post(Post{Author: ann, Text: "@a0 one"}))(t)
	must(th.Post(Post{Author: ann, Text: "@a0 two"}))(t)
	must(th.Answer(agent(0), "e1", "done"))(t)
	left := th.path(inboxDir, "a0", jobdir.TempPrefix+"e9.json-123")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n := must(th.Prune())(t); n != 0 {
		t.Errorf("%d went", n)
	}
	th.now = func() time.Time { return time.Now().Add(keepAnswered + time.Minute) }
	if n := must(th.Prune())(t); n != 1 {
		t.Errorf("%d went", n)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed process left is still there")
	}
	if items := must(th.Inbox("a0"))(t); len(items) != 1 || items[0].ID != "e2" {
		t.Errorf("%+v", items)
	}
}

// FuzzReadThread: whatever the file holds, it is read from both ends alike, a
// search finds what a walk finds, and the next post goes behind it all.
func FuzzReadThread(f *testing.F) {
	entry := func(n int64) string { return string(jobdir.Line(Entry{Seq: n, AtMS: n, Author: ann, Text: "x"})) }
	f.Add([]byte(entry(1)+entry(2)+entry(3)), int64(2))
	f.Add([]byte(entry(1)+"garbage\n\n"+entry(3)+`{"seq":4`), int64(3))
	f.Add([]byte("\x00\x00\n"+entry(5)+strings.Repeat("z", block+3)+"\n"+entry(7)), int64(6))
	th := newThread(f)
	path := must(th.root.MakeDir(threadDir))(f) + "/log"
	th.Warn = nil
	f.Fuzz(func(t *testing.T, b []byte, seq int64) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		file, size, err := th.openLog()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		type spot struct{ at, next int64 }
		var walked []spot
		dense, last, found := true, int64(0), size
		for r := newForward(file, 0, size); ; {
			l, err := r.next()
			if err != nil {
				break
			}
			walked = append(walked, spot{l.at, l.next})
			n, _ := seqOf(l.b)
			if dense = dense && n == last+1; n >= seq && found == size {
				found = l.at
			}
			last = n
		}
		if len(walked) > 0 && walked[len(walked)-1].next != size {
			t.Fatalf("the lines end at %d of %d", walked[len(walked)-1].next, size)
		}
		r := newBackward(file, size)
		for i := len(walked) - 1; i >= 0; i-- {
			if l, err := r.prev(); err != nil || (spot{l.at, l.next}) != walked[i] {
				t.Fatalf("line %d backwards: %+v, %v, forwards %+v", i, l, err, walked[i])
			}
		}
		if _, err := r.prev(); err == nil {
			t.Fatal("more lines backwards than forwards")
		}
		if at, err := search(file, size, seq, anySeq); err != nil || dense && at.at != found {
			t.Fatalf("entry %d is searched for at %d, %v, and is at %d", seq, at.at, err, found)
		}
		for _, r := range []Range{{}, {After: ptr(max(seq, 0))}, {Before: ptr(max(seq, 0)), N: 2}} {
			if _, err := th.Read(r); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func BenchmarkPost(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			th := longThread(b, n)
			for b.Loop() {
				must(th.Post(Post{Author: ann, Text: "one more"}))(b)
			}
		})
	}
}

func BenchmarkReadEnd(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			th := longThread(b, n)
			for b.Loop() {
				must(th.Read(Range{}))(b)
			}
		})
	}
}

// replaceByDir puts a directory that is not empty in the place of a file.
func replaceByDir(t *testing.T, th *Thread, name string) {
	t.Helper()
	path := th.path(threadDir, name)
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
}

// TestWakesThatAreNoFile: who is mentioned has the item all the same, and the
// limit is kept from then on.
func TestWakesThatAreNoFile(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	crowd(t, th, 2)
	th.Warn = func(string) {}
	replaceByDir(t, th, wakesName)
	for n := range 3 {
		p := must(th.Post(Post{Author: Author{"a0", Agent}, Text: "@a1 next"}))(t)
		if len(p.Items) != 1 {
			t.Errorf("post %d: %+v", n, p)
		}
	}
	if got := must(th.Inbox("a1"))(t); len(got) != 3 {
		t.Errorf("%+v", got)
	}
	var w writer
	w.t = th
	if got := w.recentWakes(th.now()); len(got) != 3 {
		t.Errorf("%d wakes are counted", len(got))
	}
}

// TestPruneWakes: a marker that a killed process has left, with or without the
// item, does not tell for ever of a wake that is to be run.
func TestPruneWakes(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	must(th.AddMember(Member{Name: "bob", Kind: Agent, WakeCommand: "cat"}))(t)
	put := func(n int) Item {
		return must(th.PutItem(Item{ID: string(jobID(n)), Kind: KindJobEnd, To: "bob", Text: "one", Wake: Wake{State: WakePending}}))(t)
	}
	done, pending := put(1), put(2)
	if err := th.WakeResult(done, nil, time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{done.ID, string(jobID(3))} {
		if err := os.WriteFile(th.marker("bob", id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(th.Prune())(t)
	if left := must(names(th.path(inboxDir, wakesDir)))(t); !slices.Equal(left, []string{"bob," + pending.ID}) {
		t.Errorf("left: %q", left)
	}
	if all := must(th.PendingWakes())(t); len(all) != 1 || all[0].ID != pending.ID {
		t.Errorf("pending: %+v", all)
	}
}

// TestInboxNotThereYet: who waits for the first item of a member is told by the
// kernel, as anybody else is, and need not look again and again.
func TestInboxNotThereYet(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	if _, err := th.AddMember(Member{Name: "a0", Kind: Agent}); err != nil {
		t.Fatal(err)
	}
	dir := th.path(inboxDir, "a0")
	for range 3 { // of the root, of the inboxes, of this one
		w := th.watchInbox(dir)
		if w.hints == nil {
			t.Fatal("no hints")
		}
		at := w.dir
		if at == dir {
			w.close()
			return
		}
		next := filepath.Join(at, inboxDir)
		if at != th.path() {
			next = dir
		}
		if err := os.Mkdir(next, 0o700); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.hints.C:
		case <-time.After(patience):
			t.Errorf("%s: nothing is told", at)
		}
		w.close()
	}
	t.Error("it is not found")
}

// TestLeaseOverWhileWaiting: an item comes back without a change of any file.
func TestLeaseOverWhileWaiting(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	var late atomic.Bool
	now := th.now
	th.now = func() time.Time {
		if late.Load() {
			return now().Add(2 * DefaultLease)
		}
		return now()
	}
	if _, err := th.AddMember(Member{Name: "a0", Kind: Agent}); err != nil {
		t.Fatal(err)
	}
	if _, err := th.PutItem(Item{ID: "e1", Kind: KindMention, To: "a0", Text: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := th.Take("a0", Taker{}, true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	time.AfterFunc(100*time.Millisecond, func() { late.Store(true) })
	if it, err := th.WaitItem(ctx, "a0", nil); err != nil || it.ID != "e1" {
		t.Errorf("%+v: %v", it, err)
	}
}

// TestFollower: whatever becomes of the file, a follower has each entry that is
// posted from then on, once.
func TestFollower(t *testing.T) {
	t.Parallel()
	rewrite := func(f func([]byte) []byte) func(string) error {
		return func(path string) error {
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.WriteFile(path, f(b), 0o600)
			}
			return err
		}
	}
	for name, do := range map[string]func(path string) error{
		"nothing": func(string) error { return nil },
		"torn":    rewrite(func(b []byte) []byte { return append(b, `{"seq":4,"at`...) }),
		"garbage": rewrite(func(b []byte) []byte { return append(b, "garbage\n"...) }),
		"cut":     rewrite(func(b []byte) []byte { return b[:len(b)/2] }),
		"emptied": rewrite(func([]byte) []byte { return nil }),
		"removed": os.Remove,
		"copied": func(path string) error {
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.Remove(path)
			}
			if err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			th := newThread(t)
			th.Warn = nil
			post := func(n int) (all []Entry) {
				for i := range n {
					all = append(all, must(th.Post(Post{Author: ann, Text: strings.Repeat("x", 7*i+1)}))(t).Entry)
				}
				return all
			}
			f := th.Follower(0)
			defer f.Close()
			read := func(want []Entry) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				var got []Entry
				for len(got) < len(want) && ctx.Err() == nil {
					got = append(got, must(f.Next(ctx))(t)...)
				}
				cancel()
				got = append(got, must(f.Next(ctx))(t)...)
				if seqs(got) != seqs(want) {
					t.Errorf("%s, want %s", seqs(got), seqs(want))
				}
			}
			read(post(3))
			if err := do(th.path(threadDir, logName)); err != nil {
				t.Fatal(err)
			}
			read(post(9)) // the file is longer than it was
			read(post(1))
		})
	}
}
