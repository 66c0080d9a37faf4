package api

import (
	"encoding/json"
	"slices"
	"strings"

	"space-job/cmd/internal/space"
	"space-job/jobdir"
	"space-job/jobdir/record"
)

// maxEndText is more than any message of an ended job has.
const maxEndText = 64 << 10

// senseless says what a result has that no space-job answers to what was asked, ""
// if there is nothing. What passes is about the jobs that were asked for, and can be
// counted with and shown; whether it is true, only the Space knows.
func senseless(h space.Hello, ask, result any) string {
	c := credence{newer: h.Format > jobdir.Format}
	switch ask := ask.(type) {
	case askStart:
		if r, ok := result.(*toldStart); ok {
			c.job(r.Job, r.State)
		}
	case askLogs:
		r, ok := result.(*LogsResult)
		if !ok {
			break
		}
		c.job(r.Job, r.State)
		c.named(r.Job, ask.Job)
		if r.Offset < 0 || r.NextOffset < r.Offset || ask.Offset != nil && !r.Truncated && r.NextOffset < *ask.Offset {
			c.no("a piece of the log from byte " + decimal(r.Offset) + " to " + decimal(r.NextOffset))
		}
		c.line("signal", r.Signal)
	case askStatus:
		var r toldStatus
		switch result := result.(type) {
		case *toldStatus:
			r = *result
		case *StatusResult:
			r.StatusResult = *result
		case *json.RawMessage:
			if json.Unmarshal(*result, &r) != nil {
				c.no("no status")
			}
		}
		c.entry(&r.Entry)
		c.named(r.Job, ask.Job)
		if m := r.Message; m != nil && (m.Offset < 0 || len(m.Text) > maxEndText) {
			c.no("a message of the end of job " + string(r.Job) + ", which is none")
		}
	case askCancel:
		if r, ok := result.(*[]CancelResult); ok {
			ids := make([]jobdir.ID, len(*r))
			for i, j := range *r {
				ids[i] = j.Job
				c.id(j.Job)
				if j.Error == nil {
					c.state(j.State)
				}
			}
			c.all(ids, ask.Jobs, false)
		}
	case askList:
		if r, ok := result.(*toldList); ok {
			for i := range r.Jobs {
				c.entry(&r.Jobs[i])
			}
			if r.More < 0 {
				c.no("that " + decimal(int64(r.More)) + " jobs are left out")
			}
		}
	case askWait:
		if r, ok := result.(*toldWait); ok {
			ids := make([]jobdir.ID, len(r.Jobs))
			for i := range r.Jobs {
				ids[i] = r.Jobs[i].Job
				c.entry(&r.Jobs[i])
			}
			c.all(ids, ask.Jobs, ask.Any)
			if r.Code < 0 || r.Code > 255 {
				c.no("exit code " + decimal(int64(r.Code)))
			}
		}
	}
	return c.why
}

// credence gathers the first thing that cannot be.
type credence struct {
	newer bool // the Space may know states that this space-job does not
	why   string
}

func (c *credence) no(what string) {
	if c.why == "" {
		c.why = what
	}
}

func (c *credence) entry(e *Entry) {
	c.job(e.Job, e.State)
	c.line("signal", e.Signal)
	if e.LogBytes < 0 {
		c.no("a log of " + decimal(e.LogBytes) + " bytes")
	}
}

func (c *credence) job(id jobdir.ID, s jobdir.State) {
	c.id(id)
	c.state(s)
}

func (c *credence) id(id jobdir.ID) {
	if _, ok := record.ParseID(string(id)); !ok {
		c.no("job " + shown(string(id)) + ", which is no id")
	}
}

func (c *credence) state(s jobdir.State) {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' && r != '_' }
	if !slices.Contains(states[:], s) && (!c.newer || s == "" || len(s) > 32 || strings.ContainsFunc(string(s), other)) {
		c.no("state " + shown(string(s)))
	}
}

func (c *credence) line(what string, s *string) {
	if s != nil && *s != OneLine(*s) {
		c.no(what + " " + shown(*s))
	}
}

// named: an id is the one that was asked for, in full or by its end; "" is any.
func (c *credence) named(id jobdir.ID, asked string) {
	if !strings.HasSuffix(string(id), asked) {
		c.no("job " + shown(string(id)) + " for " + shown(asked))
	}
}

// all: ids are those that were asked for, each once; or, for any, at least one.
func (c *credence) all(ids []jobdir.ID, asked []string, some bool) {
	for i, id := range ids {
		if slices.Contains(ids[:i], id) {
			c.no("job " + shown(string(id)) + " twice")
		}
		if !slices.ContainsFunc(asked, func(a string) bool { return strings.HasSuffix(string(id), a) }) {
			c.no("job " + shown(string(id)) + ", which was not asked for")
		}
	}
	for _, a := range asked {
		if !slices.ContainsFunc(ids, func(id jobdir.ID) bool { return strings.HasSuffix(string(id), a) }) && (!some || len(ids) == 0) {
			c.no("nothing of job " + shown(a))
		}
	}
}
