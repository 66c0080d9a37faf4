package notify

import (
	"context"
	"log"
	"time"

	"space-job/notify/thread"
)

// Sink is where a message goes besides the thread.
type Sink interface {
	// Deliver makes one attempt, and returns nil when the far end has the
	// message. It may be called again with a message that the far end has: the
	// key is the same. Errors that say more than that it failed are
	// *PermanentError and *RetryError.
	Deliver(ctx context.Context, m Message) error
}

// PermanentError is the error of a delivery that would fail again: the message
// is parked until somebody asks for another attempt.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }
func (e *PermanentError) Unwrap() error { return e.Err }

// RetryError is the error of a delivery whose far end says when to try again.
type RetryError struct {
	After time.Duration
	Err   error
}

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// SinkConfig is a sink as it is kept in <root>/sinks/<name>.json.
type SinkConfig struct {
	Name    string `json:"name"`
	Command string `json:"command"` // a shell command, or
	Webhook string `json:"webhook"` // an http or https address
	Format  string `json:"format"`  // of a webhook's body: "json" or "slack"
}

// Hooks are what Follow calls where a message leaves the root. Each may be nil:
// then there is nobody of that kind. Calls may come from several goroutines, and
// end when their context does.
type Hooks struct {
	Sink    func(SinkConfig) Sink                                   // where a configured sink leads
	Wake    func(context.Context, thread.Member, thread.Item) error // runs a member's waker
	Lock    *Lock                                                   // which the caller holds; nil: nobody else can follow the root
	Desktop func(context.Context, Message) error                    // shows a person a notification
	Parent  func() (*Parent, error)                                 // the thread that the root has joined, nil where it has none
	Back    <-chan struct{}                                         // a parent that could not be reached can be again; may be nil
	Prune   func() error                                            // once an hour, beside what prunes jobs; nil: nothing
	Log     *log.Logger                                             // what an operator should know, one line each
}
