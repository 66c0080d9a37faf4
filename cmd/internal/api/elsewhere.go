package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"space-job/cmd/internal/space"
	"space-job/jobdir"
)

// Elsewhere is what a front has to say about calls to another Space.
type Elsewhere struct {
	Version string                               // of this program
	Tell    func(kind, text string)              // "warning" or "hint": what somebody should know at once; nil: nobody listens
	Context context.Context                      // of List, Status and EndMessage, which end with it; nil: they do not
	pause   func(time.Duration) <-chan time.Time // nil: time.After
}

// elsewhere is the way to the jobs of another Space.
type elsewhere struct {
	Elsewhere
	space space.Space

	reached bool // it has answered before
	told    bool // that its version is another
}

// How a connection that was lost is made again: at once, and then after longer and
// longer pauses, for a time. What follows a log has patience: a laptop that was
// closed needs a moment.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
	patience   = time.Minute // of what follows or waits
	briefly    = 2 * time.Second
)

// longPoll is how long one call of what follows or waits may take by itself.
const longPoll = MaxFollowMS * time.Millisecond

// In are the same actions on the jobs of another Space, which spaces.json names;
// "" and "local" are for this one. Start, Logs, Follow, Status, Cancel, List and Wait
// go there; what concerns a person's word (Approvals and the like) stays here. Their
// results are those of the space-job over there. Only one call at a time may be made.
func (a *Actions) In(name string, e Elsewhere) (*Actions, error) {
	if name == "" || name == space.Local {
		return a, nil
	}
	if _, err := ParseSpace(name); err != nil {
		return nil, err
	}
	s, err := space.Find(a.root.Path(), name)
	var unknown *space.UnknownError
	switch {
	case errors.As(err, &unknown):
		return nil, &Error{Code: InvalidArgument, Message: "space: " + err.Error(), cause: err,
			Hint: "say in " + unknown.Path + ` how to get there: {"` + name + `": {"exec": ["ssh", "HOST"]}}`}
	case err != nil:
		return nil, &Error{Code: IO, Message: "space: " + shown(name) + " cannot be looked up: " + err.Error(), Hint: "repair " + space.File + ", which says what is run", cause: err}
	}
	if e.Tell == nil {
		e.Tell = func(string, string) {}
	}
	if e.Context == nil {
		e.Context = context.Background()
	}
	if e.pause == nil {
		e.pause = time.After
	}
	if program, ok := a.installed(&s); ok {
		s.Program = program
	}
	there := *a
	there.away = &elsewhere{Elsewhere: e, space: s}
	return &there, nil
}

// ParseSpace checks the name of a Space, apart from whether it is known.
func ParseSpace(s string) (string, error) {
	if err := space.CheckName(s); err != nil {
		return s, &Error{Code: InvalidArgument, Message: "space: " + shown(s) + " " + err.Error(), cause: err}
	}
	return s, nil
}

// Space is the name of the Space whose jobs these actions are for; "" is this one.
func (a *Actions) Space() string {
	if a.away == nil {
		return ""
	}
	return a.away.space.Name
}

// call asks the Space once.
func (a *Actions) call(ctx context.Context, c space.Call, result any) (space.Answer, error) {
	w := a.away
	hello, answer, err := w.space.Do(ctx, c)
	var lost *space.Error
	if errors.As(err, &lost) && (lost.Kind == space.NoProgram || lost.Kind == space.TooOld) && w.space.Install {
		if err := a.install(ctx); err != nil {
			return answer, err
		}
		hello, answer, err = w.space.Do(ctx, c)
	}
	if hello.Version != "" {
		w.reached = true
		w.greet(hello)
	}
	if err != nil {
		return answer, w.fault(err, c.Writes)
	}
	if answer.Error != nil {
		e := new(Error)
		if err := json.Unmarshal(answer.Error, e); err != nil || e.Code == "" {
			return answer, w.fault(&space.Error{Kind: space.Stranger, Sent: true, Said: "what answers there is no space-job"}, c.Writes)
		}
		e.Message = "space " + w.space.Name + ": " + e.Message
		e.Hint = w.overThere(e.Hint)
		return answer, e
	}
	if raw, ok := result.(*json.RawMessage); ok {
		*raw = answer.Result
	} else if err := json.Unmarshal(answer.Result, result); err != nil {
		return answer, &Error{Code: IO, Message: "space " + w.space.Name + ": its answer cannot be read: " + err.Error(), Hint: w.versions(hello), cause: err}
	}
	if why := senseless(hello, c.Request, result); why != "" {
		e := w.fault(&space.Error{Kind: space.Stranger, Sent: true, Said: "its answer makes no sense: it says " + why}, c.Writes)
		AsError(e).Code = IO
		return answer, e
	}
	for i, h := range answer.Hints {
		answer.Hints[i] = w.overThere(h)
	}
	for i, h := range answer.Warnings {
		answer.Warnings[i] = w.overThere(h)
	}
	return answer, nil
}

