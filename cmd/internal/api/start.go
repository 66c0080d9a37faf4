package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"space-job/cmd/internal/policy"
	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify"
	"space-job/runner"
)

// StartRequest is a job to begin: a Command for /bin/sh -c, an Argv that is
// executed as it stands, or a watcher that waits for a condition.
type StartRequest struct {
	Command string
	Argv    []string
	Until   *Condition
	Name    string
	Cwd     string        // "": where the caller is
	Env     []string      // K=V, or K alone for the caller's value; the last of a name counts
	Timeout time.Duration // 0: none
	Key     string        // "": none
	MaxLog  int64         // 0: the log keeps every byte
	Notify  bool          // bring a message to the thread when it ends
	Wake    []string      // members to wake then, besides whoever starts it; implies Notify
	Member  string        // who starts it: see Identity

	ToldElsewhere bool // whoever starts it is told of its end in the Space where they are

	// Approval is the id of a request that a person has approved, for this very
	// start. It goes through once.
	Approval string
}

// StartResult is the job that there is now.
type StartResult struct {
	Job      jobdir.ID    `json:"job"`
	State    jobdir.State `json:"state"`
	Existing bool         `json:"existing"` // it was there before, under the same key
	Warnings []string     `json:"-"`        // what somebody should know of
	Hints    []string     `json:"-"`        // what would serve them
	Held     bool         `json:"-"`        // its message waits until somebody starts the daemon
}

// Start begins a job and returns at once. Everything is checked before
// anything is made.
func (a *Actions) Start(req StartRequest) (StartResult, error) {
	if a.away != nil {
		return a.startThere(req)
	}
	spec, cmd, err := a.plan(req)
	if err != nil {
		return StartResult{}, err
	}
	entry, err := a.notifier(&req, cmd)
	if err != nil {
		return StartResult{}, err
	}
	use, existing, warnings, err := a.permit(&req, &spec, cmd)
	if err != nil {
		return StartResult{}, err
	}
	if existing != nil {
		return *existing, nil
	}
	if err := a.root.Create(); err != nil {
		return StartResult{}, fault(err)
	}
	if id, ok := record.ParseID(os.Getenv(record.EnvJob)); ok {
		if _, err := os.Lstat(a.root.Job(id).Dir()); err == nil {
			cmd.StartedBy.Job = string(id)
		}
	}
	started := func() {}
	if req.Key != "" {
		key, err := a.root.LockKey(req.Key)
		if err != nil {
			return StartResult{}, fault(err)
		}
		defer key.Unlock()
		if id, ok := key.Job(); ok {
			res, there, err := a.underKey(req.Key, id, cmd)
			if there || err != nil {
				return res, err
			}
		}
		spec.Claim = key.Set
	}
	if cmd.Notify {
		claim, err := notify.NewClaim(a.root, entry)
		if err != nil {
			return StartResult{}, fault(err)
		}
		defer claim.Drop() // unless the job is there
		spec.Claim = both(claim.Set, spec.Claim)
		started = claim.Release
	}
	if use != nil {
		last := func(record.ID) error { return use.use() } // of all that can fail before the job is there
		if spec.Claim == nil {
			spec.Claim = last
		} else {
			spec.Claim = both(spec.Claim, last)
		}
	}
	id, err := runner.Start(spec)
	if err != nil {
		ran := errors.As(err, new(*runner.LockError)) // it may have
		if errors.Is(err, syscall.EFBIG) {
			err = &Error{Code: IO, Message: err.Error(), Hint: "the limit on the size of files is too low: see ulimit -f", cause: err}
		}
		if err = fault(err); !ran {
			err = use.putBack(err)
		}
		return StartResult{}, err
	}
	res := StartResult{Job: id, State: jobdir.Running, Warnings: warnings}
	if cmd.Notify {
		started()
		a.tend()
		if cmd.StartedBy.Member == "" && !req.ToldElsewhere {
			res.Warnings = append(res.Warnings, unknownStarter)
		}
		if notify.Stopped(a.root) {
			res.Held = true
			res.Warnings = append(res.Warnings, "the daemon was stopped, so the message will wait: space-job daemon --detach starts it")
		}
	}
	if req.Until != nil && req.Timeout == 0 {
		res.Hints = []string{"a condition that never comes is waited for without end: --timeout bounds it"}
	}
	if fs, err := a.root.FileSystem(); err == nil && fs.Network {
		res.Warnings = append(res.Warnings, "the root "+a.root.Path()+" is on "+fs.Type+": its jobs look lost from any other machine")
	}
	return res, nil
}

