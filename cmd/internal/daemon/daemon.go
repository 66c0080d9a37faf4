// Package daemon is the program space-jobd: it takes the lock of a root, becomes
// the same process whoever started it, and runs notify.Follow until it is told to
// end. What it does is in package notify; who starts and stops it, in package api.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link/carrier"
	"space-job/cmd/internal/mcp"
	"space-job/cmd/internal/policy"
	"space-job/cmd/internal/space/install"
	"space-job/jobdir"
	"space-job/notify"
	"space-job/notify/sink"
	"space-job/notify/thread"
)

const usage = `space-jobd: the daemon that brings the messages of ended jobs to whoever is to have them

Usage:
  space-jobd [--service NAME]

One runs for each root ($SPACE_JOB_HOME, else $XDG_STATE_HOME/space-job, else
~/.local/state/space-job), in the foreground, and writes what there is to say to
stderr. TERM ends it; jobs do not notice. Nobody has to start it: the first
space-job command that finds something to do starts one.

Flags:
      --service NAME  a service manager of this name starts it when it is gone:
                      space-job does not
      --version       print the version
  -h, --help          show this help

Exit codes: 0 it was told to end, 1 another one has the root or it cannot begin,
2 a wrong flag.
`

// version is set by the build of a release.
var version string

// What a starter hands over, where there is one.
const (
	inheritedFD = 3 // the open file that it has locked
	signedFD    = 4 // at its end when the starter has said there who has it
)

// How long a starter may take to say who has the lock.
const starterWithin = 2 * time.Second

// How long what is under way may take after TERM.
const leaveWithin = 700 * time.Millisecond

// hangUpWithin is how long calls to other Spaces have to end: each program is told
// to, and killed a second later.
const hangUpWithin = 2 * time.Second

type options struct {
	service   string
	inherited bool // the lock is open as inheritedFD: a command has started this
}

// Main runs the program that os.Args names, and exits: the daemon or, for
// space-job mcp, the MCP server of one client; or what space-job wants done once: a
// call to the Space of the thread, or to have itself brought to another.
func Main() {
	if len(os.Args) > 1 && os.Args[1] == "mcp" {
		mcp.Main(os.Args[2:], Version())
	}
	if len(os.Args) > 1 && os.Args[1] == "link" {
		carrier.Main()
	}
	if len(os.Args) > 1 && os.Args[1] == "install" {
		install.Main()
	}
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	o, code := parse(args)
	if code >= 0 {
		return code
	}
	if err := serve(o); err != nil {
		fmt.Fprintln(os.Stderr, "space-jobd: error:", err)
		return 1
	}
	return 0
}

func parse(args []string) (o options, code int) {
	for len(args) > 0 {
		name, value, given := strings.Cut(args[0], "=")
		switch {
		case args[0] == "-h", args[0] == "--help":
			fmt.Print(usage)
			return o, 0
		case args[0] == "--version":
			fmt.Println("space-jobd " + Version())
			return o, 0
		case args[0] == "--inherited":
			o.inherited = true
		case name == "--service":
			if !given {
				if len(args) == 1 {
					return o, refuse("--service needs a value")
				}
				args = args[1:]
				value = args[0]
			}
			if value == "" || strings.Trim(value, "abcdefghijklmnopqrstuvwxyz") != "" {
				return o, refuse(fmt.Sprintf("service: %q is not a word in small letters", value))
			}
			o.service = value
		default:
			return o, refuse(fmt.Sprintf("unknown flag or operand: %q", args[0]))
		}
		args = args[1:]
	}
	return o, -1
}

func refuse(why string) int {
	fmt.Fprintln(os.Stderr, "space-jobd: error: "+why)
	fmt.Fprintln(os.Stderr, "space-jobd: hint: see space-jobd --help")
	return 2
}

// Version is that of this program.
func Version() string {
	v := version
	if info, ok := debug.ReadBuildInfo(); ok && v == "" {
		v = strings.Trim(info.Main.Version, "()")
	}
	if v == "" {
		v = "devel"
	}
	return v
}

