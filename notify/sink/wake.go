package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// wakeLine is all that is ever typed into a pane: what is there to be read is
// not the business of whoever sees the screen, nor of a shell.
const wakeLine = "You have a new item: run space-job inbox --take"

// Wake runs the waker of a member for an item, once. A member without one has
// been woken. What a command says goes to out, in whole lines.
func Wake(ctx context.Context, m thread.Member, it thread.Item, out io.Writer) error {
	switch {
	case m.WakeCommand != "":
		return wakeByCommand(ctx, m, it, out, wakeLimit)
	case m.WakePane != "":
		return wakePane(ctx, m)
	}
	return nil
}

func wakeByCommand(ctx context.Context, m thread.Member, it thread.Item, out io.Writer, limit time.Duration) error {
	var stdin bytes.Buffer
	e := json.NewEncoder(&stdin)
	e.SetEscapeHTML(false)
	if err := e.Encode(it); err != nil {
		return err
	}
	said := &lines{to: out, prefix: "waker of " + m.Name + ", " + it.ID + ": ", left: maxOutput}
	var end tail
	c := command{
		shell: m.WakeCommand,
		env:   []string{record.EnvMember + "=" + m.Name},
		stdin: stdin.Bytes(),
		limit: limit,
		out:   io.MultiWriter(said, &end),
	}
	err := c.run(ctx)
	said.flush()
	return withLast(err, &end)
}

// shells are the programs that would run what is typed. A script in front shows
// as the shell that runs it, and counts as one.
var shells = []string{
	"sh", "ash", "bash", "rbash", "dash", "zsh", "fish", "ksh", "ksh93", "mksh", "oksh", "pdksh", "yash", "csh", "tcsh", "rc", "es",
	"nu", "elvish", "xonsh", "pwsh", "busybox", "login", "su", "sudo", "doas", "tmux", "screen",
}

// wakePane types the line into a pane of tmux, if a program other than a shell
// is in front there.
func wakePane(ctx context.Context, m thread.Member) error {
	ctx, cancel := context.WithTimeout(ctx, tmuxLimit)
	defer cancel()
	fail := func(err error) error { return fmt.Errorf("tmux pane %s: %w", m.WakePane, err) }
	seen, err := tmux(ctx, m.WakeSocket, "display-message", "-p", "-t", m.WakePane,
		"#{pane_id} #{?pane_dead,dead,alive} #{?pane_in_mode,mode,keys} #{pane_current_command}")
	if err != nil {
		return fail(err)
	}
	part := strings.SplitN(strings.TrimRight(seen, "\n"), " ", 4)
	// Of a pane that is not there tmux shows nothing, or that which is in front.
	if len(part) < 4 || !strings.HasPrefix(part[0], "%") || strings.HasPrefix(m.WakePane, "%") && part[0] != m.WakePane {
		return fail(errors.New("there is no such pane"))
	}
	front := strings.TrimPrefix(part[3], "-") // a login shell
	switch {
	case part[1] == "dead":
		return fail(errors.New("its program has ended"))
	case part[2] == "mode":
		return fail(errors.New("somebody is scrolling in it"))
	case front == "" || slices.Contains(shells, front):
		return fail(fmt.Errorf("a shell is in front there (%s), which would run the line", front))
	}
	for _, keys := range [][]string{{"-l", "--", wakeLine}, {"Enter"}} { // apart, so that it is no part of a paste
		if _, err := tmux(ctx, m.WakeSocket, append([]string{"send-keys", "-t", part[0]}, keys...)...); err != nil {
			return fail(err)
		}
	}
	return nil
}

// tmux runs a command of tmux on the server of a socket, or on the user's usual
// one. It starts none.
func tmux(ctx context.Context, socket string, args ...string) (string, error) {
	if socket != "" {
		args = append([]string{"-S", socket}, args...)
	}
	c := exec.CommandContext(ctx, "tmux", args...)
	c.Dir = "/"
	c.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "TMUX=") || strings.HasPrefix(kv, "TMUX_PANE=") // of a server that is not meant
	})
	c.WaitDelay = outputDelay
	out, err := c.Output()
	var exit *exec.ExitError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", fmt.Errorf("tmux did not answer within %s", seconds(tmuxLimit))
	case errors.As(err, &exit) && len(bytes.TrimSpace(exit.Stderr)) > 0:
		return "", errors.New(oneLine(string(exit.Stderr), maxLine))
	}
	return string(out), err
}
