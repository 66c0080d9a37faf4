package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"space-job/notify/thread"
)

// terminal is the far end of a pseudo-terminal: what a person would have seen.
type terminal struct {
	near *os.File // for the program
	far  *os.File

	mu   sync.Mutex
	seen strings.Builder
	more chan struct{} // full when something was seen
}

func openTerminal(t *testing.T, columns uint16) *terminal {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	control := func(request uintptr, p unsafe.Pointer) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, far.Fd(), request, uintptr(p)); errno != 0 {
			t.Skip("no pseudo-terminals here: ", errno)
		}
	}
	var unlocked, number int32
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	size := [4]uint16{24, columns}
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	near, err := os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	term := &terminal{near: near, far: far, more: make(chan struct{}, 1)}
	t.Cleanup(func() { near.Close(); far.Close() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := far.Read(b)
			if err != nil {
				return
			}
			term.mu.Lock()
			term.seen.Write(b[:n])
			term.mu.Unlock()
			select {
			case term.more <- struct{}{}:
			default:
			}
		}
	}()
	return term
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.String()
}

// await waits until what was seen contains want.
func (term *terminal) await(t *testing.T, want string) {
	t.Helper()
	deadline := time.After(patience)
	for !strings.Contains(term.text(), want) {
		select {
		case <-term.more:
		case <-deadline:
			t.Fatalf("%q was not seen in %q", want, term.text())
		}
	}
}

