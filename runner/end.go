package runner

import (
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// How often, and how long, a disk that takes no record at all is asked again.
const (
	recordEvery  = time.Second
	recordWithin = 30 * time.Second
)

// record commits the end of the job: timing, then exit. Both go over space
// that was set aside at the start. The failing of timing never stops exit; an
// exit that cannot be written (a disk gone read-only) is tried again for half a
// minute. Then this process ends, and the job is lost, as it would be by a
// runner that was killed.
func (r *supervisor) record(e record.ExitRecord) {
	now := time.Now()
	e.At = now
	crash("end.begin")
	t := record.TimingRecord{StartedAt: r.started, EndedAt: now, DurationMS: now.Sub(r.started).Milliseconds()}
	var ru unix.Rusage
	if r.child != 0 && unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) == nil {
		t.UserMS = ru.Utime.Nano() / 1e6
		t.SysMS = ru.Stime.Nano() / 1e6
		t.MaxRSSBytes = int64(ru.Maxrss) * maxRSSUnit
	}
	if fd := r.reserved(record.ReservedTiming); fd >= 0 {
		if record.Write(fd, t.Append(nil)) == nil {
			crash("end.timing")
			_ = record.RenameNoReplace(fdDir, record.ReservedTiming, record.Timing)
			crash("end.timed")
		}
		unix.Close(fd)
	}
	b := e.Append(nil)
	for !r.commit(b) {
		if time.Since(now) > recordWithin {
			syscall.Exit(1)
		}
		for next := time.Now().Add(recordEvery); time.Now().Before(next); {
			r.ev.wait(-1, time.Until(next)) // a canceller rings meanwhile
		}
	}
}

// reserved opens a reserved record, or makes it anew where somebody took it away,
// or put something else in its place.
func (r *supervisor) reserved(name string) int {
	fd, err := record.Open(fdDir, name, unix.O_WRONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			return fd
		}
		unix.Close(fd)
	}
	var st unix.Stat_t
	if unix.Fstatat(fdDir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
		_ = record.Clear(fdDir, name)
	}
	fd, err = record.Open(fdDir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return -1
	}
	_ = unix.Fchmod(fd, 0o600) // the umask is the job's
	return fd
}

// commit makes exit appear, whole and durable, and reports whether it is there.
func (r *supervisor) commit(b []byte) bool {
	fd := r.reserved(record.ReservedExit)
	if fd < 0 {
		return false
	}
	err := record.Write(fd, b)
	crash("end.written")
	if err == nil {
		err = record.Sync(fd)
	}
	crash("end.synced")
	unix.Close(fd)
	if err != nil {
		return false
	}
	err = record.RenameNoReplace(fdDir, record.ReservedExit, record.Exit)
	if err == unix.EEXIST {
		if whole(fdDir, record.Exit) {
			return true // somebody has recorded an end: the first one stands
		}
		_ = record.Clear(fdDir, record.Exit) // torn, and this process holds the lock
		err = record.RenameNoReplace(fdDir, record.ReservedExit, record.Exit)
	}
	if err != nil {
		return false
	}
	crash("end.renamed")
	for _, name := range []string{record.Cmd, record.Timing} { // an end is worth little without what it is the end of
		if fd, err := record.Open(fdDir, name, unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			_ = record.Sync(fd)
			unix.Close(fd)
		}
	}
	_ = record.Sync(fdDir)
	if fd, err := record.Open(fdDir, "..", unix.O_RDONLY|unix.O_DIRECTORY, 0); err == nil {
		_ = record.Sync(fd)
		unix.Close(fd)
	}
	crash("end.durable")
	return true
}

// readRecord reads a small file of a directory.
func readRecord(dir int, name string) ([]byte, error) {
	return record.ReadFile(dir, name, make([]byte, record.ReservedSize))
}

// whole reports whether a record looks complete: an object, from its brace to
// its brace. Its readers parse it; this only tells a torn one.
func whole(dir int, name string) bool {
	b, _ := readRecord(dir, name)
	s := strings.TrimSpace(string(b))
	for _, state := range []record.State{record.Exited, record.Cancelled, record.TimedOut, record.Lost} {
		if strings.HasPrefix(s, `{"state":"`+string(state)+`","exit_code":`) && strings.HasSuffix(s, "}") {
			return true
		}
	}
	return false
}

// signalName is a signal without its SIG: "KILL", "35" where it has no name.
func signalName(sig syscall.Signal) string {
	if s := unix.SignalName(sig); s != "" {
		return strings.TrimPrefix(s, "SIG")
	}
	return strconv.Itoa(int(sig))
}