// NoAnswer reports whether err is of a call to a Space that gave no answer, or none
// that can be believed, and not what the Space answered about a job.
func NoAnswer(err error) bool { return errors.As(err, new(*space.Error)) }

// repeat is call, made again where the connection was lost. It is for what may be
// done twice. It goes on trying for so long after the connection was there.
func (a *Actions) repeat(ctx context.Context, c space.Call, within time.Duration, result any) (space.Answer, error) {
	w := a.away
	var since time.Time // when it was lost
	var paused time.Duration
	for tries := 0; ; tries++ {
		began := time.Now()
		answer, err := a.call(ctx, c, result)
		var lost *space.Error
		if err == nil || ctx.Err() != nil || !errors.As(err, &lost) || !w.reached {
			return answer, err
		}
		switch lost.Kind {
		case space.Lost, space.Unreachable, space.Late:
		default:
			return answer, err
		}
		if since.IsZero() || lost.Kind == space.Lost && time.Since(began) > lastPause {
			since, paused, tries = time.Now(), 0, 0
		}
		if paused >= within || time.Since(since) >= within {
			return answer, err
		}
		if tries == 0 { // at once
			continue
		}
		if tries == 1 && within == patience {
			w.Tell("warning", AsError(err).Message+"; it is tried again")
		}
		pause := min(firstPause<<(tries-1), lastPause)
		paused += pause
		select {
		case <-ctx.Done():
			return answer, ctx.Err()
		case <-w.pause(pause):
		}
	}
}

// hint passes on what would serve whoever asked.
func (w *elsewhere) hint(a space.Answer) {
	for _, h := range a.Hints {
		w.Tell("hint", h)
	}
}

// greet says once that the versions differ.
func (w *elsewhere) greet(h space.Hello) {
	if w.told {
		return
	}
	w.told = true
	if h.Version != w.Version || h.Format != jobdir.Format {
		w.Tell("warning", w.versions(h))
	}
}

func (w *elsewhere) versions(h space.Hello) string {
	s := "the Space " + w.space.Name + " has space-job " + OneLine(h.Version) + ", and this is " + w.Version
	if h.Format > jobdir.Format {
		s += "; its jobs have a newer format: they are read, and none is started or cancelled from here"
	}
	return s
}

// overThere is a hint of the Space as it is meant here.
func (w *elsewhere) overThere(hint string) string {
	const name = "space-job "
	if !strings.Contains(hint, name) {
		return hint
	}
	var b strings.Builder
	other := false
	for i, piece := range strings.Split(hint, name) {
		if i > 0 {
			command, _, _ := strings.Cut(piece, " ")
			if b.WriteString(name); reachesElsewhere(strings.TrimRight(command, ",.;:)")) || command == "--space" {
				if command != "--space" {
					b.WriteString("--space " + w.space.Name + " ")
				}
			} else {
				other = true
			}
		}
		b.WriteString(piece)
	}
	if other {
		return "in the Space " + w.space.Name + ": " + hint
	}
	return b.String()
}

// reachesElsewhere: the commands that take --space.
func reachesElsewhere(command string) bool {
	switch command {
	case "start", "logs", "status", "cancel", "list", "run", "wait":
		return true
	}
	return false
}

