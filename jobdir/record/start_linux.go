package record

import (
	"bytes"
	"strconv"

	"golang.org/x/sys/unix"
)

// ProcessStart is when a live process started, as ProcessRecord has it. It reports
// false for one that is not there, or has ended and was not waited for.
func ProcessStart(pid int) (start uint64, alive bool) {
	var buf [1024]byte
	b, err := ReadFile(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return 0, false
	}
	// The name may hold anything: it ends at the last bracket.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return 0, false
	}
	if state := f[0][0]; (state == 'Z' || state == 'X' || state == 'x') && (string(f[17]) == "0" || string(f[17]) == "1") {
		return 0, false
	}
	start, err = strconv.ParseUint(string(f[19]), 10, 64)
	return start, err == nil
}