// Reap takes away the runners of jobs that this process started and that have
// ended. A process that lives on calls it at each CHLD.
func Reap() { runner.Reap() }

// both is two claims as one; the second may be nil.
func both(first, second func(record.ID) error) func(record.ID) error {
	return func(id record.ID) error {
		if err := first(id); err != nil || second == nil {
			return err
		}
		return second(id)
	}
}

// plan checks a request and says what is to be started.
func (a *Actions) plan(req StartRequest) (runner.Spec, *jobdir.Cmd, error) {
	none := runner.Spec{}
	var argv []string
	var condition json.RawMessage
	var err error
	if req.Until == nil {
		argv, err = commandOf(req)
	} else {
		argv, condition, err = a.watcherOf(req)
	}
	if err != nil {
		return none, nil, err
	}
	set, names, err := a.checked(req)
	if err != nil {
		return none, nil, err
	}
	env := withVariables(os.Environ(), set)
	if err := checkTotal(argv, env); err != nil {
		return none, nil, err
	}
	cwd, err := directory(req.Cwd)
	if err != nil {
		return none, nil, err
	}
	program, err := runnerProgram()
	if err != nil {
		return none, nil, err
	}
	cmd := &jobdir.Cmd{
		Format:   jobdir.Format,
		Name:     req.Name,
		Argv:     argv,
		Command:  req.Command,
		Until:    condition,
		Cwd:      cwd,
		Env:      names,
		TimeoutS: req.Timeout.Seconds(),
		Key:      req.Key,
		MaxLog:   req.MaxLog,
	}
	return runner.Spec{
		Runner:  program,
		Root:    a.root.Path(),
		Argv:    argv,
		Env:     env,
		Cwd:     cwd,
		Timeout: req.Timeout,
		MaxLog:  req.MaxLog,
		Describe: func(id record.ID, created time.Time) []byte {
			cmd.ID, cmd.CreatedAt = id, created
			return cmd.Marshal()
		},
	}, cmd, nil
}

// checked refuses what is wrong with a request wherever it goes, and returns the
// variables that it sets and their names.
func (a *Actions) checked(req StartRequest) (set []variable, names []string, err error) {
	switch {
	case req.Until == nil:
		_, err = commandOf(req)
	case req.Command != "" || len(req.Argv) > 0:
		err = besideCondition(req)
	}
	if err != nil {
		return nil, nil, err
	}
	switch {
	case strings.IndexByte(req.Name, 0) >= 0:
		return nil, nil, invalid("name", req.Name, "holds a NUL byte")
	case len(req.Name) > MaxName:
		return nil, nil, invalid("name", req.Name, "is too long: at most 1024 bytes")
	case req.Timeout < 0:
		return nil, nil, invalid("timeout", req.Timeout.String(), "is not above zero")
	case req.MaxLog < 0 || req.MaxLog > 0 && req.MaxLog < MinMaxLog:
		return nil, nil, invalid("max_log", FormatSize(req.MaxLog), "is too small: at least 2MiB")
	}
	if req.Key != "" {
		if _, err := ParseKey(req.Key); err != nil {
			return nil, nil, err
		}
	}
	if req.Approval != "" && !policy.ValidID(req.Approval) {
		return nil, nil, invalid("approval", req.Approval, "is no id of a request, which is a and 16 hex digits")
	}
	return variables(req.Env)
}

func besideCondition(req StartRequest) error {
	given := req.Command
	if given == "" {
		given = jobdir.ShellLine(req.Argv)
	}
	return invalid("command", given, "is given beside a condition: one of them")
}

// variables reads what is set for a job, and lists the names.
func variables(env []string) (set []variable, names []string, err error) {
	set = make([]variable, 0, len(env))
	for _, s := range env {
		v, err := parseEnv(s, os.LookupEnv)
		if err != nil {
			return nil, nil, err
		}
		set = append(set, v)
		if !slices.Contains(names, v.name) {
			names = append(names, v.name)
		}
	}
	return set, names, nil
}

// commandOf is the argv of a request.
func commandOf(req StartRequest) ([]string, error) {
	if len(req.Argv) == 0 {
		switch {
		case strings.TrimSpace(req.Command) == "":
			return nil, emptyCommand(req.Command)
		case strings.IndexByte(req.Command, 0) >= 0:
			return nil, invalid("command", req.Command, "holds a NUL byte")
		case len(req.Command) >= MaxArgument:
			return nil, tooLong("command", len(req.Command))
		}
		return []string{"/bin/sh", "-c", req.Command}, nil
	}
	if req.Command != "" {
		return nil, invalid("command", req.Command, "is given beside an argv: one of them")
	}
	if strings.TrimSpace(req.Argv[0]) == "" {
		return nil, emptyCommand(req.Argv[0])
	}
	for _, s := range req.Argv {
		if strings.IndexByte(s, 0) >= 0 {
			return nil, invalid("command", s, "holds a NUL byte")
		}
		if len(s) >= MaxArgument {
			return nil, tooLong("command", len(s))
		}
	}
	return req.Argv, nil
}

