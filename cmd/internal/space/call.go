package space

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"space-job/jobdir"
)

// Hello is the first line of a space-job that answers a request.
type Hello struct {
	Version string `json:"space_job"`
	Format  int    `json:"format"` // of the job directories that it writes
}

// Answer is the second: a result or an error.
type Answer struct {
	Result   json.RawMessage `json:"result,omitempty"`
	Warnings []string        `json:"warnings,omitempty"`
	Hints    []string        `json:"hints,omitempty"`
	Error    json.RawMessage `json:"error,omitempty"`
}

// Kind is what went wrong with a call.
type Kind int

// The kinds of a call that has no answer.
const (
	NotRun      Kind = iota // the program of the prefix cannot be run here
	Unreachable             // it ended without a word of a space-job
	Stranger                // what answers is no space-job
	NoProgram               // it says that there is no space-job over there
	TooOld                  // the space-job there is too old to be asked
	Newer                   // it writes a newer format, which is read and not written
	Lost                    // the connection broke before the whole answer was there
	Late                    // no answer came in time
)

// Error is why a call has no answer.
type Error struct {
	Kind Kind
	Sent bool // the request may have been done
	Said string
	Err  error
}

func (e *Error) Error() string {
	switch {
	case e.Said != "":
		return e.Said
	case e.Err != nil:
		return e.Err.Error()
	}
	return "no answer came"
}

func (e *Error) Unwrap() error { return e.Err }

// Call is one request.
type Call struct {
	Action  string
	Request any           // becomes a line of JSON
	Wait    time.Duration // how long the answer may take by itself
	Writes  bool          // it changes something: see the package comment
	Before  func() error  // called right before the request is sent; its error ends the call
}

// How long is waited, beside what a call waits for by itself. Tests shorten it.
var (
	helloWithin  = 30 * time.Second // a connection, perhaps a machine that wakes up
	answerWithin = 45 * time.Second // a cancel takes up to 15 s
	endWithin    = time.Second      // from the answer to the end of the program
)

const (
	maxNoise  = 64 << 10 // of what a login prints
	maxAnswer = 256 << 20
	maxSaid   = 4 << 10
)

// Command is the program of a prefix with more words behind it, in a session of
// its own: without a terminal it cannot ask anybody for anything. ssh is told not
// to try. When ctx is done it is told to end, with all of its session that did not
// leave it.
func Command(ctx context.Context, prefix []string, words ...string) *exec.Cmd {
	args := prefix[1:len(prefix):len(prefix)]
	if filepath.Base(prefix[0]) == "ssh" {
		args = append([]string{"-o", "BatchMode=yes"}, args...)
	}
	c := exec.CommandContext(ctx, prefix[0], append(args, words...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "SPACE_JOB_HOME", "SPACE_JOB", "SPACE_MEMBER", "SSH_ASKPASS_REQUIRE":
		default:
			c.Env = append(c.Env, kv)
		}
	}
	c.Env = append(c.Env, "SSH_ASKPASS_REQUIRE=never")
	return c
}

// Do makes one call. Its error is that of ctx, that of Before, or an *Error.
func (s *Space) Do(ctx context.Context, call Call) (Hello, Answer, error) {
	line, err := json.Marshal(call.Request)
	if err != nil {
		return Hello{}, Answer{}, fmt.Errorf("the request: %w", err)
	}
	// Not ended with ctx: what answered may carry the calls of others by then.
	c, err := begin(ctx, Command(context.WithoutCancel(ctx), s.Exec, s.program(), call.Action, "--request", "-", "--json"))
	if err != nil {
		return Hello{}, Answer{}, &Error{Kind: NotRun, Err: err}
	}
	defer c.end()
	if !call.Writes {
		c.send(line)
	}
	c.within(ctx, helloWithin)
	hello, err := c.hello()
	if err != nil {
		return hello, Answer{}, c.fault(ctx, err)
	}
	if call.Writes {
		if hello.Format > jobdir.Format {
			return hello, Answer{}, &Error{Kind: Newer, Said: "it writes format " + strconv.Itoa(hello.Format) + " of jobs, and this space-job knows " + strconv.Itoa(jobdir.Format)}
		}
		if call.Before != nil {
			if err := call.Before(); err != nil {
				return hello, Answer{}, err
			}
		}
		c.send(line)
	}
	c.within(ctx, call.Wait+answerWithin)
	a, err := c.answer()
	if err != nil {
		return hello, Answer{}, c.fault(ctx, err)
	}
	return hello, a, nil
}

