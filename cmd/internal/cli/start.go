package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type startOptions struct {
	req   api.StartRequest
	until untilFlags
}

func startCommand() *command {
	return &command{
		name: "start",
		usage: []string{
			"start [flags] COMMAND",
			"start [flags] [--] PROG ARG...",
			"start [flags] --until-file PATH | --until-port [HOST:]PORT | ...",
		},
		summary: "start a job: a command that goes on when you leave",
		about: []string{
			"Starts a command as a job and prints the job's id at once. The job has its own session, log, exit status and timing; it goes on when you disconnect.",
			"One operand is a shell string, run by /bin/sh -c. Several operands, or anything after --, are a program and its arguments, run as given with no shell in between. Flags end at the first operand: what follows belongs to the command.",
			"The job has your environment, PATH and umask, and SPACE_JOB, its own id. Its output, stdout and stderr together, goes to its log; its stdin is empty. A program that is not found makes a job that ends with 127.",
			"With --key, a second start of the same command under the same key gives the job that is there instead of another: also one that has ended, however it ended, until it is pruned. To run it again, choose another key. Only the command is compared: folder, variables, time limit and the like are not.",
			"Where the policy says so (space-job help policy), a person is asked first: on this terminal, or by space-job approvals, after which the same start with --approval ID goes through.",
			"With one of the --until flags the job is a watcher: it runs no command of yours, and ends when the condition holds. A condition is checked in full before anything is made. What the watcher sees is in its log; how it ends, and what its codes mean, says space-job help until.",
		},
		examples: []example{
			{"space-job start 'make test'", "a shell string"},
			{"space-job start -n tests -t 30m make -j4 test", "a program and its arguments, with a name and a time limit"},
			{"J=$(space-job start --env TOKEN 'deploy | tee out')", "take TOKEN over from here; keep the id"},
			{"space-job start --key nightly --json make nightly", "one job, however often this is called"},
			{"space-job start -t 1h --until-pr-checks octo/app#123", "a watcher that ends with the checks of a pull request"},
		},
		exits: []exit{
			{"0", "the job was started, or was there already under the key"},
			{"1", "it could not be started"},
			{"2", "a wrong flag or value; nothing was made"},
			{"3", "no such job, for --until-job and --until-log"},
			{"4", "approval_required: a person is to say so first; nothing was made but the request"},
			{"5", "approval_denied: the policy, or a person, does not allow it"},
		},
		strict:  true,
		operand: operandCommand,
		reach:   answering,
		new:     func() options { return new(startOptions) },
	}
}

func (o *startOptions) AddFlags(fs *pflag.FlagSet) {
	r := &o.req
	fs.VarP(text(&r.Name, "TEXT"), "name", "n", "what to call the job in lists")
	fs.VarP(parsed(&r.Cwd, "DIR", api.ParseCwd), "cwd", "C", "run in this directory, instead of here")
	fs.VarP(value{"NAME=VALUE", func(s string) error {
		r.Env = append(r.Env, s)
		return api.CheckEnv(s)
	}}, "env", "e", "set a variable; NAME alone takes its value from here. May be repeated, the last of a name counts. Only names are kept on disk")
	fs.VarP(parsed(&r.Timeout, "DURATION", func(s string) (time.Duration, error) {
		return api.ParseDuration("timeout", s)
	}), "timeout", "t", "stop the job after so long: 90s, 15m, 1h30m, 7d, or seconds")
	fs.Var(parsed(&r.Key, "KEY", api.ParseKey), "key", "start once: with a key that has a job, give that job")
	fs.Var(parsed(&r.MaxLog, "SIZE", api.ParseMaxLog), "max-log", "keep only the first MiB and the newest bytes of the log, about so much in all: 8MiB = 8M = 8388608, 8MB = 8000000; at least 2MiB")
	fs.BoolVar(&r.Notify, "notify", false, "when it ends, bring one message to the thread, and wake or tell you: see --member")
	fs.Var(value{"MEMBER", func(s string) error {
		name, err := api.ParseMember("wake", s)
		r.Wake = append(r.Wake, name)
		return err
	}}, "wake", "wake this member, too, when it ends. May be repeated; implies --notify")
	fs.Var(value{"ID", func(s string) error {
		if r.Approval == "" { // the first counts: run puts one before those that it was given
			r.Approval = s
		}
		return nil
	}}, "approval", "the request that a person has approved for this very start: see approvals")
	o.until.add(fs, "until-")
}

func (o *startOptions) Run(s *session, args []string) (int, error) {
	if err := o.command(s, args); err != nil {
		return 0, err
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	o.req.Member = s.member
	res, err := s.startAsked(context.Background(), a, o.req)
	if err != nil {
		return 0, err
	}
	for _, w := range res.Warnings {
		s.say("warning", w)
	}
	for _, h := range res.Hints {
		s.say("hint", h)
	}
	if s.json {
		s.document(res)
	} else {
		s.print(string(res.Job) + "\n")
	}
	if s.broken != nil {
		s.say("warning", "job "+string(res.Job)+" was started all the same")
	}
	return exitOK, nil
}

// startAsked starts a job, after a person was asked where that has to be.
func (s *session) startAsked(ctx context.Context, a *api.Actions, req api.StartRequest) (api.StartResult, error) {
	res, err := a.Start(req)
	if err != nil {
		if req.Approval, err = s.askPerson(ctx, a, err); err == nil {
			res, err = a.Start(req)
		}
	}
	return res, err
}

// command is what the operands ask for. Flags behind a shell string would be
// taken for arguments of a program by its name: that is refused.
func (o *startOptions) command(s *session, args []string) error {
	if o.until.any() {
		c, err := o.until.condition()
		if err != nil {
			return err
		}
		o.req.Until, o.req.Argv = &c, args
		return nil
	}
	switch {
	case len(args) == 1 && !s.asGiven:
		o.req.Command = args[0]
		return nil
	case len(args) > 1 && !s.asGiven && strings.Contains(strings.TrimSpace(args[0]), " ") && (s.space != "" || !o.isProgram(args[0])) &&
		slices.ContainsFunc(args[1:], func(s string) bool { return strings.HasPrefix(s, "-") }):
		return &api.Error{Code: api.InvalidArgument, Message: "command: " + quote(args[0]) + " is no program",
			Hint: "flags go before the command; after it they are its arguments (-- before it insists)"}
	}
	o.req.Argv = args
	return nil
}

// isProgram reports whether the job would find a program by this name, or
// cannot be told from here.
func (o *startOptions) isProgram(name string) bool {
	if slices.ContainsFunc(o.req.Env, func(s string) bool { return s == "PATH" || strings.HasPrefix(s, "PATH=") }) {
		return true
	}
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(o.req.Cwd, name)
		_, err := os.Stat(name)
		return err == nil
	}
	_, err := exec.LookPath(name)
	return err == nil
}
