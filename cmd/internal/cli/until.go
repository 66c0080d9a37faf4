package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type untilOptions struct {
	flags   untilFlags
	timeout time.Duration
}

func untilCommand() *command {
	return &command{
		name: "until",
		usage: []string{
			"until --file PATH [flags]",
			"until --port [HOST:]PORT [flags]",
			"until --command COMMAND [flags]",
			"until --pr-checks OWNER/REPO#N [flags]",
			"until --job ID | --log ID:REGEXP [--timeout DURATION]",
		},
		summary: "wait until a file, a port, a command, a pull request or a job is ready",
		about: []string{
			"Waits in the foreground for one condition, and says on stderr what it sees and when that changes. A condition that holds already ends it at once. The same as a job of its own, which you need not stay for: space-job start --until-file, --until-port and so on.",
			"A file is there when its path leads to something: it need not be complete, so let it be renamed into place. A port is ready when it accepts a connection, at any address of the host. A command is tried again and again, one try at a time, until it exits with 0; what a try leaves running is killed.",
			"The required checks of a pull request are read through gh, which must be signed in: 0 means that all have passed, 1 that all have finished and one has failed, and 3 that none is required, as it is in many repositories: then nothing was judged. Checks that are not required are not looked at. Refusals and failures of the network are waited out.",
			"A job ends the watch with its own code, as wait does. A line of a log is taken as a terminal would show it, from the beginning of the log on; when the job ends and no line matched, that is 1.",
			"--timeout bounds the whole watch; it then exits with 124, which is also what wait says of a watcher that has timed out as a job.",
		},
		examples: []example{
			{"space-job until --file /srv/out/done", ""},
			{"space-job until --port 5432 --timeout 2m && psql", "the port of a server that is starting"},
			{"space-job until --command 'test -s report.json'", ""},
			{"space-job until --pr-checks octo/app#123 --timeout 1h", ""},
			{"space-job until --log 9d3e:'ready in [0-9]+ ms'", "a line in the log of a job"},
			{"space-job start -t 1h --until-job 9d3e", "as a job: it ends as that job does"},
		},
		exits: []exit{
			{"0", "the condition holds; of a pull request: all required checks have passed"},
			{"1", "a required check has failed; the job ended and no line of its log matched"},
			{"2", "a wrong flag or value, or it can never succeed: no gh, not signed in, no such pull request, the job was removed"},
			{"3", "no such job; of a pull request: no check is required"},
			{"N", "--job: the code that the job ended with, as for wait"},
			{"124", "it did not come within --timeout"},
			{"130", "you stopped it with Ctrl-C"},
			{"143", "it was stopped (TERM)"},
		},
		new: func() options { return new(untilOptions) },
	}
}

func (o *untilOptions) AddFlags(fs *pflag.FlagSet) {
	o.flags.add(fs, "")
	fs.VarP(parsed(&o.timeout, "DURATION", func(s string) (time.Duration, error) {
		return api.ParseDuration("timeout", s)
	}), "timeout", "t", "give up after so long: 90s, 15m, 1h30m, 7d, or seconds")
}

func (o *untilOptions) Run(s *session, _ []string) (int, error) {
	c, err := o.flags.condition()
	if err != nil {
		return 0, err
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	ctx, caught := untilSignal()
	res, err := a.Until(ctx, api.UntilRequest{Condition: c, Timeout: o.timeout}, s.stderr)
	switch {
	case errors.Is(err, context.Canceled):
		return 128 + int(caught()), nil
	case err != nil:
		return 0, err
	}
	if s.json {
		s.document(res)
	}
	return res.Code, nil
}

// untilSignal is a context that ends with a signal that asks this process to
// go, and what says which it was.
func untilSignal() (context.Context, func() syscall.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	for _, sig := range [...]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) { // under nohup, or in the background of a script
			signal.Notify(signals, sig)
		}
	}
	var caught syscall.Signal
	go func() {
		caught, _ = (<-signals).(syscall.Signal)
		cancel()
	}()
	return ctx, func() syscall.Signal {
		<-ctx.Done()
		return caught
	}
}

// untilFlags are the flags that name a condition.
type untilFlags struct {
	given                []api.Condition
	interval, tryTimeout time.Duration
}

func (u *untilFlags) add(fs *pflag.FlagSet, prefix string) {
	when := "wait until "
	if prefix != "" {
		when = "instead of a command, " + when
	}
	flag := func(name, kind, placeholder, usage string) {
		fs.Var(value{placeholder, func(s string) error {
			c, err := api.ParseCondition(kind, s)
			if err == nil {
				u.given = append(u.given, c)
			}
			return err
		}}, prefix+name, when+usage)
	}
	flag("file", "file", "PATH", "this path exists, relative to where the job runs")
	flag("port", "port", "[HOST:]PORT", "this port accepts connections; the host is 127.0.0.1 unless it is given")
	flag("command", "command", "COMMAND", "this shell command exits with 0")
	flag("pr-checks", "pr_checks", "OWNER/REPO#N", "the required checks of this pull request have finished: 0 all passed, 1 one failed, 3 none is required")
	flag("job", "job", "ID", "this job ends, and end as it does")
	flag("log", "log", "ID:REGEXP", "a line of this job's log matches (Go's regular expressions); 1 if the job ends first")
	duration := func(p *time.Duration, field string) value {
		return parsed(p, "DURATION", func(s string) (time.Duration, error) { return api.ParseDuration(field, s) })
	}
	fs.Var(duration(&u.interval, "interval"), "interval", "of a condition: time between two looks, instead of 1s for a file (never more), up to 500ms for a port, 1s growing to 5s for a command, 10s growing to 60s for checks")
	fs.Var(duration(&u.tryTimeout, "try_timeout"), "try-timeout", "of a condition: the most that one try may take, instead of 1s for a port, any time for a command, 30s for checks")
}

// any reports whether anything about a condition was given.
func (u *untilFlags) any() bool {
	return len(u.given) > 0 || u.interval > 0 || u.tryTimeout > 0
}

func (u *untilFlags) condition() (api.Condition, error) {
	return api.OneCondition(u.given, u.interval, u.tryTimeout)
}
