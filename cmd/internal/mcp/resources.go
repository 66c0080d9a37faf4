package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"space-job/cmd/internal/api"
)

const (
	inboxURI = "space://inbox/"
	jobURI   = "space://job/"
)

func (s *Server) addResources() {
	if s.member != "" {
		s.AddResource(&sdk.Resource{
			URI: inboxURI + s.member, Name: "inbox", Title: "Your inbox", MIMEType: "application/json",
			Description: "What you have not answered. Subscribe to be woken.",
		}, s.readResource)
	}
	s.AddResourceTemplate(&sdk.ResourceTemplate{
		URITemplate: jobURI + "{job}", Name: "job", Title: "A job", MIMEType: "application/json",
		Description: "How a job stands. Subscribe to be woken when it ends.",
	}, s.readResource)
}

func (s *Server) readResource(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := req.Params.URI
	var value any
	switch job, isJob := strings.CutPrefix(uri, jobURI); {
	case isJob && job != "":
		res, err := s.actions.Status(job)
		if err != nil {
			return nil, resourceError(uri, err)
		}
		value = res
	case s.member != "" && uri == inboxURI+s.member:
		res, err := s.actions.Inbox(ctx, api.InboxRequest{})
		if err != nil {
			return nil, resourceError(uri, err)
		}
		value = inbox{res.Items}
	default:
		return nil, sdk.ResourceNotFoundError(uri)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: "application/json", Text: string(text)}}}, nil
}

func resourceError(uri string, err error) error {
	if e := api.AsError(err); e.Code == api.NotFound {
		return sdk.ResourceNotFoundError(uri)
	}
	return err
}

// watchKey is one subscription of one client.
type watchKey struct {
	session *sdk.ServerSession
	uri     string
}

// subscribe watches what a resource shows, until the client unsubscribes or is
// gone.
func (s *Server) subscribe(_ context.Context, req *sdk.SubscribeRequest) error {
	uri := req.Params.URI
	var watch func(context.Context, func()) error
	switch job, isJob := strings.CutPrefix(uri, jobURI); {
	case isJob && job != "":
		if _, err := s.actions.Resolve([]string{job}); err != nil {
			return resourceError(uri, err)
		}
		watch = func(ctx context.Context, changed func()) error { return s.actions.Ended(ctx, job, changed) }
	case s.member != "" && uri == inboxURI+s.member:
		watch = func(ctx context.Context, changed func()) error { return s.actions.Arrivals(ctx, s.member, changed) }
	default:
		return sdk.ResourceNotFoundError(uri)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := watchKey{req.Session, uri}
	if _, there := s.watches[key]; there {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.watches[key] = &subscription{stop: cancel, run: func() {
		_ = watch(ctx, func() {
			_ = s.ResourceUpdated(ctx, &sdk.ResourceUpdatedNotificationParams{URI: uri, Meta: sdk.Meta{onlyFor: key.session}})
		})
	}}
	if !s.waited[key.session] {
		s.waited[key.session] = true
		go s.unwatchAtEnd(key.session)
	}
	return nil
}

// subscription is a watch that begins when the client is known to be subscribed:
// what is reported before goes to nobody.
type subscription struct {
	run  func() // nil: it has begun
	stop context.CancelFunc
}

// subscribed begins the watches of a session.
func (s *Server) subscribed(session sdk.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range s.watches {
		if key.session == session && w.run != nil {
			go w.run()
			w.run = nil
		}
	}
}

// The SDK asks whether a client may subscribe before it notes that it has. The
// subscription holds when the call has returned or, with newer clients, when it
// has been acknowledged.
const (
	methodUpdated      = "notifications/resources/updated"
	methodCall         = "tools/call"
	methodSubscribe    = "resources/subscribe"
	methodListen       = "subscriptions/listen"
	methodElicit       = "elicitation/create"
	methodAcknowledged = "notifications/subscriptions/acknowledged"
)

func (s *Server) received(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		if method == methodSubscribe && err == nil {
			s.subscribed(req.GetSession())
		}
		if method == methodCall && err != nil && s.end.leaving.Err() != nil {
			return failure(errEnds), nil
		}
		return res, err
	}
}

func (s *Server) sent(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if method == methodUpdated && !addressed(req) {
			return nil, nil
		}
		if method == methodElicit { // a person takes their time
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.end.leaving, cancel)()
		}
		res, err := next(ctx, method, req)
		if method == methodAcknowledged {
			s.subscribed(req.GetSession())
		}
		return res, err
	}
}

// onlyFor marks news with the session whose watch it comes from. The SDK sends them
// to all that have subscribed, and each has a watch of its own.
const onlyFor = "space-job/only-for"

// addressed takes the mark off, and reports whether the news is for this session.
func addressed(req sdk.Request) bool {
	p, ok := req.GetParams().(*sdk.ResourceUpdatedNotificationParams)
	if !ok || p.Meta[onlyFor] != req.GetSession() {
		return false
	}
	meta := maps.Clone(p.Meta)
	delete(meta, onlyFor)
	if r, shared := req.(*sdk.ServerRequest[*sdk.ResourceUpdatedNotificationParams]); shared {
		r.Params = &sdk.ResourceUpdatedNotificationParams{Meta: meta, URI: p.URI} // of all older clients
	} else {
		p.Meta = meta
	}
	return true
}

func (s *Server) unsubscribe(_ context.Context, req *sdk.UnsubscribeRequest) error {
	key := watchKey{req.Session, req.Params.URI}
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, there := s.watches[key]; there {
		w.stop()
		delete(s.watches, key)
	}
	return nil
}

// unwatchAtEnd ends the watches of a session when that is over.
func (s *Server) unwatchAtEnd(session *sdk.ServerSession) {
	_ = session.Wait()
	s.unwatch(session)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waited, session)
}

// unwatch ends the watches of a session; of all, for nil.
func (s *Server) unwatch(session *sdk.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, w := range s.watches {
		if session == nil || key.session == session {
			w.stop()
			delete(s.watches, key)
		}
	}
}
