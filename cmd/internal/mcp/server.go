package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"space-job/cmd/internal/api"
)

// Server is the tools for one member.
type Server struct {
	*sdk.Server
	actions *api.Actions // bound to the member
	member  string       // "": nobody known
	version string       // of this program
	secret  []byte       // signs what a client carries from one call to the next

	lives sync.Map // of HTTP requests: their contexts
	end   end

	mu      sync.Mutex
	watches map[watchKey]*subscription
	waited  map[*sdk.ServerSession]bool // for their end
}

// New is a server whose calls are made by member; "" is for nobody known.
func New(actions *api.Actions, member, version string, log *slog.Logger) (*Server, error) {
	bound, err := actions.As(member)
	if err != nil {
		return nil, err
	}
	s := &Server{actions: bound, member: member, version: version, secret: make([]byte, 32), watches: make(map[watchKey]*subscription), waited: make(map[*sdk.ServerSession]bool), end: newEnd()}
	if _, err := rand.Read(s.secret); err != nil {
		return nil, err
	}
	s.Server = sdk.NewServer(&sdk.Implementation{Name: "space-job", Title: "Jobs of this Space", Version: version}, &sdk.ServerOptions{
		Instructions:       api.Skill,
		Logger:             log,
		Capabilities:       &sdk.ServerCapabilities{},
		SubscribeHandler:   s.subscribe,
		UnsubscribeHandler: s.unsubscribe,
	})
	s.AddTool(jobTool(), s.tool(s.job))
	s.AddTool(threadTool(), s.tool(s.thread))
	s.addResources()
	s.AddReceivingMiddleware(s.received)
	s.AddSendingMiddleware(s.sent)
	return s, nil
}

// How long the answers of what is under way may take when a client has hung up: a
// job that does not obey has 5 s; and when the process is told to end.
const (
	lastAnswers = 8 * time.Second
	lastWords   = 500 * time.Millisecond
)

// Serve serves one client, a message in a line, until that hangs up or ctx is
// done. What was asked before is answered then, and nothing waits any more.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.WriteCloser) error {
	defer s.unwatch(nil)
	defer s.end.now()
	defer context.AfterFunc(ctx, func() { s.end.within(lastWords) })()
	return s.Run(context.Background(), &answered{Transport: stdio(in, out), told: ctx, leave: s.end.begin, within: lastAnswers})
}

// end is that of a server, in two steps: first nothing waits any more for what may
// come, and what is under way has its answer; then that is over, too.
type end struct {
	leaving, over context.Context
	begin, now    context.CancelFunc
}

func newEnd() (e end) {
	e.leaving, e.begin = context.WithCancel(context.Background())
	e.over, e.now = context.WithCancel(context.Background())
	return e
}

// within begins the end, and leaves so much time for it.
func (e *end) within(d time.Duration) {
	e.begin()
	time.AfterFunc(d, e.now)
}

// patiently makes a call that waits for what may come. When the server is to end
// meanwhile it is made again, with a follow_ms of zero: it returns what there is.
func (e *end) patiently(ctx context.Context, ms *int64, call func(context.Context) error) error {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.leaving, cancel)()
	err := call(wait)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		*ms = 0
		err = call(ctx)
	}
	return err
}

// errEnds is the fault of a call that the server had no time for.
var errEnds = &api.Error{Code: api.Unavailable, Message: "the server ends, and has not waited for this to be done", Hint: "when it is there again: look how far this came, or make the call again"}

// session is one of those that there are, or nil.
func (s *Server) session(id string) *sdk.ServerSession {
	for session := range s.Sessions() {
		if session.ID() == id {
			return session
		}
	}
	return nil
}

func (s *Server) endSession(id string) {
	if session := s.session(id); session != nil { // it may have ended by itself
		_ = session.Close()
	}
}

// answer is what an action returned, for the program and for the model.
type answer struct {
	value any
	text  string
}

// tool is a tool whose faults are results.
func (s *Server) tool(call func(context.Context, *sdk.CallToolRequest) (answer, error)) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		ctx, done := s.alive(ctx, req)
		defer done()
		a, err := call(ctx, req)
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err() // nobody waits for it, or the server ends
		}
		if q := (*question)(nil); errors.As(err, &q) {
			return q.result(), nil
		}
		if err != nil {
			return failure(err), nil
		}
		value, err := json.Marshal(a.value)
		if err != nil {
			return nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: a.text}}, StructuredContent: json.RawMessage(value)}, nil
	}
}

// failure is the result of a call that failed.
func failure(err error) *sdk.CallToolResult {
	e := *api.AsError(err)
	e.Hint = speak(e.Hint)
	text := "error: " + e.Message
	if e.Hint != "" {
		text += "\nhint: " + e.Hint
	}
	return &sdk.CallToolResult{
		IsError:           true,
		Content:           []sdk.Content{&sdk.TextContent{Text: text}},
		StructuredContent: map[string]any{"error": &e},
	}
}
