package cli

import "github.com/spf13/pflag"

type checkOptions struct{}

func checkCommand() *command {
	return &command{
		name:    "check",
		usage:   []string{"check"},
		summary: "verify every job directory",
		about: []string{
			"Reads every file of every job and says what is wrong with it. Nothing is changed.",
		},
		examples: []example{{"space-job check", ""}},
		exits: []exit{
			{"0", "nothing is wrong"},
			{"1", "something is, or could not be read"},
			{"2", "a wrong flag"},
		},
		new: func() options { return new(checkOptions) },
	}
}

func (o *checkOptions) AddFlags(*pflag.FlagSet) {}

func (o *checkOptions) Run(s *session, _ []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.Check()
	if err != nil {
		return 0, err
	}
	switch {
	case s.json:
		s.document(res)
	case res.OK:
		s.print(count(res.Jobs, "job") + " in " + res.Root + ": nothing is wrong with them\n")
	default:
		for _, p := range res.Problems {
			line := p.Name
			if p.File != "" {
				line += "/" + p.File
			}
			s.print(oneLine(line+": "+p.What) + "\n")
		}
	}
	if !res.OK {
		s.say("error", count(len(res.Problems), "problem")+" in "+res.Root)
		return exitFailed, nil
	}
	return exitOK, nil
}
