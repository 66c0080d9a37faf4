package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/until"
)

// Condition is what a watcher waits for.
type Condition = until.Condition

// UntilRequest is a condition to wait for.
type UntilRequest struct {
	Condition Condition
	Timeout   time.Duration // 0: none
}

// UntilResult is how a watch ended.
type UntilResult struct {
	Until json.RawMessage `json:"until"` // the condition
	Code  int             `json:"code"`
	What  string          `json:"what"` // what was seen, in one line
}

// Until waits for a condition in this process. What it sees goes to log.
func (a *Actions) Until(ctx context.Context, req UntilRequest, log io.Writer) (UntilResult, error) {
	if req.Timeout < 0 {
		return UntilResult{}, invalid("timeout", req.Timeout.String(), "is not above zero")
	}
	c := req.Condition
	cwd := "/"
	if needsDirectory(&c) {
		var err error
		if cwd, err = directory(""); err != nil {
			return UntilResult{}, err
		}
	}
	given := c
	c, err := a.resolveUntil(c, cwd)
	var e *Error
	if errors.As(err, &e) && e.Code == NotFound && a.watcher() {
		c = given // the job was there when this one was started: Watch says that it is gone
	} else if err != nil {
		return UntilResult{}, err
	}
	end, err := until.Watch(ctx, a.root, c, req.Timeout, log)
	return UntilResult{c.JSON(), end.Code, end.What}, err
}

// watcher reports whether this process is the command of a job that waits for a
// condition.
func (a *Actions) watcher() bool {
	id, ok := record.ParseID(os.Getenv(record.EnvJob))
	if !ok {
		return false
	}
	info, err := a.root.Job(id).Read()
	return err == nil && info.Cmd != nil && len(info.Cmd.Until) > 0
}

func needsDirectory(c *Condition) bool { return c.File != "" && c.File[0] != '/' }

// resolveUntil checks a condition in full.
func (a *Actions) resolveUntil(c Condition, cwd string) (Condition, error) {
	given := c.Job + c.Log // one of them
	c, err := c.Resolve(a.root, cwd)
	if err == nil {
		return c, nil
	}
	field := "until.job"
	if c.Match != "" {
		field = "until.log"
	}
	if errors.Is(err, jobdir.ErrNotFound) {
		e := notFound(given)
		e.Message = field + ": " + e.Message
		return c, e
	}
	f := AsError(untilFault(err))
	if errors.As(err, new(*jobdir.InvalidIDError)) {
		f.Message = field + ": " + shown(given) + " is no id"
	}
	return c, f
}

// untilFault gives an error of package until its code.
func untilFault(err error) error {
	var v *until.ValueError
	if !errors.As(err, &v) {
		return fault(err)
	}
	e := invalid(v.Field, v.Value, v.Why)
	if v.Field == "until" {
		e.Message = v.Error()
	}
	e.Hint, e.cause = v.Hint, err
	return e
}

// ParseCondition reads one condition: of kind file, port, command, pr_checks,
// job or log.
func ParseCondition(kind, s string) (Condition, error) {
	c, err := until.Parse(kind, s)
	if err != nil {
		return c, untilFault(err)
	}
	return c, nil
}

// OneCondition takes the one condition out of those that were given.
func OneCondition(given []Condition, interval, tryTimeout time.Duration) (Condition, error) {
	c, err := until.One(given, interval, tryTimeout)
	if err != nil {
		return c, untilFault(err)
	}
	return c, nil
}