// connection is the program of a prefix that runs.
type connection struct {
	pid  int
	in   *os.File
	out  *os.File
	err  *os.File
	read *bufio.Reader
	stop func() bool // no more looks at the context

	wait   sync.Once
	gone   chan struct{}      // closed when the program has ended and was waited for
	status syscall.WaitStatus // once gone is closed

	said    tail
	heard   chan struct{} // closed when all of stderr was read
	sent    bool
	greeted bool
	killed  bool
	noise   int           // bytes that were no hello
	silent  time.Duration // what within was called with last
}

// begin runs a program whose three streams are ours. It does so without package
// os/exec, which forks once more to see what the kernel can do, and waits in a thread
// of its own: both would be seen in the time of a call over a shared connection.
func begin(ctx context.Context, cmd *exec.Cmd) (*connection, error) {
	if cmd.Err != nil {
		return nil, cmd.Err
	}
	c := &connection{gone: make(chan struct{}), heard: make(chan struct{})}
	var theirs [3]*os.File
	var err error
	for i, ours := range []**os.File{&c.in, &c.out, &c.err} {
		var r, w *os.File
		if r, w, err = os.Pipe(); err != nil {
			break
		}
		if *ours, theirs[i] = r, w; i == 0 {
			*ours, theirs[i] = w, r
		}
	}
	if err == nil {
		files := []uintptr{theirs[0].Fd(), theirs[1].Fd(), theirs[2].Fd()}
		c.pid, err = syscall.ForkExec(cmd.Path, cmd.Args, &syscall.ProcAttr{Env: cmd.Env, Files: files, Sys: cmd.SysProcAttr})
		if err != nil {
			err = &os.PathError{Op: "execute", Path: cmd.Path, Err: err}
		}
	}
	for _, f := range theirs {
		_ = f.Close() // of nil, too
	}
	if err != nil {
		_, _, _ = c.in.Close(), c.out.Close(), c.err.Close()
		return nil, err
	}
	c.read = bufio.NewReaderSize(c.out, 32<<10)
	go func() {
		_, _ = io.Copy(&c.said, c.err)
		close(c.heard)
	}()
	c.stop = context.AfterFunc(ctx, func() { _ = c.out.SetReadDeadline(over) })
	return c, nil
}

// send writes the request, beside what is read: it may be larger than a pipe.
func (c *connection) send(line []byte) {
	c.sent = true
	if line = append(line, '\n'); len(line) <= 4<<10 { // which any pipe takes
		_, _ = c.in.Write(line)
		return
	}
	go func() { _, _ = c.in.Write(line) }()
}

// within is how long what is read next may take: no time at all when ctx is done,
// also if that was in the moment before.
func (c *connection) within(ctx context.Context, d time.Duration) {
	c.silent = d
	_ = c.out.SetReadDeadline(time.Now().Add(d))
	if ctx.Err() != nil {
		_ = c.out.SetReadDeadline(over)
	}
}

// over is a time that has passed.
var over = time.Unix(1, 0)

// end closes what is ours. What has answered ends by itself in a moment, and nobody
// waits for that: it would be a good part of the whole call. An ssh whose connection
// others share may live on. What has not answered was told to end, and does.
func (c *connection) end() {
	c.stop()
	_ = c.in.Close()
	if c.killed && !c.ends() {
		c.signal(syscall.SIGKILL)
	}
	_, _ = c.out.Close(), c.err.Close()
	c.reap()
}

// reap waits for the program, beside what else is done.
func (c *connection) reap() {
	c.wait.Do(func() {
		go func() {
			for {
				if _, err := syscall.Wait4(c.pid, &c.status, 0, nil); err != syscall.EINTR {
					break
				}
			}
			close(c.gone)
		}()
	})
}

// ends waits a little for the end of the program, and reports whether it has ended.
func (c *connection) ends() bool {
	c.reap()
	select {
	case <-c.gone:
		return true
	case <-time.After(endWithin):
		return false
	}
}

// kill tells a program to end that nothing is expected of any more.
func (c *connection) kill() {
	_ = c.in.Close()
	c.killed = true
	c.signal(syscall.SIGTERM)
}

func (c *connection) signal(sig syscall.Signal) {
	select {
	case <-c.gone: // its number may be another's by now
	default:
		_ = syscall.Kill(-c.pid, sig)
	}
}

