package thread

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"space-job/jobdir"
)

// The test binary is also the other processes of the tests: an order in the
// environment says what to do, and where to die.
const envOrder = "THREAD_TEST_ORDER"

func TestMain(m *testing.M) {
	if s := os.Getenv(envOrder); s != "" {
		os.Exit(obey(s))
	}
	os.Exit(m.Run())
}

// order is what another process does.
type order struct {
	Root   string
	Do     string // post, claim, job, jobs, put, take, answer, woken
	Author Author
	Text   string
	Item   string
	N      int    // of post and jobs: so many
	Crash  string // die at this point
	Ready  bool   // say so, and wait for the end of stdin
	Limit  uint64 // the largest size of a file, 0: none
	Unsure bool   // what is appended cannot be synced
}

// unsync makes the sync of the thread fail, where a test can do that.
var unsync func(o order)

func obey(s string) int {
	var o order
	err := json.Unmarshal([]byte(s), &o)
	if err != nil {
		fmt.Println(err)
		return 2
	}
	root, err := jobdir.OpenRoot(o.Root)
	if err != nil {
		fmt.Println(err)
		return 2
	}
	th := Open(root)
	th.Warn = func(s string) { fmt.Println("warning:", s) }
	if o.Crash != "" {
		testOnlyCrash = func(point string) {
			if point == o.Crash {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
	if o.Limit > 0 {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: o.Limit, Max: o.Limit}); err != nil {
			fmt.Println(err)
			return 2
		}
	}
	if o.Unsure {
		testOnlyCrash = func(point string) {
			if point == "post.appended" {
				unsync(o)
			}
		}
	}
	if o.Ready {
		fmt.Println("ready")
		var b [1]byte
		_, _ = os.Stdin.Read(b[:])
	}
	switch o.Do {
	case "post", "claim":
		for range max(o.N, 1) {
			var p Posted
			if p, err = th.Post(Post{Author: o.Author, Text: o.Text, Claims: o.Do == "claim"}); err != nil {
				break
			}
			fmt.Println(p.Entry.Seq)
		}
	case "job":
		_, _, err = th.PostJob(JobEnd{Job: jobdir.ID(o.Item), Text: o.Text})
	case "jobs":
		var ends []JobEnd
		for i := range o.N {
			ends = append(ends, JobEnd{Job: jobdir.ID(fmt.Sprintf("j%012x", i+1)), Text: o.Text})
		}
		_, err = th.PostJobs(ends)
	case "put":
		_, err = th.PutItem(Item{ID: o.Item, Kind: KindJobEnd, To: o.Author.Member, Text: o.Text, Wake: Wake{State: WakePending}})
	case "take":
		_, err = th.Take(o.Author.Member, Taker{}, false)
	case "answer":
		_, err = th.Answer(o.Author, o.Item, o.Text)
	case "woken":
		var it Item
		if it, err = th.Item(o.Author.Member, o.Item); err == nil {
			err = th.WakeResult(it, nil, time.Time{})
		}
	default:
		err = errors.New("no such order: " + o.Do)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// command is another process, ready to be started.
func command(t testing.TB, o order) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), envOrder+"="+string(b))
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	return c, &out
}

// killed runs an order and reports whether the process was killed at its point.
func killed(t testing.TB, o order) bool {
	t.Helper()
	c, out := command(t, o)
	err := c.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signal() == syscall.SIGKILL {
			return true
		}
	}
	if err != nil {
		t.Fatalf("%+v: %v\n%s", o, err, out)
	}
	return false
}

// contents are all entries, which must be 1, 2, 3, ...
func contents(t testing.TB, th *Thread) []Entry {
	t.Helper()
	var all []Entry
	after := int64(0)
	for {
		r := must(th.Read(Range{After: &after, N: MaxRead}))(t)
		if len(r.Entries) == 0 {
			break
		}
		all = append(all, r.Entries...)
		after = r.Cursor
	}
	for i, e := range all {
		if e.Seq != int64(i+1) {
			t.Fatalf("entry %d has the seq %d", i+1, e.Seq)
		}
	}
	return all
}

func texts(entries []Entry) string {
	all := make([]string, len(entries))
	for i, e := range entries {
		all[i] = e.Text
	}
	return strings.Join(all, "|")
}
