package runner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

func init() {
	roles["lines"] = linesRole
	roles["as"] = asRole
}

// linesRole writes numbered lines of 16 bytes, so that every offset tells what
// belongs there: as many as its argument says, or until there is a file of the
// name of the second one.
func linesRole(args []string) int {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	for i := 0; i < n; i += linesAtOnce {
		if len(args) > 1 {
			if _, err := os.Stat(args[1]); err == nil {
				break
			}
		}
		const chunk = linesAtOnce
		if _, err := os.Stdout.Write(lines(i, min(i+chunk, n))); err != nil {
			return 1
		}
	}
	return 0
}

const linesAtOnce = 4096

func lines(from, to int) []byte {
	b := make([]byte, 0, 16*(to-from))
	line := fmt.Appendf(nil, "%015d\n", from)
	for range to - from {
		b = append(b, line...)
		for d := 14; ; d-- { // the next number, in place
			if line[d]++; line[d] <= '9' {
				break
			}
			line[d] = '0'
		}
	}
	return b
}

// wantLines checks that b is what linesRole writes at an offset.
func wantLines(t testing.TB, b []byte, off int64) {
	t.Helper()
	const chunk = 1 << 20
	for len(b) > 0 {
		n := min(len(b), chunk)
		from := off / 16
		want := lines(int(from), int((off+int64(n))/16+1))[off-16*from:]
		if !bytes.Equal(b[:n], want[:n]) {
			i := 0
			for b[i] == want[i] {
				i++
			}
			t.Errorf("at offset %d the log has %.64q, want %.64q", off+int64(i), b[i:n], want[i:])
			return
		}
		b, off = b[n:], off+int64(n)
	}
}

// asRole executes a command as another user, for good.
func asRole(args []string) int {
	uid, err := strconv.Atoi(args[0])
	if err != nil {
		return 2
	}
	if err := becomeUser(uid); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, unix.Exec(args[1], args[1:], os.Environ()))
	return 1
}

func TestL1BackgroundChildHoldsTheLog(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	gate := newGate(t)
	j := r.run("/bin/sh", "-c", `(read x <"$0"; echo late && echo later; echo last >&2) & echo hi`, gate.path)
	e := j.wantExit(0)
	if e.Left != 1 || e.LogBytes != 3 {
		t.Errorf("exit is %s", j.read(record.Exit))
	}
	if !j.held() {
		t.Error("the runner has gone, though somebody can write")
	}
	if left, err := Left(j.dir); len(left) != 1 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	gate.open()
	j.gone()
	if got := j.log(); got != "hi\nlate\nlater\nlast\n" {
		t.Errorf("log is %q", got)
	}
	if _, err := os.Lstat(j.file(record.Pipe)); err == nil {
		t.Error("the pipe is still there")
	}
}

func TestL1bReopenedOutput(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for _, sh := range []string{"sh", "bash"} {
		for script, want := range map[string]string{
			`echo one; echo two >/dev/stderr; echo three >/dev/stdout`: "one\ntwo\nthree\n",
			`echo one; : >/dev/stderr; : >/dev/stdout; echo two`:       "one\ntwo\n",
			`echo one; exec >/dev/stderr; echo two`:                    "one\ntwo\n",
			`echo one; echo two >>/dev/stderr; echo three`:             "one\ntwo\nthree\n",
		} {
			j := r.run(sh, "-c", script)
			j.wantExit(0)
			if got := j.log(); got != want {
				t.Errorf("%s -c '%s': log is %q, want %q", sh, script, got, want)
			}
		}
	}
	if os.Getuid() == 0 { // what su starts may open it again too
		j := r.run(helperArgv("as", "60002", "/bin/sh", "-c", `echo one; echo two >/dev/stderr; id -u`)...)
		j.wantExit(0)
		if got := j.log(); got != "one\ntwo\n60002\n" {
			t.Errorf("as another user: log is %q", got)
		}
	}
}