// errNoise is output that is none of a space-job.
var (
	errNoise  = errors.New("what answers there is no space-job")
	errTooOld = errors.New("the space-job there does not know --request")
)

// line reads a line with its newline, of at most so many bytes.
func (c *connection) line(most int) ([]byte, error) {
	var b []byte
	for {
		piece, err := c.read.ReadSlice('\n')
		b = append(b, piece...)
		if err != bufio.ErrBufferFull {
			return b, err
		}
		if len(b) > most {
			return b, errNoise
		}
	}
}

// hello reads lines until one is a Hello.
func (c *connection) hello() (Hello, error) {
	for {
		b, err := c.line(maxNoise)
		if h, ok := parseHello(b); ok && err == nil {
			c.greeted = true
			return h, nil
		}
		var older struct {
			Error *struct{ Code, Message string } `json:"error"`
		}
		if json.Unmarshal(b, &older) == nil && older.Error != nil && older.Error.Code != "" {
			return Hello{}, errTooOld
		}
		if c.noise += len(b); c.noise > maxNoise {
			return Hello{}, errNoise
		}
		if err != nil {
			return Hello{}, err
		}
	}
}

// parseHello reads a line. It reports whether it is a Hello.
func parseHello(b []byte) (Hello, bool) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || b[0] != '{' {
		return Hello{}, false
	}
	var h Hello
	err := json.Unmarshal(b, &h)
	return h, err == nil && h.Version != "" && h.Format > 0
}

// answer reads the line behind the hello.
func (c *connection) answer() (Answer, error) {
	b, err := c.line(maxAnswer)
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(b)
}

func parseAnswer(b []byte) (Answer, error) {
	var a Answer
	if err := json.Unmarshal(b, &a); err != nil || (a.Result == nil) == (a.Error == nil) {
		return Answer{}, errNoise
	}
	return a, nil
}

// fault says why there is no answer.
func (c *connection) fault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		c.kill()
		return ctx.Err()
	}
	e := &Error{Kind: Lost, Sent: c.sent, Err: err}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.kill()
		e.Kind, e.Err = Late, fmt.Errorf("no answer within %v", c.silent)
		if !c.greeted {
			e.Said = c.said.lastLine()
			if e.Said != "" {
				e.Said = "no answer within " + c.silent.String() + ": " + e.Said
			}
		}
		return e
	case errors.Is(err, errTooOld):
		e.Kind, e.Sent = TooOld, false
		return e
	case errors.Is(err, errNoise):
		c.kill()
		if e.Kind = Stranger; !c.greeted {
			e.Sent = false
		}
		return e
	}
	// It has closed its output, so it ends, or has.
	_ = c.in.Close()
	code := -1
	e.Err = errors.New("it closed its output without an answer")
	if c.ends() {
		select { // what it started may hold its stderr
		case <-c.heard:
		case <-time.After(endWithin / 10):
		}
		code = c.status.ExitStatus() // -1 when a signal killed it
		if e.Err = fmt.Errorf("exit status %d", code); c.status.Signaled() {
			e.Err = fmt.Errorf("signal: %v", c.status.Signal())
		}
	} else {
		c.kill()
	}
	e.Said = c.said.lastLine()
	if c.greeted {
		return e
	}
	e.Sent = false // a space-job says hello before it reads
	switch {
	case code == 127, code > 0 && (strings.Contains(e.Said, "executable file not found") || code == 126 && strings.Contains(e.Said, "no such file or directory")):
		e.Kind = NoProgram
	case code == 0:
		e.Kind, e.Err, e.Said = Stranger, errNoise, ""
	default:
		e.Kind = Unreachable
	}
	return e
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if over := len(t.b) - maxSaid; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(b), nil
}

// lastLine is the last line that is not empty.
func (t *tail) lastLine() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := strings.TrimSpace(strings.ToValidUTF8(string(t.b), ""))
	return strings.TrimSpace(s[strings.LastIndexAny(s, "\r\n")+1:])
}

// InstallRequest asks the program space-jobd, in a line on its standard input, to
// bring space-job to a Space: see package install.
type InstallRequest struct {
	Exec     []string `json:"exec"`
	Version  string   `json:"version"`
	Programs string   `json:"programs"` // a folder with the programs for other kinds of systems
}

// InstallResult is what came of it.
type InstallResult struct {
	Program string `json:"program"` // the path of space-job over there
	Error   string `json:"error,omitempty"`
	Hint    string `json:"hint,omitempty"`
}
