package record

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// stamp is a time as the records write it: encoding/json would drop trailing
// zeros.
type stamp time.Time

func (t stamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Time(t).UTC().Format(TimeFormat))
}

// marshal is encoding/json without HTML escapes.
func marshal(t testing.TB, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRecordsAreJSON: written by hand, a record is what encoding/json writes
// for its fields.
func TestRecordsAreJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 4, 3, 2, 1, 60_987_654, time.FixedZone("", 2*3600))
	code := 137
	for _, r := range []struct {
		got  []byte
		want any
	}{
		{ProcessRecord{1, 2, 1 << 63, 4, "b\"", "m\n", at}.Append(nil), struct {
			ProcessRecord
			StartedAt stamp `json:"started_at"`
		}{ProcessRecord{1, 2, 1 << 63, 4, "b\"", "m\n", at}, stamp(at)}},
		{TimingRecord{at, at, 1, -2, 3, 1 << 62}.Append(nil), struct {
			StartedAt stamp `json:"started_at"`
			EndedAt   stamp `json:"ended_at"`
			D         int64 `json:"duration_ms"`
			U         int64 `json:"user_ms"`
			S         int64 `json:"sys_ms"`
			M         int64 `json:"max_rss_bytes"`
		}{stamp(at), stamp(at), 1, -2, 3, 1 << 62}},
		{ExitRecord{Exited, &code, "KILL", "é<&>\u2028", 5, 6, at}.Append(nil), struct {
			ExitRecord
			At stamp `json:"at"`
		}{ExitRecord{Exited, &code, "KILL", "é<&>\u2028", 5, 6, at}, stamp(at)}},
		{ExitRecord{State: Lost}.Append(nil), struct {
			ExitRecord
			At stamp `json:"at"`
		}{ExitRecord{State: Lost}, stamp{}}},
		{CancelRecord{at, "ann", "\x00\x7f\xff"}.Append(nil), struct {
			At     stamp  `json:"at"`
			By     string `json:"by"`
			Reason string `json:"reason"`
		}{stamp(at), "ann", "\x00\x7f\xff"}},
	} {
		want := marshal(t, r.want)
		// An embedded field that is hidden leaves its place to the one outside.
		if string(r.got) != want {
			t.Errorf("got  %swant %s", r.got, want)
		}
	}
	// Appending leaves what is before.
	if b := (CancelRecord{}).Append([]byte("x")); b[0] != 'x' || b[1] != '{' {
		t.Errorf("%s", b)
	}
}

func TestDroppedRecord(t *testing.T) {
	t.Parallel()
	for _, r := range []DroppedRecord{
		{},
		{Hole: &Hole{4096, 1 << 62}},
		{Unwritten: &Unwritten{1 << 62, strings.Repeat("\x01", 500), time.Now()}},
		{Seq: 1<<64 - 1, Hole: &Hole{1 << 62, 1<<63 - 1}, Unwritten: &Unwritten{1<<63 - 1, strings.Repeat("\xff", 500), time.Now()}},
	} {
		b := r.Append(nil)
		if len(b) != droppedLen || b[droppedLen-1] != '\n' {
			t.Errorf("%d bytes: %s", len(b), b)
		}
		var got DroppedRecord
		if err := json.Unmarshal(b, &got); err != nil || (got.Hole == nil) != (r.Hole == nil) || got.Hole != nil && *got.Hole != *r.Hole ||
			(got.Unwritten == nil) != (r.Unwritten == nil) || got.Unwritten != nil && got.Unwritten.Bytes != r.Unwritten.Bytes ||
			got.Seq != r.Seq || got.SeqEnd != r.Seq {
			t.Errorf("%s: %+v, %v", b, got, err)
		}
	}
}

// TestRecordsFit: no record is longer than what is reserved for it.
func TestRecordsFit(t *testing.T) {
	t.Parallel()
	for _, worst := range []string{"\"", "é", "\u2028", "\x01", "\xff"} {
		s := strings.Repeat(worst, 2*MaxText)
		for name, b := range map[string][]byte{
			"exit":   ExitRecord{State: State(TimedOut), Signal: "SIGRTMIN+15", Error: s, LogBytes: 1 << 62, Left: 1 << 31}.Append(nil),
			"cancel": CancelRecord{By: s, Reason: s}.Append(nil),
			"pid":    ProcessRecord{BootID: strings.Repeat("x", 36), MachineID: strings.Repeat("x", 128)}.Append(nil),
		} {
			if len(b) > ReservedSize {
				t.Errorf("%s with text of %q: %d bytes", name, worst, len(b))
			}
			if !json.Valid(b) {
				t.Errorf("%s: %s", name, b)
			}
		}
	}
}