// fault says what is wrong with a call that has no answer.
func (w *elsewhere) fault(err error, writes bool) error {
	var e *space.Error
	if !errors.As(err, &e) {
		return fault(err)
	}
	out := &Error{Code: Unavailable, Message: "space " + w.space.Name + ": ", cause: err}
	line := jobdir.ShellLine(w.space.Exec)
	switch e.Kind {
	case space.NotRun:
		out.Message += "its prefix cannot be run: " + err.Error()
		out.Hint = space.File + " says how to get there: " + line
	case space.NoProgram:
		out.Message += "there is no " + w.program() + ": " + err.Error()
		out.Hint = `install it there; or have it brought there, by "install": true in ` + space.File + `; or say there where it is, by "program": "PATH"`
	case space.TooOld:
		out.Message += "the space-job there is too old to be asked from here: " + err.Error()
		out.Hint = "install a newer one there; this is " + w.Version
	case space.Newer:
		out.Message += err.Error() + ": a newer format is read, and not written"
		out.Hint = "install a newer space-job here, or do it over there"
	case space.Unreachable:
		out.Message += "it cannot be reached: " + OneLine(err.Error())
		switch said := err.Error(); {
		case strings.Contains(said, "Permission denied"):
			out.Hint = "no password is asked for, nor waited for: have ssh get there by a key (ssh-copy-id, ssh-add); it is run as: " + line
		case strings.Contains(said, "Host key verification failed"):
			out.Hint = "its key is not known here: connect once by hand; it is run as: " + line
		default:
			out.Hint = "try it by hand: " + line + " " + w.program() + " --version"
		}
	case space.Late, space.Stranger:
		out.Message += OneLine(err.Error())
		out.Hint = "try it by hand: " + line + " " + w.program() + " --version"
	default:
		out.Message += "the connection was lost before the whole answer was there: " + OneLine(err.Error())
		out.Hint = "ask again"
	}
	if e.Sent && writes {
		out.Message += ". What was asked for may have been done"
		out.Hint = w.overThere("look before you ask again: space-job list")
	}
	return out
}

func (w *elsewhere) program() string {
	if w.space.Program == "" {
		return space.Program
	}
	return w.space.Program
}

// What is asked of a space-job elsewhere, and what it answers: see Answer of each
// action in package api's RequestOf. Format is that of the job directories that the
// asking one knows.
type (
	askStart struct {
		Format       int        `json:"format"`
		Command      string     `json:"command,omitempty"`
		Argv         []string   `json:"argv,omitempty"`
		Until        *Condition `json:"until,omitempty"`
		IntervalMS   int64      `json:"interval_ms,omitempty"`    // of until
		TryTimeoutMS int64      `json:"try_timeout_ms,omitempty"` // of until
		Name         string     `json:"name,omitempty"`
		Cwd          string     `json:"cwd,omitempty"` // "": where a login there begins
		Env          []string   `json:"env,omitempty"` // NAME=value
		TimeoutMS    int64      `json:"timeout_ms,omitempty"`
		Key          string     `json:"key,omitempty"`
		MaxLog       int64      `json:"max_log,omitempty"`
		Notify       bool       `json:"notify,omitempty"`
		Told         bool       `json:"told,omitempty"` // who starts it is told where they are
		Approval     string     `json:"approval,omitempty"`
	}
	askLogs struct {
		Format   int      `json:"format"`
		Job      string   `json:"job,omitempty"`
		Offset   *int64   `json:"offset,omitempty"`
		Max      int64    `json:"max,omitempty"`
		FollowMS int64    `json:"follow_ms,omitempty"`
		Encoding Encoding `json:"encoding,omitempty"`
	}
	askStatus struct {
		Format  int    `json:"format"`
		Job     string `json:"job,omitempty"`
		Message bool   `json:"message,omitempty"` // with what is said of its end
	}
	askCancel struct {
		Format int      `json:"format"`
		Jobs   []string `json:"jobs"`
		Reason string   `json:"reason,omitempty"`
		Nested bool     `json:"nested,omitempty"`
	}
	askList struct {
		Format int      `json:"format"`
		N      int      `json:"n,omitempty"`
		All    bool     `json:"all,omitempty"`
		States []string `json:"states,omitempty"`
	}
	askWait struct {
		Format    int      `json:"format"`
		Jobs      []string `json:"jobs"`
		Any       bool     `json:"any,omitempty"`
		TimeoutMS int64    `json:"timeout_ms"` // 0 only looks
	}

	toldStart struct {
		StartResult
		Held bool `json:"held,omitempty"`
	}
	toldStatus struct {
		StatusResult
		Message *endText `json:"message,omitempty"` // nil: it was not asked for, or there is none
	}
	toldList struct {
		Jobs []Entry `json:"jobs"`
		More int     `json:"more"`
	}
	toldWait struct {
		Jobs []Entry `json:"jobs"`
		Code int     `json:"code"`
	}
)

