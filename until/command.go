package until

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"space-job/jobdir"
)

func (w *watcher) command(ctx context.Context) (End, error) {
	var wait pause
	told := map[int]bool{} // 126 and 127 are said once
	for delay := w.commandSoon; ; delay = min(delay*3/2, w.commandSlow) {
		r := w.run(ctx, w.TryTimeout, func() {
			w.log.say("a try has been running for " + w.stillRuns.String())
			w.stillRuns = 1 << 62 // once
		}, "/bin/sh", "-c", w.Command)
		if ctx.Err() != nil {
			return End{}, ctx.Err()
		}
		switch {
		case r.err == nil && r.code == 0 && !r.late:
			return End{CodeHolds, w.String() + " exited with 0" + lastWords(r.tail.String())}, nil
		case r.err != nil: // no shell, or no more processes for now
			w.log.see("a try could not be started: " + innermost(r.err))
		case r.late:
			w.log.see("not yet: a try took longer than " + w.TryTimeout.String())
		case r.code == 126 || r.code == 127:
			if !told[r.code] {
				told[r.code] = true
				what := map[int]string{126: "not executable", 127: "not found"}[r.code]
				w.log.see("not yet: " + r.how() + " (" + what + ")" + lastWords(r.tail.String()))
			}
		default:
			w.log.see("not yet: " + r.how() + lastWords(r.tail.String()))
		}
		if err := wait.wait(ctx, delay); err != nil {
			return End{}, err
		}
	}
}

// lastWords is the last line of an output, as a terminal would show it, as an
// addition to a line.
func lastWords(output string) string {
	output = strings.TrimRight(string(jobdir.Plain([]byte(output))), " \t\r\n")
	line := oneLine(output[strings.LastIndexAny(output, "\n\r")+1:], 200)
	if line == "" {
		return ""
	}
	return ": " + line
}

// try is how one run of a program went.
type try struct {
	err  error // it could not be run
	late bool  // it took too long and was stopped
	code int   // 128+n when signal n killed it
	sig  syscall.Signal
	out  output // all of its standard output, of those who asked for it
	tail output // the end of what it said
}

func (r *try) how() string {
	if r.sig != 0 {
		return "it was killed by signal " + strconv.Itoa(int(r.sig)) + " (" + r.sig.String() + ")"
	}
	return "it exits with " + strconv.Itoa(r.code)
}

// output keeps the end of what a program writes.
type output struct {
	most int
	b    []byte
	cut  bool
}

func (o *output) Write(b []byte) (int, error) {
	o.b = append(o.b, b...)
	if n := len(o.b) - o.most; n > 0 {
		o.cut = true
		o.b = o.b[:copy(o.b, o.b[n:])]
	}
	return len(b), nil
}

func (o *output) String() string { return string(o.b) }

// run runs a program in a session of its own, for limit at most unless that is
// 0, and kills what it leaves behind. still is called when it takes long. Both
// outputs of the program go to its tail.
func (w *watcher) run(ctx context.Context, limit time.Duration, still func(), argv ...string) *try {
	r := &try{tail: output{most: 4 << 10}}
	w.runInto(ctx, r, limit, still, &r.tail, &r.tail, nil, argv...)
	return r
}

// runInto is run with a place for each output, and an environment other than
// ours where environ is not nil.
func (w *watcher) runInto(ctx context.Context, r *try, limit time.Duration, still func(), stdout, stderr *output, environ []string, argv ...string) {
	if w.alone {
		adoptOrphans()
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		r.err = err
		return
	}
	defer null.Close()
	outputs := []*output{stdout, stderr}
	if stdout == stderr {
		outputs = outputs[:1]
	}
	var readers, writers []*os.File
	for range outputs {
		read, write, err := os.Pipe()
		if err != nil {
			r.err = err
			closeFiles(readers)
			closeFiles(writers)
			return
		}
		readers, writers = append(readers, read), append(writers, write)
	}
	defer closeFiles(readers)

	c := exec.Cmd{Path: argv[0], Args: argv, Stdin: null, Stdout: writers[0], Stderr: writers[len(writers)-1], Env: environ, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	err = c.Start()
	closeFiles(writers)
	if err != nil {
		r.err = err
		return
	}
	// The outputs end when nobody holds them any more; who still does after the
	// kill is not waited for.
	var read sync.WaitGroup
	for i, o := range outputs {
		read.Go(func() { copyInto(o, readers[i]) })
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()

	group := -c.Process.Pid
	var late, kill <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		late = t.C
	}
	long := time.NewTimer(w.stillRuns)
	defer long.Stop()
	stopped := ctx.Done()
	for ended := false; !ended; {
		select {
		case err = <-done:
			ended = true
		case <-stopped:
			stopped = nil
			_ = syscall.Kill(group, syscall.SIGKILL)
		case <-late:
			r.late = true
			_ = syscall.Kill(group, syscall.SIGTERM)
			_ = syscall.Kill(group, syscall.SIGCONT)
			kill = time.After(w.killGrace)
		case <-kill:
			_ = syscall.Kill(group, syscall.SIGKILL)
		case <-long.C:
			if still != nil {
				still()
			}
		}
	}
	// The number of the group is no stranger's while a member lives, and where
	// none does there is nothing to be hit: numbers are not used again so soon.
	_ = syscall.Kill(group, syscall.SIGKILL)
	if w.alone {
		w.killLeft()
	}
	soon := time.Now().Add(100 * time.Millisecond)
	for _, f := range readers {
		_ = f.SetReadDeadline(soon)
	}
	read.Wait()

	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		status := exit.Sys().(syscall.WaitStatus)
		if r.code = status.ExitStatus(); status.Signaled() {
			r.sig = status.Signal()
			r.code = 128 + int(r.sig)
		}
	default:
		r.err = err
	}
}

func copyInto(o *output, f *os.File) {
	b := make([]byte, 32<<10)
	for {
		n, err := f.Read(b)
		_, _ = o.Write(b[:n])
		if err != nil {
			return // its end, or nobody waits for more
		}
	}
}

func closeFiles(l []*os.File) {
	for _, f := range l {
		_ = f.Close()
	}
}

// find looks a program up in PATH.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return "", exec.ErrNotFound
	}
	return path, err
}
