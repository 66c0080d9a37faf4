package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type statusOptions struct{}

func statusCommand() *command {
	return &command{
		name:    "status",
		usage:   []string{"status [ID]"},
		summary: "show the state, exit code, timing and the end of the log",
		about: []string{
			"Without ID it is the newest job. An ID is given in full, or as its last digits, four at least.",
			"The state is running; exited (with its exit code); cancelled; timed_out; or lost: the process that watched the job is gone without having recorded an end, as after a reboot, and nothing is made up about the result. What a lost job has left running is named, and space-job cancel stops it.",
			"left says how many processes outlived the job: they may still write to its log. The end of the log is its last 10 lines, of at most 2 KiB; with --json it is the last 2 KiB, in tail.",
		},
		examples: []example{
			{"space-job status", "the newest job"},
			{"space-job status 9d3e --json", "all that is known of a job"},
		},
		exits:   standardExits,
		operand: operandJob,
		most:    1,
		reach:   answering,
		new:     func() options { return new(statusOptions) },
	}
}

func (o *statusOptions) AddFlags(*pflag.FlagSet) {}

func (o *statusOptions) Run(s *session, args []string) (int, error) {
	id := ""
	if len(args) > 0 {
		if id = args[0]; id == "" {
			return 0, usage(`job: "" is no id`, "status")
		}
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	if s.json && s.space != "" {
		document, warnings, err := a.StatusDocument(id)
		if err != nil {
			return 0, err
		}
		s.warnings(warnings)
		s.print(string(document) + "\n")
		return exitOK, nil
	}
	res, err := a.Status(id)
	if err != nil {
		return 0, err
	}
	for _, w := range res.Warnings {
		s.say("warning", w)
	}
	if s.json {
		s.document(res)
	} else {
		s.print(statusText(&res, s.self(), colourful(s.stdout), time.Now()))
	}
	return exitOK, nil
}

// statusText is the view for people.
func statusText(r *api.StatusResult, self string, colour bool, now time.Time) string {
	var b strings.Builder
	row := func(name, value string) {
		if value != "" {
			b.WriteString(name + ":" + strings.Repeat(" ", 11-len(name)) + oneLine(value) + "\n")
		}
	}
	b.WriteString(string(r.Job) + "  " + end(&r.Entry, colour) + "\n")
	row("damaged", deref(r.Damaged))
	row("error", deref(r.Error))
	row("name", deref(r.Name))
	if row("until", r.Condition); r.Condition == "" {
		row("command", r.CommandLine())
	}
	row("cwd", deref(r.Cwd))
	row("env", strings.Join(r.Env, " "))
	row("key", deref(r.Key))
	if r.StartedBy != nil {
		row("started by", strings.TrimSpace(r.StartedBy.Member+" "+r.StartedBy.Job))
	}
	if r.StartedAt != nil {
		row("started", when(*r.StartedAt, now))
	} else if r.CreatedAt != nil {
		row("created", when(*r.CreatedAt, now))
	}
	if r.EndedAt != nil {
		row("ended", when(*r.EndedAt, now))
	}
	if r.State == "lost" {
		if r.RecordedAt != nil {
			row("recorded", when(*r.RecordedAt, now))
		} else {
			row("recorded", "not yet (space-job prune writes it down)")
		}
	}
	took := "-"
	if d, ok := r.Elapsed(now); ok {
		took = api.FormatDuration(d)
	}
	if r.State == "running" {
		took += " so far"
	}
	if r.TimeoutS != nil {
		took += ", timeout " + api.FormatDuration(time.Duration(*r.TimeoutS*float64(time.Second)))
	}
	row("duration", took)
	if r.UserMS != nil && r.SysMS != nil {
		row("cpu", api.FormatDuration(time.Duration(*r.UserMS)*time.Millisecond)+" user, "+api.FormatDuration(time.Duration(*r.SysMS)*time.Millisecond)+" system")
	}
	if r.MaxRSSBytes != nil {
		row("memory", api.FormatSize(*r.MaxRSSBytes)+" in its largest process")
	}
	log := strconv.FormatInt(r.LogBytes, 10) + " bytes"
	if r.LogBytes >= 10<<10 {
		log += " (" + api.FormatSize(r.LogBytes) + ")"
	}
	if r.LastOutputAt != nil {
		log += ", last output " + ago(now.Sub(*r.LastOutputAt))
	}
	row("log", log)
	if m := r.LogDropped; m != nil {
		if h := m.Hole; h != nil {
			why := ": cut out of the log"
			if r.MaxLog != nil {
				why += " (--max-log)"
			}
			row("missing", strconv.FormatInt(h.To-h.From, 10)+" bytes, "+strconv.FormatInt(h.From, 10)+" to "+strconv.FormatInt(h.To, 10)+why)
		}
		if u := m.Unwritten; u != nil {
			what := "some output" // 0: its runner was killed before it could count
			if u.Bytes > 0 {
				what = strconv.FormatInt(u.Bytes, 10) + " bytes"
			}
			row("missing", what+" could not be written since "+when(u.FirstAt, now)+": "+u.Error)
		}
	}
	if c := r.Cancel; c != nil {
		by := "asked for " + when(c.At, now)
		if c.By != "" {
			by += " by " + c.By
		}
		if c.Reason != "" {
			by += ": " + c.Reason
		}
		row("cancel", by)
	}
	row("notify", r.NotifyLine())
	if len(r.LeftProcesses) > 0 {
		row("left", api.ProcessText(r.LeftProcesses)+" (space-job cancel "+string(r.Job)+" stops them)")
	} else if r.Left != nil && *r.Left > 0 {
		row("left", count(*r.Left, "process")+" when it ended")
	}
	switch {
	case r.Tail == "" && r.LogBytes == 0 && (r.LogDropped != nil || r.LogBytesAtEnd != nil && *r.LogBytesAtEnd > 0):
		b.WriteString("\n(none of the output is in the log)\n")
	case r.Tail == "":
		b.WriteString("\n(no output)\n")
	default:
		b.WriteString("\nEnd of the log:\n")
		for line := range strings.Lines(lastLines(r.Tail, 10)) {
			b.WriteString("    " + line)
		}
		if !strings.HasSuffix(r.Tail, "\n") {
			b.WriteByte('\n')
		}
		b.WriteString("Read more: " + self + " logs " + string(r.Job) + " (all of it: --offset 0 -f)\n")
	}
	return b.String()
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// lastLines cuts text to its last n lines.
func lastLines(s string, n int) string {
	for i := len(s) - 2; i >= 0; i-- { // the last byte begins no line
		if s[i] == '\n' {
			if n--; n == 0 {
				return s[i+1:]
			}
		}
	}
	return s
}

// end is a job's state in words: "exited, exit code 137 (KILL)".
func end(e *api.Entry, colour bool) string {
	state := string(e.State)
	code := -1
	if e.ExitCode != nil {
		code = *e.ExitCode
	}
	if colour {
		state = stateColour(state, code)
	}
	if code >= 0 {
		state += ", exit code " + strconv.Itoa(code)
	}
	if e.Signal != nil {
		state += ", killed by " + *e.Signal
	}
	return state
}

func when(t, now time.Time) string {
	return t.Local().Format("2006-01-02 15:04:05") + " (" + ago(now.Sub(t)) + ")"
}

func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "in " + api.FormatDuration(-d)
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s ago"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m ago"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h ago"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + " days ago"
}
