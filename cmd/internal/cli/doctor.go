package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type doctorOptions struct{}

func doctorCommand() *command {
	return &command{
		name:    "doctor",
		usage:   []string{"doctor"},
		summary: "look whether jobs can be run here",
		about: []string{
			"Looks at the two programs, the root and its file system, whether locks hold there (or where it would be made), what the kernel offers, the disk, large logs and jobs that should have been pruned, whether the Space whose thread this one has joined answers, and runs one small job in a folder of its own. It leaves nothing behind.",
		},
		examples: []example{{"space-job doctor", ""}},
		exits: []exit{
			{"0", "jobs can be run; there may be warnings"},
			{"1", "something failed"},
			{"2", "a wrong flag"},
			{"130", "you stopped it with Ctrl-C"},
		},
		new: func() options { return new(doctorOptions) },
	}
}

func (o *doctorOptions) AddFlags(*pflag.FlagSet) {}

func (o *doctorOptions) Run(s *session, _ []string) (int, error) {
	ctx, stop := interruptible() // so that nothing is left behind
	defer stop()
	res := api.Doctor(ctx)
	if ctx.Err() != nil {
		return exitDetached, nil
	}
	if s.json {
		s.document(struct {
			Version string `json:"version"`
			api.DoctorResult
		}{strings.TrimPrefix(versionLine(), "space-job "), res})
	} else {
		s.print(doctorText(&res, colourful(s.stdout)))
	}
	if !res.OK {
		s.say("error", "jobs cannot be run here as they should")
		return exitFailed, nil
	}
	return exitOK, nil
}

func doctorText(r *api.DoctorResult, colour bool) string {
	var b strings.Builder
	b.WriteString(versionLine() + "\n")
	widest := 0
	for _, f := range r.Findings {
		widest = max(widest, len(f.Name))
	}
	colours := map[api.Verdict]string{api.Good: "32", api.Warning: "33", api.Failed: "31"}
	for _, f := range r.Findings {
		verdict := string(f.Verdict)
		pad := strings.Repeat(" ", len("warning")-len(verdict)+2)
		if colour {
			verdict = "\x1b[" + colours[f.Verdict] + "m" + verdict + "\x1b[0m"
		}
		b.WriteString(verdict + pad + f.Name + strings.Repeat(" ", widest-len(f.Name)+2) + oneLine(f.Note) + "\n")
	}
	return b.String()
}
