package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"

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

	lives  sync.Map        // of HTTP requests: their contexts
	ending context.Context // on stdio: done when the process is to end

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
	s := &Server{actions: bound, member: member, version: version, secret: make([]byte, 32), watches: make(map[watchKey]*subscription), waited: make(map[*sdk.ServerSession]bool), ending: context.Background()}
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

// Serve serves one client, a message in a line, until that hangs up or ctx is
// done.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.WriteCloser) error {
	defer s.unwatch(nil)
	s.ending = ctx // the SDK waits for calls, and does not tell them
	return s.Run(ctx, stdio(in, out))
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
			return nil, ctx.Err() // nobody waits for it
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
