package thread

import (
	"os"
	"strings"
	"testing"

	"space-job/jobdir"
)

// TestShortWrite: of entries that are written together, those for which there
// was room are there, since somebody may have read them, and keep their numbers.
func TestShortWrite(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	say(t, th, "one")
	c, out := command(t, order{Root: th.root.Path(), Do: "jobs", N: 3, Text: strings.Repeat("x", 4000), Limit: 10_000})
	if err := c.Run(); err == nil || !strings.Contains(out.String(), "file too large") {
		t.Fatalf("%v: %s", err, out)
	}
	if all := contents(t, th); len(all) != 3 || all[1].Key != "j000000000001" || all[2].Key != "j000000000002" {
		t.Fatalf("%d entries: %s", len(all), texts(all))
	}
	if p := say(t, th, "four"); p.Entry.Seq != 4 {
		t.Errorf("the next is %d", p.Entry.Seq)
	}
	var ends []JobEnd
	for _, id := range []string{"j000000000001", "j000000000002", "j000000000003"} {
		ends = append(ends, JobEnd{Job: jobdir.ID(id), Text: "again"})
	}
	done, err := th.PostJobs(ends)
	if err != nil || done[0] != (PostedJob{2, true}) || done[1] != (PostedJob{3, true}) || done[2] != (PostedJob{5, false}) {
		t.Errorf("%v, %v", done, err)
	}
	contents(t, th)
}

// TestUnconfirmed: an entry that the disk does not confirm can be read, so it
// stays, and its poster is told.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	if unsync == nil {
		t.Skip("a sync cannot be made to fail here")
	}
	for _, o := range []order{{Do: "post", Author: ann, Text: "hello"}, {Do: "job", Item: "j000000000001", Text: "JOB"}} {
		t.Run(o.Do, func(t *testing.T) {
			t.Parallel()
			th := newThread(t)
			say(t, th, "one")
			o.Root, o.Unsure = th.root.Path(), true
			c, out := command(t, o)
			if err := c.Run(); err != nil || !strings.Contains(out.String(), "warning: entry 2") || !strings.Contains(out.String(), "the disk has not confirmed it") {
				t.Errorf("%v: %s", err, out)
			}
			if p := say(t, th, "three"); p.Entry.Seq != 3 {
				t.Errorf("the next is %d", p.Entry.Seq)
			}
			contents(t, th)
		})
	}
}

func say(t *testing.T, th *Thread, text string) Posted {
	t.Helper()
	p, err := th.Post(Post{Author: ann, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestMentionOfUnreadable: whether there is such a member cannot be told, so
// nobody is told that there is none, and the mention is not lost.
func TestMentionOfUnreadable(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	if _, err := th.AddMember(Member{Name: "bob", Kind: Agent}); err != nil {
		t.Fatal(err)
	}
	th.Warn = nil // of the damaged file
	path := th.memberPath("bob")
	if err := os.WriteFile(path, []byte(`{"name":"bob","ki`), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := th.Post(Post{Author: ann, Text: "@Bob please"}); err == nil || !strings.Contains(err.Error(), "text: @Bob: the member cannot be read") {
		t.Errorf("%+v, %v", p, err)
	}
	say(t, th, "nobody is meant")
	if _, err := th.AddMember(Member{Name: "bob", Kind: Agent}); err != nil {
		t.Fatal(err)
	}
	if p := say(t, th, "@Bob please"); p.Entry.Seq != 2 || len(p.Items) != 1 {
		t.Errorf("%+v", p)
	}
	for _, name := range []string{"daemon", "Daemon", "DAEMON"} {
		if _, err := th.AddMember(Member{Name: name, Kind: Agent}); err == nil {
			t.Errorf("%s is a member", name)
		}
	}
}
