package runner

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

func init() { roles["without"] = withoutRole }

// A refusal makes a system call fail. Where arg is not negative, only with one
// of the values there.
type refusal struct {
	call   uintptr
	errno  unix.Errno
	arg    int
	values []uint32
}

// A help of the kernel's that the runner and its starter do without where they
// have to. Switched off, it is refused to every process of the tests.
type help struct {
	refused []refusal
	tests   []string // beside those of basicTests, what it matters for
}

var helps = map[string]help{
	"ofd-locks": {
		[]refusal{{unix.SYS_FCNTL, unix.EINVAL, 1, []uint32{unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_OFD_SETLKW}}},
		[]string{"TestR1RunnerKilled", "TestR2PidReuse", "TestE5CallersDescriptors"},
	},
	"pidfd": {
		[]refusal{{unix.SYS_PIDFD_OPEN, unix.ENOSYS, -1, nil}, {unix.SYS_PIDFD_SEND_SIGNAL, unix.ENOSYS, -1, nil}},
		[]string{"TestS1EscapedGrandchild", "TestR2PidReuse", "TestSignalAloneCancels"},
	},
	"pidfd_send_signal": {
		[]refusal{{unix.SYS_PIDFD_SEND_SIGNAL, unix.ENOSYS, -1, nil}},
		[]string{"TestSignalAloneCancels"},
	},
	"subreaper": {
		[]refusal{{unix.SYS_PRCTL, unix.EINVAL, 0, []uint32{unix.PR_SET_CHILD_SUBREAPER}}},
		[]string{"TestS1EscapedGrandchild", "TestS5CancellingTheOuterJob", "TestR1RunnerKilled", "TestTimeout"},
	},
	"children": { // see noChildrenFile
		nil,
		[]string{"TestS1EscapedGrandchild", "TestS5CancellingTheOuterJob"},
	},
	"fallocate": {
		[]refusal{{unix.SYS_FALLOCATE, unix.ENOSYS, -1, nil}},
		[]string{"TestR5RunawayLog", "TestR3TornExit", "TestSignalAloneCancels"},
	},
	"reserve": {
		[]refusal{{unix.SYS_FALLOCATE, unix.EOPNOTSUPP, 1, []uint32{unix.FALLOC_FL_KEEP_SIZE}}},
		[]string{"TestMaxLogNotReached"},
	},
	"holes": {
		[]refusal{{unix.SYS_FALLOCATE, unix.EOPNOTSUPP, 1, []uint32{unix.FALLOC_FL_KEEP_SIZE | unix.FALLOC_FL_PUNCH_HOLE}}},
		[]string{"TestR5RunawayLog"},
	},
	"renameat2": {
		[]refusal{{unix.SYS_RENAMEAT2, unix.ENOSYS, -1, nil}},
		[]string{"TestIDsTaken", "TestR3TornExit"},
	},
	"rename-noreplace": {
		[]refusal{{unix.SYS_RENAMEAT2, unix.EINVAL, -1, nil}},
		[]string{"TestIDsTaken"},
	},
	"close_range": {
		[]refusal{{unix.SYS_CLOSE_RANGE, unix.ENOSYS, -1, nil}},
		[]string{"TestE5CallersDescriptors", "TestRunnerProcess"},
	},
	"memfd": {
		[]refusal{{unix.SYS_MEMFD_CREATE, unix.ENOSYS, -1, nil}},
		[]string{"TestE3Environment"},
	},
	"fsync": { // of a directory; a filter cannot tell which descriptor is one
		[]refusal{{unix.SYS_FSYNC, unix.EINVAL, -1, nil}},
		nil,
	},
	"pipe-size": {
		[]refusal{{unix.SYS_FCNTL, unix.EPERM, 1, []uint32{unix.F_SETPIPE_SZ}}},
		[]string{"TestFloodIsExact"},
	},
}

// A root with this file in it has runners that find no lists of children.
const noChildrenFile = "nochildren"

// Before any init, of which one is the runner.
var _ = func() bool {
	_, err := os.Stat(filepath.Join(os.Getenv(record.EnvHome), noChildrenFile))
	testOnlyNoChildren = err == nil
	return true
}()

