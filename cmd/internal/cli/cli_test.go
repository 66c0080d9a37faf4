package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
	"space-job/jobdir/record"
)

var update = flag.Bool("update", false, "write the help into testdata/help")

func TestHelp(t *testing.T) {
	texts := map[string]string{"space-job": overview()}
	for _, c := range everyCommand() {
		texts[c.name] = c.help()
	}
	for name, text := range texts {
		path := filepath.Join("testdata", "help", strings.ReplaceAll(name, " ", "_")+".golden")
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("the help of %s is not %s (go test -update writes it):\n%s", name, path, text)
		}
		for line := range strings.Lines(text) {
			if len([]rune(line)) > helpWidth+1 && !strings.Contains(line, "space-job ") {
				t.Errorf("%s: longer than %d: %s", name, helpWidth, line)
			}
		}
	}
	golden, _ := filepath.Glob("testdata/help/*.golden")
	if len(golden) != len(texts) {
		t.Errorf("%d files in testdata/help, want %d", len(golden), len(texts))
	}
}

// TestTable holds what every command owes the newcomer.
func TestTable(t *testing.T) {
	for _, c := range everyCommand() {
		if c.summary == "" || len(c.usage) == 0 && c.new != nil || c.new == nil && len(c.sub) == 0 || len(c.about) == 0 || len(c.examples) == 0 || len(c.exits) == 0 {
			t.Errorf("%s: something is missing", c.name)
		}
		if got, rest := find(append(strings.Fields(c.name), "x")); got == nil || got.name != c.name || len(rest) != 1 {
			t.Errorf("%s is not found", c.name)
		}
		c.eachFlag(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s: no meaning", c.name, f.Name)
			}
		})
	}
	if lookup("") != nil || lookup("nope") != nil {
		t.Error("a command that there is not")
	}
}

// FuzzArgs: no command line crashes the parser, and the operands of start are
// passed on as they are.
func FuzzArgs(f *testing.F) {
	for _, s := range []string{"start\x00-n\x00x\x00make\x00-j4", "start\x00--\x00a", "logs\x00-f\x00--offset=3\x00abcd", "run\x00-tx\x00-\x00--", "cancel\x00a\x00--reason\x00x\x00b",
		"list\x00-n\x0020\x00--state=lost", "wait\x00--any\x00--timeout\x001h30m", "start\x00-e=x\x00--max-log\x009MB\x00x", "--json", "logs\x00--=", "status\x00-\x00---"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, args := find(strings.Split(s, "\x00"))
		if c == nil || c.new == nil {
			return
		}
		fs := flagSet(c, c.new())
		var help, asJSON bool
		fs.BoolVarP(&help, "help", "h", false, "")
		fs.BoolVar(&asJSON, "json", false, "")
		if err := fs.Parse(args); err != nil {
			e := api.AsError(parseError(c, err))
			if e.Code != api.InvalidArgument && e.Code != api.LimitExceeded || strings.Contains(oneLine(e.Message), "\n") {
				t.Fatalf("%q: %+v", args, e)
			}
			return
		}
		if !c.strict {
			return
		}
		operands := fs.Args()
		if n := len(args) - len(operands); n < 0 || strings.Join(args[n:], "\x00") != strings.Join(operands, "\x00") {
			t.Fatalf("%q: operands %q", args, operands)
		}
		if n := len(args) - len(operands); len(operands) > 0 && strings.HasPrefix(operands[0], "-") && operands[0] != "-" && (n == 0 || args[n-1] != "--") {
			t.Fatalf("%q: a flag among the operands %q", args, operands)
		}
	})
}

func TestShownOnOneLine(t *testing.T) {
	if got := oneLine("a\nb\x1b[2Jc\u2028d\x00\x7f"); strings.ContainsAny(got, "\n\x1b\u2028\x00\x7f") {
		t.Errorf("%q", got)
	}
	if got := cut("añ日本語x", 5); got != "añ日" {
		t.Errorf("%q", got)
	}
}