func serve(o options) error {
	path, err := jobdir.DefaultRoot()
	if err != nil {
		return err
	}
	root, err := jobdir.OpenRoot(path)
	if err != nil {
		return err
	}
	// Whoever starts it, it is the same: also for those who look at it from
	// outside, such as the runner of a job that it was started in.
	if env := notify.Environ(root, os.Environ()); !slices.Equal(env, os.Environ()) {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return fmt.Errorf("execute %s: %w", self, syscall.Exec(self, os.Args, env))
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	syscall.Umask(0o077)
	if err := root.Create(); err != nil {
		return err
	}
	var lock *notify.Lock
	if o.inherited {
		lock, err = notify.InheritLock(root, inheritedFD)
		awaitStarter()
	} else {
		lock, err = notify.TakeLock(root)
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	if o.inherited {
		if notify.Stopped(root) {
			return nil // since it was started
		}
	} else if err := notify.SetStopped(root, false); err != nil {
		return err
	}
	news := make(chan os.Signal, 1) // about the link: see api, which signals who has signed
	signal.Notify(news, syscall.SIGHUP)
	awayNews := make(chan os.Signal, 1) // about jobs elsewhere
	signal.Notify(awayNews, syscall.SIGHUP)
	if err := lock.Sign(o.service, time.Now()); err != nil {
		return err
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	// Caught and not ignored: what the daemon runs would ignore them, too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	l := log.New(os.Stderr, "", log.LstdFlags|log.Lmsgprefix)
	l.SetPrefix(fmt.Sprintf("space-jobd[%d]: ", os.Getpid()))
	l.Printf("%s follows %s", Version(), root.Path())
	served := make(chan struct{})
	go func() {
		defer close(served)
		mcp.ServeHTTP(ctx, Version(), l)
	}()
	defer func() { // whoever has asked something there is answered before the process is gone
		stop()
		<-served
	}()
	actions, err := api.OpenRoot(path)
	if err != nil {
		return err
	}
	actions.Carry(carrier.Do)
	h := hooks(root, l)
	c := &child{actions: actions, hooks: h, log: l, wakes: map[string]wakes{}, back: make(chan struct{}, 1)}
	h.Parent, h.Back, h.Lock = c.parent, c.back, lock
	away := &elsewhere{actions: actions, root: root, thread: thread.Open(root), hooks: h, log: l}
	var loops sync.WaitGroup
	loops.Go(func() { c.run(ctx, news) })
	loops.Go(func() { away.run(ctx, awayNews) })
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		loops.Wait()
		c.calls.wait()
	}()
	defer func() { // or an ssh whose connection is dead would outlive the daemon
		stop()
		select {
		case <-hungUp:
		case <-time.After(hangUpWithin):
			l.Print("a call to another Space did not end in time")
		}
	}()
	done := make(chan error, 1)
	go func() { done <- notify.Follow(ctx, root, h) }()
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(leaveWithin):
			err = errors.New("what was under way did not end in time; it is done again by the next daemon")
			l.Print(err)
			return nil
		}
	}
	if err != nil {
		return err
	}
	l.Print("ends")
	return nil
}

// awaitStarter waits until the starter has closed its end of the pipe signedFD. One
// that was stopped just then is not waited for long, and one of another version has
// handed over no pipe: then this file is the Go runtime's.
func awaitStarter() {
	var st syscall.Stat_t
	if syscall.Fstat(signedFD, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return
	}
	f := os.NewFile(signedFD, "pipe")
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		defer f.Close()
		_, _ = io.Copy(io.Discard, f)
	}()
	select {
	case <-closed:
	case <-time.After(starterWithin):
	}
}

func hooks(root *jobdir.Root, l *log.Logger) notify.Hooks {
	return notify.Hooks{
		Sink: sink.New,
		Wake: func(ctx context.Context, m thread.Member, it thread.Item) error {
			return sink.Wake(ctx, m, it, lineWriter{l})
		},
		Desktop: sink.Desktop,
		Prune: func() error {
			_, err := (&policy.Store{Root: root, Now: time.Now}).Sweep()
			return err
		},
		Log: l,
	}
}

// lineWriter writes what a waker says into the log.
type lineWriter struct{ l *log.Logger }

var _ io.Writer = lineWriter{}

func (w lineWriter) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		w.l.Print(strings.TrimSuffix(line, "\n"))
	}
	return len(b), nil
}
