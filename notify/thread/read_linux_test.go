package thread

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// bytesRead is how much this process has read so far, from caches too.
func bytesRead(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skipf("the kernel does not count what is read: %v", err)
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(line, "rchar: "); ok {
			v, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Skip("the kernel does not count what is read")
	return 0
}

// TestN5ThousandsOfMessages: with 100,000 entries there, reading and posting
// cost what they read and write. Nothing else may read at that time, so it is
// not parallel.
func TestN5ThousandsOfMessages(t *testing.T) {
	const n = 100_000
	th := longThread(t, n)
	info, err := os.Stat(th.path(threadDir, logName))
	if err != nil {
		t.Fatal(err)
	}
	const most = 1 << 20 // 17 looks of a search of one block each, the entries, and room
	if info.Size() < 20*most {
		t.Fatalf("the thread has only %d bytes", info.Size())
	}
	cost := func(what string, f func()) {
		t.Helper()
		before := bytesRead(t)
		f()
		if got := bytesRead(t) - before; got > most {
			t.Errorf("%s reads %d bytes of %d", what, got, info.Size())
		}
	}
	want := func(r Range, first int64) func() {
		return func() {
			t.Helper()
			if got := must(th.Read(r))(t); len(got.Entries) == 0 || got.Entries[0].Seq != first {
				t.Errorf("%+v: %s", r, seqs(got.Entries))
			}
		}
	}
	cost("the end", want(Range{}, n-49))
	cost("after a cursor near the end", want(Range{After: ptr(n - 10)}, n-9))
	cost("after a cursor in the middle", want(Range{After: ptr(n / 2)}, n/2+1))
	cost("after a cursor near the beginning", want(Range{After: ptr(3)}, 4))
	cost("before a cursor", want(Range{Before: ptr(n / 3)}, n/3-50))
	cost("the newest seq", func() { must(th.End())(t) })
	cost("a post", func() { must(th.Post(Post{Author: ann, Text: "@a0 one more", ReplyTo: n / 2}))(t) })
	cost("a claim", func() {
		must(th.Post(Post{Author: ann, Text: "CLAIM x | files: a | until: 1h", Claims: true}))(t)
	})
	cost("the live claims", func() {
		if got := claimsOf(t, th); got != "ann:x" {
			t.Errorf("claims %q", got)
		}
	})
	cost("the end of a job", func() {
		if seq, _, err := th.PostJob(JobEnd{Job: jobID(1), Text: "JOB", After: n}); seq != n+3 || err != nil {
			t.Errorf("%d, %v", seq, err)
		}
	})
	cost("an answer", func() { must(th.Answer(agent(0), "e"+strconv.Itoa(n+1), "done"))(t) })
	cost("waiting wakes", func() { must(th.PendingWakes())(t) })
}
