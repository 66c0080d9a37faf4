package cli

import (
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
)

// command is one command: how to call it, and what help, the man page and the
// completion scripts say about it.
//
// A command may have commands of its own (sub). Their names begin with its name:
// "sink add". It may do something by itself as well, where new is not nil.
type command struct {
	name     string
	usage    []string // without the program's name
	summary  string
	about    []string // paragraphs
	examples []example
	exits    []exit
	operand  operand
	strict   bool // flags end at the first operand
	asMember bool // it matters who calls it
	reach    reach
	textOnly bool // no --json: what it prints is for people, or for another program
	most     int  // operands; -1: any number
	new      func() options
	sub      []*command
}

type example struct{ line, note string }

type exit struct{ code, meaning string }

// operand is what a command's operands are, for completion.
type operand int

const (
	operandNone operand = iota
	operandJob
	operandRunning // a job that runs
	operandCommand // a program and its arguments
	operandShell   // bash, zsh, fish
	operandHelp    // a command of ours
	operandSink
	operandMember
	operandRequest // of an approval
)

var standardExits = []exit{
	{"0", "fine"},
	{"1", "it failed"},
	{"2", "a wrong flag or value"},
	{"3", "no such job"},
}

// commands is the table, in the order in which a newcomer meets them.
func commands() []*command {
	return []*command{
		startCommand(),
		logsCommand(),
		statusCommand(),
		cancelCommand(),
		listCommand(),
		runCommand(),
		waitCommand(),
		untilCommand(),
		threadCommand(),
		inboxCommand(),
		memberCommand(),
		sinkCommand(),
		approvalsCommand(),
		policyCommand(),
		pruneCommand(),
		checkCommand(),
		doctorCommand(),
		daemonCommand(),
		mcpCommand(),
		skillCommand(),
		completionCommand(),
		manCommand(),
		helpCommand(),
	}
}

// everyCommand is the table with the commands of commands, each behind its own.
func everyCommand() []*command {
	var all []*command
	for _, c := range commands() {
		all = append(append(all, c), c.sub...)
	}
	return all
}

// find finds the command that words begin with, of two words where there is
// one, and returns what is left of them.
func find(words []string) (*command, []string) {
	c := lookup(words[0])
	words = words[1:]
	if c != nil && len(words) > 0 {
		for _, sub := range c.sub {
			if sub.last() == words[0] {
				return sub, words[1:]
			}
		}
	}
	return c, words
}

// last is the last word of the name.
func (c *command) last() string { return c.name[strings.IndexByte(c.name, ' ')+1:] }

// subNames are the commands of a command, each by its last word.
func (c *command) subNames() []string {
	names := make([]string, len(c.sub))
	for i, sub := range c.sub {
		names[i] = sub.last()
	}
	return names
}

// lookup finds a command. The one that is measured comes first.
func lookup(name string) *command {
	if name == "start" {
		return startCommand()
	}
	for _, c := range commands() {
		if c.name == name {
			return c
		}
	}
	return nil
}

// eachFlag calls f for the flags of a command in the order of its help.
func (c *command) eachFlag(f func(*pflag.Flag)) {
	if c.new == nil {
		return
	}
	flagSet(c, c.new()).VisitAll(f)
}

// placeholder is what stands for the value of a flag, "" where it has none.
func placeholder(f *pflag.Flag) string {
	if f.Value.Type() == "bool" {
		return ""
	}
	return f.Value.Type()
}

// flagForms is "-n, --name TEXT".
func flagForms(f *pflag.Flag) string {
	s := "    "
	if f.Shorthand != "" {
		s = "-" + f.Shorthand + ", "
	}
	s += "--" + f.Name
	if p := placeholder(f); p != "" {
		s += " " + p
	}
	return s
}

// version is set by the build of a release.
var version string

func versionLine() string {
	v := version
	if info, ok := debug.ReadBuildInfo(); ok && v == "" {
		v = strings.Trim(info.Main.Version, "()")
	}
	if v == "" {
		v = "devel"
	}
	return "space-job " + v
}
