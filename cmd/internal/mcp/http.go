package mcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link/carrier"
)

const (
	maxBody = 4 << 20

	// A session whose client has not said anything for so long is over. Those of
	// newer clients have no session.
	sessionTimeout = 24 * time.Hour

	// maxSessions is how many there are at once, of all members. One costs some
	// 30 kB: clients that end without a word leave theirs behind.
	maxSessions = 256

	// How long what is under way may take when the daemon is told to end. What
	// waits has its answer at once, what can be cut after lastWords; a start can
	// not.
	endsWithin = 5 * time.Second

	// statelessSince is the first version of the protocol without sessions.
	statelessSince = "2026-07-28"
	versionHeader  = "Mcp-Protocol-Version"
	methodHeader   = "Mcp-Method"
	sessionHeader  = "Mcp-Session-Id"
)

// ServeHTTP serves every client at a port of 127.0.0.1 and at a Unix socket, until
// ctx is done, if the root asks for it (see api.SetHTTPPort). Who a client is says
// its token. What is wrong goes to l, and ends nothing else.
func ServeHTTP(ctx context.Context, version string, l *log.Logger) {
	if err := serveHTTP(ctx, version, l); err != nil {
		l.Printf("http: %v", err)
	}
}

func serveHTTP(ctx context.Context, version string, l *log.Logger) error {
	actions, err := api.Open()
	if err != nil {
		return err
	}
	actions.Carry(carrier.Do)
	port, there, err := actions.HTTPPort()
	if err != nil || !there {
		return err
	}
	if _, err := actions.HTTP(""); err != nil { // so that there is a token
		return err
	}
	tcp, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	defer tcp.Close()
	at := tcp.Addr().(*net.TCPAddr).Port
	// Whoever made the socket is gone: this process has the lock of the root.
	if err := os.Remove(actions.HTTPSocket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	local, err := net.Listen("unix", actions.HTTPSocket())
	if err != nil {
		l.Printf("http: no socket: %v", err) // a path can be too long for one
	} else {
		defer local.Close()
	}
	if err := actions.SetHTTPPort(at); err != nil {
		return err
	}
	ReapStarted()
	e := newEndpoint(actions, version)
	// The requests have a context of their own: that ctx is done does not end them.
	requests, cut := context.WithCancel(context.Background())
	defer cut()
	server := &http.Server{
		Handler:           e,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          l,
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	l.Printf("serves MCP at http://127.0.0.1:%d/mcp", at)
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(tcp) }()
	if local != nil {
		go func() { failed <- server.Serve(local) }()
	}
	select {
	case err := <-failed:
		return errors.Join(err, server.Close())
	case <-ctx.Done():
	}
	// Whoever has asked something is answered; who only listens sees the end.
	tcp.Close()
	if local != nil {
		local.Close()
	}
	last, cancel := context.WithTimeout(context.Background(), endsWithin)
	defer cancel()
	e.end.within(lastWords)
	select {
	case <-e.underWay.end():
	case <-last.Done():
	}
	cut()
	if err := server.Shutdown(last); err != nil && last.Err() != nil {
		return errors.Join(errors.New("what was under way did not end in time"), server.Close())
	}
	return nil
}

// underWay counts what is to have its answer before the end.
type underWay struct {
	mu    sync.Mutex
	n     int           // guarded by mu
	ended chan struct{} // nil before the end; closed when nothing is left. Guarded by mu
}

// begin counts one more, unless the end has begun.
func (u *underWay) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended != nil {
		return false
	}
	u.n++
	return true
}

func (u *underWay) done() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 && u.ended != nil {
		close(u.ended)
	}
}

// end lets nothing begin any more. It is called once.
func (u *underWay) end() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = make(chan struct{})
	if u.n == 0 {
		close(u.ended)
	}
	return u.ended
}

// endpoint lets in who has a token, and hands each member to a server of its own:
// a session belongs to the member that began it.
type endpoint struct {
	actions *api.Actions
	version string
	calls   atomic.Uint64

	end      end // of all servers
	underWay underWay
	sessions sessions

	linkWithin time.Duration

	mu      sync.Mutex
	members map[string]*memberEndpoint
}

type memberEndpoint struct {
	server    *Server
	stateful  http.Handler
	stateless http.Handler
}

