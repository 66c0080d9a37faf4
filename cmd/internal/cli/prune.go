package cli

import (
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type pruneOptions struct{ req api.PruneRequest }

func pruneCommand() *command {
	return &command{
		name:    "prune",
		usage:   []string{"prune [--older-than DURATION]"},
		summary: "remove jobs that ended long ago",
		about: []string{
			"Removes jobs, with their logs and keys, that ended more than seven days ago. A job that runs is never removed, however old. A lost job is written down first, and counts from then on.",
		},
		examples: []example{
			{"space-job prune", ""},
			{"space-job prune --older-than 24h", "keep one day"},
		},
		exits: standardExits[:3],
		new:   func() options { return new(pruneOptions) },
	}
}

func (o *pruneOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(parsed(&o.req.OlderThan, "DURATION", func(s string) (time.Duration, error) {
		return api.ParseDuration("older_than", s)
	}), "older-than", "keep jobs for so long after their end, 168h unless said; also 30m, 7d or seconds")
}

func (o *pruneOptions) Run(s *session, _ []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.Prune(o.req)
	if err != nil {
		return 0, err
	}
	if s.json {
		s.document(res)
	} else {
		s.print("removed " + count(len(res.Removed), "job") + ", kept " + strconv.Itoa(res.Kept) + "\n")
		if n := len(res.Recorded); n > 0 {
			s.print("wrote down " + count(n, "lost job") + "\n")
		}
	}
	for _, e := range res.Errors {
		s.say("error", e)
	}
	if len(res.Errors) > 0 {
		return exitFailed, nil
	}
	return exitOK, nil
}
