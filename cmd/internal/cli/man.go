package cli

import (
	"strings"

	"github.com/spf13/pflag"
)

type manOptions struct{}

func manCommand() *command {
	return &command{
		name:     "man",
		usage:    []string{"man"},
		summary:  "print the manual page",
		about:    []string{"Prints the page in roff, made from the same table as the help."},
		examples: []example{{"space-job man >~/.local/share/man/man1/space-job.1", "install it"}, {"space-job man | man -l -", "read it"}},
		exits:    standardExits[:3],
		textOnly: true,
		new:      func() options { return new(manOptions) },
	}
}

func (o *manOptions) AddFlags(*pflag.FlagSet) {}

func (o *manOptions) Run(s *session, _ []string) (int, error) {
	s.print(manPage())
	return exitOK, nil
}

// roff builds a manual page.
type roff struct{ strings.Builder }

func (r *roff) macro(name string, args ...string) {
	r.WriteString("." + name)
	for _, a := range args {
		r.WriteString(` "` + strings.ReplaceAll(escapeRoff(a), `"`, `\(dq`) + `"`)
	}
	r.WriteByte('\n')
}

func (r *roff) text(s string) {
	s = escapeRoff(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	r.WriteString(s + "\n")
}

func (r *roff) item(term, meaning string) {
	r.macro("TP")
	r.WriteString(`\fB` + escapeRoff(term) + "\\fR\n")
	r.text(meaning)
}

var roffEscapes = [...][2]string{{`\`, `\e`}, {"-", `\-`}, {"~", `\(ti`}, {"^", `\(ha`}, {"`", `\(ga`}, {"'", `\(aq`}}

func escapeRoff(s string) string {
	for _, e := range roffEscapes {
		s = strings.ReplaceAll(s, e[0], e[1])
	}
	return s
}

func manPage() string {
	var r roff
	r.macro("TH", "SPACE-JOB", "1", "", versionLine(), "User Commands")
	r.macro("SH", "NAME")
	r.text("space-job - run a command as a job that goes on when you leave")
	r.macro("SH", "SYNOPSIS")
	r.macro("nf")
	for _, c := range everyCommand() {
		if c.new == nil {
			continue // its own commands follow
		}
		for _, u := range c.usage {
			r.text("space-job " + u)
		}
	}
	r.macro("fi")
	r.macro("SH", "DESCRIPTION")
	r.text(description)
	r.macro("PP")
	r.text("An ID is given in full, j and 12 hex digits, or as its last digits, four at least. Where it may be left out, it is the newest job.")
	r.macro("SH", "OPTIONS")
	for _, g := range globals {
		r.item(g.flag, g.meaning)
	}
	r.macro("SH", "COMMANDS")
	for _, c := range everyCommand() {
		r.macro("SS", c.name+": "+c.summary)
		for _, p := range c.about {
			r.macro("PP")
			r.text(p)
		}
		c.eachFlag(func(f *pflag.Flag) { r.item(strings.TrimSpace(flagForms(f)), f.Usage) })
		r.macro("PP")
		r.text("Exit codes:")
		for _, e := range c.exits {
			r.item(e.code, e.meaning)
		}
		r.macro("PP")
		r.text("Examples:")
		r.macro("PP")
		r.macro("nf")
		r.macro("RS")
		for _, e := range c.examples {
			if e.note != "" {
				r.text("# " + e.note)
			}
			r.text(e.line)
		}
		r.macro("RE")
		r.macro("fi")
	}
	r.macro("SH", "EXIT STATUS")
	r.text("0 fine, 1 failed, 2 wrong usage, 3 no such job, 4 a person is to say so first, 5 denied by the policy or a person. wait and run exit with the code of the job.")
	r.macro("SH", "ENVIRONMENT")
	r.item("SPACE_JOB_HOME", "where the jobs are kept; absolute")
	r.item("XDG_STATE_HOME", "without SPACE_JOB_HOME, jobs are kept in its space-job folder, and without either in ~/.local/state/space-job")
	r.item("SPACE_JOB", "inside a job, its id")
	r.item("NO_COLOR", "when set, no colours, also on a terminal")
	r.macro("SH", "FILES")
	r.item("$SPACE_JOB_HOME/jobs/ID/", "a job: cmd, pid, log, timing, exit and others, readable by any program")
	return r.String()
}