func newEndpoint(actions *api.Actions, version string) *endpoint {
	return &endpoint{actions: actions, version: version, linkWithin: linkWithin, end: newEnd(), sessions: sessions{most: maxSessions, all: make(map[string]*session)}, members: make(map[string]*memberEndpoint)}
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/link" { // it may be called by another name, behind a proxy
		e.serveLink(w, r)
		return
	}
	if why := foreign(r); why != "" {
		http.Error(w, why, http.StatusForbidden)
		return
	}
	if r.URL.Path != "/mcp" {
		http.NotFound(w, r)
		return
	}
	tokens, err := e.actions.Tokens()
	if err != nil {
		http.Error(w, api.AsError(err).Message, http.StatusInternalServerError)
		return
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	member, known := tokens[strings.TrimSpace(token)]
	if !strings.EqualFold(scheme, "Bearer") || !known {
		w.Header().Set("WWW-Authenticate", `Bearer realm="space-job"`)
		http.Error(w, "a bearer token is needed: space-job mcp token prints it", http.StatusUnauthorized)
		return
	}
	m, err := e.member(member)
	if err != nil {
		http.Error(w, api.AsError(err).Message, http.StatusForbidden)
		return
	}
	// A handler does not see the request that it answers, but its header.
	id := strconv.FormatUint(e.calls.Add(1), 10)
	r.Header.Set(callHeader, id)
	m.server.lives.Store(id, r.Context())
	defer m.server.lives.Delete(id)
	// What only listens has no answer that could be missed.
	if r.Method == http.MethodPost && r.Header.Get(methodHeader) != methodListen {
		if !e.underWay.begin() {
			refuseForNow(w, "the daemon ends")
			return
		}
		defer e.underWay.done()
	}
	if r.Header.Get(versionHeader) >= statelessSince {
		m.stateless.ServeHTTP(w, r)
		return
	}
	done, ok := e.sessions.begin(r, m.server)
	if !ok {
		refuseForNow(w, fmt.Sprintf("there are %d sessions, and all are in use", e.sessions.most))
		return
	}
	defer func() { done(w.Header().Get(sessionHeader)) }()
	m.stateful.ServeHTTP(w, r)
}

func refuseForNow(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// member is the server of a member, made at its first request.
func (e *endpoint) member(name string) (*memberEndpoint, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if m, ok := e.members[name]; ok {
		if _, err := e.actions.As(name); err != nil { // removed since
			m.server.unwatch(nil)
			return nil, err
		}
		return m, nil
	}
	logger := slog.New(slog.DiscardHandler)
	s, err := New(e.actions, name, e.version, logger)
	if err != nil {
		return nil, err
	}
	s.end = e.end
	get := func(*http.Request) *sdk.Server { return s.Server }
	m := &memberEndpoint{
		server: s,
		stateful: sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
			Logger: logger, MaxRequestBodyBytes: maxBody, SessionTimeout: sessionTimeout,
		}),
		stateless: sdk.NewStreamableHTTPHandler(get, &sdk.StreamableHTTPOptions{
			Logger: logger, MaxRequestBodyBytes: maxBody, Stateless: true, PropagateRequestCancellation: true,
		}),
	}
	e.members[name] = m
	return m, nil
}

// foreign says why a request is not from a program of this machine that meant
// this server: a page in a browser can send it requests, also under a name of its
// own for 127.0.0.1.
func foreign(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	switch strings.Trim(host, "[]") {
	case "localhost", "127.0.0.1", "::1":
	default:
		return fmt.Sprintf("host: %s is not this machine", api.Quote(r.Host))
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		return fmt.Sprintf("a %s request of a page is refused", api.Quote(site))
	}
	if len(r.Header.Values("Origin")) > 0 {
		u, err := url.Parse(r.Header.Get("Origin"))
		if err != nil || len(r.Header.Values("Origin")) > 1 || u.Host == "" || u.Host != r.Host {
			return fmt.Sprintf("origin: %s is refused", api.Quote(r.Header.Get("Origin")))
		}
	}
	return ""
}

// callHeader names an HTTP request to the handler that answers it.
const callHeader = "Space-Job-Call"

// alive is ctx until the connection that the call came over is closed, or the
// server is over.
func (s *Server) alive(ctx context.Context, req *sdk.CallToolRequest) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stops := []func() bool{context.AfterFunc(s.end.over, cancel)}
	if req.Extra != nil && req.Extra.Header != nil {
		if v, ok := s.lives.Load(req.Extra.Header.Get(callHeader)); ok {
			stops = append(stops, context.AfterFunc(v.(context.Context), cancel))
		}
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
