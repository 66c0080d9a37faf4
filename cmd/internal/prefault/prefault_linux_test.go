//go:build amd64 || arm64

package prefault

import (
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestPopulate takes this program's code away from it, which brings back what is
// used meanwhile, and looks at how much of it is mapped afterwards.
func TestPopulate(t *testing.T) {
	m := codeMapping(t)
	call := func(advice uintptr) syscall.Errno {
		_, _, err := syscall.RawSyscall(syscall.SYS_MADVISE, m.from, m.to-m.from, advice)
		return err
	}
	if err := call(madvPopulateRead); err != 0 {
		t.Skipf("madvise: %v", err)
	}
	if err := call(syscall.MADV_DONTNEED); err != 0 {
		t.Skipf("madvise: %v", err)
	}
	before := codeMapping(t)
	populate()
	after := codeMapping(t)
	if before.resident >= after.resident || after.resident < after.size*9/10 {
		t.Errorf("of %d kB of code %d are mapped, and %d were before", after.size, after.resident, before.resident)
	}
}

type mapping struct {
	from, to       uintptr
	size, resident int // kB
}

// codeMapping is the mapping that this code lies in.
func codeMapping(t *testing.T) (m mapping) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	here := reflect.ValueOf(codeMapping).Pointer()
	inside := false
	for line := range strings.Lines(string(smaps)) {
		f := strings.Fields(line)
		if lo, hi, ok := strings.Cut(f[0], "-"); ok {
			from, _ := strconv.ParseUint(lo, 16, 64)
			to, _ := strconv.ParseUint(hi, 16, 64)
			if inside = uintptr(from) <= here && here < uintptr(to); inside {
				m.from, m.to = uintptr(from), uintptr(to)
			}
		}
		if inside && f[0] == "Size:" {
			m.size, _ = strconv.Atoi(f[1])
		}
		if inside && f[0] == "Rss:" {
			m.resident, _ = strconv.Atoi(f[1])
		}
	}
	if m.size == 0 {
		t.Fatal("this code is in no mapping")
	}
	return m
}
