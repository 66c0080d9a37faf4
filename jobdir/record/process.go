package record

import (
	"strconv"
	"strings"
)

// ParseProcess reads the fields of a pid file that a signal depends on, for
// those who link no JSON library. It reports false unless both the runner and
// the boot are named; numbers that are no process of a job (0, 1, negative)
// come out as 0.
func ParseProcess(b []byte) (ProcessRecord, bool) {
	s := string(b)
	r := ProcessRecord{
		RunnerPID:   pid(field(s, "runner_pid")),
		ChildPID:    pid(field(s, "child_pid")),
		RunnerStart: number(field(s, "runner_start")),
		ChildStart:  number(field(s, "child_start")),
		BootID:      strings.Trim(field(s, "boot_id"), `"`),
		MachineID:   strings.Trim(field(s, "machine_id"), `"`),
	}
	return r, r.RunnerPID != 0 && r.BootID != ""
}

// field is the raw text of a scalar field, "" when it is not there whole.
func field(s, name string) string {
	_, s, ok := strings.Cut(s, `"`+name+`":`)
	if !ok {
		return ""
	}
	i := strings.IndexAny(s, ",}")
	if i < 0 {
		return ""
	}
	return strings.TrimSpace(s[:i])
}

func number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func pid(s string) int {
	n := number(s)
	if n < 2 || n > 1<<30 {
		return 0
	}
	return int(n)
}

// IsBlank reports whether a record is reserved but not written: empty, or
// nothing but white space.
func IsBlank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' && c != 0 {
			return false
		}
	}
	return true
}

// IsProcess reports whether a process lives that started then: another one of
// the same number did not.
func IsProcess(pid int, start uint64) bool {
	at, alive := ProcessStart(pid)
	return alive && at == start
}
