package api

import (
	"context"
	"encoding/base64"
	"strconv"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// Damaged is shown in the place of a state where a job's directory cannot be
// read as one.
const Damaged jobdir.State = "damaged"

// Encoding is how a piece of a log is handed over.
type Encoding string

const (
	Text   Encoding = "utf-8"  // valid UTF-8; what is not becomes U+FFFD
	Base64 Encoding = "base64" // exact, in Text
	Raw    Encoding = "raw"    // exact, in Bytes
)

// LogsRequest is a read of a log.
type LogsRequest struct {
	Job      string // "": the newest
	Offset   *int64 // nil: the last 8 KiB, from the start of a line
	Max      int64  // most bytes; 0: DefaultRead
	FollowMS int64  // wait so long for a byte or the end
	Plain    bool   // drop escapes, fold carriage returns
	Encoding Encoding
}

// LogsResult is a piece of a log.
type LogsResult struct {
	Job        jobdir.ID    `json:"job"`
	State      jobdir.State `json:"state"` // looked at before the bytes
	ExitCode   *int         `json:"exit_code"`
	Signal     *string      `json:"signal"`
	Error      *string      `json:"error"` // why it could not be started or stopped
	Offset     int64        `json:"offset"`
	NextOffset int64        `json:"next_offset"`
	More       bool         `json:"more"` // bytes after NextOffset exist now
	Text       string       `json:"text"`
	Encoding   Encoding     `json:"encoding"`
	Size       int64        `json:"size"`
	Dropped    *record.Hole `json:"dropped"`   // what was skipped just before
	Unwritten  *Unwritten   `json:"unwritten"` // output that the log could not take, so far
	Truncated  bool         `json:"truncated"` // the read began past the end

	Bytes []byte `json:"-"` // in place of Text, for Raw
}

// Unwritten is output that was discarded because the log took no bytes.
type Unwritten struct {
	Bytes int64  `json:"bytes"` // at least; 0: not known how many
	Error string `json:"error"` // why
}

// Warning says it to a person.
func (u *Unwritten) Warning() string {
	what := "at least some"
	if u.Bytes > 0 {
		what = strconv.FormatInt(u.Bytes, 10) + " bytes of"
	}
	return what + " output could not be written to the log: " + u.Error
}

func unwritten(u *record.Unwritten) *Unwritten {
	if u == nil {
		return nil
	}
	return &Unwritten{u.Bytes, u.Error}
}

// Through reports whether there is nothing to come.
func (r *LogsResult) Through() bool { return !r.More && r.State != jobdir.Running }

// Logs reads a piece of a log.
func (a *Actions) Logs(ctx context.Context, req LogsRequest) (LogsResult, error) {
	if a.away != nil {
		res, err := a.logsThere(ctx, req, briefly)
		if err == nil && req.Plain {
			res.plain(jobdir.Plain)
		}
		return res, err
	}
	l, err := a.openLog(req)
	if err != nil {
		return LogsResult{}, err
	}
	if req.FollowMS == 0 {
		return l.read()
	}
	w := l.job.Watch()
	defer w.Close()
	wait, cancel := context.WithTimeout(ctx, time.Duration(req.FollowMS)*time.Millisecond)
	defer cancel()
	for {
		res, err := l.read()
		if err != nil || l.news(&res) || wait.Err() != nil && ctx.Err() == nil {
			return res, err
		}
		if err := w.Wait(wait); err != nil && ctx.Err() != nil {
			return res, ctx.Err()
		}
	}
}

// Follow reads a log to the end of its job, and hands over piece after piece.
// The last one says how the job ended. FollowMS and Max do not count.
func (a *Actions) Follow(ctx context.Context, req LogsRequest, emit func(*LogsResult) error) error {
	if a.away != nil {
		return a.followThere(ctx, req, emit)
	}
	req.Max, req.FollowMS = 0, 0
	l, err := a.openLog(req)
	if err != nil {
		return err
	}
	l.max = 256 << 10
	if req.Plain {
		l.plainer = new(jobdir.Plainer)
	}
	w := l.job.Watch()
	defer w.Close()
	told := false // that output is missing
	for {
		res, err := l.read()
		if err != nil {
			return err
		}
		moved := res.NextOffset != l.offset || res.Dropped != nil || res.Truncated || res.Unwritten != nil && !told
		told = res.Unwritten != nil
		l.offset = res.NextOffset
		if moved || res.Through() {
			if err := emit(&res); err != nil {
				return err
			}
		}
		switch {
		case res.Through():
			return nil
		case res.More:
			continue
		}
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
}

// logReader reads one log.
type logReader struct {
	job      *jobdir.Job
	offset   int64 // where to read
	mark     int64 // output from here on is news
	max      int64
	encoding Encoding
	plain    bool
	plainer  *jobdir.Plainer
}

// checkLogs refuses a read that is none, and fills in what is not given.
func checkLogs(req *LogsRequest) error {
	if req.Max == 0 {
		req.Max = DefaultRead
	}
	if req.Max < 1 || req.Max > MaxRead {
		return invalid("max", decimal(req.Max), "is not within 1..1048576")
	}
	if req.FollowMS < 0 || req.FollowMS > MaxFollowMS {
		return invalid("follow_ms", decimal(req.FollowMS), "is not within 0..25000")
	}
	if req.Offset != nil && *req.Offset < 0 {
		return invalid("offset", decimal(*req.Offset), "is below zero")
	}
	switch req.Encoding {
	case "":
		req.Encoding = Text
	case Text, Base64, Raw:
	default:
		return invalid("encoding", string(req.Encoding), "is neither utf-8 nor base64")
	}
	if req.Plain && req.Encoding == Base64 {
		return invalid("encoding", string(req.Encoding), "is exact, so it cannot be plain")
	}
	return nil
}

func (a *Actions) openLog(req LogsRequest) (*logReader, error) {
	if err := checkLogs(&req); err != nil {
		return nil, err
	}
	j, err := a.job(req.Job)
	if err != nil {
		return nil, err
	}
	l := &logReader{job: j, max: req.Max, encoding: req.Encoding, plain: req.Plain}
	if req.Offset != nil {
		l.offset, l.mark = *req.Offset, *req.Offset
		return l, nil
	}
	if l.offset, err = j.TailOffset(min(startOfTail, req.Max)); err != nil {
		return nil, fault(err)
	}
	piece, err := j.ReadLog(l.offset, 1)
	if err != nil {
		return nil, fault(err)
	}
	l.mark = piece.Size
	return l, nil
}

// read looks at the state and then at the bytes, so that a state that is an end
// comes with the last of them.
func (l *logReader) read() (LogsResult, error) {
	res := LogsResult{Job: l.job.ID(), Encoding: l.encoding}
	var err error
	if err = res.stand(l.job); err != nil {
		return res, err
	}
	running := res.State == jobdir.Running
	if l.encoding == Text {
		t, err := l.job.ReadText(l.offset, l.max, running)
		if err != nil {
			return res, fault(err)
		}
		res.Offset, res.NextOffset, res.Size = t.Offset, t.Next, t.Size
		res.Text, res.More, res.Dropped, res.Truncated = t.Text, t.More, t.Dropped, t.Truncated
		res.Unwritten = unwritten(t.Unwritten)
		if l.plain {
			res.Text = string(l.fold([]byte(t.Text), res.Through()))
		}
		return res, nil
	}
	r, err := l.job.ReadLog(l.offset, l.max)
	if err != nil {
		return res, fault(err)
	}
	res.Offset, res.NextOffset, res.Size = r.Offset, r.Next, r.Size
	res.More, res.Dropped, res.Truncated = r.More, r.Dropped, r.Truncated
	res.Unwritten = unwritten(r.Unwritten)
	switch {
	case l.encoding == Base64:
		res.Text = base64.StdEncoding.EncodeToString(r.Bytes)
	case l.plain:
		res.Bytes = l.fold(r.Bytes, res.Through())
	default:
		res.Bytes = r.Bytes
	}
	return res, nil
}

func (l *logReader) fold(b []byte, last bool) []byte {
	if l.plainer == nil {
		return jobdir.Plain(b)
	}
	b = l.plainer.Next(b)
	if last {
		b = append(b, l.plainer.Flush()...)
	}
	return b
}

// news reports whether a piece is worth returning to somebody who waits.
func (l *logReader) news(res *LogsResult) bool {
	if res.Size < l.mark && !res.Truncated {
		l.mark = res.Size // cut, not as far as where we read
	}
	return res.State != jobdir.Running || res.Truncated || res.NextOffset > l.mark || res.More && res.Size > l.mark
}

// stand fills in how the job stands: its state, and what is known of its end.
func (r *LogsResult) stand(j *jobdir.Job) error {
	var err error
	if r.State, err = stateOf(j); err != nil || r.State == jobdir.Running || r.State == Damaged {
		return err
	}
	info, err := readInfo(j)
	if err != nil {
		return err
	}
	e := entry(info)
	r.ExitCode, r.Signal, r.Error = e.ExitCode, e.Signal, e.Error
	return nil
}