// withoutRole executes a command without a help of the kernel's.
func withoutRole(args []string) int {
	runtime.LockOSThread()
	if err := refuse(helps[args[0]].refused); err != nil {
		fmt.Println("no filter:", err)
		return 3
	}
	if args[0] == "children" {
		os.Setenv(rootFileEnv, noChildrenFile)
	}
	fmt.Println(unix.Exec(args[1], args[1:], os.Environ()))
	return 1
}

// refuse installs a filter of system calls in this thread.
func refuse(rules []refusal) error {
	if len(rules) == 0 {
		return nil
	}
	const (
		number    = 0 // offsets in struct seccomp_data
		arguments = 16

		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	var prog []unix.SockFilter
	add := func(code uint16, jt, jf uint8, k uint32) {
		prog = append(prog, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
	}
	for _, r := range rules {
		refused := unix.SECCOMP_RET_ERRNO | uint32(r.errno)
		add(load, 0, 0, number)
		if r.arg < 0 {
			add(equal, 0, 1, uint32(r.call))
			add(answer, 0, 0, refused)
			continue
		}
		low := uint32(arguments + 8*r.arg)
		if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // big-endian
			low += 4
		}
		add(equal, 0, uint8(1+2*len(r.values)), uint32(r.call))
		add(load, 0, 0, low)
		for _, v := range r.values {
			add(equal, 0, 1, v)
			add(answer, 0, 0, refused)
		}
	}
	add(answer, 0, 0, unix.SECCOMP_RET_ALLOW)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	f := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)), 0, 0)
}

// What is run without each of the helps, and with -without.all. The rest takes
// long, or sets the same ways going.
var (
	basicTests = []string{"TestStartToEnd", "TestS1Orphan", "TestCancelOfAnEndedJob", "TestL1BackgroundChildHoldsTheLog"}
	otherTests = []string{
		"TestE3Environment", "TestE5CallersDescriptors", "TestIDsTaken", "TestR9Modes", "TestS1EscapedGrandchild",
		"TestS5CancellingTheOuterJob", "TestCancelBeforeTheFork", "TestSignalAloneCancels", "TestTimeout", "TestR1RunnerKilled",
		"TestR2PidReuse", "TestR3TornExit", "TestL1bReopenedOutput", "TestL5LogCutUnderTheWriter", "TestR5RunawayLog",
		"TestFloodIsExact", "TestSignalsAtTheStart", "TestRunnerProcess", "TestHardLimitOnFiles",
	}
	withoutAll = flag.Bool("without.all", false, "run many more tests without each of the kernel's helps")
)

func TestWithoutHelps(t *testing.T) {
	const env = "RUNNER_TEST_WITHOUT"
	if os.Getenv(env) != "" {
		t.Skip("runs without a help itself")
	}
	if testing.Short() {
		t.Skip("takes a while")
	}
	if bits.UintSize != 64 {
		t.Skip("other system calls")
	}
	t.Parallel()
	var names []string
	for name := range helps {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			tests := slices.Concat(basicTests, helps[name].tests)
			if *withoutAll {
				tests = slices.Concat(basicTests, otherTests)
			}
			c := helper("without", name, testBinary, "-test.run=^("+strings.Join(tests, "|")+")$", "-test.v")
			c.Env = append(c.Env, env+"="+name)
			out, err := runCommand(t, c)
			if strings.Contains(out, "no filter:") {
				t.Skip(out)
			}
			for _, name := range tests {
				// A test may find that it has to do without, and say so.
				if strings.Contains(out, "\n--- PASS: "+name+" ") || strings.Contains(out, "\n--- SKIP: "+name+" ") && !slices.Contains(basicTests, name) {
					continue
				}
				t.Errorf("%s did not pass", name)
			}
			if err != nil {
				var failed strings.Builder
				for line := range strings.Lines(out) {
					if !strings.HasPrefix(line, "=== ") && !strings.Contains(line, "--- PASS") {
						failed.WriteString(line)
					}
				}
				t.Errorf("%v\n%s", err, failed.String())
			}
		})
	}
}