func TestLiveText(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	started := now.Add(-75*time.Second - 300*time.Millisecond)
	r := api.StatusResult{Entry: api.Entry{Job: "j6c1f0a2b9d3e", State: "running", StartedAt: &started, LogBytes: 48210, Line: "unit\ntests"}, Tail: "one\ntwo\tthree\n"}
	if got, want := liveText(&r, "", 775*time.Second, true, now, 200), "j6c1f0a2b9d3e unit tests | running 1m15s (before: 12m55s) | log 47.1 KiB | two three"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := liveText(&r, "", 0, false, now, 200), "j6c1f0a2b9d3e unit tests | running 1m15s | log 47.1 KiB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.Line = "the unit tests of the whole project"
	for columns, want := range map[int]string{
		79: "j6c1f0a2b9d3e the unit tests of th | running 1m15s | log 47.1 KiB | two three",
		60: "j6c1f0a2b9d3e the unit tests | running 1m15s | log 47.1 KiB",
		50: "j6c1f0a2b9d3e | running 1m15s | log 47.1 KiB",
		39: "j6c1f0a2b9d3e the unit | running 1m15s",
	} {
		got := liveText(&r, "", 0, true, now, columns)
		if got != want || columnsOf(got) > columns {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
	started = now.Add(-time.Second / 2)
	if got, want := liveText(&r, "(2 of 3) ", time.Hour, true, now, 55), "(2 of 3) j6c1f0a2b9d3e | running 0s | log 47.1 KiB"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestStatusText(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	name, cwd, command, sig, why := "evil\nname\x1b[2J", "/srv", "make", "KILL", "three processes could not be stopped"
	code, left, ms := 137, 2, int64(775000)
	r := api.StatusResult{
		Entry: api.Entry{Job: "j6c1f0a2b9d3e", State: "exited", ExitCode: &code, Signal: &sig, Error: &why, Name: &name, Cwd: &cwd, Command: &command,
			DurationMS: &ms, StartedAt: &now, EndedAt: &now, Left: &left, LogBytes: 7, LastOutputAt: &now,
			LogDropped: &api.Missing{Bytes: 10, Hole: &record.Hole{From: 5, To: 15}, Unwritten: &record.Unwritten{FirstAt: now, Error: "no space"}}},
		LeftProcesses: []api.Process{{PID: 12, Name: "sleep"}},
		Tail:          "last",
	}
	text := statusText(&r, "space-job", false, now)
	for _, want := range []string{"j6c1f0a2b9d3e  exited, exit code 137, killed by KILL\n", "name:       evil name [2J\n", "duration:   12m55s\n", "left:       12 (sleep) (space-job cancel j6c1f0a2b9d3e stops them)\n",
		"End of the log:\n    last\n", why, "missing:    10 bytes, 5 to 15: cut out of the log\n", "missing:    some output could not be written since "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	size := int64(2 << 20)
	r.MaxLog, r.LogDropped.Unwritten.Bytes = &size, 3
	text = statusText(&r, "space-job", false, now)
	for _, want := range []string{"5 to 15: cut out of the log (--max-log)\n", "missing:    3 bytes could not be written since "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("an escape in:\n%s", text)
	}
	if !strings.Contains(statusText(&r, "space-job", true, now), "\x1b[31mexited\x1b[0m") {
		t.Error("no colour where it is wanted")
	}
}

// TestManPage: every line is text or a macro, and every command is there.
func TestManPage(t *testing.T) {
	page := manPage()
	for _, c := range everyCommand() {
		if !strings.Contains(page, `.SS "`+c.name+": ") {
			t.Errorf("%s is missing", c.name)
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "'") || strings.Contains(line, "\t") {
			t.Errorf("no such macro: %s", line)
		}
	}
}

// TestOneDocument: what is printed with --json is JSON, on one line.
func TestOneDocument(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &session{stdout: w, stderr: os.NewFile(^uintptr(0), "none"), json: true}
	if code := s.fail(&api.Error{Code: api.NotFound, Message: "a\nb <c>", Hint: "x"}); code != exitNotFound {
		t.Errorf("code %d", code)
	}
	w.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	var doc struct{ Error api.Error }
	if err := json.Unmarshal(b.Bytes(), &doc); err != nil || doc.Error.Message != "a\nb <c>" || bytes.Count(b.Bytes(), []byte("\n")) != 1 {
		t.Errorf("%s: %v", b.Bytes(), err)
	}
}

func TestLastLines(t *testing.T) {
	for s, want := range map[string]string{"": "", "a": "a", "a\n": "a\n", "a\nb\nc": "b\nc", "a\nb\nc\n": "b\nc\n", "a\n\n\n": "\n\n"} {
		if got := lastLines(s, 2); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
}

func TestDidYouMean(t *testing.T) {
	for given, want := range map[string]string{"strat": "start", "log": "logs", "ls": "logs", "stat": "status", "cancle": "cancel", "canc": "cancel", "xyzzy": "", "": "", "waiting": ""} {
		hint := unknownCommand(given, commandNames(), "").Hint
		if got := strings.HasPrefix(hint, "did you mean"); got != (want != "") || got && !strings.Contains(hint, " "+want+"?") {
			t.Errorf("%q: %q", given, hint)
		}
	}
}
