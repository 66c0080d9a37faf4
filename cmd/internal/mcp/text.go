package mcp

import (
	"strconv"
	"strings"

	"space-job/cmd/internal/api"
)

// spoken are the words of package api that name a flag or a command of the
// command line, each with what they are to somebody who has the tools. What only a
// person does (approve, start the daemon) stays a command.
var spoken = []string{
	"see which there are: space-job list --all", "see which there are: space_job, action list",
	"look before you ask again: space-job list", "look before you ask again: action list",
	"read on from where you were: space-job logs", "read on from where you were: action logs",
	"start one: space-job start 'make test'", "start one: action start",
	"say what to run: space-job start 'make test'", "say what to run: command, argv or until",
	"name another one: --cwd DIR", "give another cwd",
	"--timeout bounds it", "a timeout bounds it",
	" (--max-log bounds a log)", "",
	"start it again with --approval ", "start it again with approval ",
	"see the rules: space-job policy show", "do something else, or say in the thread why it is needed",
	"To be told, say who you are: --member NAME or SPACE_MEMBER (space-job member list)",
	"So read on until it ends: action logs, with follow_ms. To be woken, have a person put --member NAME behind space-job mcp, where this client is configured",
	"say who you are: --member NAME, or SPACE_MEMBER=NAME (space-job member list shows who there is)",
	"this connection is bound to nobody: have a person put --member NAME behind space-job mcp, where this client is configured",
	"see who is: space-job member list", "see who is: space_thread, action members",
	"see what there is: space-job inbox", "see what there is: action inbox",
	"see it: space-job thread read --after ", "see it: action read, limit 1, after ",
	"or claim something else: space-job thread claims", "or claim something else: action claims",
	"see which there are: space-job thread claims", "see which there are: action claims",
	"say what you will change: --files src/a.go,docs or --branch NAME", "say what you will change: files or branch",
	"say until when: --until ", "say until when: ",
	`say what comes next: --next "review"; or --next nothing`, `say what comes next: "review", or "nothing"`,
	`such as: space-job thread blocked parser --needs "the schema" --from bob`, "blocked takes what, needs and from",
}

var speaker = strings.NewReplacer(spoken...)

// speak says what package api says to somebody who has the tools.
func speak(s string) string { return speaker.Replace(s) }

// warn adds warnings to a text, a line each.
func warn(b *strings.Builder, warnings ...string) {
	for _, w := range warnings {
		b.WriteString("\nwarning: " + speak(w))
	}
}

// within is what somebody wrote, such that no line of it can pass for one of ours.
func within(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// count is a number of things.
func count(n int, what string) string {
	s := strconv.Itoa(n) + " " + what
	if n != 1 {
		s += "s"
	}
	return s
}

// statusText is a job at a glance: how it stands, what is wrong, and the end of
// its log.
func statusText(r *api.StatusResult) string {
	var b strings.Builder
	b.WriteString("job " + entryText(&r.Entry))
	row := func(name, value string) {
		if value != "" {
			b.WriteString("\n" + name + ": " + api.OneLine(value))
		}
	}
	if r.Error != nil {
		row("error", *r.Error)
	}
	if r.Damaged != nil {
		row("damaged", *r.Damaged)
	}
	if c := r.Cancel; c != nil {
		why := "asked for"
		if c.By != "" {
			why += " by " + c.By
		}
		if c.Reason != "" {
			why += ": " + c.Reason
		}
		row("cancel", why)
	}
	row("notify", r.NotifyLine())
	if len(r.LeftProcesses) > 0 {
		row("left running", api.ProcessText(r.LeftProcesses)+" (action cancel stops them)")
	}
	if m := r.LogDropped; m != nil {
		if h := m.Hole; h != nil {
			warn(&b, "bytes "+strconv.FormatInt(h.From, 10)+" to "+strconv.FormatInt(h.To, 10)+" were cut out of the log")
		}
		if u := m.Unwritten; u != nil {
			warn(&b, (&api.Unwritten{Bytes: u.Bytes, Error: u.Error}).Warning())
		}
	}
	warn(&b, r.Warnings...)
	if r.Tail == "" {
		b.WriteString("\n(no output)")
	} else {
		b.WriteString("\nEnd of the log (next_offset " + strconv.FormatInt(r.NextOffset, 10) + "):\n" + r.Tail)
	}
	return b.String()
}

// logsText is a piece of a log, behind a line that says which.
func logsText(r *api.LogsResult) string {
	var b strings.Builder
	b.WriteString("job " + string(r.Job) + " " + stateText(r.State, r.ExitCode) + ": bytes " + strconv.FormatInt(r.Offset, 10) + " to " +
		strconv.FormatInt(r.NextOffset, 10) + " of " + strconv.FormatInt(r.Size, 10) + "; next_offset " + strconv.FormatInt(r.NextOffset, 10))
	if r.More {
		b.WriteString(" (more is there)")
	}
	if r.Error != nil {
		b.WriteString("\nerror: " + api.OneLine(*r.Error))
	}
	if d := r.Dropped; d != nil {
		warn(&b, "bytes "+strconv.FormatInt(d.From, 10)+" to "+strconv.FormatInt(d.To, 10)+" were cut out of the log")
	}
	if r.Truncated {
		warn(&b, "offset is past the end: the log has "+count(int(r.Size), "byte"))
	}
	if r.Unwritten != nil {
		warn(&b, r.Unwritten.Warning())
	}
	if r.Text == "" {
		b.WriteString("\n(nothing)")
	} else {
		b.WriteString("\n" + r.Text)
	}
	return b.String()
}
