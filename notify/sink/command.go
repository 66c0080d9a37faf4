package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"space-job/jobdir/record"
	"space-job/notify"
)

// commandSink gives the text of a message to a shell command.
type commandSink struct {
	shell string
	limit time.Duration
}

func (s *commandSink) Deliver(ctx context.Context, m notify.Message) error {
	code := ""
	if m.ExitCode != nil {
		code = strconv.Itoa(*m.ExitCode)
	}
	var end tail
	c := command{
		shell: s.shell,
		env:   []string{"SPACE_JOB_KEY=" + m.Key, "SPACE_JOB_STATE=" + string(m.State), "SPACE_JOB_EXIT=" + code},
		stdin: []byte(strings.TrimSuffix(m.Text, "\n") + "\n"), // whole lines, as programs expect
		limit: s.limit,
		out:   &end,
	}
	return withLast(c.run(ctx), &end)
}

// withLast adds to an error what the command said last.
func withLast(err error, end *tail) error {
	if last := end.line(); err != nil && last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// command is one run of a shell command.
type command struct {
	shell string
	env   []string // beside what this process has
	stdin []byte
	limit time.Duration
	out   io.Writer // stdout and stderr
}

// leader is the shell script that leads the process group of a command, $1.
//
// Its descriptor 3 is a pipe that ends when this process closes it or dies. A
// guard reads it meanwhile, and kills the group when it ends. When the command
// has ended, the script takes the guard back, writes the status to descriptor 4
// and stays: so the number of the group is in use until all of it is killed.
const leader = `(read -r _; kill -9 0) <&3 >/dev/null 2>&1 4>&- &
guard=$!
/bin/sh -c "$1" 3<&- 4>&-
status=$?
exec </dev/null >/dev/null 2>&1
kill -9 $guard
wait $guard
echo $status >&4
exec 4>&-
read -r _ <&3
kill -9 0`

// outputDelay is how long is waited for the end of the output of a command that
// has ended: only what has left its process group can still hold it.
const outputDelay = 100 * time.Millisecond

// run returns nil when the command has ended with 0.
func (c *command) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return err
	}
	var pipes pipes
	defer pipes.close()
	stdin, toStdin := pipes.make()
	output, toOutput := pipes.make()
	alive, toAlive := pipes.make()
	status, toStatus := pipes.make()
	if pipes.err != nil {
		return pipes.err
	}
	cmd := exec.Command("/bin/sh", "-c", leader, "sh", c.shell)
	cmd.Dir = "/"
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, record.EnvJob+"=") // else it would count as one of the job's processes
	}), c.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, toOutput, toOutput
	cmd.ExtraFiles = []*os.File{alive, toStatus}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	for _, f := range []*os.File{stdin, toOutput, alive, toStatus} {
		_ = f.Close()
	}

	written, read, ended := make(chan struct{}), make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(written)
		_, _ = toStdin.Write(c.stdin) // a command need not read it
		_ = toStdin.Close()
	}()
	go func() {
		defer close(read)
		_, _ = io.Copy(c.out, output)
	}()
	go func() {
		b, _ := io.ReadAll(io.LimitReader(status, 16)) // empty: the script itself was killed
		ended <- string(b)
	}()
	var said string
	select {
	case said = <-ended:
	case <-ctx.Done():
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // not waited for yet, so the number is its
	_ = toAlive.Close()
	err := cmd.Wait()

	_ = toStdin.SetWriteDeadline(time.Now())
	_ = output.SetReadDeadline(time.Now().Add(outputDelay))
	_ = status.SetReadDeadline(time.Now())
	<-written
	<-read
	if code, e := strconv.Atoi(strings.TrimSpace(said)); e == nil {
		if code == 0 {
			return nil
		}
		return fmt.Errorf("it ended with exit code %d", code)
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("it did not end within %s and was killed", seconds(c.limit))
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("its shell was stopped: %v", err)
}

// seconds is "10 s".
func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s"
}

// pipes are closed together. Closing one before does no harm.
type pipes struct {
	files []*os.File
	err   error
}

func (p *pipes) make() (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		p.err = err
		return nil, nil
	}
	p.files = append(p.files, r, w)
	return r, w
}

func (p *pipes) close() {
	for _, f := range p.files {
		_ = f.Close()
	}
}
