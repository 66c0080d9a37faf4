package space

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

func TestMain(m *testing.M) {
	helloWithin, answerWithin, endWithin = 10*time.Second, 10*time.Second, 5*time.Second
	os.Exit(m.Run())
}

// behind is a Space whose prefix is a script. Its words are those of the call.
func behind(script string) *Space { return &Space{Name: "x", Exec: []string{"sh", "-c", script, "sh"}} }

const hello = `echo '{"space_job":"v9","format":1}'`

func TestDo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		writes       bool
		result       string
		kind         Kind
		sent         bool
		words        string // that the error has
	}{
		{name: "words and request", script: hello + `; read -r line; printf '{"result":["%s",%s]}\n' "$*" "$line"`,
			result: `["space-job list --request - --json",{"a":"b c"}]`},
		{name: "a request that waits for the hello", writes: true, script: hello + `; read -r line; printf '{"result":%s}\n' "$line"`, result: `{"a":"b c"}`},
		{name: "a login that talks", script: `echo welcome; echo '{"motd":true}'; ` + hello + `; echo '{"result":1}'`, result: `1`},
		{name: "much on stderr", script: `head -c 300000 /dev/zero | tr '\0' e >&2; ` + hello + `; echo '{"result":1}'`, result: `1`},
		{name: "a newer format is read", script: `echo '{"space_job":"v9","format":7,"more":1}'; echo '{"result":1,"more":2}'`, result: `1`},
		{name: "and not written", writes: true, script: `echo '{"space_job":"v9","format":7}'; read -r line && echo '{"result":1}'`, kind: Newer, words: "format 7"},
		{name: "refused by ssh", script: `echo banner >&2; echo 'ann@box: Permission denied (publickey).' >&2; exit 255`, kind: Unreachable, words: "ann@box: Permission denied (publickey)."},
		{name: "dies in silence", script: `kill -9 $$`, kind: Unreachable, words: "signal: killed"},
		{name: "not found", script: `exec nonesuch`, kind: NoProgram, words: "nonesuch"},
		{name: "not found, says docker", script: `echo 'OCI runtime exec failed: exec: "space-job": executable file not found in $PATH' >&2; exit 126`, kind: NoProgram, words: "OCI"},
		{name: "no space-job", script: `echo hello`, kind: Stranger, words: "is no space-job"},
		{name: "endless noise", script: `yes`, kind: Stranger, words: "is no space-job"},
		{name: "an old one", script: `echo '{"error":{"code":"invalid_argument","message":"unknown flag: --request","hint":""}}'; exit 2`, kind: TooOld, words: "--request"},
		{name: "half an answer", script: hello + `; printf '{"result":1'; echo 'closed by box' >&2; exit 255`, kind: Lost, sent: true, words: "closed by box"},
		{name: "no answer", writes: true, script: hello + `; read -r line; exit 1`, kind: Lost, sent: true, words: "exit status 1"},
		{name: "half a hello", writes: true, script: `printf '{"space_job":"v9"'`, kind: Stranger},
		{name: "an answer of neither", script: hello + `; echo '{}'`, kind: Stranger, sent: true},
		{name: "an answer of both", script: hello + `; echo '{"result":1,"error":{}}'`, kind: Stranger, sent: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, a, err := behind(c.script).Do(t.Context(), Call{Action: "list", Request: map[string]string{"a": "b c"}, Writes: c.writes})
			if c.result != "" {
				if err != nil || string(a.Result) != c.result || h.Version != "v9" {
					t.Errorf("%+v, %s, %v", h, a.Result, err)
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || e.Kind != c.kind || e.Sent != c.sent || !strings.Contains(e.Error(), c.words) {
				t.Errorf("%#v: %v", err, err)
			}
		})
	}
}

func TestNoPrefix(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/nonesuch/ssh", "nonesuch-ssh"} {
		_, _, err := (&Space{Exec: []string{path, "box"}}).Do(t.Context(), Call{Action: "list"})
		var e *Error
		if !errors.As(err, &e) || e.Kind != NotRun || e.Sent || !strings.Contains(err.Error(), path) {
			t.Errorf("%v", err)
		}
	}
}

// TestBefore: what is to be done right before the request keeps it from being sent.
func TestBefore(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	sent := filepath.Join(t.TempDir(), "sent")
	_, _, err := behind(hello+`; read -r line && touch `+sent).Do(t.Context(), Call{Action: "start", Writes: true, Before: func() error { return no }})
	if !errors.Is(err, no) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(sent); err == nil {
		t.Error("it was sent")
	}
}

