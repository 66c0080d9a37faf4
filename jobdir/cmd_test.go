package jobdir

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"space-job/jobdir/record"
)

var fullCmd = Cmd{
	Format: 1, ID: testID, Name: "unit tests", Argv: []string{"/bin/sh", "-c", "make\ttest\n"}, Command: "make\ttest\n",
	Until: json.RawMessage(`{"port":80}`), Cwd: "/src/ü", Env: []string{"CI", "TOKEN"}, TimeoutS: 0.5, Notify: true,
	Wake: []string{"ann"}, Key: "k\x00", StartedBy: StartedBy{"ann", "agent", "j6c1f0a2b9d3d"},
	CreatedAt: time.Date(2026, 5, 4, 3, 2, 1, 5e6, time.UTC), MaxLog: 8 << 20,
}

// known is what a Cmd says, without what it keeps for others.
func known(c Cmd) Cmd {
	c.raw = nil
	for _, list := range []*[]string{&c.Argv, &c.Env, &c.Wake} {
		if len(*list) == 0 {
			*list = nil
		}
	}
	if c.Until != nil {
		c.Until = json.RawMessage(compact(c.Until))
	}
	return c
}

func compact(b []byte) string {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return string(b)
	}
	b, _ = json.Marshal(v)
	return string(b)
}

