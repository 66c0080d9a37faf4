package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"syscall"

	"space-job/cmd/internal/api"
)

type runOptions struct{ startOptions }

func runCommand() *command {
	return &command{
		name: "run",
		usage: []string{
			"run [flags] COMMAND",
			"run [flags] [--] PROG ARG...",
			"run [flags] --until-file PATH | --until-port [HOST:]PORT | ...",
		},
		summary: "start a job, show its log as it grows, exit with its code",
		about: []string{
			"Like start and logs -f and wait in one. Ctrl-C detaches: the job goes on, and you are told how to come back to it. On a terminal a line says how the job stands, and at last how it ended.",
			"Flags end at the first operand, as for start. With --json the log comes as the documents of logs, one on a line; the last one has the end.",
		},
		examples: []example{
			{"space-job run make test", ""},
			{"space-job run -t 10m 'make && ./deploy'", "at most ten minutes"},
		},
		exits: append([]exit{
			{"N", "the job's own code, when it exited"},
			{"124", "timed_out"},
			{"143", "cancelled"},
			{"125", "lost: how it ended is not known"},
			{"130", "you detached with Ctrl-C; the job goes on"},
			{"4", "approval_required: a person is to say so first; nothing was started"},
			{"5", "approval_denied: the policy, or a person, does not allow it"},
		}, standardExits[1:3]...),
		strict:  true,
		operand: operandCommand,
		reach:   elsewhere,
		new:     func() options { return new(runOptions) },
	}
}

func (o *runOptions) Run(s *session, args []string) (int, error) {
	ctx, stop := interruptible()
	defer stop()
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	job, err := o.start(ctx, s, a, args)
	if err != nil {
		return 0, err
	}
	var line *live
	if redrawable(s.stderr) && s.space == "" { // no call to another Space twice a second
		line = newLive(s)
		defer line.close()
		go line.follow(ctx, a, []string{job}, !isTerminal(s.stdout))
	}
	start := int64(0)
	var last api.LogsResult
	err = a.Follow(ctx, api.LogsRequest{Job: job, Offset: &start, Encoding: encodingFor(s)}, func(r *api.LogsResult) error {
		line.above(func() (atLineStart bool) {
			last = *r
			s.piece(r)
			n := len(r.Bytes)
			return n == 0 && line.atLineStart() || n > 0 && r.Bytes[n-1] == '\n'
		})
		return s.broken
	})
	line.close()
	switch {
	case errors.Is(err, context.Canceled):
		s.unwritten(&last)
		s.say("hint", "detached: the job goes on")
		s.say("hint", "come back: "+s.self()+" logs -f "+job)
		s.say("hint", "its end: "+s.self()+" wait "+job)
		s.say("hint", "stop it: "+s.self()+" cancel "+job)
		return exitDetached, nil
	case s.broken != nil:
		s.say("hint", "the job goes on: "+s.self()+" logs -f "+job)
		return 0, nil // said by the caller
	case err != nil:
		return 0, err
	}
	res, err := a.Status(job)
	if err != nil {
		return 0, err
	}
	s.unwritten(&last)
	if isTerminal(s.stderr) || res.State != "exited" || res.Error != nil {
		s.ended(&res.Entry)
	}
	return res.Code(), nil
}

// start starts the job, after a person was asked where that has to be.
func (o *runOptions) start(ctx context.Context, s *session, a *api.Actions, args []string) (string, error) {
	if s.space != "" {
		if err := o.command(s, args); err != nil {
			return "", err
		}
		o.req.Member = s.member
		res, err := s.startAsked(ctx, a, o.req)
		s.warnings(res.Warnings)
		return string(res.Job), err
	}
	job, err := s.startByItself(s.args)
	if err != nil {
		var id string
		if id, err = s.askPerson(ctx, a, err); err == nil {
			job, err = s.startByItself(append([]string{"--approval", id}, s.args...))
		}
	}
	return job, err
}

func encodingFor(s *session) api.Encoding {
	if s.json {
		return api.Text
	}
	return api.Raw
}

// startByItself starts a job through a space-job of its own, which ends at
// once: the runner of the job must never be the child of a process that lives
// on, and Ctrl-C must not reach a start under way.
func (s *session) startByItself(args []string) (string, error) {
	self, err := api.Program()
	if err != nil {
		return "", err
	}
	var out, talk bytes.Buffer
	c := exec.Cmd{
		Path:        self,
		Args:        append([]string{"space-job", "start", "--json"}, args...),
		Stdout:      &out,
		Stderr:      &talk,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	err = c.Run()
	var doc struct {
		Job   string     `json:"job"`
		Error *api.Error `json:"error"`
	}
	if bad := json.Unmarshal(out.Bytes(), &doc); bad != nil || doc.Job == "" && doc.Error == nil {
		why := strings.TrimSpace(talk.String())
		if why == "" && err != nil {
			why = err.Error()
		}
		return "", &api.Error{Code: api.Unavailable, Message: "start: " + why}
	}
	if doc.Error != nil {
		return "", doc.Error
	}
	s.talk(talk.String()) // its warnings
	return doc.Job, nil
}