// TestLargeRequest: more than a pipe takes, both ways at once.
func TestLargeRequest(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 1<<20)
	_, a, err := behind(hello+`; printf '{"result":'; head -n 1 | tr -d '\n'; echo '}'`).Do(t.Context(), Call{Action: "start", Request: text})
	var back string
	if err != nil || json.Unmarshal(a.Result, &back) != nil || back != text {
		t.Errorf("%d bytes, %v", len(back), err)
	}
}

// TestLate: nothing is waited for without end.
func TestLate(t *testing.T) {
	t.Parallel()
	_, _, err := behind(hello+`; exec sleep 1000`).Do(t.Context(), Call{Action: "start", Writes: true, Wait: 50*time.Millisecond - answerWithin})
	var e *Error
	if !errors.As(err, &e) || e.Kind != Late || !e.Sent || err.Error() != "no answer within 50ms" {
		t.Errorf("%v", err)
	}
}

// TestCallerGone: the program ends with the wait for it.
func TestCallerGone(t *testing.T) {
	t.Parallel()
	pid := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := behind(hello+`; echo $$ >`+pid+`.new; mv `+pid+`.new `+pid+`; exec sleep 1000`).Do(ctx, Call{Action: "logs", Wait: time.Hour})
		done <- err
	}()
	n := 0
	for end := time.Now().Add(patience); n == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(pid); err == nil {
			_, _ = fmt.Sscan(string(b), &n)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := syscall.Kill(n, 0); n == 0 || err != syscall.ESRCH {
		t.Errorf("process %d: %v", n, err)
	}
}

// TestCallerGoneBefore: nor is anything waited for when the caller went in between
// the hello and the request.
func TestCallerGoneBefore(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err := behind(hello+`; exec sleep 1000`).Do(ctx, Call{Action: "start", Writes: true, Wait: time.Hour, Before: func() error {
		cancel()
		time.Sleep(20 * time.Millisecond) // what ctx does then is done
		return nil
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestCommand: a program that cannot ask, and knows nothing of the root here.
func TestCommand(t *testing.T) {
	t.Setenv("SPACE_JOB_HOME", "/here")
	t.Setenv("SPACE_MEMBER", "ann")
	t.Setenv("OTHER", "kept")
	c := Command(t.Context(), []string{"/usr/bin/ssh", "-p", "1", "box"}, "space-job", "list")
	if want := []string{"/usr/bin/ssh", "-o", "BatchMode=yes", "-p", "1", "box", "space-job", "list"}; !slices.Equal(c.Args, want) {
		t.Errorf("%q", c.Args)
	}
	env := "\n" + strings.Join(c.Env, "\n") + "\n"
	if !strings.Contains(env, "\nOTHER=kept\n") || !strings.Contains(env, "\nSSH_ASKPASS_REQUIRE=never\n") || strings.Contains(env, "/here") || strings.Contains(env, "SPACE_MEMBER") {
		t.Error(env)
	}
	prefix := []string{"docker", "exec", "-i", "dev"}
	if c := Command(t.Context(), prefix[:2], "x"); !slices.Equal(c.Args, []string{"docker", "exec", "x"}) || prefix[2] != "-i" {
		t.Errorf("%q, %q", c.Args, prefix)
	}
	// A session of its own, so no terminal.
	out, err := Command(t.Context(), []string{"sh", "-c", `[ "$(ps -o sid= -p $$ | tr -d ' ')" = $$ ] && echo leads; : </dev/tty`}).Output()
	if string(out) != "leads\n" || err == nil {
		t.Errorf("%q, %v", out, err)
	}
}

// FuzzAnswer: two lines are read as they are or refused.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{"space_job":"v1","format":1}`), []byte(`{"result":{"job":"j6c1f0a2b9d3e"},"warnings":["a"]}`))
	f.Add([]byte(`{"space_job":1}`), []byte(`{"error":{"code":"io"}}`))
	f.Fuzz(func(t *testing.T, greeting, line []byte) {
		if h, ok := parseHello(greeting); ok && (h.Version == "" || h.Format < 1) {
			t.Errorf("%+v", h)
		}
		a, err := parseAnswer(line)
		if err != nil {
			return
		}
		if (a.Result == nil) == (a.Error == nil) || !json.Valid(append(a.Result, a.Error...)) {
			t.Errorf("%+v", a)
		}
	})
}
