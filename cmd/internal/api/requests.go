package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"space-job/cmd/internal/space"
	"space-job/jobdir"
)

// Hello is what this program says before it answers a request of another Space.
func Hello(version string) space.Hello { return space.Hello{Version: version, Format: jobdir.Format} }

// AnswerRequest does what a space-job elsewhere asks for in a line of JSON, which
// may be empty where none came. Action is one of start, logs, status, cancel, list
// and wait. A request that changes something and is of a newer format than this
// program knows is refused, as a part of it might be missed.
func (a *Actions) AnswerRequest(ctx context.Context, action string, line []byte) space.Answer {
	var out space.Answer
	result, err := a.answerRequest(ctx, action, line, &out)
	if err == nil {
		out.Result, err = json.Marshal(result)
	}
	if err != nil {
		return Refusal(err)
	}
	return out
}

// Refusal is the answer that says why there is no result.
func Refusal(err error) space.Answer {
	b, bad := json.Marshal(AsError(err))
	if bad != nil {
		panic(bad) // strings
	}
	return space.Answer{Error: b}
}

func (a *Actions) answerRequest(ctx context.Context, action string, line []byte, out *space.Answer) (any, error) {
	switch action {
	case "start":
		var ask askStart
		if err := decodeRequest(line, &ask, &ask.Format, true); err != nil {
			return nil, err
		}
		req, err := ask.request()
		if err != nil {
			return nil, err
		}
		res, err := a.Start(req)
		out.Warnings, out.Hints = res.Warnings, res.Hints
		return toldStart{res, res.Held}, err
	case "logs":
		var ask askLogs
		if err := decodeRequest(line, &ask, &ask.Format, false); err != nil {
			return nil, err
		}
		return a.Logs(ctx, LogsRequest{Job: ask.Job, Offset: ask.Offset, Max: ask.Max, FollowMS: ask.FollowMS, Encoding: ask.Encoding})
	case "status":
		var ask askStatus
		if err := decodeRequest(line, &ask, &ask.Format, false); err != nil {
			return nil, err
		}
		res, err := a.Status(ask.Job)
		out.Warnings = res.Warnings
		told := toldStatus{StatusResult: res}
		if err == nil && ask.Message && res.State != jobdir.Running { // it may have ended since
			told.Message, err = a.endText(res.Job)
		}
		return told, err
	case "cancel":
		var ask askCancel
		if err := decodeRequest(line, &ask, &ask.Format, true); err != nil {
			return nil, err
		}
		// It goes on when nobody waits any more: half a cancel is none.
		return a.Cancel(context.WithoutCancel(ctx), CancelRequest{Jobs: ask.Jobs, Reason: ask.Reason, Nested: ask.Nested})
	case "list":
		var ask askList
		if err := decodeRequest(line, &ask, &ask.Format, false); err != nil {
			return nil, err
		}
		res, err := a.List(ListRequest{N: ask.N, All: ask.All, States: ask.States})
		out.Warnings = res.Warnings
		return toldList{res.Jobs, res.More}, err
	case "wait":
		var ask askWait
		if err := decodeRequest(line, &ask, &ask.Format, false); err != nil {
			return nil, err
		}
		req := WaitRequest{Jobs: ask.Jobs, Any: ask.Any, Look: ask.TimeoutMS == 0}
		var err error
		if req.Timeout, err = span("timeout_ms", ask.TimeoutMS); err != nil {
			return nil, err
		}
		res, err := a.Wait(ctx, req)
		return toldWait(res), err
	}
	return nil, invalid("request", action, "is none of start, logs, status, cancel, list, wait")
}

// decodeRequest reads a request. What it does not know is refused where it would
// change something, and left out where it only reads.
func decodeRequest(line []byte, into any, format *int, writes bool) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return &Error{Code: InvalidArgument, Message: "request: none came on standard input",
			Hint: "the prefix has to pass standard input on: docker exec -i, kubectl exec -i, ssh without -n"}
	}
	*format = jobdir.Format
	d := json.NewDecoder(bytes.NewReader(line))
	if writes {
		d.DisallowUnknownFields()
	}
	err := d.Decode(into)
	if *format > jobdir.Format && writes {
		return &Error{Code: Unavailable, Message: "request: it is of format " + decimal(int64(*format)) + ", and the space-job here knows " + decimal(jobdir.Format),
			Hint: "install a newer one in this Space"}
	}
	if err == nil {
		if _, err = d.Token(); err == io.EOF {
			return nil
		}
		return &Error{Code: InvalidArgument, Message: "request: something follows its end"}
	}
	why := strings.TrimPrefix(err.Error(), "json: ")
	if err == io.ErrUnexpectedEOF {
		why = "it ends in the middle"
	}
	return &Error{Code: InvalidArgument, Message: "request: " + why, cause: err}
}

func (r *askStart) request() (StartRequest, error) {
	req := StartRequest{
		Command: r.Command, Argv: r.Argv, Until: r.Until, Name: r.Name, Cwd: r.Cwd, Env: r.Env,
		Key: r.Key, MaxLog: r.MaxLog, Notify: r.Notify, ToldElsewhere: r.Told, Approval: r.Approval,
	}
	var err error
	if req.Timeout, err = span("timeout_ms", r.TimeoutMS); err != nil {
		return req, err
	}
	if c := req.Until; c != nil {
		if c.Interval, err = span("interval_ms", r.IntervalMS); err != nil {
			return req, err
		}
		if c.TryTimeout, err = span("try_timeout_ms", r.TryTimeoutMS); err != nil {
			return req, err
		}
	}
	return req, nil
}

// span is a number of milliseconds that may be zero.
func span(field string, ms int64) (time.Duration, error) {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	if ms < 0 || ms > most {
		return 0, invalid(field, decimal(ms), "is not within 0 and "+decimal(most))
	}
	return time.Duration(ms) * time.Millisecond, nil
}
