package sink

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"space-job/jobdir"
	"space-job/notify"
)

// Desktop shows that a job has ended to whoever sits at this machine: its name,
// its state and exit code and how long it took, and no more, as a screen may be
// seen by others. An error means that nothing was shown, as where there is no desktop.
func Desktop(ctx context.Context, m notify.Message) error {
	ctx, cancel := context.WithTimeout(ctx, desktopLimit)
	defer cancel()
	args := desktopArgs(desktopText(m))
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = "/"
	c.WaitDelay = outputDelay
	// It may be a script, and what that waits for is not to stay behind.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	out, err := c.CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s did not end within %s", args[0], seconds(desktopLimit))
	}
	end := tail{out}
	return withLast(err, &end)
}

// desktopText is what is shown. The name comes from whoever started the job, so
// it is in the title, which is never taken for markup.
func desktopText(m notify.Message) (title, body string) {
	const most = 120
	name := oneLine(m.Name, most)
	if name == "" {
		name = string(m.Job)
	}
	code, took := "", ""
	if m.ExitCode != nil {
		code = " with " + strconv.Itoa(*m.ExitCode)
	}
	if m.DurationMS != nil {
		took = " after " + jobdir.FormatDuration(time.Duration(*m.DurationMS)*time.Millisecond)
	}
	return "Job: " + name, strings.ReplaceAll(string(m.State), "_", " ") + code + took
}
