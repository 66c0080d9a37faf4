package api

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"space-job/cmd/internal/space"
	"space-job/notify"
)

// behind are actions on the jobs of a Space whose prefix is a script, and what is told
// meanwhile. Its pauses take no time.
func behind(t *testing.T, script string) (*Actions, *[]string) {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]space.Space{"box": {Exec: []string{"sh", "-c", script, "sh"}}})
	if err == nil {
		err = os.WriteFile(filepath.Join(root, space.File), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	told := new([]string)
	over := make(chan time.Time)
	close(over)
	a, err = a.In("box", Elsewhere{Version: "v1", Tell: func(_, text string) { *told = append(*told, text) }, pause: func(time.Duration) <-chan time.Time { return over }})
	if err != nil {
		t.Fatal(err)
	}
	return a, told
}

// TestPatience: what follows goes on trying, for a time, and says so once; what is
// read once gives up soon; and nobody tries again what has never been reached.
func TestPatience(t *testing.T) {
	t.Parallel()
	calls := filepath.Join(t.TempDir(), "calls")
	count := func() int {
		b, _ := os.ReadFile(calls)
		return strings.Count(string(b), "\n")
	}
	const hello = `echo '{"space_job":"v1","format":1}'`
	a, told := behind(t, `echo >>`+calls+`; `+hello+`; echo gone >&2; exit 1`)
	err := a.Follow(t.Context(), LogsRequest{Job: "j6c1f0a2b9d3e"}, func(*LogsResult) error { return nil })
	if e := AsError(err); e.Code != Unavailable || !strings.Contains(e.Message, "space box: the connection was lost") || !strings.Contains(e.Message, "gone") ||
		e.Hint != "read on from where you were: space-job --space box logs j6c1f0a2b9d3e" {
		t.Errorf("%+v", e)
	}
	if n := count(); n < 10 || n > 30 {
		t.Errorf("%d tries to follow", n)
	}
	if len(*told) != 1 || !strings.Contains((*told)[0], "it is tried again") {
		t.Errorf("told %q", *told)
	}
	before := count()
	if _, err := a.Status(""); err == nil {
		t.Error("a status")
	}
	if n := count() - before; n < 2 || n > 10 || len(*told) != 1 {
		t.Errorf("%d tries to read, %q", n, *told)
	}
	before = count()
	if _, err := a.Start(StartRequest{Command: "true"}); err == nil || !strings.Contains(err.Error(), "may have been done") {
		t.Errorf("a start: %v", err)
	}
	if n := count() - before; n != 1 {
		t.Errorf("%d tries to start", n)
	}

	a, told = behind(t, `echo >>`+calls+`.never; exit 1`)
	if _, err := a.Wait(t.Context(), WaitRequest{Jobs: []string{"ffff"}}); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(calls + ".never"); err != nil || string(b) != "\n" || len(*told) != 0 {
		t.Errorf("%q, %v, %q", b, err, *told)
	}
}

// TestOverThere: the hints of a Space are for somebody who is here.
func TestOverThere(t *testing.T) {
	t.Parallel()
	w := &elsewhere{space: space.Space{Name: "box"}}
	for hint, want := range map[string]string{
		"":                     "",
		"give more digits":     "give more digits",
		"see: space-job list.": "see: space-job --space box list.",
		"space-job wait ID; or space-job logs -f": "space-job --space box wait ID; or space-job --space box logs -f",
		"space-job daemon stop ends it":           "in the Space box: space-job daemon stop ends it",
		"space-job list, then space-job prune":    "in the Space box: space-job list, then space-job prune",
		"space-job --space box list":              "space-job --space box list",
	} {
		if got := w.overThere(hint); got != want {
			t.Errorf("%q: %q, want %q", hint, got, want)
		}
	}
}

// TestNothingUnreadable: what JSON has no form for is refused, not changed.
func TestNothingUnreadable(t *testing.T) {
	t.Parallel()
	a, _ := behind(t, `exit 1`)
	for _, req := range []StartRequest{
		{Command: "echo \xff"}, {Argv: []string{"echo", "\xff"}}, {Command: "true", Env: []string{"A=\xff"}}, {Command: "true", Name: "\xff"},
		{Command: "true", Cwd: "/\xff"}, {Until: &Condition{File: "\xff"}},
	} {
		if _, err := a.Start(req); err == nil || AsError(err).Code != InvalidArgument || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if _, err := a.Cancel(context.Background(), CancelRequest{Jobs: []string{"ffff"}, Reason: "\xff"}); err == nil || AsError(err).Code != InvalidArgument {
		t.Errorf("%v", err)
	}
	// What is wrong wherever it goes is said before anybody is asked.
	for _, req := range []StartRequest{{}, {Command: " "}, {Command: "true", Env: []string{"=x"}}, {Command: "true", Approval: "x"}, {Command: "true", Until: &Condition{File: "x"}}} {
		if _, err := a.Start(req); err == nil || AsError(err).Code != InvalidArgument {
			t.Errorf("%+v: %v", req, err)
		}
	}
}

// FuzzRequest: a request is understood as it was made, or refused.
func FuzzRequest(f *testing.F) {
	f.Add("echo 'a'", "A=b\nc", "/tmp", int64(1500), true)
	f.Fuzz(func(t *testing.T, command, env, cwd string, ms int64, writes bool) {
		ask := askStart{Format: 1, Command: command, Env: []string{env}, Cwd: cwd, TimeoutMS: ms}
		if ask.legible() != nil {
			return
		}
		b, err := json.Marshal(ask)
		if err != nil {
			t.Fatal(err)
		}
		var got askStart
		if err := decodeRequest(b, &got, &got.Format, writes); err != nil || !reflect.DeepEqual(got, ask) {
			t.Errorf("%+v, %v, want %+v", got, err, ask)
		}
		if err := decodeRequest(b[:len(b)-1], &got, &got.Format, writes); err == nil {
			t.Error("half a request")
		}
		_ = decodeRequest([]byte(command), &got, &got.Format, writes)
	})
}

// TestWaitThereThatDoesNotWait: a Space that answers at once that a job runs is asked
// after longer and longer pauses.
func TestWaitThereThatDoesNotWait(t *testing.T) {
	t.Parallel()
	a, _ := behind(t, `echo '{"space_job":"v1","format":1}'; read l; echo '{"result":{"jobs":[{"job":"j6c1f0a2b9d3e","state":"running"}],"code":0}}'`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var pauses []time.Duration
	a.away.pause = func(d time.Duration) <-chan time.Time {
		if pauses = append(pauses, d); len(pauses) == 3 {
			cancel()
			return nil
		}
		over := make(chan time.Time)
		close(over)
		return over
	}
	_, err := a.Wait(ctx, WaitRequest{Jobs: []string{"j6c1f0a2b9d3e"}, Timeout: 10 * time.Second})
	if want := []time.Duration{firstPause, 2 * firstPause, 4 * firstPause}; err == nil || !reflect.DeepEqual(pauses, want) {
		t.Errorf("%v, pauses %v", err, pauses)
	}
}

// TestSenseless: an answer that no space-job gives to what was asked is an error,
// whatever is asked, and a state or id of it is never passed on. What a newer one
// knows is.
func TestSenseless(t *testing.T) {
	t.Parallel()
	const id, other = "j6c1f0a2b9d3e", "j222222222222"
	answer := filepath.Join(t.TempDir(), "answer")
	a, told := behind(t, `read l; echo '{"space_job":"v1","format":'"$(cat `+answer+`.format)"'}'; cat `+answer)
	start, _ := behind(t, `echo '{"space_job":"v1","format":1}'; read l; cat `+answer)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asks := map[string]func() error{
		"start":  func() error { _, err := start.Start(StartRequest{Command: "true"}); return err },
		"cancel": func() error { _, err := start.Cancel(t.Context(), CancelRequest{Jobs: []string{id}}); return err },
		"logs": func() error {
			at := int64(7)
			_, err := a.Logs(t.Context(), LogsRequest{Job: "9d3e", Offset: &at})
			return err
		},
		"status":      func() error { _, err := a.Status("9d3e"); return err },
		"status json": func() error { _, _, err := a.StatusDocument(id); return err },
		"message":     func() error { _, err := a.EndMessage(id); return err },
		"list":        func() error { _, err := a.List(ListRequest{}); return err },
		"wait":        func() error { _, err := a.Wait(t.Context(), WaitRequest{Jobs: []string{id}, Look: true}); return err },
		"wait any": func() error {
			_, err := a.Wait(t.Context(), WaitRequest{Jobs: []string{id, "ffff"}, Any: true, Look: true})
			return err
		},
	}
	const exited = `"state":"exited","exit_code":0`
	for what, answers := range map[string][]string{
		"start":       {`{}`, `null`, `{"job":"../../x",` + exited + `}`, `{"job":"` + id + `"}`},
		"cancel":      {`[]`, `null`, `[{"job":"` + other + `",` + exited + `}]`, `[{"job":"` + id + `","state":"x\u001b[31m"}]`},
		"logs":        {`{}`, `{"job":"` + other + `",` + exited + `,"offset":7,"next_offset":7}`, `{"job":"` + id + `",` + exited + `,"offset":7,"next_offset":-1}`, `{"job":"` + id + `",` + exited + `,"offset":2,"next_offset":5}`},
		"status":      {`{}`, `null`, `{"job":"` + other + `",` + exited + `}`, `{"job":"` + id + `","state":"exotic"}`, `{"job":"` + id + `",` + exited + `,"signal":"a\nb"}`},
		"status json": {`{}`, `null`, `[1]`, `{"job":"` + other + `",` + exited + `}`},
		"message":     {`{"job":"` + id + `",` + exited + `,"message":{"text":"` + strings.Repeat("x", maxEndText+1) + `"}}`},
		"list":        {`{"jobs":[{"job":"../x",` + exited + `}]}`, `{"jobs":[{"job":"` + id + `","state":"\u001b[31m"}]}`, `{"more":-4}`},
		"wait":        {`{}`, `{"jobs":[]}`, `{"jobs":[{"job":"` + other + `",` + exited + `}]}`, `{"jobs":[{"job":"` + id + `",` + exited + `},{"job":"` + id + `",` + exited + `}]}`, `{"jobs":[{"job":"` + id + `",` + exited + `}],"code":777}`},
		"wait any":    {`{"jobs":[]}`, `{"jobs":[{"job":"` + other + `",` + exited + `}]}`},
	} {
		for _, s := range answers {
			write(answer+".format", "1")
			write(answer, `{"result":`+s+`}`)
			err := asks[what]()
			if err == nil {
				t.Errorf("%s: %.100s is believed", what, s)
				continue
			}
			e := AsError(err)
			if e.Code != IO || !strings.HasPrefix(e.Message, "space box: its answer ") || e.Hint == "" || strings.ContainsAny(e.Message, "\n\x1b") {
				t.Errorf("%s: %.100s: %+v", what, s, e)
			}
			if may := strings.Contains(e.Message, "may have been done"); may != (what == "start" || what == "cancel") {
				t.Errorf("%s: %q", what, e.Message)
			}
		}
	}
	write(answer+".format", "1")
	write(answer, `{"result":{"job":"`+id+`","state":"running","message":{"text":"it ended"}}}`)
	if err := asks["message"](); !errors.Is(err, notify.ErrNotEnded) { // it did so after its state was looked at
		t.Errorf("a job that ends during the look: %v", err)
	}
	write(answer+".format", "99")
	write(answer, `{"result":{"job":"`+id+`","state":"exotic"},"hints":["see space-job list"]}`)
	if err := asks["status"](); err != nil {
		t.Errorf("a newer state: %v", err)
	}
	if n := len(*told); n == 0 || (*told)[n-1] != "see space-job --space box list" {
		t.Errorf("told %q", *told)
	}
}

// TestFollowThereThatDoesNotWait: the same of a Space that has nothing more of a log
// at once, or says that it has and gives none.
func TestFollowThereThatDoesNotWait(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"true", "false"} {
		a, _ := behind(t, `echo '{"space_job":"v1","format":1}'; read l; echo '{"result":{"job":"j6c1f0a2b9d3e","state":"running","more":`+more+`}}'`)
		ctx, cancel := context.WithCancel(t.Context())
		var pauses []time.Duration
		a.away.pause = func(d time.Duration) <-chan time.Time {
			if pauses = append(pauses, d); len(pauses) == 3 {
				cancel()
				return nil
			}
			over := make(chan time.Time)
			close(over)
			return over
		}
		err := a.Follow(ctx, LogsRequest{Job: "j6c1f0a2b9d3e"}, func(*LogsResult) error { return nil })
		cancel()
		if want := []time.Duration{firstPause, 2 * firstPause, 4 * firstPause}; err == nil || !reflect.DeepEqual(pauses, want) {
			t.Errorf("more %s: %v, pauses %v", more, err, pauses)
		}
	}
}
