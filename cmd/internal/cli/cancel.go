package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type cancelOptions struct{ req api.CancelRequest }

func cancelCommand() *command {
	return &command{
		name:    "cancel",
		usage:   []string{"cancel ID... [--reason TEXT] [--nested]"},
		summary: "stop jobs, with every process that they started",
		about: []string{
			"Sends TERM to every process of the job, also to those that left its session, and KILL to what is there after five seconds. Returns when the job has ended, and prints how.",
			"A job that was started from within the job is a job of its own and goes on: it is named here, and stopped, too, with --nested.",
			"Of a job that has ended, the processes that it left behind are stopped; its record stays as it is.",
		},
		examples: []example{
			{"space-job cancel 9d3e", ""},
			{"space-job cancel 9d3e 11f0 --reason 'wrong branch'", "two at once, and why"},
		},
		exits: []exit{
			{"0", "none of the job's own processes runs any more; jobs started from within may, and are named"},
			{"1", "something could not be stopped: it is named"},
			{"2", "a wrong flag or value; nothing was stopped"},
			{"3", "no such job; nothing was stopped"},
		},
		operand: operandRunning,
		most:    -1,
		reach:   answering,
		new:     func() options { return new(cancelOptions) },
	}
}

func (o *cancelOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(text(&o.req.Reason, "TEXT"), "reason", "why: status shows it")
	fs.BoolVar(&o.req.Nested, "nested", false, "stop the running jobs that were started from within, too")
}

func (o *cancelOptions) Run(s *session, args []string) (int, error) {
	o.req.Jobs = args
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	results, err := a.Cancel(context.Background(), o.req)
	if err != nil {
		return 0, err
	}
	code := exitOK
	for i := range results {
		r := &results[i]
		if s.json {
			s.document(r)
		} else {
			s.print(cancelText(r))
		}
		s.running(r, o.req.Nested)
		if r.Error != nil {
			s.say("error", r.Error.Message)
			if code == exitOK {
				code = exitCode(r.Error.Code)
			}
		}
	}
	return code, nil
}

// running names the jobs from within that go on.
func (s *session) running(r *api.CancelResult, stopped bool) {
	if stopped || len(r.Nested) == 0 {
		return
	}
	ids := make([]string, len(r.Nested))
	for i, n := range r.Nested {
		ids[i] = string(n.Job)
	}
	s.say("warning", "started from within "+string(r.Job)+", and still running: "+strings.Join(ids, " "))
	s.say("hint", s.self()+" cancel "+string(r.Job)+" --nested stops them, too")
}

func cancelText(r *api.CancelResult) string {
	e := api.Entry{State: r.State, ExitCode: r.ExitCode}
	text := string(r.Job) + "  " + end(&e, false)
	if r.DurationMS != nil {
		text += " after " + api.FormatDuration(time.Duration(*r.DurationMS)*time.Millisecond)
	}
	if r.State == api.Damaged && !r.Ended {
		text += ", and its runner has stopped it"
	}
	if r.Ended {
		before := "it had ended before"
		if r.State == api.Damaged {
			before = "no runner of it is alive here"
		}
		text += " (" + before
		if r.Stopped > 0 {
			text += "; stopped " + count(r.Stopped, "process") + " that it had left"
		}
		text += ")"
	} else if r.Stopped > 0 {
		text += ", stopped " + count(r.Stopped, "process") + " that it had left"
	}
	text += "\n"
	for _, n := range r.Nested {
		if n.State != "running" {
			text += string(n.Job) + "  " + string(n.State) + " (started from within)\n"
		}
	}
	return text
}