// TestCmdE2: every byte of a command is exact in cmd.
func TestCmdE2(t *testing.T) {
	t.Parallel()
	for _, c := range []Cmd{
		fullCmd,
		{Format: 1},
		{Format: 1, Argv: []string{"", "-n", `"'\`, "a\nb\tc", "🎉", "%s", "<&>", "\u2028", "\x01"}},
		{Format: 1, Argv: []string{"ls", "\xff\xfe", "caf\xe9"}},
		{Format: 1, Argv: []string{"/bin/sh", "-c", "ls caf\xe9"}, Command: "ls caf\xe9"},
	} {
		b := c.Marshal()
		got, err := ParseCmd(b)
		if err != nil {
			t.Errorf("%s: %v", b, err)
			continue
		}
		if c.CreatedAt.IsZero() {
			got.CreatedAt = time.Time{}
		}
		if !reflect.DeepEqual(known(*got), known(c)) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", b, *got, c)
		}
	}
}

// TestCmdIsJSON: written by hand, the file is what encoding/json writes.
func TestCmdIsJSON(t *testing.T) {
	t.Parallel()
	var got, want map[string]any
	if err := json.Unmarshal(fullCmd.Marshal(), &got); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(fullCmd)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	var none map[string]any
	if err := json.Unmarshal((&Cmd{Format: 1}).Marshal(), &none); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"until", "timeout_s", "max_log"} {
		if v, ok := none[name]; !ok || v != nil {
			t.Errorf("%s: %v, want null", name, v)
		}
	}
}

func TestParseCmd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, err string }{
		{"", "empty"},
		{" \n", "empty"},
		{"{}", "format 0"},
		{`{"format":0}`, "format 0"},
		{`{"format":-1}`, "format -1"},
		{`{"format":1.5}`, "cmd: format cannot be a number 1.5"},
		{`{"format":1}x`, "invalid character"},
		{`{"format":1,"argv":"ls"}`, "cmd: argv cannot be a string"},
		{`[]`, "cmd: is no object, but an array"},
		{`null`, "format 0"},
		{`{"format":1}`, ""},
		{`{"format":1,"argv":null,"created_at":"yesterday"}`, ""},
		{`{"format":2,"argv":{"prog":"ls"},"name":"x","created_at":7}`, ""},
	} {
		got, err := ParseCmd([]byte(c.in))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("ParseCmd(%s): %v, want %q", c.in, err, c.err)
		}
		if err == nil && got.ReadOnly() != (got.Format == 2) {
			t.Errorf("ParseCmd(%s): read-only %v", c.in, got.ReadOnly())
		}
	}
	got, err := ParseCmd([]byte(`{"format":2,"argv":{"prog":"ls"},"name":"x","created_at":7}`))
	if err != nil || got.Name != "x" {
		t.Errorf("a newer format hides what follows a new type: %+v, %v", got, err)
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cmd  Cmd
		want string
	}{
		{Cmd{}, ""},
		{Cmd{Name: "n", Command: "c", Argv: []string{"a"}}, "n"},
		{Cmd{Name: " \n", Command: "c"}, "c"},
		{Cmd{Argv: []string{"go", "test", "./..."}}, "go test ./..."},
		{Cmd{Argv: []string{"space-job", "until"}, Until: []byte(`{"file":"/a\nb"}`)}, "until file /a b"},
		{Cmd{Until: []byte(`{"port":22,"host":"127.0.0.1","interval_s":2}`)}, "until port 127.0.0.1:22"},
		{Cmd{Until: []byte(`{"port":22,"host":"::1"}`)}, "until port [::1]:22"},
		{Cmd{Until: []byte(`{"command":"test -s x"}`)}, "until command test -s x"},
		{Cmd{Until: []byte(`{"pr_checks":"o/r#1"}`)}, "until pr_checks o/r#1"},
		{Cmd{Until: []byte(`{"job":"j6c1f0a2b9d3e"}`)}, "until job j6c1f0a2b9d3e"},
		{Cmd{Until: []byte(`{"log":"j6c1f0a2b9d3e","match":"ready"}`)}, "until log j6c1f0a2b9d3e matches ready"},
		{Cmd{Argv: []string{"x"}, Until: []byte(`{"moon":"full"}`)}, "x"},
		{Cmd{Argv: []string{"echo", "", "a b", "it's", "$x", "\xff"}}, `echo '' 'a b' 'it'\''s' '$x' '` + "\ufffd'"},
		// A name cannot forge another line, nor speak to the terminal.
		{Cmd{Name: "x\nJOB j000000000000 exited exit=0"}, "x JOB j000000000000 exited exit=0"},
		{Cmd{Name: "a\x1b[31mb\u009b\u2028\u202ec\u0085d"}, "a [31mb   c d"},
		{Cmd{Name: strings.Repeat("é", 120)}, strings.Repeat("é", 120)},
		{Cmd{Name: strings.Repeat("é", 121)}, strings.Repeat("é", 119) + "…"},
		{Cmd{Argv: []string{strings.Repeat("x", 1<<20), "y"}}, strings.Repeat("x", 119) + "…"},
	} {
		if got := c.cmd.Line(); got != c.want {
			t.Errorf("Line of %.80v = %q, want %q", c.cmd, got, c.want)
		}
	}
}

// FuzzCmd: what can be read is written so that it reads the same, unknown
// fields included.
func FuzzCmd(f *testing.F) {
	f.Add(fullCmd.Marshal())
	f.Add([]byte(`{"format":1,"NAME":"b","name":"a","x":{"y":[1e3, null]},"":0}`))
	f.Add([]byte(`{"format":3,"id":7,"argv":["\ud800"],"argv_base64":["/w=="],"timeout_s":1e300}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCmd(b)
		if err != nil {
			return
		}
		line := c.Line()
		if utf8.RuneCountInString(line) > maxLine || !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl) {
			t.Fatalf("Line of %q = %q", b, line)
		}
		m := c.Marshal()
		if !json.Valid(m) {
			t.Fatalf("%q: %s is no JSON", b, m)
		}
		c2, err := ParseCmd(m)
		if err != nil {
			t.Fatalf("%q: %s: %v", b, m, err)
		}
		// The file keeps milliseconds, and a year of four digits.
		if y := c.CreatedAt.UTC().Year(); y < 0 || y > 9999 {
			c2.CreatedAt = c.CreatedAt
		}
		c.CreatedAt, _ = time.Parse(record.TimeFormat, c.CreatedAt.UTC().Format(record.TimeFormat))
		c2.CreatedAt = c2.CreatedAt.UTC()
		if y := c.CreatedAt.Year(); y < 0 || y > 9999 {
			c.CreatedAt = c2.CreatedAt
		}
		if !reflect.DeepEqual(known(*c), known(*c2)) {
			t.Fatalf("%q:\nread  %+v\nagain %+v", b, known(*c), known(*c2))
		}
		u, u2 := c.unknown(), c2.unknown()
		if len(u) != len(u2) {
			t.Fatalf("%q: unknown fields %v, and again %v", b, u, u2)
		}
		for i := range u {
			if u[i].name != u2[i].name || string(u[i].value) != string(u2[i].value) {
				t.Fatalf("%q: unknown field %v, and again %v", b, u[i], u2[i])
			}
		}
	})
}