// startThere starts a job in the Space. It is judged here first, and by the policy
// over there then.
func (a *Actions) startThere(req StartRequest) (StartResult, error) {
	w := a.away
	set, names, err := a.checked(req)
	if err != nil {
		return StartResult{}, err
	}
	told, err := a.tellOf(&req)
	if err != nil {
		return StartResult{}, err
	}
	defer told.drop() // unless the job is there, or may be
	ask := askStart{
		Format: jobdir.Format, Command: req.Command, Argv: req.Argv, Until: req.Until, Name: req.Name, Cwd: req.Cwd,
		TimeoutMS: milliseconds(req.Timeout), Key: req.Key, MaxLog: req.MaxLog, Approval: req.Approval,
		Notify: told != nil, Told: told != nil,
	}
	if c := req.Until; c != nil {
		ask.IntervalMS, ask.TryTimeoutMS = milliseconds(c.Interval), milliseconds(c.TryTimeout)
	}
	for _, v := range set {
		ask.Env = append(ask.Env, v.name+"="+v.value)
	}
	if err := ask.legible(); err != nil {
		return StartResult{}, err
	}
	use, warnings, asked, err := a.permitThere(&req, names, ask.Env)
	if err != nil {
		return StartResult{}, err
	}
	if asked { // the word was for here
		ask.Approval = ""
	}
	sent := 0
	c := space.Call{Action: "start", Request: ask, Writes: true, Before: func() error {
		sent++
		if err := told.claim(); err != nil {
			return err
		}
		return use.use()
	}}
	var started toldStart
	var answer space.Answer
	if req.Key != "" {
		answer, err = a.repeat(context.Background(), c, briefly, &started)
	} else {
		answer, err = a.call(context.Background(), c, &started)
	}
	var lost *space.Error
	if errors.As(err, &lost) && !lost.Sent && w.reached {
		AsError(err).Message += ". Nothing was started"
	}
	if err != nil {
		if lost != nil && lost.Sent {
			told.release()
		} else if sent == 1 && AsError(err).Code != IO { // it was refused over there, and never lost on its way
			err = use.putBack(err)
		}
		return StartResult{}, err
	}
	res := started.StartResult
	res.Held = started.Held
	res.Warnings, res.Hints = append(warnings, answer.Warnings...), answer.Hints
	told.started(&res)
	return res, nil
}

func milliseconds(d time.Duration) int64 {
	if d > 0 && d < time.Millisecond {
		return 1
	}
	return d.Milliseconds()
}

// legible refuses bytes that JSON has no form for.
func (r *askStart) legible() error {
	texts := [][2]string{{"command", r.Command}, {"name", r.Name}, {"cwd", r.Cwd}, {"key", r.Key}}
	for _, s := range r.Argv {
		texts = append(texts, [2]string{"command", s})
	}
	for _, s := range r.Env {
		if name, value, _ := strings.Cut(s, "="); strings.ToValidUTF8(value, "") != value {
			return invalid("env", name, "has a value with bytes that are not UTF-8, which do not reach another Space")
		}
		texts = append(texts, [2]string{"env", s})
	}
	if c := r.Until; c != nil {
		texts = append(texts, [2]string{"until", c.File}, [2]string{"until", c.Command}, [2]string{"until", c.Match})
	}
	for _, t := range texts {
		if strings.ToValidUTF8(t[1], "") != t[1] {
			return invalid(t[0], t[1], "has bytes that are not UTF-8, which do not reach another Space")
		}
	}
	return nil
}

