package api

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify"
	"space-job/runner"
)

// Entry is what is known of a job. Whatever is not known is null.
type Entry struct {
	Job      jobdir.ID    `json:"job"`
	State    jobdir.State `json:"state"`
	ExitCode *int         `json:"exit_code"`
	Signal   *string      `json:"signal"`
	Error    *string      `json:"error"`

	Format    *int              `json:"format"`
	Name      *string           `json:"name"`
	Argv      []string          `json:"argv"`
	Command   *string           `json:"command"` // null when it was given as an argv
	Until     json.RawMessage   `json:"until"`
	Cwd       *string           `json:"cwd"`
	Env       []string          `json:"env"` // names
	TimeoutS  *float64          `json:"timeout_s"`
	Notify    notify.Status     `json:"notify"`
	Wake      []string          `json:"wake"`
	Key       *string           `json:"key"`
	StartedBy *jobdir.StartedBy `json:"started_by"`
	CreatedAt *time.Time        `json:"created_at"`
	MaxLog    *int64            `json:"max_log"`

	StartedAt   *time.Time `json:"started_at"`
	EndedAt     *time.Time `json:"ended_at"`
	DurationMS  *int64     `json:"duration_ms"`
	UserMS      *int64     `json:"user_ms"`
	SysMS       *int64     `json:"sys_ms"`
	MaxRSSBytes *int64     `json:"max_rss_bytes"`
	RecordedAt  *time.Time `json:"recorded_at"` // when the end was written down

	LogBytes      int64      `json:"log_bytes"`        // now
	LogBytesAtEnd *int64     `json:"log_bytes_at_end"` // when the job ended
	LogDropped    *Missing   `json:"log_dropped"`
	LastOutputAt  *time.Time `json:"last_output_at"`

	Cancel  *record.CancelRecord `json:"cancel"` // who asked for its end, and why
	Left    *int                 `json:"left"`   // processes of the job that outlived it
	Damaged *string              `json:"damaged"`

	Line      string `json:"-"` // name or command, for people
	Condition string `json:"-"` // what a watcher waits for, for people
}

// Missing is the output that a log does not have.
type Missing struct {
	Bytes     int64             `json:"bytes"`     // altogether
	Hole      *record.Hole      `json:"hole"`      // cut out: by max_log, or where somebody emptied the log
	Unwritten *record.Unwritten `json:"unwritten"` // could not be written
}

// StatusResult is an Entry with the end of the log.
type StatusResult struct {
	Entry
	LeftProcesses []Process `json:"left_processes"` // those that run now; null where they cannot be looked at
	Tail          string    `json:"tail"`
	NextOffset    int64     `json:"next_offset"` // where the log goes on after the tail
	Warnings      []string  `json:"-"`
}

// Process is a process that outlived its job.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
}

// Status says how a job stands; "" is the newest.
func (a *Actions) Status(given string) (StatusResult, error) {
	if a.away != nil {
		return a.statusThere(given)
	}
	j, err := a.job(given)
	if err != nil {
		return StatusResult{}, err
	}
	info, err := readInfo(j)
	if err != nil {
		return StatusResult{}, err
	}
	res := StatusResult{Entry: a.entry(info), LeftProcesses: []Process{}}
	if mayHaveLeft(info) {
		left, err := runner.Left(j.Dir())
		if err == nil {
			res.LeftProcesses = processesOf(left)
			if info.State == jobdir.Lost { // nobody counted
				n := len(left)
				res.Left = &n
			}
		} else {
			res.LeftProcesses = nil // they cannot be looked at; Left is the runner's count
		}
	}
	if info.State == jobdir.Running {
		res.Warnings = bigLogWarning(&res.Entry)
	}
	res.Tail, res.NextOffset, err = tail(j)
	switch {
	case errors.Is(err, jobdir.ErrNotFound):
		return res, fault(err)
	case err != nil && info.Damaged == "": // a log that was taken away takes nothing else along
		res.Warnings = append(res.Warnings, "the log cannot be read: "+err.Error())
	}
	if fs, err := a.root.FileSystem(); err == nil {
		res.Warnings = append(res.Warnings, diskWarning(fs, a.root.Path())...)
	}
	return res, nil
}

// mayHaveLeft: a lost job may have left processes, another one has when its
// end says so.
func mayHaveLeft(info *jobdir.Info) bool {
	if info.Foreign {
		return false
	}
	return info.State == jobdir.Lost || info.Exit != nil && info.Exit.Left > 0
}

func readInfo(j *jobdir.Job) (*jobdir.Info, error) {
	info, err := j.Read()
	return info, jobFault(j, err)
}

// entry is all that is known of a job.
func (a *Actions) entry(info *jobdir.Info) Entry {
	e := entry(info)
	e.Notify = a.notified(info)
	return e
}