func FuzzExit(f *testing.F) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	f.Add([]byte(exitJSON(Exited, 7, at)))
	f.Add([]byte(exitJSON(Lost, "null", at)))
	f.Add([]byte(`{"state":"exited","exit_code":256}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := parseExit(b)
		if r == nil {
			return
		}
		if (r.State == Exited) != (r.ExitCode != nil) || r.ExitCode != nil && (*r.ExitCode < 0 || *r.ExitCode > 255) {
			t.Fatalf("%q: %+v", b, r)
		}
		r2 := parseExit(r.Append(nil))
		if r2 == nil || r2.State != r.State || r.ExitCode != nil && *r2.ExitCode != *r.ExitCode {
			t.Fatalf("%q comes back as %+v", b, r2)
		}
	})
}

func FuzzPid(f *testing.F) {
	f.Add(record.ProcessRecord{RunnerPID: 7, ChildPID: 8, RunnerStart: 1 << 63, BootID: "b", MachineID: "m"}.Append(nil))
	f.Add([]byte(`{"runner_pid":1e9,"boot_id":"\u0000"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p record.ProcessRecord
		if !parseRecord(b, &p) {
			return
		}
		var p2 record.ProcessRecord
		if y := p.StartedAt.UTC().Year(); y < 0 || y > 9999 {
			p.StartedAt = time.Time{}
		}
		if !parseRecord(p.Append(nil), &p2) {
			t.Fatalf("%q: %s is no record", b, p.Append(nil))
		}
		if p2.RunnerPID != p.RunnerPID || p2.ChildPID != p.ChildPID || p2.RunnerStart != p.RunnerStart || p2.ChildStart != p.ChildStart {
			t.Fatalf("%q comes back as %+v", b, p2)
		}
	})
}

func TestShellLine(t *testing.T) {
	t.Parallel()
	if got, want := ShellLine([]string{"a-b", "", "it's", "$x", "ü"}), `a-b '' 'it'\''s' '$x' 'ü'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A time that json could not write again is none, or the whole job could not be
// shown as JSON.
func TestCreatedAtCanBeWritten(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"2020-01-01T00:00:00+24:00":   "2019-12-31T00:00:00Z",
		"2020-01-01T00:00:00.5+01:00": "2019-12-31T23:00:00.5Z",
		"0000-01-01T00:00:00Z":        "0001-01-01T00:00:00Z",
		"9999-12-31T23:59:59-23:59":   "0001-01-01T00:00:00Z",
		"the day before yesterday":    "0001-01-01T00:00:00Z",
	} {
		c, err := ParseCmd([]byte(`{"format":1,"id":"` + string(testID) + `","created_at":"` + at + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(c.CreatedAt)
		if err != nil || string(got) != `"`+want+`"` {
			t.Errorf("%s: %s, %v; want %s", at, got, err, want)
		}
	}
}

// An exit whose signal is no name of one is torn, or forged to reach a terminal.
func TestExitSignalIsAName(t *testing.T) {
	t.Parallel()
	for signal, good := range map[string]bool{"": true, "KILL": true, "RTMIN+3": true, "35": true, "kill": false, `\u001b]0;x\u0007`: false, "K L": false} {
		r := parseExit([]byte(`{"state":"exited","exit_code":137,"signal":"` + signal + `","at":"2026-01-02T03:04:05.000Z"}`))
		if (r != nil) != good {
			t.Errorf("signal %q: %+v", signal, r)
		}
	}
}
