package api

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	good := map[string]time.Duration{
		"90":       90 * time.Second,
		"90s":      90 * time.Second,
		"1.5":      1500 * time.Millisecond,
		"15m":      15 * time.Minute,
		"1h30m":    90 * time.Minute,
		"1.5h":     90 * time.Minute,
		"250ms":    250 * time.Millisecond,
		"7d":       7 * 24 * time.Hour,
		"1d12h":    36 * time.Hour,
		"0.001":    time.Millisecond,
		"1m0.5s":   60500 * time.Millisecond,
		"106751d":  106751 * 24 * time.Hour,
		"00090s":   90 * time.Second,
		"0h1m":     time.Minute,
		"2562047h": 2562047 * time.Hour,
	}
	for s, want := range good {
		if got, err := ParseDuration("timeout", s); err != nil || got != want {
			t.Errorf("%q = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", " ", "0", "0s", "0.0", "-1", "-1s", "+1s", "5x", "s", "ms", "1h-30m", "1h30", "1 h", "1e3", "0x10", "Inf", "NaN", "1..5s", "1.5.2",
		".", ".5s", "9999999999999999999", "2562048h", "106752d", "1s ", "1\n", "١s", strings.Repeat("9", 400),
	} {
		got, err := ParseDuration("timeout", s)
		if err == nil || AsError(err).Code != InvalidArgument || !strings.HasPrefix(err.Error(), "timeout: ") {
			t.Errorf("%q = %v, %v, want an error", s, got, err)
		}
	}
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"90", "1h30m", "1.5h", "7d", "-1", "1e9", "999999999999h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDuration("timeout", s)
		if err != nil {
			return
		}
		if d <= 0 {
			t.Fatalf("%q = %v", s, d)
		}
		if std, err := time.ParseDuration(s); err == nil && (std-d).Abs() > time.Duration(math.Max(1, float64(std)*1e-15)) {
			t.Fatalf("%q = %v, and %v for package time", s, d, std)
		}
	})
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0ms":     0,
		"340ms":   340 * time.Millisecond,
		"999ms":   999*time.Millisecond + 999*time.Microsecond,
		"2.3s":    2*time.Second + 399*time.Millisecond,
		"59.9s":   59*time.Second + 999*time.Millisecond,
		"1m00s":   time.Minute,
		"12m55s":  12*time.Minute + 55*time.Second,
		"3h02m":   3*time.Hour + 2*time.Minute + 59*time.Second,
		"100h00m": 100 * time.Hour,
	} {
		if got := FormatDuration(d); got != want {
			t.Errorf("%v is %q, want %q", int64(d), got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{
		"8388608":             8 << 20,
		"8388608B":            8 << 20,
		"8M":                  8 << 20,
		"8m":                  8 << 20,
		"8MiB":                8 << 20,
		"8mib":                8 << 20,
		"8MB":                 8_000_000,
		"64KiB":               64 << 10,
		"3KB":                 3000,
		"2G":                  2 << 30,
		"1TiB":                1 << 40,
		"0":                   0,
		"9223372036854775807": math.MaxInt64,
	} {
		if got, err := ParseSize("max_log", s); err != nil || got != want {
			t.Errorf("%q = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "M", "-1", "+1", "1.5G", "8 M", "8X", "8MBB", "8iB", "8IB", "9223372036854775808", "9007199254740993T", "8388608T", "1_000"} {
		if got, err := ParseSize("max_log", s); err == nil {
			t.Errorf("%q = %v, want an error", s, got)
		}
	}
	for s, ok := range map[string]bool{"2MiB": true, "2097152": true, "2097151": false, "2MB": false, "64KiB": false, "0": false} {
		if _, err := ParseMaxLog(s); (err == nil) != ok {
			t.Errorf("max_log %q: %v", s, err)
		}
	}
}

func FuzzSize(f *testing.F) {
	for _, s := range []string{"8388608", "8MiB", "8MB", "1TiB", "-1", "99999999999T"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize("max_log", s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q = %d", s, n)
		}
		if digits := strings.TrimRight(s, "kKmMgGtTiIbB"); n > 0 && len(digits) > 19+strings.Count(digits, "0") {
			t.Fatalf("%q = %d", s, n)
		}
	})
}

func TestFormatSize(t *testing.T) {
	for want, n := range map[string]int64{
		"0 B": 0, "1023 B": 1023, "1.0 KiB": 1024, "47.1 KiB": 48210, "100 KiB": 102400, "1.0 MiB": 1 << 20, "1023 MiB": 1023 << 20,
		"1.0 GiB": 1<<30 - 1, "5.0 GiB": 5 << 30, "8388608 TiB": math.MaxInt64,
	} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

func TestParseEnv(t *testing.T) {
	lookup := func(name string) (string, bool) {
		if name == "HERE" {
			return "it=is\nhere", true
		}
		return "", false
	}
	for s, want := range map[string]variable{
		"A=":          {"A", ""},
		"A=b=c":       {"A", "b=c"},
		"A=x\ny":      {"A", "x\ny"},
		"A.b-c=1":     {"A.b-c", "1"},
		"HERE":        {"HERE", "it=is\nhere"},
		"HERE=":       {"HERE", ""},
		"ÄÖ=\xff\xfe": {"ÄÖ", "\xff\xfe"},
	} {
		if got, err := parseEnv(s, lookup); err != nil || got != want {
			t.Errorf("%q = %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", "=", "=x", "A B=1", "A\tB=1", "A\nB=1", "A\x00=1", "A=\x00", "NOT_HERE", "SPACE_JOB", "SPACE_JOB=x",
		"A=" + strings.Repeat("x", MaxArgument-2)} {
		if got, err := parseEnv(s, lookup); err == nil {
			t.Errorf("%.20q = %.20q, want an error", s, got)
		}
	}
	if _, err := parseEnv("A="+strings.Repeat("x", MaxArgument-3), lookup); err != nil {
		t.Errorf("one byte below the limit: %v", err)
	}
}

func TestWithVariables(t *testing.T) {
	base := []string{"A=1", "B=2", "NOEQUALS", "C=3"}
	if got := withVariables(base, nil); !slices.Equal(got, base) {
		t.Errorf("nothing set: %q", got)
	}
	got := withVariables(base, []variable{{"B", "x"}, {"D", "1"}, {"B", "y"}})
	if want := []string{"A=1", "NOEQUALS", "C=3", "D=1", "B=y"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestParseKey(t *testing.T) {
	for s, ok := range map[string]bool{
		"k": true, "a b/c:ü": true, strings.Repeat("k", 256): true,
		"": false, strings.Repeat("k", 257): false, "a\nb": false, "a\x7f": false, "\x00": false,
	} {
		if _, err := ParseKey(s); (err == nil) != ok {
			t.Errorf("%.20q: %v", s, err)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	a, err := OpenRoot(t.TempDir() + "/none")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", MaxArgument)
	for name, c := range map[string]struct {
		req  StartRequest
		code Code
		says string
	}{
		"nothing":         {StartRequest{}, InvalidArgument, `command: ""`},
		"blank":           {StartRequest{Command: " \n\t"}, InvalidArgument, "is empty"},
		"NUL":             {StartRequest{Command: "a\x00b"}, InvalidArgument, "NUL"},
		"NUL in argv":     {StartRequest{Argv: []string{"a", "b\x00"}}, InvalidArgument, "NUL"},
		"empty program":   {StartRequest{Argv: []string{"", "b"}}, InvalidArgument, "is empty"},
		"both":            {StartRequest{Command: "a", Argv: []string{"b"}}, InvalidArgument, "beside an argv"},
		"long command":    {StartRequest{Command: long}, LimitExceeded, "128 KiB"},
		"long argument":   {StartRequest{Argv: []string{"true", long}}, LimitExceeded, "128 KiB"},
		"long altogether": {StartRequest{Argv: slices.Repeat([]string{long[1:]}, 100)}, LimitExceeded, "this system's limit"},
		"NUL in name":     {StartRequest{Command: "a", Name: "\x00"}, InvalidArgument, "name: "},
		"long name":       {StartRequest{Command: "a", Name: long}, InvalidArgument, "name: "},
		"negative time":   {StartRequest{Command: "a", Timeout: -1}, InvalidArgument, "timeout: "},
		"small log":       {StartRequest{Command: "a", MaxLog: 65536}, InvalidArgument, "max_log: "},
		"cwd":             {StartRequest{Command: "a", Cwd: "/nope"}, InvalidArgument, `cwd: "/nope"`},
		"NUL in cwd":      {StartRequest{Command: "a", Cwd: "/\x00"}, InvalidArgument, "cwd: "},
		"env":             {StartRequest{Command: "a", Env: []string{"=x"}}, InvalidArgument, "env: "},
	} {
		_, err := a.Start(c.req)
		if e := AsError(err); err == nil || e.Code != c.code || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLastBytes(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 4, ""},
		{"abc", 4, "abc"},
		{"one\ntwo\n", 4, "two\n"},
		{"one\ntwo\n", 5, "two\n"},
		{"abcdef\n", 4, "def\n"},
		{"aüü", 3, "ü"},
	} {
		if got := lastBytes(c.in, c.n); got != c.want {
			t.Errorf("%q, %d: %q, want %q", c.in, c.n, got, c.want)
		}
	}
}

func TestCode(t *testing.T) {
	n := 7
	for _, c := range []struct {
		e    Entry
		want int
	}{
		{Entry{State: "exited", ExitCode: &n}, 7},
		{Entry{State: "timed_out"}, 124},
		{Entry{State: "cancelled"}, 143},
		{Entry{State: "lost"}, 125},
		{Entry{State: "running"}, 75},
		{Entry{State: Damaged}, 125},
		{Entry{State: "exited"}, 125}, // no code: nothing is made up
	} {
		if got := c.e.Code(); got != c.want {
			t.Errorf("%s: %d, want %d", c.e.State, got, c.want)
		}
	}
}

func TestParseLimit(t *testing.T) {
	for s, want := range map[string]time.Duration{"0": 0, "0s": 0, "0.0": 0, "00m": 0, "0ms": 0, "7d": 7 * 24 * time.Hour, "1.5": 1500 * time.Millisecond} {
		if got, err := ParseLimit("timeout", s); err != nil || got != want {
			t.Errorf("%q: %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "-0", "+0", "0x", "s", ".", "0 s", "-1"} {
		if got, err := ParseLimit("timeout", s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}