// watcherOf is the argv of a watcher, and its condition as it is kept.
func (a *Actions) watcherOf(req StartRequest) ([]string, json.RawMessage, error) {
	if req.Command != "" || len(req.Argv) > 0 {
		return nil, nil, besideCondition(req)
	}
	c := *req.Until
	cwd := "/"
	if needsDirectory(&c) {
		var err error
		if cwd, err = directory(req.Cwd); err != nil {
			return nil, nil, err
		}
	}
	c, err := a.resolveUntil(c, cwd)
	if err != nil {
		return nil, nil, err
	}
	self, err := Program()
	if err != nil {
		return nil, nil, err
	}
	if filepath.Base(self) == "space-jobd" { // it serves MCP, and has no until
		self = filepath.Join(filepath.Dir(self), "space-job")
	}
	return append([]string{self, "until"}, c.Args()...), c.JSON(), nil
}

func emptyCommand(given string) *Error {
	e := invalid("command", given, "is empty")
	e.Hint = "say what to run: space-job start 'make test'"
	return e
}

// directory is where the job runs: an absolute path of a directory that may be
// entered.
func directory(given string) (string, error) {
	dir := given
	if given == "" || !filepath.IsAbs(given) {
		here, err := os.Getwd()
		if err != nil {
			return "", &Error{Code: InvalidArgument, Message: "cwd: the current directory is gone or out of reach: " + innermost(err),
				Hint: "name another one: --cwd DIR", cause: err}
		}
		if dir = filepath.Join(here, given); strings.Contains(given, "..") {
			dir = here + "/" + given // the kernel's way up, where links are in between
		}
	}
	if strings.IndexByte(dir, 0) >= 0 {
		return "", invalid("cwd", given, "holds a NUL byte")
	}
	// With the slash, a file is told from a directory by the same call.
	if err := syscall.Access(dir+"/.", 1); err != nil {
		e := invalid("cwd", dir, "cannot be entered: "+err.Error())
		e.cause = err
		return "", e
	}
	return dir, nil
}

// innermost is the last error of a chain, in words.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// underKey decides about a start whose key has a job: that job, if it has the
// same command.
func (a *Actions) underKey(key string, id jobdir.ID, cmd *jobdir.Cmd) (res StartResult, there bool, err error) {
	info, err := a.root.Job(id).Read()
	if errors.Is(err, jobdir.ErrNotFound) {
		return res, false, nil
	}
	if err != nil {
		return res, true, fault(err)
	}
	if info.Cmd == nil {
		return res, true, &Error{Code: Conflict, Message: "key: " + shown(key) + " belongs to job " + string(id) + ", which is damaged (" + info.Damaged + ")",
			Hint: "use another key"}
	}
	if !sameCommand(info.Cmd, cmd) {
		return res, true, &Error{Code: Conflict, Message: "key: " + shown(key) + " belongs to job " + string(id) + ", which has another command: " + info.Cmd.Line(),
			Hint: "the same key is for the same command: use another key"}
	}
	return StartResult{Job: id, State: info.State, Existing: true}, true, nil
}

// sameCommand: watchers are the same where their conditions are, as the path of
// this program may have changed.
func sameCommand(x, y *jobdir.Cmd) bool {
	if x.Until != nil && y.Until != nil {
		return bytes.Equal(x.Until, y.Until)
	}
	return slices.Equal(x.Argv, y.Argv)
}

// checkTotal refuses what the kernel would: argv and environment together.
func checkTotal(argv, env []string) error {
	const slack = 4096 + 64 // the program's path, SPACE_JOB
	n := slack
	for _, l := range [][]string{argv, env} {
		for _, s := range l {
			n += len(s) + 1 + 8
		}
	}
	if n <= 128<<10 { // always allowed
		return nil
	}
	if limit := totalLimit(); n > limit {
		return &Error{Code: LimitExceeded,
			Message: "command: argv and environment together have " + FormatSize(int64(n)) + ", more than this system's limit of " + FormatSize(int64(limit)),
			Hint:    "put it into a file and let the command read that"}
	}
	return nil
}
