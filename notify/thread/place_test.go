package thread

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"context"

	"space-job/jobdir"
)

// TestDamagedNumber: a line whose number is another than its place allows is no
// entry, and hides no other from anybody: neither from who reads, pages, follows
// or replies, nor from who looks whether a job's end is there.
func TestDamagedNumber(t *testing.T) {
	t.Parallel()
	const all = 12
	for _, at := range []int64{1, 2, 6, 11, 12} {
		for _, damaged := range []string{"1", "5", "6", "7", "8", "11", "12", "13", "14", "91", "9007199254740992", "0", "-3", "x"} {
			if damaged == fmt.Sprint(at) {
				continue
			}
			t.Run(fmt.Sprintf("%d to %s", at, damaged), func(t *testing.T) {
				t.Parallel()
				th := newThread(t)
				var ends []JobEnd
				for i := range all {
					ends = append(ends, JobEnd{Job: jobID(i + 1), Text: "JOB"})
				}
				if _, err := th.PostJobs(ends); err != nil {
					t.Fatal(err)
				}
				path := th.path(threadDir, logName)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				lines := bytes.SplitAfter(b, []byte{'\n'})
				was := fmt.Sprintf(`{"seq":%d,`, at)
				line := strings.Replace(string(lines[at-1]), was, `{"seq":`+damaged+`,`, 1)
				lines[at-1] = []byte(line)
				if err := os.WriteFile(path, bytes.Join(lines, nil), 0o600); err != nil {
					t.Fatal(err)
				}

				th = openThread(t, th.root.Path())
				var mu sync.Mutex
				warned := 0
				th.Warn = func(string) { mu.Lock(); warned++; mu.Unlock() }
				want := func(what string, got []Entry) {
					t.Helper()
					var seqs []int64
					for _, e := range got {
						seqs = append(seqs, e.Seq)
					}
					n := int64(0)
					for _, seq := range seqs {
						if n++; n == at {
							n++
						}
						if seq != n {
							break
						}
					}
					if len(seqs) != all-1 || seqs[len(seqs)-1] != n {
						t.Errorf("%s: %v", what, seqs)
					}
				}
				res, err := th.Read(Range{})
				if err != nil || warned == 0 {
					t.Errorf("%v, %d warnings", err, warned)
				}
				want("newest", res.Entries)
				var paged []Entry
				warned = 0
				for cursor := int64(0); ; {
					res, err := th.Read(Range{After: &cursor, N: 2})
					if err != nil || len(res.Entries) == 0 || len(paged) > all {
						break
					}
					paged, cursor = append(paged, res.Entries...), res.Cursor
				}
				want("paged", paged)
				if warned == 0 {
					t.Error("who pages is not told of the damage")
				}
				f := th.Follower(0)
				defer f.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				followed, err := f.Next(ctx)
				if err != nil {
					t.Error(err)
				}
				want("followed", followed)

				ends = ends[:0]
				for i := range all {
					if int64(i+1) != at {
						ends = append(ends, JobEnd{Job: jobID(i + 1), Text: "again"})
					}
				}
				done, err := th.PostJobs(ends)
				if err != nil {
					t.Fatal(err)
				}
				for i, d := range done {
					if !d.Existed {
						t.Errorf("the end of %s is posted again, as %d", ends[i].Job, d.Seq)
					}
				}
				for seq := range int64(all) {
					_, err := th.Post(Post{Author: ann, Text: "yes", ReplyTo: seq + 1})
					if (err == nil) != (seq+1 != at) {
						t.Errorf("reply to %d: %v", seq+1, err)
					}
				}
				entries, err := f.Next(ctx)
				if err != nil || len(entries) != all-1 || entries[0].Seq <= all {
					t.Errorf("followed: %v, %v", entries, err)
				}
			})
		}
	}
}

// TestPairs: a gap in the numbers, as a file that was cut leaves it, hides nothing.
func TestPairs(t *testing.T) {
	t.Parallel()
	entry := func(n int64) string { return string(jobdir.Line(Entry{Seq: n, AtMS: n, Author: ann, Text: "x"})) }
	for _, c := range []struct {
		name  string
		lines []string
		limit int64
		want  []int64
	}{
		{"dense", []string{entry(1), entry(2), entry(3)}, 3, []int64{1, 2, 3}},
		{"begins later", []string{entry(7), entry(8)}, 8, []int64{7, 8}},
		{"one, later", []string{entry(7)}, 7, []int64{7}},
		{"one, too high", []string{entry(8)}, 7, nil},
		{"gap", []string{entry(1), entry(5), entry(6)}, 6, []int64{1, 5, 6}},
		{"gap at the end", []string{entry(1), entry(5)}, 5, []int64{1, 5}},
		{"too high at the end", []string{entry(1), entry(5)}, 2, []int64{1}},
		{"two lines in one", []string{entry(1), "#\n", entry(4), entry(5)}, 5, []int64{1, 4, 5}},
		{"one line in two", []string{entry(1), "#\n", "#\n", entry(3), entry(4)}, 4, []int64{1, 3, 4}},
		{"many lines of one", append(append([]string{entry(1)}, strings.SplitAfter(strings.Repeat("#\n", 50), "\n")[:50]...), entry(2), entry(3)), 3, []int64{1, 2, 3}},
		{"twice", []string{entry(1), entry(2), entry(2), entry(3)}, 3, []int64{1, 2, 3}},
		{"backwards", []string{entry(3), entry(2), entry(1)}, 3, []int64{2}},
	} {
		path := t.TempDir() + "/log"
		text := strings.Join(c.lines, "")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		limit := func() int64 { return c.limit }
		var got []int64
		for w := newWalk(f, place{}, int64(len(text)), limit); ; {
			_, seq, err := w.next()
			if err != nil {
				break
			}
			if seq > 0 {
				got = append(got, seq)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		for _, seq := range c.want {
			from, err := search(f, int64(len(text)), seq, limit)
			if err != nil {
				t.Fatal(err)
			}
			w := newWalk(f, from, int64(len(text)), limit)
			for {
				_, n, err := w.next()
				if err != nil || n > seq {
					t.Errorf("%s: %d is not found from %d on", c.name, seq, from.at)
					break
				}
				if n == seq {
					break
				}
			}
		}
	}
}
