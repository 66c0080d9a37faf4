package api

import (
	"math"
	"strconv"
	"strings"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// Limits of what a caller may ask for.
const (
	MaxFollowMS = 25000
	MaxRead     = jobdir.MaxRead
	DefaultRead = 64 << 10 // bytes of one read of a log, unless asked otherwise
	MinMaxLog   = 2 << 20
	MaxName     = 1 << 10
	MaxKey      = 256
	MaxReason   = 1 << 10

	// MaxArgument is where the kernel refuses one argument or variable.
	MaxArgument = 128 << 10

	tailBytes   = 2 << 10 // of status
	startOfTail = 8 << 10 // of logs without an offset
	bigLog      = 1 << 30 // a running log to warn of
)

// units of a duration, the longest name first where one begins another.
var units = [...]struct {
	name string
	unit time.Duration
}{
	{"ms", time.Millisecond},
	{"d", 24 * time.Hour},
	{"h", time.Hour},
	{"m", time.Minute},
	{"s", time.Second},
}

const durationForms = "(use 90s, 15m, 1h30m, 7d, or a number of seconds)"

// ParseLimit reads what ParseDuration reads, or zero.
func ParseLimit(field, s string) (time.Duration, error) {
	d, err := ParseDuration(field, s)
	if err != nil && isZero(s) {
		return 0, nil
	}
	return d, err
}

// isZero: 0, 0.0, 0s, 00m.
func isZero(s string) bool {
	digits := strings.TrimRight(s, "dhms")
	return len(digits) > 0 && len(s)-len(digits) <= 2 && plainNumber(digits) && strings.Trim(digits, "0.") == ""
}

// ParseDuration reads 90s, 15m, 1h30m, 1.5h, 250ms, 7d, or a plain number of
// seconds. There is no sign and no zero duration.
func ParseDuration(field, s string) (time.Duration, error) {
	if d, err := strconv.ParseFloat(s, 64); err == nil && plainNumber(s) {
		return positive(field, s, d*float64(time.Second))
	}
	var total float64
	rest := s
	for rest != "" {
		n := 0
		for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '.') {
			n++
		}
		v, err := strconv.ParseFloat(rest[:n], 64)
		if err != nil || !plainNumber(rest[:n]) {
			return 0, invalid(field, s, "is not a duration "+durationForms)
		}
		rest = rest[n:]
		known := false
		for _, u := range units {
			if strings.HasPrefix(rest, u.name) {
				total += v * float64(u.unit)
				rest, known = rest[len(u.name):], true
				break
			}
		}
		if !known {
			return 0, invalid(field, s, "is not a duration "+durationForms)
		}
	}
	if s == "" {
		return 0, invalid(field, s, "is not a duration "+durationForms)
	}
	return positive(field, s, total)
}

func positive(field, s string, ns float64) (time.Duration, error) {
	if ns >= math.MaxInt64 {
		return 0, invalid(field, s, "is too long (at most 106751 days)")
	}
	if ns < 1 {
		return 0, invalid(field, s, "is not above zero")
	}
	return time.Duration(math.Round(ns)), nil
}

// plainNumber: digits, with at most one point between or after them.
func plainNumber(s string) bool {
	points := 0
	for i := range len(s) {
		switch {
		case s[i] >= '0' && s[i] <= '9':
		case s[i] == '.' && i > 0:
			points++
		default:
			return false
		}
	}
	return s != "" && points <= 1
}

// FormatDuration is how a person reads d: 340ms, 2.3s, 12m55s, 3h02m.
func FormatDuration(d time.Duration) string { return jobdir.FormatDuration(d) }

// OneLine is s for a line that people read. See [jobdir.OneLine].
func OneLine(s string) string { return jobdir.OneLine(s) }

const sizeForms = "(use bytes, or 8MiB = 8M = 8388608; 8MB = 8000000; also K, G and T)"

// ParseSize reads a number of bytes: 8388608, 8M or 8MiB (powers of 1024), 8MB
// (powers of 1000); K, M, G and T, in either case.
func ParseSize(field, s string) (int64, error) {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	if n == 0 {
		return 0, invalid(field, s, "is not a size "+sizeForms)
	}
	v, err := strconv.ParseInt(s[:n], 10, 64)
	if err != nil {
		return 0, invalid(field, s, "is too large")
	}
	unit, ok := sizeUnit(strings.ToUpper(s[n:]))
	if !ok {
		return 0, invalid(field, s, "is not a size "+sizeForms)
	}
	if v > math.MaxInt64/unit {
		return 0, invalid(field, s, "is too large")
	}
	return v * unit, nil
}