// entry is what a job's files say, in the shape that callers see.
func entry(info *jobdir.Info) Entry {
	e := Entry{Job: info.ID, State: info.State, Argv: []string{}, Env: []string{}, Wake: []string{},
		LogBytes: info.LogBytes, LastOutputAt: info.LastOutputAt, Cancel: info.Cancel}
	if info.Damaged != "" {
		e.State, e.Damaged = Damaged, &info.Damaged
	}
	if c := info.Cmd; c != nil {
		e.Format, e.Name, e.Cwd, e.Key = &c.Format, &c.Name, &c.Cwd, &c.Key
		if c.Argv != nil {
			e.Argv = c.Argv
		}
		if c.Env != nil {
			e.Env = c.Env
		}
		if c.Wake != nil {
			e.Wake = c.Wake
		}
		if c.Command != "" {
			e.Command = &c.Command
		}
		if c.TimeoutS > 0 {
			e.TimeoutS = &c.TimeoutS
		}
		if c.MaxLog > 0 {
			e.MaxLog = &c.MaxLog
		}
		e.Until, e.StartedBy, e.CreatedAt = c.Until, &c.StartedBy, &c.CreatedAt
		e.Line, e.Condition = c.Line(), c.Condition()
	}
	if p := info.Process; p != nil && !p.StartedAt.IsZero() {
		e.StartedAt = &p.StartedAt
	}
	if t := info.Timing; t != nil && info.State != jobdir.Lost {
		e.EndedAt, e.DurationMS = &t.EndedAt, &t.DurationMS
		e.UserMS, e.SysMS, e.MaxRSSBytes = &t.UserMS, &t.SysMS, &t.MaxRSSBytes
		if !t.StartedAt.IsZero() {
			e.StartedAt = &t.StartedAt
		}
	}
	if x := info.Exit; x != nil {
		e.RecordedAt, e.Left = &x.At, &x.Left
		if info.State == jobdir.Exited { // of a damaged job the rest of an end is shown, and no code
			e.ExitCode = x.ExitCode
		}
		if info.State != jobdir.Lost {
			e.LogBytesAtEnd = &x.LogBytes
		} else {
			e.Left = nil // nobody was there to count
		}
		if x.Signal != "" {
			e.Signal = &x.Signal
		}
		if x.Error != "" {
			e.Error = &x.Error
		}
	}
	if d := info.Dropped; d != nil && (d.Hole != nil || d.Unwritten != nil) {
		m := &Missing{Hole: d.Hole, Unwritten: d.Unwritten}
		if d.Hole != nil {
			m.Bytes += d.Hole.To - d.Hole.From
		}
		if d.Unwritten != nil {
			m.Bytes += d.Unwritten.Bytes
		}
		e.LogDropped = m
	}
	return e
}

// CommandLine is what the job runs, as one would type it.
func (e *Entry) CommandLine() string {
	if e.Command != nil {
		return *e.Command
	}
	return jobdir.ShellLine(e.Argv)
}

// Elapsed is how long the job ran, or has been running at now. False where
// that is not known.
func (e *Entry) Elapsed(now time.Time) (time.Duration, bool) {
	switch {
	case e.DurationMS != nil:
		return time.Duration(*e.DurationMS) * time.Millisecond, true
	case e.State != jobdir.Running:
		return 0, false
	case e.StartedAt != nil:
		return max(now.Sub(*e.StartedAt), 0), true
	case e.CreatedAt != nil:
		return max(now.Sub(*e.CreatedAt), 0), true
	}
	return 0, false
}

// tail is the end of a log as plain text of at most tailBytes, from the start
// of a line where there is one, and where the log goes on.
func tail(j *jobdir.Job) (string, int64, error) {
	// Escapes and redrawn lines take room that the text will not.
	const look = 8 * tailBytes
	offset, err := j.TailOffset(look)
	if err != nil {
		return "", 0, err
	}
	r, err := j.ReadLog(offset, look)
	if err != nil {
		return "", 0, err
	}
	text, _ := jobdir.Text(jobdir.Plain(r.Bytes), false)
	return lastBytes(text, tailBytes), r.Next, nil
}

// lastBytes cuts text to its last n bytes, to the start of a line or at least
// of a character.
func lastBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	atLine := s[len(s)-n-1] == '\n'
	s = s[len(s)-n:]
	if !atLine {
		for i := range len(s) - 1 {
			if s[i] == '\n' {
				return s[i+1:]
			}
		}
		for s != "" && s[0]&0xc0 == 0x80 {
			s = s[1:]
		}
	}
	return s
}

func processesOf(l []runner.Process) []Process {
	out := make([]Process, len(l))
	for i, p := range l {
		out[i] = Process{p.PID, p.Name}
	}
	return out
}

func (p Process) String() string { return strconv.Itoa(p.PID) + " (" + p.Name + ")" }

// ProcessText names processes for a reader: the first ten, and how many more
// there are.
func ProcessText(all []Process) string {
	const most = 10
	var b strings.Builder
	for i, p := range all[:min(most, len(all))] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.String())
	}
	if more := len(all) - most; more > 0 {
		b.WriteString(" and " + strconv.Itoa(more) + " more")
	}
	return b.String()
}