func TestL1cRunnerKilledInAFlood(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	stop := filepath.Join(r.path, "stop")
	j := r.run(helperArgv("lines", strconv.Itoa(1<<40), stop)...)
	child := j.process().ChildPID
	j.logSize(1 << 20)
	j.killRunner()
	if !alive(child) {
		t.Error("the job went with its runner")
	}
	log := []byte(j.log())
	wantLines(t, log, 0)
	if left, err := Left(j.dir); len(left) != 1 || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}

	// Whoever opens the pipe next goes on, with no more lost than the one bite
	// that the runner had read and not written.
	f, err := os.Open(j.file(record.Pipe))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	waitFor(t, "bytes that the runner did not get", func() bool { return pending(int(f.Fd())) > 0 })
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	// The command ended after a whole write, so its end tells where rest begins.
	const write = 16 * linesAtOnce
	if len(rest) < write {
		t.Fatalf("rest has %d bytes, less than a write", len(rest))
	}
	last, err := strconv.Atoi(strings.TrimSpace(string(rest[len(rest)-16:])))
	if err != nil || (last+1)%linesAtOnce != 0 {
		t.Fatalf("rest ends with %q, which no write does", rest[len(rest)-16:])
	}
	from := int64(last+1)*16 - int64(len(rest))
	if gap := from - int64(len(log)); gap < 0 || gap > biteSize {
		t.Errorf("log has %d bytes, rest begins at %d", len(log), from)
	}
	wantLines(t, rest, from)
}

func TestL1cStopLeft(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.run("yes")
	child := j.process().ChildPID
	j.logSize(1 << 20)
	j.killRunner()
	n, remaining, err := StopLeft(context.Background(), j.dir)
	if n != 1 || len(remaining) != 0 || err != nil {
		t.Errorf("stopped: %d, %v, %v", n, remaining, err)
	}
	wantGone(t, child)
}

// logSize waits for a log of at least n bytes.
func (j *testJob) logSize(n int64) {
	j.t.Helper()
	waitFor(j.t, fmt.Sprintf("%d bytes in the log of %s", n, j.id), func() bool {
		st, err := os.Stat(j.file(record.Log))
		return err == nil && st.Size() >= n
	})
}

func TestL5LogCutUnderTheWriter(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	gate, second := newGate(t), newGate(t)
	j := r.run("/bin/sh", "-c", `echo one; read x <"$0"; echo two; read x <"$1"; echo three`, gate.path, second.path)
	j.logHas("one\n")
	if err := os.Truncate(j.file(record.Log), 0); err != nil {
		t.Fatal(err)
	}
	gate.open()
	j.logHas("two\n")
	if got := j.log(); got != "two\n" {
		t.Errorf("log is %q", got)
	}
	if err := os.Truncate(j.file(record.Log), 2); err != nil {
		t.Fatal(err)
	}
	second.open()
	if e := j.wantExit(0); e.LogBytes != 8 {
		t.Errorf("exit is %+v", e)
	}
	if got := j.log(); got != "twthree\n" {
		t.Errorf("log is %q", got)
	}
}

