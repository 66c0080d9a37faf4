package api

import (
	"errors"
	"time"

	"space-job/notify"
)

// SinkRequest is a sink to add: a command or a webhook.
type SinkRequest struct {
	Name    string
	Command string
	Webhook string
	Format  string // of a webhook: "json" or "slack", the first unless said
}

// SinkState is how a sink does.
type SinkState string

const (
	SinkOK       SinkState = "ok"       // the last attempts succeeded, or there was none yet
	SinkRetrying SinkState = "retrying" // something that it has not got is tried again by itself
	SinkFailed   SinkState = "failed"   // it has refused something, which waits for a retry
)

// SinkEntry is a sink, and what has become of the messages for it. The address
// of a webhook is masked behind its host.
type SinkEntry struct {
	Sink    string     `json:"sink"`
	Kind    string     `json:"kind"` // "command" or "webhook", "" of one that is damaged
	Target  string     `json:"target"`
	Format  string     `json:"format"`  // of a webhook
	State   SinkState  `json:"state"`   // Damaged where its file cannot be read
	Waiting int        `json:"waiting"` // messages that it has not got
	Failed  int        `json:"failed"`  // of these, those that wait for a retry
	Error   *string    `json:"error"`   // of the last attempt that failed
	NextAt  *time.Time `json:"next_at"` // of the next attempt
}

// SinkAddResult is a sink that was added.
type SinkAddResult struct {
	SinkEntry
	Replaced bool `json:"replaced"` // there was one of that name
}

// SinkAdd adds a sink, or replaces the one of that name.
func (a *Actions) SinkAdd(req SinkRequest) (SinkAddResult, error) {
	var res SinkAddResult
	c := notify.SinkConfig{Name: req.Name, Command: req.Command, Webhook: req.Webhook, Format: req.Format}
	existed, err := notify.AddSink(a.root, c)
	if err != nil {
		return res, fault(err)
	}
	e, err := a.sink(req.Name)
	return SinkAddResult{e, existed}, err
}

// SinksResult are all sinks, by name.
type SinksResult struct {
	Sinks    []SinkEntry
	Warnings []string // what somebody should know of
}

// SinkList lists the sinks.
func (a *Actions) SinkList() (SinksResult, error) {
	all, err := a.sinks()
	res := SinksResult{Sinks: all}
	for i := range all {
		if all[i].Waiting > 0 {
			res.Warnings = a.stopped()
		}
	}
	return res, err
}

// stopped warns of a daemon that nobody but a person starts.
func (a *Actions) stopped() []string {
	if _, held := notify.DaemonOf(a.root); held || !notify.Stopped(a.root) {
		return nil
	}
	return []string{"the daemon was stopped, and nothing is delivered: space-job daemon --detach starts it"}
}

func (a *Actions) sinks() ([]SinkEntry, error) {
	sinks, damaged, err := notify.Sinks(a.root)
	if err != nil {
		return nil, fault(err)
	}
	entries, err := notify.Entries(a.root)
	if err != nil {
		return nil, fault(err)
	}
	all := make([]SinkEntry, 0, len(sinks)+len(damaged))
	for _, c := range sinks {
		e := SinkEntry{Sink: c.Name, Kind: "webhook", Target: c.Target(), Format: c.Format}
		if c.Webhook == "" {
			e.Kind = "command"
		}
		e.look(entries)
		all = append(all, e)
	}
	for _, d := range damaged {
		e := SinkEntry{Sink: d.Name}
		e.look(entries)
		why := d.Path + ": " + d.Err.Error()
		e.State, e.Error, e.NextAt = SinkState(Damaged), &why, nil
		all = append(all, e)
	}
	return all, nil
}

// look sums up what the outbox says of a sink.
func (s *SinkEntry) look(entries []notify.Entry) {
	s.State = SinkOK
	for i := range entries {
		t, ok := entries[i].Sinks[s.Sink]
		if !ok || t.State != notify.Pending && t.State != notify.Failed {
			continue
		}
		s.Waiting++
		switch {
		case t.State == notify.Failed:
			s.Failed++
			if s.State != SinkFailed || t.Error != "" {
				s.State, s.Error = SinkFailed, &t.Error
			}
			continue
		case t.Error == "":
			continue // its turn has not come
		case s.State != SinkFailed:
			s.State, s.Error = SinkRetrying, &t.Error
		}
		if t.NextAt != nil && (s.NextAt == nil || t.NextAt.Before(*s.NextAt)) {
			s.NextAt = t.NextAt
		}
	}
}

// sink is one sink by its name.
func (a *Actions) sink(name string) (SinkEntry, error) {
	if err := notify.CheckSinkName(name); err != nil {
		return SinkEntry{}, fault(err)
	}
	all, err := a.sinks()
	for _, e := range all {
		if e.Sink == name {
			return e, nil
		}
	}
	if err == nil {
		err = noSink(name, notify.ErrNoSink)
	}
	return SinkEntry{}, err
}

// SinkRetryResult says for how many messages another attempt is due.
type SinkRetryResult struct {
	Sink     string   `json:"sink"`
	Retried  int      `json:"retried"`
	Warnings []string `json:"-"`
}

// SinkRetry makes everything that a sink has not got due at once, also what it
// has refused.
func (a *Actions) SinkRetry(name string) (SinkRetryResult, error) {
	res := SinkRetryResult{Sink: name}
	if _, err := a.sink(name); err != nil {
		return res, err
	}
	n, err := notify.RetrySink(a.root, name)
	if res.Retried = n; n > 0 {
		res.Warnings = a.stopped()
	}
	return res, fault(err)
}

// SinkRemoveResult says how many messages waited for the sink, which does not
// get them now.
type SinkRemoveResult struct {
	Sink    string `json:"sink"`
	Dropped int    `json:"dropped"`
}

// SinkRemove removes a sink, with what waits for it.
func (a *Actions) SinkRemove(name string) (SinkRemoveResult, error) {
	n, err := notify.RemoveSink(a.root, name)
	if errors.Is(err, notify.ErrNoSink) {
		err = noSink(name, err)
	}
	return SinkRemoveResult{name, n}, fault(err)
}

func noSink(name string, cause error) *Error {
	return &Error{Code: NotFound, Message: "there is no sink " + shown(name), Hint: "see which there are: space-job sink list", cause: cause}
}
