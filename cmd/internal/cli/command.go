package cli

import (
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"
)

// command is one command: how to call it, and what help, the man page and the
// completion scripts say about it.
type command struct {
	name     string
	usage    []string // without the program's name
	summary  string
	about    []string // paragraphs
	examples []example
	exits    []exit
	operand  operand
	strict   bool // flags end at the first operand
	textOnly bool // no --json: what it prints is for people, or for another program
	most     int  // operands; -1: any number
	new      func() options
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
		pruneCommand(),
		checkCommand(),
		doctorCommand(),
		completionCommand(),
		manCommand(),
		helpCommand(),
	}
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