// Cut again and again in a flood: what the log then holds is output.
func TestL5LogCutInAFlood(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	stop := filepath.Join(r.path, "stop")
	j := r.run(helperArgv("lines", strconv.Itoa(1<<40), stop)...)
	for range 30 {
		j.logSize(256 << 10)
		if err := os.Truncate(j.file(record.Log), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e := j.wantExit(0)
	j.gone()
	b := []byte(j.log())
	if int64(len(b)) != e.LogBytes {
		t.Errorf("log has %d bytes, exit says %d", len(b), e.LogBytes)
	}
	if i := bytes.IndexByte(b, 0); i >= 0 || j.dropped().Hole != nil {
		t.Errorf("a NUL at %d of %d bytes, and dropped is %+v", i, len(b), j.read(record.Dropped))
	}
}

func TestR5RunawayLog(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec(helperArgv("lines", strconv.Itoa(1<<40))...)
	s.MaxLog = 8 << 20
	id, err := lockedStart(s)
	if _, ok := err.(*HoleError); ok {
		if len(r.names()) != 0 {
			t.Errorf("a refused start left %q", r.names())
		}
		t.Skip("no holes here, and that is said: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	j := r.job(id)
	var most int64
	waitFor(t, "100 MiB", func() bool {
		var st unix.Stat_t
		if err := unix.Stat(j.file(record.Log), &st); err != nil {
			t.Fatal(err)
		}
		most = max(most, st.Blocks*512)
		return st.Size >= 100<<20
	})
	j.ask()
	e := j.wantState(record.Cancelled)
	j.gone()
	if most > 10<<20 {
		t.Errorf("the log took up to %d bytes of the disk", most)
	}
	h := j.dropped().Hole
	if h == nil || h.From != 1<<20 || h.To <= h.From || h.To%512 != 0 {
		t.Fatalf("dropped is %q, of %d bytes", j.read(record.Dropped), e.LogBytes)
	}
	f, err := os.Open(j.file(record.Log))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() != e.LogBytes || st.Size()-h.To < 6<<20 {
		t.Errorf("log has %d bytes, exit says %d, hole up to %d", st.Size(), e.LogBytes, h.To)
	}
	for _, part := range [][2]int64{{0, h.From}, {h.To, st.Size()}} {
		b := make([]byte, part[1]-part[0])
		if _, err := f.ReadAt(b, part[0]); err != nil {
			t.Fatal(err)
		}
		wantLines(t, b, part[0])
	}
	t.Logf("%d MiB of output, at most %d KiB on disk", e.LogBytes>>20, most>>10)
}

// A short log is not cut.
func TestMaxLogNotReached(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec(helperArgv("lines", strconv.Itoa(64<<10))...) // 1 MiB
	s.MaxLog = 2 << 20
	id, err := lockedStart(s)
	if _, ok := err.(*HoleError); ok {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	j := r.job(id)
	j.wantExit(0)
	wantLines(t, []byte(j.log()), 0)
	if h := j.dropped().Hole; h != nil {
		t.Errorf("dropped is %+v", h)
	}
}

func TestFloodIsExact(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	const n = 1 << 20
	j := r.run(helperArgv("lines", strconv.Itoa(n))...)
	// Stopped and continued meanwhile, both ends of it.
	p := j.process()
	for i := range 20 {
		who := process{pid: p.RunnerPID, start: p.RunnerStart}
		if i%2 == 0 {
			who = process{pid: p.ChildPID, start: p.ChildStart}
		}
		_ = who.signal(unix.SIGSTOP)
		_ = who.signal(unix.SIGCONT)
	}
	if e := j.wantExit(0); e.LogBytes != 16*n {
		t.Errorf("exit is %+v", e)
	}
	wantLines(t, []byte(j.log()), 0)
}

// What a job has written when its main process ends is in the log before the
// end is recorded.
func TestEndAfterLastByte(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for _, n := range []int{1, 4 << 10, 60 << 10} {
		j := r.sh(fmt.Sprintf("head -c %d /dev/zero", n))
		if e := j.wantExit(0); e.LogBytes != int64(n) {
			t.Errorf("exit says %d bytes, want %d", e.LogBytes, n)
		}
		if got := len(j.log()); got != n {
			t.Errorf("log has %d bytes, want %d", got, n)
		}
	}
}

// A survivor's flood delays neither the end nor a cancel, nor is it cut off.
func TestSurvivorsFlood(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec("/bin/sh", "-c", `yes & echo $! >survivor; exit 3`)
	s.Cwd = r.path
	j := r.start(s)
	j.wantExit(3)
	survivor := pidIn(t, filepath.Join(r.path, "survivor"))
	if e, _ := j.exit(); e.Left != 1 {
		t.Errorf("exit is %+v", e)
	}
	st, err := os.Stat(j.file(record.Log))
	if err != nil {
		t.Fatal(err)
	}
	j.logSize(st.Size() + 1<<20)
	if n, left, err := StopLeft(context.Background(), j.dir); n != 1 || len(left) != 0 || err != nil {
		t.Errorf("stopped: %d, %v, %v", n, left, err)
	}
	wantGone(t, survivor)
	j.gone()

	j = r.sh("yes & yes & wait")
	j.logSize(1 << 20)
	began := time.Now()
	j.ask()
	if took := time.Since(began); took >= grace {
		t.Errorf("a cancel in a flood took %v", took)
	}
	j.wantState(record.Cancelled)
	j.gone()
	if b := j.log(); strings.Trim(b[:1<<20], "y\n") != "" {
		t.Error("the log holds what nobody wrote")
	}
}