// TestTextIsCut: text that is too long is cut between characters, by what it
// takes as JSON.
func TestTextIsCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    string
		max  int
		want string
	}{
		{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aéb", 2, "a"}, {"aéb", 3, "aé"}, {"🎉", 3, ""}, {"", 0, ""},
		{"\x80\x80", 6, `\ufffd`}, {"\x80", 5, ""}, {"a\nb", 3, `a\n`}, {"a\nb", 2, "a"}, {"\x01", 5, ""}, {"\x01\x01", 11, `\u0001`},
	} {
		if got := string(appendString(nil, c.s, c.max)); got != `"`+c.want+`"` {
			t.Errorf("appendString(%q, %d) = %s", c.s, c.max, got)
		}
	}
}

// FuzzAppendString: a string is written as encoding/json writes it.
func FuzzAppendString(f *testing.F) {
	f.Add("plain")
	f.Add("\x00\x1f\x7f\"\\/<>&\u2028\u2029\xff\xc3é🎉\ufffd\b\f\n\r\t")
	f.Fuzz(func(t *testing.T, s string) {
		got := string(AppendString(nil, s)) + "\n"
		if want := marshal(t, s); got != want {
			t.Fatalf("%q: got %s want %s", s, got, want)
		}
		if !utf8.ValidString(got) {
			t.Fatalf("%q: %q", s, got)
		}
	})
}

// FuzzParseProcess: what the signals depend on is read as encoding/json reads
// it, or not at all.
func FuzzParseProcess(f *testing.F) {
	f.Add(ProcessRecord{RunnerPID: 7, ChildPID: 8, RunnerStart: 9, BootID: "b", MachineID: "m"}.Append(nil))
	f.Add([]byte(`{"runner_pid":-1,"child_pid":1,"boot_id":"b"}`))
	f.Add([]byte(`{"runner_pid":7`))
	f.Add([]byte(strings.Repeat(" ", ReservedSize)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := ParseProcess(b)
		if !ok {
			return
		}
		if r.RunnerPID < 2 || r.ChildPID < 0 || r.ChildPID == 1 || r.BootID == "" {
			t.Fatalf("%q: %+v", b, r)
		}
	})
}

func TestParseProcess(t *testing.T) {
	t.Parallel()
	want := ProcessRecord{RunnerPID: 7, ChildPID: 8, RunnerStart: 1 << 63, ChildStart: 9, BootID: "b-1", MachineID: "m"}
	if got, ok := ParseProcess(want.Append(nil)); !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	// R2: none of these is ever signalled.
	for _, s := range []string{"", "x", "{}", `{"runner_pid":0,"boot_id":"b"}`, `{"runner_pid":1,"boot_id":"b"}`, `{"runner_pid":-1,"boot_id":"b"}`,
		`{"runner_pid":7}`, `{"runner_pid":"7","boot_id":"b"}`, `{"runner_pid":99999999999,"boot_id":"b"}`} {
		if got, ok := ParseProcess([]byte(s)); ok {
			t.Errorf("%s: %+v", s, got)
		}
	}
}

func TestID(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"j6c1f0a2b9d3e": true, "j000000000000": true, "jffffffffffff": true,
		"": false, "j": false, "j6c1f0a2b9d3": false, "j6c1f0a2b9d3e0": false, "k6c1f0a2b9d3e": false, "j6c1f0a2b9d3E": false,
		"j6c1f0a2b9d3g": false, "j6c1f0a2b9d3\n": false, "j../../../etc": false,
	} {
		if id, ok := ParseID(s); ok != want || ok && string(id) != s {
			t.Errorf("ParseID(%q) = %q, %v", s, id, ok)
		}
	}
	at := time.Date(2026, 5, 4, 3, 2, 1, 500e6, time.UTC)
	id := NewID(at)
	if !id.Time().Equal(at) || len(id) != 13 {
		t.Errorf("%s is of %v, not of %v", id, id.Time(), at)
	}
	if next := id.Next(); next <= id || next.Time().Sub(at) > time.Second/65536+1 {
		t.Errorf("%s comes after %s", next, id)
	}
	if next := ID("j0000000fffff").Next(); next != "j000000100000" {
		t.Errorf("carry: %s", next)
	}
	last := NewID(at)
	for range 100_000 { // ids sort by age
		at = at.Add(7919 * time.Nanosecond)
		id := NewID(at)
		if id < last || at.Sub(id.Time()) < 0 || at.Sub(id.Time()) > time.Second/65536+1 {
			t.Fatalf("%s of %v comes after %s", id, at, last)
		}
		last = id
	}
}