// screen is what is left on a terminal after all that was written: lines, the
// current one redrawn after \r and ESC [ K.
func screen(seen string) string {
	var b strings.Builder
	for line := range strings.Lines(seen) {
		nl := strings.HasSuffix(line, "\n")
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if i := strings.LastIndex(line, "\r\x1b[K"); i >= 0 {
			line = line[i+len("\r\x1b[K"):]
		}
		b.WriteString(line)
		if nl {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

type program struct {
	t   *testing.T
	env []string
	dir string
}

func newProgram(t *testing.T) *program {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	t.Cleanup(func() { stopAll(root) })
	env := []string{"SPACE_JOB=", "TERM=xterm"}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "NO_COLOR=") && !strings.HasPrefix(kv, "TERM=") && !strings.HasPrefix(kv, "SPACE_JOB") {
			env = append(env, kv)
		}
	}
	return &program{t, append(env, "SPACE_JOB_HOME="+root), dir}
}

func (p *program) command(args ...string) *exec.Cmd {
	c := exec.Command("space-job", args...)
	c.Dir, c.Env = p.dir, p.env
	return c
}

func (p *program) output(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).Output()
	if err != nil {
		p.t.Fatalf("%q: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// TestLiveLine: on a terminal, wait shows one line, which fits and goes away.
func TestLiveLine(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	if err := syscall.Mkfifo(filepath.Join(p.dir, "go"), 0o600); err != nil {
		t.Fatal(err)
	}
	pass := func() {
		f, err := os.OpenFile(filepath.Join(p.dir, "go"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	const command = "echo first; echo the last line; read x <go; exit 0"
	before := p.output("start", command)
	pass()
	p.output("wait", before)

	id := p.output("start", "-n", "the name", command)
	p.output("logs", id, "--offset", "6", "--follow-ms", "20000")
	term := openTerminal(t, 200)
	c := p.command("wait", id)
	c.Stderr = term.near
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	term.await(t, "the last line")
	for _, want := range []string{id, "the name", "running", "(before: ", "log 20 B"} {
		term.await(t, want)
	}
	pass()
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	term.await(t, " after ")
	if left := screen(term.text()); !strings.HasPrefix(left, "space-job: job "+id+": \x1b[32mexited\x1b[0m, exit code 0 after ") || strings.Count(left, "\n") != 1 {
		t.Errorf("left on the screen: %q", left)
	}

	// A narrow terminal: never wider than it, so it stays one line.
	narrow := openTerminal(t, 30)
	id = p.output("start", "-n", "the name", command)
	c = p.command("wait", id)
	c.Stderr = narrow.near
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	narrow.await(t, id)
	pass()
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(narrow.text(), "\r\x1b[K") {
		part, _, _ = strings.Cut(part, "space-job: ") // what stays may be wider
		if len(part) > 29 {
			t.Errorf("wider than the terminal: %q", part)
		}
	}
}

// TestRunOnTerminal: the log is whole on the screen, the live line never in it.
func TestRunOnTerminal(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	term := openTerminal(t, 80)
	c := p.command("run", "echo one; sleep 0.7; echo two; printf part; sleep 0.7; echo ial")
	c.Stdout, c.Stderr = term.near, term.near
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	term.await(t, "ial")
	term.await(t, " after ")
	got, said, _ := strings.Cut(screen(term.text()), "space-job: job j")
	if want := "one\ntwo\npartial\n"; got != want || !strings.Contains(said, ": \x1b[32mexited\x1b[0m, exit code 0 after 1.") {
		t.Errorf("on the screen: %q, want %q (%q)", got, want, term.text())
	}
	term.await(t, "running")

	// Ctrl-C detaches and takes the line away.
	c = p.command("run", "echo here; sleep 100")
	term = openTerminal(t, 80)
	c.Stdout, c.Stderr = term.near, term.near
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	term.await(t, "here\r\n") // of the log: the line has no end
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != 130 {
		t.Errorf("%v", err)
	}
	term.await(t, "stop it")
	for line := range strings.Lines(screen(term.text())) {
		if len(line) > 80 {
			t.Errorf("broken by the terminal: %q", line)
		}
	}
	if got := screen(term.text()); !strings.HasPrefix(got, "here\nspace-job: hint: detached") {
		t.Errorf("on the screen: %q", got)
	}
}

// TestInterrupted: Ctrl-C of who only looks says that the job goes on.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	id := p.output("start", "printf here; sleep 100")
	for _, args := range [][]string{{"wait", id}, {"logs", "-f", id}} {
		term := openTerminal(t, 80)
		c := p.command(args...)
		c.Stdout, c.Stderr = term.near, term.near
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		term.await(t, "here")
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		term.await(t, "the job goes on: space-job "+strings.Join(args, " ")+"\r\n")
		if code := c.ProcessState.ExitCode(); code != 130 {
			t.Errorf("%q: exit code %d", args, code)
		}
		if lines := strings.Split(strings.TrimSpace(screen(term.text())), "\n"); !strings.HasPrefix(lines[len(lines)-1], "space-job: hint: ") {
			t.Errorf("%q: %q", args, lines)
		}
	}
}

// TestColour: only on a terminal, and not with NO_COLOR.
func TestColour(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.output("wait", p.output("start", "true"))
	const green = "\x1b[32mexited"
	look := func(env ...string) string {
		term := openTerminal(t, 80)
		c := p.command("list")
		c.Stdout = term.near
		c.Env = append(c.Env, env...)
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		term.await(t, "true")
		return term.text()
	}
	if got := look(); !strings.Contains(got, green) {
		t.Errorf("on a terminal: %q", got)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if got := look(env); strings.Contains(got, "\x1b") {
			t.Errorf("with %s: %q", env, got)
		}
	}
	if got := p.output("list"); strings.Contains(got, "\x1b") {
		t.Errorf("in a pipe: %q", got)
	}
}

// TestPlainTerminal: a terminal that shows control sequences as they are is sent
// none.
func TestPlainTerminal(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	job := p.output("start", "sleep 1; exit 3")
	for _, args := range [][]string{{"wait", job}, {"run", "sleep 0.6; printf three; exit 3"}} {
		term := openTerminal(t, 80)
		c := p.command(args...)
		c.Stdout, c.Stderr = term.near, term.near
		c.Env = append(c.Env, "TERM=dumb")
		var exit *exec.ExitError
		if err := c.Run(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Errorf("%v: %v", args, err)
		}
		term.await(t, "exit code 3")
		if got := term.text(); strings.ContainsAny(got, "\x1b") || strings.Contains(got, "running") {
			t.Errorf("%v: %q", args, got)
		}
	}
}

// TestFullStdout: an id that cannot be printed is said, and the job runs.
func TestFullStdout(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	c := p.command("start", "true")
	var talk strings.Builder
	c.Stdout, c.Stderr = full, io.Writer(&talk)
	if err := c.Run(); c.ProcessState.ExitCode() != 1 || !strings.Contains(talk.String(), "no space left") || !strings.Contains(talk.String(), " j") {
		t.Errorf("%v: %s", err, talk.String())
	}
}

// TestLoginName: on a terminal, who is not named is the login name, a person.
func TestLoginName(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.env = append(p.env, "SPACE_MEMBER=")
	if err := p.command("thread", "post", "hello").Run(); err == nil {
		t.Error("posted by nobody")
	}
	term := openTerminal(t, 80)
	c := p.command("thread", "post", "hello")
	c.Stderr = term.near
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %s", err, term.text())
	}
	got := p.output("thread", "read", "--json")
	if want := `"author":{"member":"` + thread.LoginName() + `","kind":"person"}`; !strings.Contains(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestNotifyAndWalkAway is the tour of README: a job is started on a terminal,
// which ends; in another one the message is there.
func TestNotifyAndWalkAway(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.env = append(p.env, "SPACE_MEMBER=", "DBUS_SESSION_BUS_ADDRESS=unix:path=/nowhere", "DISPLAY=", "WAYLAND_DISPLAY=")
	term := openTerminal(t, 80)
	shell := exec.Command("/bin/sh", "-c", `space-job start --notify --name 'unit tests' 'sleep 0.5; echo "4 tests, 1 failed"; exit 1' >id`)
	shell.Dir, shell.Env = p.dir, p.env
	shell.Stdin, shell.Stdout, shell.Stderr = term.near, term.near, term.near
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Run(); err != nil {
		t.Fatalf("%v: %s", err, term.text())
	}
	b, err := os.ReadFile(filepath.Join(p.dir, "id"))
	id := strings.TrimSpace(string(b))
	if err != nil || id == "" {
		t.Fatalf("%q, %v", b, err)
	}
	term.near.Close()
	term.far.Close() // hangs up

	other := openTerminal(t, 80)
	var inbox string
	for end := time.Now().Add(patience); !strings.Contains(inbox, id); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nothing of %q in the inbox: %s", id, inbox)
		}
		c := p.command("inbox")
		c.Stderr = other.near
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, other.text())
		}
		inbox = string(out)
	}
	got := p.output("thread", "read")
	if !strings.Contains(got, "JOB "+id+" exited exit=1 ") || !strings.Contains(got, "4 tests, 1 failed") || strings.Count(got, "JOB ") != 1 {
		t.Errorf("%s", got)
	}
}
