package cli

import (
	"strings"

	"github.com/spf13/pflag"
)

type helpOptions struct{}

func helpCommand() *command {
	return &command{
		name:     "help",
		usage:    []string{"help [COMMAND]", "help COMMAND COMMAND"},
		summary:  "show how a command is used",
		about:    []string{"Without COMMAND it lists all of them. It is the same as COMMAND --help. Some commands have commands of their own: name both."},
		examples: []example{{"space-job help start", ""}},
		exits:    []exit{{"0", "fine"}, {"2", "no such command"}},
		operand:  operandHelp,
		most:     2,
		textOnly: true,
		new:      func() options { return new(helpOptions) },
	}
}

func (o *helpOptions) AddFlags(*pflag.FlagSet) {}

func (o *helpOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return exitOK, s.showHelp(nil)
	}
	c, rest := find(args)
	switch {
	case c == nil:
		return 0, unknownCommand(args[0], commandNames(), "")
	case len(rest) > 0:
		return 0, unknownCommand(rest[0], c.subNames(), c.name)
	}
	return exitOK, s.showHelp(c)
}

// showHelp prints the help of a command, or for nil that of the program.
func (s *session) showHelp(c *command) error {
	if c == nil {
		s.print(overview())
	} else {
		s.print(c.help())
	}
	return nil
}

const (
	helpWidth   = 80
	description = "Run a command as a job: it goes on when you disconnect, with a log that can be read from any byte, an exit status and timing."
)

// globals are the flags that every command takes.
var globals = [...]struct{ flag, meaning string }{
	{"--json", "print JSON: one document, or one on a line for lists. An error is {\"error\": {code, message, hint}} on stdout, beside the line on stderr. completion, man and help print text only"},
	{"--member NAME", memberMeaning},
	{"--space NAME", spaceMeaning + ". For start, run, logs, status, wait, cancel, list and policy check"},
	{"-h, --help", "show help"},
	{"--version", "show the version"},
}

const memberMeaning = "who you are in the thread; else $SPACE_MEMBER, else on a terminal your login name"

// overview is the help of the program.
func overview() string {
	var b strings.Builder
	b.WriteString(wrap(description, "") + "\nUsage:\n  space-job COMMAND [flags] [operands]\n\nCommands:\n")
	for _, c := range commands() {
		b.WriteString(entryOf(c.name, c.summary, 13))
	}
	b.WriteString("\nFlags of every command:\n")
	for _, g := range globals {
		b.WriteString(entryOf(g.flag, g.meaning, 13))
	}
	b.WriteString(`
A first job:
  space-job start 'make test'     prints an id, such as j6c1f0a2b9d3e
  space-job logs -f               shows its log to its end
  space-job status                state, exit code, timing

An ID is given in full or as its last digits, four at least; where it may be
left out, it is the newest job. Jobs are kept in $SPACE_JOB_HOME, else
$XDG_STATE_HOME/space-job, else ~/.local/state/space-job.

Exit codes: 0 fine, 1 failed, 2 wrong usage, 3 no such job, 4 a person is to
say so first, 5 denied by the policy or a person.
More about a command: space-job help COMMAND
`)
	return b.String()
}

// help is the help of a command.
func (c *command) help() string {
	var b strings.Builder
	b.WriteString("space-job " + c.name + ": " + c.summary + "\n\nUsage:\n")
	for _, u := range c.usage {
		b.WriteString("  space-job " + u + "\n")
	}
	for _, sub := range c.sub {
		for _, u := range sub.usage {
			b.WriteString("  space-job " + u + "\n")
		}
	}
	for _, p := range c.about {
		b.WriteString("\n" + wrap(p, ""))
	}
	if len(c.sub) > 0 {
		b.WriteString("\nCommands:\n")
		for _, sub := range c.sub {
			b.WriteString(entryOf(sub.name, sub.summary, 17))
		}
	}
	b.WriteString("\nFlags:\n")
	c.eachFlag(func(f *pflag.Flag) { b.WriteString(entryOf(flagForms(f), f.Usage, 26)) })
	b.WriteString(entryOf("-h, --help", "show this help", 26))
	if c.asMember {
		b.WriteString(entryOf("    --member NAME", memberMeaning, 26))
	}
	if c.reach != hereOnly {
		b.WriteString(entryOf("    --space NAME", spaceMeaning, 26))
	}
	if c.reach == answering {
		b.WriteString(entryOf("    --request -", requestMeaning, 26))
	}
	if !c.textOnly {
		b.WriteString(entryOf("    --json", "print JSON", 26))
	}
	if len(c.examples) > 0 {
		b.WriteString("\nExamples:\n")
		for _, e := range c.examples {
			if e.note != "" {
				b.WriteString("  # " + e.note + "\n")
			}
			b.WriteString("  " + e.line + "\n")
		}
	}
	b.WriteString("\nExit codes:\n")
	for _, e := range c.exits {
		b.WriteString(entryOf(e.code, e.meaning, 4))
	}
	return b.String()
}

// entryOf is a term, and beside it what it means.
func entryOf(term, meaning string, columns int) string {
	indent := strings.Repeat(" ", columns+3)
	text := strings.TrimPrefix(wrap(meaning, indent), indent)
	if len(term) > columns {
		return "  " + term + "\n" + indent + text
	}
	return "  " + term + strings.Repeat(" ", columns+1-len(term)) + text
}

// wrap breaks text into lines that begin with indent.
func wrap(text, indent string) string {
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) {
			if len(line)+1+len(word) > helpWidth {
				b.WriteString(line + "\n")
				line = indent
			} else {
				line += " "
			}
		}
		line += word
	}
	b.WriteString(line + "\n")
	return b.String()
}
