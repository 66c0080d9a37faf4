package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"space-job/jobdir"
	"space-job/notify"
	"space-job/notify/thread"
	"space-job/runner"
)

// Code is the kind of a fault, the same for every front.
type Code string

const (
	InvalidArgument Code = "invalid_argument" // the message names the field and the value
	NotFound        Code = "not_found"
	Ambiguous       Code = "ambiguous" // the message lists the candidates
	Conflict        Code = "conflict"
	LimitExceeded   Code = "limit_exceeded" // the message names the limit
	Unavailable     Code = "unavailable"
	IO              Code = "io"

	ApprovalRequired Code = "approval_required" // a person is to decide: Request names what was asked for
	ApprovalDenied   Code = "approval_denied"
)

// Error is what every action returns when it fails.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Hint    string `json:"hint"` // what to do about it, "" where nothing helps

	// Request is the id of what a person is to decide, or has decided: see Approve.
	Request string `json:"request,omitempty"`

	cause error
	token bool // see TokenRefused
}

func (e *Error) Error() string { return e.Message }

func (e *Error) Unwrap() error { return e.cause }

// TokenRefused reports whether the parent refuses whatever is asked for with the
// token that a call was made with: it was revoked, say.
func TokenRefused(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.token
}

// Astray reports whether another Space than the parent has answered: it has the
// parent's port, say.
func Astray(err error) bool { return errors.Is(err, errAnother) }

// AsError is the Error that err is or wraps; any other error is of code io.
func AsError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: IO, Message: err.Error(), cause: err}
}

func invalid(field, value, why string) *Error {
	return &Error{Code: InvalidArgument, Message: field + ": " + shown(value) + " " + why}
}

// Quote shows what somebody typed in one line, and not all of it where it is
// long.
func Quote(s string) string { return shown(s) }

// shown quotes a value for one line of an error.
func shown(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
	}
	return fmt.Sprintf("%q", s)
}

// fault gives an error of the packages below its code.
func fault(err error) error {
	if err == nil {
		return nil
	}
	var (
		known     *Error
		ambiguous *jobdir.AmbiguousError
		badID     *jobdir.InvalidIDError
		root      *jobdir.RootError
		noHoles   *runner.HoleError
		noLocks   *runner.LockError
		noRoom    *runner.LimitError
		refused   *thread.InvalidError
		tooLong   *thread.TooLongError
		claimed   *thread.OverlapError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, new(*notify.HeldError)):
		return &Error{Code: Conflict, Message: err.Error(), Hint: "space-job daemon stop ends it", cause: err}
	case errors.Is(err, jobdir.ErrNotFound):
		return &Error{Code: NotFound, Message: err.Error(), Hint: "see which there are: space-job list --all", cause: err}
	case errors.As(err, &ambiguous):
		return &Error{Code: Ambiguous, Message: err.Error(), Hint: "give more digits of the end of the id", cause: err}
	case errors.As(err, &badID):
		return &Error{Code: InvalidArgument, Message: "job: " + shown(badID.Given) + " is no id",
			Hint: "an id is j and 12 hex digits; its last digits do, four at least, where no other id ends in them", cause: err}
	case errors.As(err, &root):
		return &Error{Code: InvalidArgument, Message: err.Error(), Hint: "name another one: SPACE_JOB_HOME", cause: err}
	case errors.As(err, &noHoles):
		return &Error{Code: InvalidArgument, Message: "max_log: " + err.Error(), Hint: "start it without --max-log, or with a root on another disk", cause: err}
	case errors.As(err, &noLocks):
		e := invalid("root", noLocks.Root, "is on a file system that does not keep locks, so no job there could be told from a lost one")
		e.Hint, e.cause = "name a root on a local disk: SPACE_JOB_HOME", err
		return e
	case errors.As(err, &noRoom):
		return &Error{Code: Unavailable, Message: err.Error(), Hint: "wait until others have ended, or raise the limit", cause: err}
	case errors.As(err, &refused):
		e := invalid(refused.Field, refused.Value, refused.Why)
		e.cause = err
		return e
	case errors.As(err, &tooLong):
		return &Error{Code: LimitExceeded, Message: "text: " + shown(tooLong.Text) + " is too long: a post has at most 8192 bytes",
			Hint: "put it into a file and post its path", cause: err}
	case errors.As(err, &claimed):
		return &Error{Code: Conflict, Message: err.Error(), Hint: "mention the owner and wait for the reply, or claim something else: space-job thread claims", cause: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &Error{Code: IO, Message: err.Error(), Hint: "space-job prune --older-than 24h removes ended jobs", cause: err}
	case errors.Is(err, syscall.EMFILE):
		return &Error{Code: Unavailable, Message: err.Error(), Hint: "raise the limit on open files (ulimit -n): 64 are enough for any command", cause: err}
	case errors.Is(err, syscall.ENFILE):
		return &Error{Code: Unavailable, Message: err.Error(), Hint: "the whole machine is out of open files: try again when some programs have ended", cause: err}
	}
	return &Error{Code: IO, Message: err.Error(), cause: err}
}

// notFound says which job there is not.
func notFound(given string) *Error {
	return &Error{Code: NotFound, Message: "there is no job " + shown(given), Hint: "see which there are: space-job list --all", cause: jobdir.ErrNotFound}
}
