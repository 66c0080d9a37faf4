package until

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

func TestUntilJob(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		exit string
		code int
		what string
	}{
		{exited(0), 0, "exited exit=0"},
		{exited(7), 7, "exited exit=7"},
		{ended(jobdir.TimedOut), 124, "timed_out"},
		{ended(jobdir.Cancelled), 143, "cancelled"},
		{"", 125, "lost"},
	} {
		r := newRoot(t)
		j, end := runningJob(t, r, "")
		w := begin(t, r, Condition{Job: string(j.ID())}, nil)
		w.says("waiting for job " + string(j.ID()))
		w.goesOn()
		end(c.exit)
		w.ends(c.code, c.what)
		begin(t, r, Condition{Job: string(j.ID())}, nil).ends(c.code, c.what)
		few(t, w, 2)
	}
}

// TestUntilJobRemoved: a job that is gone never ends.
func TestUntilJobRemoved(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j, _ := runningJob(t, r, "")
	w := begin(t, r, Condition{Job: string(j.ID())}, nil)
	l := begin(t, r, Condition{Log: string(j.ID()), Match: "x"}, nil)
	w.says("waiting")
	l.says("waiting")
	if err := os.Rename(j.Dir(), filepath.Join(filepath.Dir(j.Dir()), record.GonePrefix+string(j.ID()))); err != nil {
		t.Fatal(err)
	}
	w.ends(2, "is gone")
	l.ends(2, "is gone")
}

func TestUntilLog(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j, end := runningJob(t, r, "starting\n")
	log := filepath.Join(j.Dir(), record.Log)
	// Nothing but the end of a line counts, and what a terminal would show.
	w := begin(t, r, Condition{Log: string(j.ID()), Match: "^ready in [0-9]+ ms$"}, func(w *watcher) { w.quiet = time.Hour })
	never := begin(t, r, Condition{Log: string(j.ID()), Match: "starting.*ready"}, nil)
	w.says("waiting")
	appendTo(t, log, "not ready in 5 ms\n\x1b[32mready\x1b[0m in 3")
	time.Sleep(50 * time.Millisecond) // that nothing happens can only be waited for
	w.goesOn()
	appendTo(t, log, "00 ms\r\n")
	w.ends(0, "matches: ready in 300 ms")
	begin(t, r, Condition{Log: string(j.ID()), Match: "^starting$"}, nil).ends(0, "matches: starting")
	never.goesOn()
	// The last line of a job that ends counts without its newline.
	last := begin(t, r, Condition{Log: string(j.ID()), Match: "bye$"}, func(w *watcher) { w.quiet = time.Hour })
	appendTo(t, log, "good bye")
	last.goesOn()
	end(exited(0))
	last.ends(0, "matches: good bye")
	never.ends(1, "has ended (exited) and no line of its log matched")
	begin(t, r, Condition{Log: string(j.ID()), Match: "nope"}, nil).ends(1, "no line of its log matched")
}

// TestUntilLogPrompt: a line that nobody ends is looked at when it stays.
func TestUntilLogPrompt(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j, _ := runningJob(t, r, "a\npassword: ")
	begin(t, r, Condition{Log: string(j.ID()), Match: "^password: $"}, func(w *watcher) { w.quiet = 20 * time.Millisecond }).ends(0, "password:")
}

// TestUntilLogCut: a log that somebody empties goes on at its new end.
func TestUntilLogCut(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j, _ := runningJob(t, r, strings.Repeat("some line\n", 1000))
	log := filepath.Join(j.Dir(), record.Log)
	w := begin(t, r, Condition{Log: string(j.ID()), Match: "ready"}, nil)
	w.says("waiting")
	if err := os.Truncate(log, 0); err != nil {
		t.Fatal(err)
	}
	within(t, "ready", func() bool { // it is not known when the cut is seen
		appendTo(t, log, "ready\n")
		select {
		case <-w.done:
			return true
		default:
			return false
		}
	})
	w.ends(0, "matches: ready")
}

// TestScanner: however the pieces fall, the same lines are found.
func TestScanner(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*maxScanned)
	text := "one\ntwo ready\n" + long + " deep " + long + "\nlast"
	for _, c := range []struct {
		re   string
		want bool
	}{{"^two ready$", true}, {"ready$", true}, {"one.*two", false}, {"deep", true}, {"^last", false}, {"(?m)^one$", true}} {
		for _, size := range []int{1, 2, 7, 1000, 1 << 20} {
			if size < 1000 && len(c.re) > 3 && c.re != "^two ready$" && c.re != "ready$" {
				continue
			}
			s := scanner{re: regexp.MustCompile(c.re)}
			found := false
			for at := 0; at < len(text) && !found; at += size {
				_, found = s.next([]byte(text[at:min(at+size, len(text))]))
			}
			if found != c.want {
				t.Errorf("%s in pieces of %d: %v", c.re, size, found)
			}
			if len(s.held) > 2*maxScanned {
				t.Errorf("%d bytes are held", len(s.held))
			}
		}
	}
	s := scanner{re: regexp.MustCompile("^last$")}
	if _, ok := s.next([]byte("x\nla")); ok {
		t.Error("half a line")
	}
	if _, ok := s.unfinished(); ok {
		t.Error("half a line")
	}
	s.next([]byte("st"))
	if line, ok := s.unfinished(); !ok || line != "last" {
		t.Errorf("%q, %v", line, ok)
	}
	if _, ok := s.unfinished(); ok {
		t.Error("the same line twice")
	}
}
