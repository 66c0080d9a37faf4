package api

import (
	"errors"
	"math/rand/v2"
	"strconv"

	"space-job/cmd/internal/space"
	"space-job/jobdir"
	"space-job/notify"
)

// tellOf is what a start in another Space does so that somebody here is told of the
// end of the job: the daemon here waits for it over there.
type tellOf struct {
	a       *Actions
	wait    notify.Wait
	nobody  bool // it is not known who starts it, and nobody is to be woken
	waiting *notify.WaitClaim
}

// tellOf checks all that a start with notify needs here, and makes nothing. It is nil
// where nobody is to be told. A start that has no key gets one: by that the daemon
// finds a job that was started when the answer was lost.
func (a *Actions) tellOf(req *StartRequest) (*tellOf, error) {
	var cmd jobdir.Cmd
	e, err := a.notifier(req, &cmd)
	if err != nil || !cmd.Notify {
		return nil, err
	}
	if req.Key == "" {
		req.Key = "notify-" + strconv.FormatUint(rand.Uint64(), 16)
	}
	return &tellOf{
		a: a, nobody: e.Member == "" && len(e.Wake) == 0,
		wait: notify.Wait{Space: a.Space(), Key: req.Key, Member: e.Member, Kind: e.Kind, Wake: e.Wake, Hops: e.Hops, After: e.ThreadAfter},
	}, nil
}

// claim writes it down, once.
func (t *tellOf) claim() error {
	if t == nil || t.nobody || t.waiting != nil {
		return nil
	}
	var err error
	t.waiting, err = notify.ClaimWait(t.a.root, t.wait, t.a.now())
	crash("elsewhere.claimed")
	return fault(err)
}

// started says which job it is.
func (t *tellOf) started(res *StartResult) {
	crash("elsewhere.started")
	switch {
	case t == nil:
		return
	case t.nobody:
		res.Warnings = append(res.Warnings, unknownStarter)
		return
	}
	if err := t.waiting.Started(res.Job); err != nil {
		res.Warnings = append(res.Warnings, "which job it is cannot be written down here: "+err.Error()+"; the daemon finds it by its key")
	}
	t.waiting = nil
	t.a.wakeDaemon()
	if notify.Stopped(t.a.root) {
		res.Held = true
		res.Warnings = append(res.Warnings, "the daemon was stopped, so nobody here is told of the end: space-job daemon --detach starts it")
	}
}

// release leaves it to the daemon to find out whether there is a job.
func (t *tellOf) release() {
	if t == nil || t.waiting == nil {
		return
	}
	t.waiting.Release()
	t.waiting = nil
	t.a.wakeDaemon()
}

// drop takes it back.
func (t *tellOf) drop() {
	if t != nil && t.waiting != nil {
		t.waiting.Drop()
	}
}

// endText is what is said of the end of a job, beside what its status has.
type endText struct {
	Text   string `json:"text"`
	Offset int64  `json:"offset"` // of the log: where the end of it in Text begins
}

func (a *Actions) endText(id jobdir.ID) (*endText, error) {
	m, err := notify.MessageOf(a.root.Job(id))
	if errors.Is(err, notify.ErrNotEnded) {
		return nil, nil
	}
	return &endText{m.Text, m.Offset}, fault(err)
}

// EndMessage is what is said of the end of a job in the Space that these actions are
// for, notify.ErrNotEnded where it has none yet.
func (a *Actions) EndMessage(job jobdir.ID) (notify.Message, error) {
	if a.away == nil {
		m, err := notify.MessageOf(a.root.Job(job))
		return m, fault(err)
	}
	var res toldStatus
	ask := askStatus{Format: jobdir.Format, Job: string(job), Message: true}
	if _, err := a.repeat(a.away.Context, space.Call{Action: "status", Request: ask}, briefly, &res); err != nil {
		return notify.Message{}, err
	}
	if res.Message == nil || res.State == jobdir.Running { // it has ended in the moment between the two
		return notify.Message{}, notify.ErrNotEnded
	}
	if res.Job != job {
		return notify.Message{}, &Error{Code: IO, Message: "space " + a.Space() + ": asked for job " + string(job) + ", it tells of " + shown(string(res.Job))}
	}
	res.describe()
	m := notify.Message{
		Key: notify.KeyOf(job), Job: job, State: res.State, ExitCode: res.ExitCode, DurationMS: res.DurationMS,
		Name: res.Line, Text: res.Message.Text, Offset: res.Message.Offset,
	}
	if res.LogBytesAtEnd != nil {
		m.LogBytes = *res.LogBytesAtEnd
	}
	return m, nil
}