// logsThere reads a piece of a log in the Space. Bytes come in base64, and escapes
// are dropped here, where one piece is known to follow another.
func (a *Actions) logsThere(ctx context.Context, req LogsRequest, within time.Duration) (LogsResult, error) {
	if err := checkLogs(&req); err != nil {
		return LogsResult{}, err
	}
	ask := askLogs{Format: jobdir.Format, Job: req.Job, Offset: req.Offset, Max: req.Max, FollowMS: req.FollowMS, Encoding: req.Encoding}
	if req.Encoding == Raw {
		ask.Encoding = Base64
	}
	var res LogsResult
	wait := time.Duration(req.FollowMS) * time.Millisecond
	if _, err := a.repeat(ctx, space.Call{Action: "logs", Request: ask, Wait: wait}, within, &res); err != nil {
		return LogsResult{}, a.goOn(err, req.Job, req.Offset)
	}
	if res.Encoding = req.Encoding; req.Encoding == Raw {
		var err error
		if res.Bytes, err = base64.StdEncoding.DecodeString(res.Text); err != nil {
			return LogsResult{}, &Error{Code: IO, Message: "space " + a.Space() + ": its answer cannot be read: " + err.Error(), cause: err}
		}
		res.Text = ""
	}
	return res, nil
}

// goOn says how a read that was cut short goes on.
func (a *Actions) goOn(err error, job string, offset *int64) error {
	var lost *space.Error
	if !errors.As(err, &lost) || !a.away.reached {
		return err
	}
	e := AsError(err)
	e.Hint = a.away.overThere("read on from where you were: space-job logs")
	if job != "" {
		e.Hint += " " + job
	}
	if offset != nil {
		e.Hint += " --offset " + decimal(*offset)
	}
	return e
}

// followThere reads a log to the end of its job: one long poll after the other, each
// from the byte that the last one ended at.
func (a *Actions) followThere(ctx context.Context, req LogsRequest, emit func(*LogsResult) error) error {
	req.Max, req.FollowMS = 256<<10, 0
	var plainer *jobdir.Plainer
	if req.Plain {
		plainer = new(jobdir.Plainer)
	}
	if err := checkLogs(&req); err != nil {
		return err
	}
	told := false // that output is missing
	early := 0
	for first := true; ; first = false {
		began, waits := time.Now(), time.Duration(req.FollowMS)*time.Millisecond
		res, err := a.logsThere(ctx, req, patience)
		if err != nil {
			return err
		}
		moved := first || res.NextOffset != *req.Offset || res.Dropped != nil || res.Truncated || res.Unwritten != nil && !told
		told = res.Unwritten != nil
		req.Job, req.Offset = string(res.Job), &res.NextOffset
		if req.FollowMS = MaxFollowMS; res.More {
			req.FollowMS = 0
		}
		if plainer != nil {
			res.plain(func(b []byte) []byte {
				b = plainer.Next(b)
				if res.Through() {
					b = append(b, plainer.Flush()...)
				}
				return b
			})
		}
		if moved || res.Through() {
			if err := emit(&res); err != nil {
				return err
			}
		}
		if res.Through() {
			return nil
		}
		if moved || waits > 0 && time.Since(began) >= waits/2 {
			early = 0
			continue
		}
		// It does not wait over there, or has more and gives none.
		pause := min(firstPause<<min(early, 5), lastPause)
		early++
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.away.pause(pause):
		}
	}
}

// plain folds what a piece holds.
func (r *LogsResult) plain(fold func([]byte) []byte) {
	if r.Encoding == Raw {
		r.Bytes = fold(r.Bytes)
	} else {
		r.Text = string(fold([]byte(r.Text)))
	}
}

func (a *Actions) statusThere(given string) (StatusResult, error) {
	var res StatusResult
	answer, err := a.repeat(a.away.Context, statusCall(given), briefly, &res)
	if err != nil {
		return StatusResult{}, err
	}
	res.Warnings = answer.Warnings
	a.away.hint(answer)
	res.describe()
	return res, nil
}

