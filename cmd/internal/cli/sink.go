package cli

import (
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

func sinkCommand() *command {
	return &command{
		name:    "sink",
		summary: "send the message of a job's end elsewhere, too",
		about: []string{
			"A sink is a command or a webhook that gets the message of every job that was started with --notify. The daemon delivers it: at least once, always with the same key, while neither the thread nor another sink waits for it.",
			"An attempt that fails is repeated: after 1 s, then after twice as long each time, up to 10 minutes, and not before the time that a webhook asks for (Retry-After). A webhook that answers with a code from 400 to 499, apart from 408 and 429, refuses the message: it is parked as failed until space-job sink retry.",
		},
		examples: []example{
			{"space-job sink add chat --webhook https://hooks.slack.com/services/T0/B0/x --format slack", ""},
			{"space-job sink add mail --command 'mail -s \"job ended\" me@example.org'", ""},
			{"space-job sink list", ""},
		},
		exits: sinkExits,
		sub:   []*command{sinkAddCommand(), sinkListCommand(), sinkRetryCommand(), sinkRemoveCommand()},
	}
}

var sinkExits = []exit{{"0", "fine"}, {"1", "it failed"}, {"2", "a wrong flag or value"}, {"3", "no such sink"}}

type sinkAddOptions struct{ req api.SinkRequest }

func sinkAddCommand() *command {
	return &command{
		name:    "sink add",
		usage:   []string{"sink add NAME --command CMD", "sink add NAME --webhook URL [--format json|slack]"},
		summary: "add a sink, or change one",
		about: []string{
			"NAME has up to 64 letters, digits, dots, underscores and dashes. A sink that is there is replaced, and what waits for it goes to the new one.",
			"CMD is a shell command. It gets the text of the message on its standard input, and has 10 s; exit code 0 means that it has the message. It runs in / with the short environment of the daemon and SPACE_JOB_KEY (the message's key, job/ID), SPACE_JOB_STATE and SPACE_JOB_EXIT (the exit code, or empty). What it leaves running in its process group is killed when it ends, so let it do its work in the foreground.",
			"URL begins with http:// or https://. It gets a POST with the header Idempotency-Key: job/ID and a JSON body: key, job, state, exit_code, duration_ms, log_bytes, name, text. With --format slack the body is {\"text\"}, with &, < and > escaped, so that no log can call a channel. A code from 200 to 299 within 10 s means that it has the message. A redirect is followed only where it keeps the message (307, 308) and the scheme. The daemon knows of no proxy: where there is one, use a command, such as curl --proxy.",
			"The address may hold a secret: it is kept in a file for you alone, and nothing shows what follows its host.",
		},
		examples: []example{
			{"space-job sink add log --command 'cat >>/var/tmp/jobs.txt'", ""},
			{"space-job sink add ci --webhook https://ci.example.org/hook?token=x", ""},
			{"space-job sink add chat --webhook https://hooks.slack.com/services/T0/B0/x --format slack", ""},
		},
		exits: sinkExits[:3],
		most:  1,
		new:   func() options { return new(sinkAddOptions) },
	}
}

func (o *sinkAddOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(given(&o.req.Command, "command", "CMD"), "command", "give the message to this shell command")
	fs.Var(given(&o.req.Webhook, "webhook", "URL"), "webhook", "post the message to this address")
	fs.Var(given(&o.req.Format, "format", "FORMAT"), "format", "what a webhook is sent: json (unless said) or slack")
}

func (o *sinkAddOptions) Run(s *session, args []string) (int, error) {
	a, err := s.sink(args, "sink add", &o.req.Name)
	if err != nil {
		return 0, err
	}
	if o.req.Command == "" && o.req.Webhook == "" {
		return 0, usage("sink "+quote(o.req.Name)+": neither --command nor --webhook is given", "sink add")
	}
	res, err := a.SinkAdd(o.req)
	if err != nil {
		return 0, err
	}
	switch {
	case s.json:
		s.document(res)
	case res.Replaced:
		s.print("changed " + res.Sink + "\n")
	default:
		s.print("added " + res.Sink + "\n")
	}
	return exitOK, nil
}

// sink opens the root for a command whose one operand is the name of a sink.
func (s *session) sink(args []string, command string, name *string) (*api.Actions, error) {
	if len(args) == 0 {
		return nil, usage("sink: no name is given", command)
	}
	*name = args[0]
	return s.open()
}

type sinkListOptions struct{}

func sinkListCommand() *command {
	return &command{
		name:    "sink list",
		usage:   []string{"sink list"},
		summary: "list the sinks, and how they do",
		about: []string{
			"The state is ok, retrying (the next attempt comes by itself), failed (something was refused and waits for space-job sink retry) or damaged (the file cannot be read). WAITING counts the messages that the sink has not got.",
			"With --json it is one document for each on a line of its own: sink, kind, target, format, state, waiting, failed, error, next_at.",
		},
		examples: []example{{"space-job sink list", ""}},
		exits:    sinkExits[:3],
		new:      func() options { return new(sinkListOptions) },
	}
}

func (o *sinkListOptions) AddFlags(*pflag.FlagSet) {}

func (o *sinkListOptions) Run(s *session, _ []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.SinkList()
	if err != nil {
		return 0, err
	}
	sinks := res.Sinks
	switch {
	case s.json:
		for i := range sinks {
			s.document(&sinks[i])
		}
	case len(sinks) == 0:
		s.say("hint", "there is no sink yet: space-job sink add NAME --webhook URL")
	default:
		s.print(sinkTable(sinks, time.Now()))
	}
	s.warnings(res.Warnings)
	return exitOK, nil
}

// sinkTable is the view for people. What is wrong with a sink stands below it,
// further to the right.
func sinkTable(sinks []api.SinkEntry, now time.Time) string {
	rows := [][]string{{"SINK", "STATE", "WAITING", "NEXT TRY", "TARGET"}}
	for i := range sinks {
		e := &sinks[i]
		next := "-"
		if e.State == api.SinkRetrying {
			next = "now"
		}
		if e.NextAt != nil && e.NextAt.After(now) {
			next = "in " + liveDuration(max(e.NextAt.Sub(now).Round(time.Second), time.Second))
		}
		target := oneLine(e.Target)
		if e.Format == "slack" {
			target += " (slack)"
		}
		if e.Error != nil && *e.Error != "" {
			target += "\n    " + oneLine(*e.Error)
		}
		rows = append(rows, []string{oneLine(e.Sink), string(e.State), strconv.Itoa(e.Waiting), next, target})
	}
	return columns(rows)
}

type sinkRetryOptions struct{}

func sinkRetryCommand() *command {
	return &command{
		name:     "sink retry",
		usage:    []string{"sink retry NAME"},
		summary:  "try again at once what a sink has not got",
		about:    []string{"Makes another attempt due for every message that waits for the sink, also for those that it has refused. The daemon makes it."},
		examples: []example{{"space-job sink retry chat", ""}},
		exits:    sinkExits,
		operand:  operandSink,
		most:     1,
		new:      func() options { return new(sinkRetryOptions) },
	}
}

func (o *sinkRetryOptions) AddFlags(*pflag.FlagSet) {}

func (o *sinkRetryOptions) Run(s *session, args []string) (int, error) {
	var name string
	a, err := s.sink(args, "sink retry", &name)
	if err != nil {
		return 0, err
	}
	res, err := a.SinkRetry(name)
	if err != nil {
		return 0, err
	}
	if s.json {
		s.document(res)
	} else {
		s.print("trying again for " + res.Sink + ": " + count(res.Retried, "message") + "\n")
	}
	s.warnings(res.Warnings)
	return exitOK, nil
}

type sinkRemoveOptions struct{}

func sinkRemoveCommand() *command {
	return &command{
		name:     "sink remove",
		usage:    []string{"sink remove NAME"},
		summary:  "remove a sink",
		about:    []string{"Messages that wait for the sink are dropped for it, and it is said how many these were. The thread has them all the same."},
		examples: []example{{"space-job sink remove chat", ""}},
		exits:    sinkExits,
		operand:  operandSink,
		most:     1,
		new:      func() options { return new(sinkRemoveOptions) },
	}
}

func (o *sinkRemoveOptions) AddFlags(*pflag.FlagSet) {}

func (o *sinkRemoveOptions) Run(s *session, args []string) (int, error) {
	var name string
	a, err := s.sink(args, "sink remove", &name)
	if err != nil {
		return 0, err
	}
	res, err := a.SinkRemove(name)
	if err != nil {
		return 0, err
	}
	if s.json {
		s.document(res)
		return exitOK, nil
	}
	s.print("removed " + res.Sink + "\n")
	if res.Dropped > 0 {
		s.print(count(res.Dropped, "message") + " that waited for it: dropped\n")
	}
	return exitOK, nil
}
