package cli

import (
	"context"
	"strconv"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type daemonOptions struct {
	detach bool
	http   string
}

func daemonCommand() *command {
	return &command{
		name:    "daemon",
		usage:   []string{"daemon [--detach] [--http PORT|off]"},
		summary: "run the daemon that brings messages of ended jobs",
		about: []string{
			"The daemon, space-jobd, follows the jobs that were started with --notify. When one ends it posts one message to the thread, puts it into the inbox of whoever started the job and wakes them, and sends it to every sink. Jobs run, and can be read, waited for and cancelled, without it.",
			"Nobody has to start it: start --notify does, and so does any command that finds a message that waits and no daemon. This command runs it in the foreground, where a service manager or you look after it, or with --detach in the background. One runs for each root; a second one names the first and fails.",
			"With --http it serves MCP, too (see space-job help mcp), at /mcp on 127.0.0.1 at this port, 0 for any, and on the Unix socket mcp.sock in the root; so do the daemons after it, until --http off. The port is in the file port in the root. A job that is started over HTTP has the daemon's short environment, its umask 077 and, unless it is given another, its directory, /.",
			"daemon stop ends it, and no command starts one again by itself, until you do. What waits is kept. It writes to daemon.log in the root.",
		},
		examples: []example{
			{"space-job daemon --detach", "in the background"},
			{"space-job daemon stop", "end it; jobs do not notice"},
		},
		exits: []exit{
			{"0", "it was told to end; with --detach: it runs"},
			{"1", "another one runs, or it cannot begin"},
			{"2", "a wrong flag"},
		},
		new: func() options { return new(daemonOptions) },
		sub: []*command{daemonStopCommand()},
	}
}

func (o *daemonOptions) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.detach, "detach", false, "start it in the background and return")
	fs.Var(text(&o.http, "PORT"), "http", "serve MCP at this port of 127.0.0.1, 0 for any; off ends that")
}

func (o *daemonOptions) Run(s *session, _ []string) (int, error) {
	if s.json && !o.detach {
		return 0, usage("--json: in the foreground the daemon prints its log only", "daemon")
	}
	a, err := api.Open()
	if err != nil {
		return 0, err
	}
	if o.http != "" {
		if err := o.setHTTP(a); err != nil {
			return 0, err
		}
	}
	if !o.detach {
		return 0, a.BecomeDaemon()
	}
	res, err := a.DetachDaemon()
	if err != nil {
		return 0, err
	}
	url := ""
	if o.http != "" && o.http != "off" {
		if url, err = a.WaitHTTP(context.Background()); err != nil {
			return 0, err
		}
	}
	if s.json {
		s.document(res)
		return exitOK, nil
	}
	s.print("the daemon runs: process " + strconv.Itoa(res.PID) + "\n")
	if url != "" {
		s.print("it serves MCP at " + url + " (space-job mcp token prints a token)\n")
	}
	return exitOK, nil
}

// setHTTP says what the daemon is to serve, where none runs that it would come too
// late for.
func (o *daemonOptions) setHTTP(a *api.Actions) error {
	port := -1
	if o.http != "off" {
		n, err := strconv.Atoi(o.http)
		if err != nil || n < 0 || n > 65535 {
			return &api.Error{Code: api.InvalidArgument, Message: "http: " + quote(o.http) + " is no port", Hint: "0 to 65535, 0 for any; or off"}
		}
		port = n
	}
	return a.SetHTTPPort(port)
}

type daemonStopOptions struct{}

func daemonStopCommand() *command {
	return &command{
		name:    "daemon stop",
		usage:   []string{"daemon stop"},
		summary: "end the daemon, until somebody starts it again",
		about: []string{
			"Tells the daemon to end and waits until it is gone. Jobs do not notice; what it has not delivered waits. From then on no command starts one by itself: space-job daemon does.",
		},
		examples: []example{{"space-job daemon stop", ""}},
		exits: []exit{
			{"0", "none runs any more"},
			{"1", "it does not end"},
			{"2", "a wrong flag"},
		},
		new: func() options { return new(daemonStopOptions) },
	}
}

func (o *daemonStopOptions) AddFlags(*pflag.FlagSet) {}

func (o *daemonStopOptions) Run(s *session, _ []string) (int, error) {
	ctx, stop := interruptible()
	defer stop()
	a, err := api.Open()
	if err != nil {
		return 0, err
	}
	res, err := a.StopDaemon(ctx)
	if err != nil {
		return 0, err
	}
	switch {
	case s.json:
		s.document(res)
	case res.Stopped:
		s.print("the daemon has ended: process " + strconv.Itoa(res.PID) + "\n")
	default:
		s.print("no daemon was running\n")
	}
	return exitOK, nil
}