// StatusDocument is Status in another Space as the JSON that came from there, also
// with what only a newer space-job there knows.
func (a *Actions) StatusDocument(given string) (document json.RawMessage, warnings []string, err error) {
	answer, err := a.repeat(a.away.Context, statusCall(given), briefly, &document)
	a.away.hint(answer)
	return document, answer.Warnings, err
}

func statusCall(given string) space.Call {
	return space.Call{Action: "status", Request: askStatus{Format: jobdir.Format, Job: given}}
}

func (a *Actions) cancelThere(ctx context.Context, req CancelRequest) ([]CancelResult, error) {
	if err := checkCancel(&req); err != nil {
		return nil, err
	}
	if strings.ToValidUTF8(req.Reason, "") != req.Reason {
		return nil, invalid("reason", req.Reason, "has bytes that are not UTF-8, which do not reach another Space")
	}
	var res []CancelResult
	// A second cancel finds what the first has done.
	_, err := a.repeat(ctx, space.Call{Action: "cancel", Writes: true, Request: askCancel{jobdir.Format, req.Jobs, req.Reason, req.Nested}}, briefly, &res)
	return res, err
}

func (a *Actions) listThere(req ListRequest) (ListResult, error) {
	var told toldList
	answer, err := a.repeat(a.away.Context, space.Call{Action: "list", Request: askList{jobdir.Format, req.N, req.All, req.States}}, briefly, &told)
	if err != nil {
		return ListResult{}, err
	}
	a.away.hint(answer)
	for i := range told.Jobs {
		told.Jobs[i].describe()
	}
	return ListResult{Jobs: told.Jobs, More: told.More, Warnings: answer.Warnings}, nil
}

// waitThere waits in long polls, each made over there.
func (a *Actions) waitThere(ctx context.Context, req WaitRequest) (WaitResult, error) {
	if err := checkWait(&req); err != nil {
		return WaitResult{}, err
	}
	end := time.Time{}
	if req.Timeout > 0 {
		end = time.Now().Add(req.Timeout)
	}
	ask := askWait{Format: jobdir.Format, Jobs: req.Jobs, Any: req.Any}
	for early := 0; ; {
		began := time.Now()
		wait := time.Duration(0)
		if !req.Look {
			wait = longPoll
			if !end.IsZero() {
				wait = min(wait, max(time.Until(end), 0))
			}
		}
		ask.TimeoutMS = milliseconds(wait)
		var told toldWait
		if _, err := a.repeat(ctx, space.Call{Action: "wait", Request: ask, Wait: wait}, patience, &told); err != nil {
			return WaitResult{}, err
		}
		for i := range told.Jobs {
			told.Jobs[i].describe()
		}
		res := WaitResult(told)
		if !stillRun(told.Jobs, req.Any) || req.Look || !end.IsZero() && !time.Now().Before(end) {
			return res, nil
		}
		if time.Since(began) >= wait/2 {
			early = 0
			continue
		}
		// It does not wait over there: asked at once again and again, it would cost both sides a core.
		pause := min(firstPause<<min(early, 5), lastPause)
		if !end.IsZero() {
			pause = min(pause, max(time.Until(end), 0))
		}
		early++
		select {
		case <-ctx.Done():
			return WaitResult{}, ctx.Err()
		case <-a.away.pause(pause):
		}
	}
}

// stillRun reports whether what is waited for has not come.
func stillRun(jobs []Entry, first bool) bool {
	for i := range jobs {
		if (jobs[i].State == jobdir.Running) != first {
			return !first
		}
	}
	return first
}

// describe fills in what people see and JSON does not have.
func (e *Entry) describe() {
	c := jobdir.Cmd{Argv: e.Argv, Until: e.Until}
	if e.Name != nil {
		c.Name = *e.Name
	}
	if e.Command != nil {
		c.Command = *e.Command
	}
	if string(c.Until) == "null" {
		c.Until = nil
	}
	e.Line, e.Condition = c.Line(), c.Condition()
}
