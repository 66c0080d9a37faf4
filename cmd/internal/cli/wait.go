package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type waitOptions struct{ req api.WaitRequest }

func waitCommand() *command {
	return &command{
		name:    "wait",
		usage:   []string{"wait ID... [--any] [--timeout DURATION]"},
		summary: "wait until jobs have ended, and exit with their code",
		about: []string{
			"With several jobs the code is 0 if all are 0, else the first other one, in the order given. With --any it is that of the first job to end, whose id is printed.",
			"On a terminal, one line shows how the job stands and how long its command took the last time; when it goes, a line says how the job ended. Ctrl-C stops the waiting, never the job. With --json there is one document for each job, like that of status without the end of the log.",
		},
		examples: []example{
			{"space-job wait 9d3e && echo passed", ""},
			{"space-job wait --any 9d3e 11f0", "the first of two"},
			{"space-job wait 9d3e --timeout 10m", "at most ten minutes: 75 means ask again"},
		},
		exits: append([]exit{
			{"N", "the job's own code, when it exited"},
			{"124", "timed_out"},
			{"143", "cancelled"},
			{"125", "lost: how it ended is not known"},
			{"75", "it still runs after --timeout: ask again"},
			{"130", "you stopped it with Ctrl-C; the jobs go on"},
		}, standardExits[1:]...),
		operand: operandRunning,
		most:    -1,
		reach:   answering,
		new:     func() options { return new(waitOptions) },
	}
}

func (o *waitOptions) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.req.Any, "any", false, "wait only for the first to end")
	fs.VarP(value{"DURATION", func(s string) (err error) {
		o.req.Timeout, err = api.ParseLimit("timeout", s)
		o.req.Look = err == nil && o.req.Timeout == 0
		return err
	}}, "timeout", "t", "wait at most so long: 90s, 15m, 1h30m, 7d, or seconds; 0 only looks")
}

func (o *waitOptions) Run(s *session, args []string) (int, error) {
	o.req.Jobs = args
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	var line *live
	watched := false // by somebody who sits there
	if ids, err := a.Resolve(args); err == nil && len(ids) > 0 && !o.req.Look && isTerminal(s.stderr) {
		watched = true
		var stop context.CancelFunc
		ctx, stop = interruptible()
		defer stop()
		o.req.Jobs = ids
		if redrawable(s.stderr) && s.space == "" {
			line = newLive(s)
			defer line.close()
			go line.follow(ctx, a, ids, true)
		}
	}
	res, err := a.Wait(ctx, o.req)
	line.close()
	if errors.Is(err, context.Canceled) {
		goes := "the job goes on"
		if len(o.req.Jobs) > 1 {
			goes = "the jobs go on"
		}
		s.say("hint", goes+": "+s.self()+" wait "+strings.Join(o.req.Jobs, " "))
		return exitDetached, nil
	}
	if err != nil {
		return 0, err
	}
	var still []string
	for i := range res.Jobs {
		e := &res.Jobs[i]
		if s.json {
			s.document(e)
		} else if o.req.Any && e.State != "running" {
			s.print(string(e.Job) + "\n")
		}
		if watched && e.State != "running" {
			s.ended(e)
		}
		if e.State == "running" {
			still = append(still, string(e.Job))
		}
	}
	if res.Code == api.CodeAskAgain && len(still) > 0 {
		s.say("hint", "still running: "+strings.Join(still, " "))
	}
	return res.Code, nil
}
