package thread

import "testing"

// TestPostKey: a post that is tried again under its key is the one that is there,
// also where what it says would be refused by now.
func TestPostKey(t *testing.T) {
	t.Parallel()
	s := newThread(t)
	for _, name := range []string{"ann", "bob"} {
		must(s.AddMember(Member{Name: name, Kind: Agent}))(t)
	}
	p := Post{Author: Author{"ann", Agent}, Text: "@bob look\nCLAIM parser | files: a | until: 1h", Key: "link/ann/1"}
	first, err := s.Post(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Post(Post{Author: Author{"bob", Agent}, Text: "between"}); err != nil {
		t.Fatal(err)
	}
	p.Text = "@ann" // an agent that mentions itself is refused
	for _, th := range []*Thread{s, s.Again(), Open(s.root)} {
		again, err := th.Post(p)
		if err != nil || again.Entry.Seq != first.Entry.Seq || again.Entry.Text != first.Entry.Text ||
			len(again.Items) != 1 || again.Items[0].To != "bob" || len(again.Claims) != 1 || !again.Claims[0].Live {
			t.Errorf("%+v, %v", again, err)
		}
	}
	if end, err := s.End(); err != nil || end != 2 {
		t.Errorf("%d entries, %v", end, err)
	}
	p.After = 2
	p.Text = "after that one there is none"
	if res, err := s.Post(p); err != nil || res.Entry.Seq != 3 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestJobsOfSpaces: two Spaces may have a job of one id.
func TestJobsOfSpaces(t *testing.T) {
	t.Parallel()
	s := newThread(t)
	for i, want := range []string{"j6c1f0a2b9d3e", "a/j6c1f0a2b9d3e", "b/j6c1f0a2b9d3e"} {
		for _, existed := range []bool{false, true} {
			space := want[:max(0, len(want)-14)]
			seq, was, err := s.PostJob(JobEnd{Job: "j6c1f0a2b9d3e", Space: space, Text: "JOB"})
			if err != nil || was != existed || seq != int64(i)+1 {
				t.Errorf("%s: %d, %v, %v", want, seq, was, err)
			}
		}
	}
	read, err := s.Read(Range{})
	if err != nil || len(read.Entries) != 3 || read.Entries[1].Key != "a/j6c1f0a2b9d3e" || read.Entries[1].Job != "j6c1f0a2b9d3e" {
		t.Errorf("%+v, %v", read, err)
	}
}