func sizeUnit(s string) (int64, bool) {
	if s == "" || s == "B" {
		return 1, true
	}
	base := int64(1024)
	switch s[1:] {
	case "", "IB":
	case "B":
		base = 1000
	default:
		return 0, false
	}
	unit := int64(1)
	for _, c := range "KMGT" {
		unit *= base
		if rune(s[0]) == c {
			return unit, true
		}
	}
	return 0, false
}

// ParseMaxLog reads the size of a log that is kept.
func ParseMaxLog(s string) (int64, error) {
	n, err := ParseSize("max_log", s)
	if err == nil && n < MinMaxLog {
		err = invalid("max_log", s, "is too small: at least 2MiB")
	}
	return n, err
}

// FormatSize is how a person reads a number of bytes.
func FormatSize(n int64) string {
	if n < 1<<10 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v, unit := float64(n), ""
	for _, u := range [...]string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1023.5 {
			break
		}
		v, unit = v/1024, u
	}
	digits := 0
	if v < 99.95 {
		digits = 1
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " " + unit
}

// ParseText checks a text that says something.
func ParseText(field, s string) (string, error) {
	if s == "" {
		return "", invalid(field, s, "is empty")
	}
	return s, nil
}

// ParseKey checks a start key.
func ParseKey(s string) (string, error) {
	switch {
	case s == "":
		return "", invalid("key", s, "is empty")
	case len(s) > MaxKey:
		return "", invalid("key", s, "is too long: at most 256 bytes")
	case hasControl(s):
		return "", invalid("key", s, "holds a control character")
	}
	return s, nil
}

func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}

// ParseCwd checks what is given as the directory of a job, apart from whether
// it is there.
func ParseCwd(s string) (string, error) {
	if s == "" {
		return "", invalid("cwd", s, "is empty")
	}
	if strings.IndexByte(s, 0) >= 0 {
		return "", invalid("cwd", s, "holds a NUL byte")
	}
	return s, nil
}

// variable is one NAME=value for the job's environment.
type variable struct{ name, value string }

// parseEnv reads K=V, or K alone for the value that K has in the caller's
// environment.
func parseEnv(s string, lookup func(string) (string, bool)) (variable, error) {
	name, value, given := strings.Cut(s, "=")
	switch {
	case name == "":
		return variable{}, invalid("env", s, "has no name before the =")
	case strings.ContainsAny(name, " \t\x00") || hasControl(name):
		return variable{}, invalid("env", s, "has a blank or control character in its name")
	case name == record.EnvJob:
		return variable{}, invalid("env", s, "cannot be set: SPACE_JOB is the job's own id")
	case strings.IndexByte(value, 0) >= 0:
		return variable{}, invalid("env", name, "holds a NUL byte")
	}
	if !given {
		var ok bool
		if value, ok = lookup(name); !ok {
			return variable{}, invalid("env", s, "is not set here, and no value is given")
		}
	}
	if n := len(name) + 1 + len(value); n >= MaxArgument {
		return variable{}, tooLong("env "+name, n)
	}
	return variable{name, value}, nil
}

// CheckEnv says what is wrong with one --env.
func CheckEnv(s string) error {
	_, err := parseEnv(s, func(string) (string, bool) { return "", true })
	return err
}

// withVariables is the environment base, in which the later of two settings of
// one name is the one that counts.
func withVariables(base []string, set []variable) []string {
	if len(set) == 0 {
		return base
	}
	out := make([]string, 0, len(base)+len(set))
	for _, kv := range base {
		name, _, _ := strings.Cut(kv, "=")
		if lastOf(set, name) < 0 {
			out = append(out, kv)
		}
	}
	for i, v := range set {
		if lastOf(set, v.name) == i {
			out = append(out, v.name+"="+v.value)
		}
	}
	return out
}

func lastOf(set []variable, name string) int {
	for i := len(set) - 1; i >= 0; i-- {
		if set[i].name == name {
			return i
		}
	}
	return -1
}

func tooLong(what string, n int) *Error {
	return &Error{
		Code:    LimitExceeded,
		Message: what + ": " + strconv.Itoa(n) + " bytes is too long: one argument must stay under 131072 bytes (128 KiB), which is the kernel's limit",
		Hint:    "put it into a file and let the command read that",
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// ParseInt reads a whole number.
func ParseInt(field, s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strings.HasPrefix(s, "+") {
		return 0, invalid(field, s, "is not a whole number")
	}
	return n, nil
}

// ParseCount reads a whole number above zero.
func ParseCount(field, s string) (int64, error) {
	n, err := ParseInt(field, s)
	if err == nil && n < 1 {
		err = invalid(field, s, "is not above zero")
	}
	return n, err
}
