package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type listOptions struct {
	req api.ListRequest
	n   int64
	fs  *pflag.FlagSet
}

func listCommand() *command {
	return &command{
		name:    "list",
		usage:   []string{"list [-n N | --all] [--state STATE]..."},
		summary: "list jobs, newest first",
		about: []string{
			"Lists the newest 20 jobs and says how many more there are. With --json it is one document for each job on a line of its own, like that of status without the end of the log.",
			"A job whose directory cannot be read is listed as damaged; space-job check says what is wrong with it.",
		},
		examples: []example{
			{"space-job list", ""},
			{"space-job list --all --state running --state lost", "all that run, or that lost their runner"},
		},
		exits: standardExits[:3],
		reach: answering,
		new:   func() options { return new(listOptions) },
	}
}

func (o *listOptions) AddFlags(fs *pflag.FlagSet) {
	o.fs = fs
	fs.VarP(number(&o.n, "n", api.ParseCount), "number", "n", "list at most so many, 20 unless said")
	fs.BoolVar(&o.req.All, "all", false, "list all")
	fs.Var(value{"STATE", func(s string) error {
		o.req.States = append(o.req.States, s)
		return nil
	}}, "state", "list only those that are "+strings.Join(api.States(), ", ")+". May be repeated")
}

func (o *listOptions) Run(s *session, _ []string) (int, error) {
	if o.req.All && o.fs.Changed("number") {
		return 0, usage("--all and -n exclude each other", "list")
	}
	o.req.N = int(min(o.n, 1<<30))
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.List(o.req)
	if err != nil {
		return 0, err
	}
	if s.json {
		for i := range res.Jobs {
			s.document(&res.Jobs[i])
		}
	} else {
		if len(res.Jobs) > 0 {
			s.print(table(res.Jobs, api.Columns(s.stdout), colourful(s.stdout), time.Now()))
		} else if len(o.req.States) == 0 {
			s.say("hint", "there is no job yet: "+s.self()+" start 'make test'")
		}
	}
	if res.More > 0 {
		s.say("hint", "there are "+strconv.Itoa(res.More)+" more: "+s.self()+" list --all")
	}
	for _, w := range res.Warnings {
		s.say("warning", w)
	}
	return exitOK, nil
}

// table is the view for people, cut to the width of the terminal if there is
// one.
func table(jobs []api.Entry, columns int, colour bool, now time.Time) string {
	rows := make([][]string, 0, len(jobs)+1)
	rows = append(rows, []string{"JOB", "STATE", "EXIT", "STARTED", "TOOK", "LOG", "NAME"})
	for i := range jobs {
		e := &jobs[i]
		code, started, took := "-", "-", "-"
		if e.ExitCode != nil {
			code = strconv.Itoa(*e.ExitCode)
		}
		if e.CreatedAt != nil {
			started = ago(now.Sub(*e.CreatedAt))
		}
		if d, ok := e.Elapsed(now); ok {
			took = api.FormatDuration(d)
		}
		rows = append(rows, []string{string(e.Job), string(e.State), code, started, took, api.FormatSize(e.LogBytes), oneLine(e.Line)})
	}
	last := len(rows[0]) - 1
	widths := make([]int, last)
	for _, r := range rows {
		for i := range widths {
			widths[i] = max(widths[i], len(r[i]))
		}
	}
	var b strings.Builder
	for n, r := range rows {
		used := 0
		for i, w := range widths {
			cell := r[i]
			pad := strings.Repeat(" ", w-len(cell)+2)
			if colour && n > 0 && i == 1 {
				code, _ := strconv.Atoi(r[2])
				cell = stateColour(cell, code)
			}
			b.WriteString(cell + pad)
			used += w + 2
		}
		name := r[last]
		if columns > 0 {
			name = cut(name, max(columns-used, 8))
		}
		b.WriteString(name + "\n")
	}
	return b.String()
}
