package mcp

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"space-job/cmd/internal/api"
)

// sessionClient speaks to an endpoint as one that keeps no session open.
type sessionClient struct {
	t     *testing.T
	url   string
	token string
}

func newSessionClient(t *testing.T) (*sessionClient, *endpoint) {
	actions, err := api.OpenRoot(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	at, err := actions.HTTP("")
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(actions, "")
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	return &sessionClient{t, server.URL + "/mcp", at.Token}, e
}

func (c *sessionClient) send(ctx context.Context, method, session, body string) *http.Response {
	c.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return res
}

// do is send, and what came back is read.
func (c *sessionClient) do(method, session, body string) (status int, made string) {
	c.t.Helper()
	res := c.send(c.t.Context(), method, session, body)
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Header.Get("Mcp-Session-Id")
}

func (c *sessionClient) begin() string {
	c.t.Helper()
	status, id := c.do("POST", "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	if status != http.StatusOK || id == "" {
		c.t.Fatalf("no session: %d", status)
	}
	return id
}

func (c *sessionClient) ping(session string) int {
	c.t.Helper()
	status, _ := c.do("POST", session, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	return status
}

// TestSessionsAreBounded: of hundreds of sessions that nobody ends, those that were
// left alone for the longest go. One that is used stays, and one whose client
// listens, and says nothing, too.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	c, e := newSessionClient(t)
	used, listens, idle := c.begin(), c.begin(), c.begin()
	stream := c.send(t.Context(), "GET", listens, "")
	defer stream.Body.Close()
	if stream.StatusCode != http.StatusOK {
		t.Fatal(stream.Status)
	}
	var ids []string
	for i := range 2 * maxSessions {
		ids = append(ids, c.begin())
		if i%50 == 0 {
			if got := c.ping(used); got != http.StatusOK {
				t.Fatalf("after %d others, the one in use: %d", i, got)
			}
		}
	}
	for session, want := range map[string]int{used: 200, listens: 200, idle: 404, ids[0]: 404, ids[len(ids)-1]: 200} {
		if got := c.ping(session); got != want {
			t.Errorf("session %d: %d, want %d", slices.Index(ids, session), got, want)
		}
	}
	m, err := e.member("")
	if err != nil {
		t.Fatal(err)
	}
	// One that has to go is ended beside the request that it has to go for.
	n := 0
	for range m.server.Sessions() {
		n++
	}
	if n > maxSessions+1 {
		t.Errorf("there are %d sessions, and %d at most are to be", n, maxSessions)
	}
	if got, _ := c.do("DELETE", used, ""); got != http.StatusNoContent {
		t.Errorf("delete: %d", got)
	}
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	if len(e.sessions.all) != maxSessions-1 || e.sessions.fresh != 0 {
		t.Errorf("%d are counted, and %d to be", len(e.sessions.all), e.sessions.fresh)
	}
}

// TestSessionsInUse: where all are in use, there is none for another client, until
// one ends.
func TestSessionsInUse(t *testing.T) {
	t.Parallel()
	c, e := newSessionClient(t)
	e.sessions.most = 3
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range e.sessions.most {
		res := c.send(ctx, "GET", c.begin(), "")
		defer res.Body.Close()
	}
	const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	res := c.send(t.Context(), "POST", "", hello)
	why, _ := io.ReadAll(res.Body)
	res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" || !strings.Contains(string(why), strconv.Itoa(e.sessions.most)) {
		t.Errorf("one too many: %s %s", res.Status, why)
	}
	// What is no hello makes no session.
	for range 5 {
		_, _ = c.do("POST", "none", "{}")
		_, _ = c.do("GET", "", "")
	}
	cancel()
	for got := 0; got != http.StatusOK; {
		got, _ = c.do("POST", "", hello) // the streams are gone in a moment
	}
}
