package mcp

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"space-job/cmd/internal/link"
)

const (
	maxLinkBody = 1 << 20
	linkWithin  = 15 * time.Second // a call is read, and an answer written
)

// serveLink answers the calls of those who have joined the thread from other
// Spaces: see package link. A browser sends none, and has no token.
func (e *endpoint) serveLink(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
		http.Error(w, "a request of a page is refused", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a call is POSTed", http.StatusMethodNotAllowed)
		return
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		w.Header().Set("WWW-Authenticate", `Bearer realm="space-job"`)
		http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
		return
	}
	token = strings.TrimSpace(token)
	// Whoever calls is not let wait as long as it likes, with what is read of it or
	// written to it in memory. How long an answer takes is another matter.
	limits := http.NewResponseController(w)
	var call link.Call
	if _, _, ok := link.SplitSecret(token); !ok { // it is refused, whatever it asks for
		_ = limits.SetReadDeadline(time.Now())
	} else {
		_ = limits.SetReadDeadline(time.Now().Add(e.linkWithin))
		b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLinkBody))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = limits.SetReadDeadline(time.Time{})
		if err := json.Unmarshal(b, &call); err != nil {
			http.Error(w, "the body is no call: "+err.Error(), http.StatusBadRequest)
			return
		}
	}
	if call.Op != link.Read && call.Op != link.Inbox && call.Op != link.Arrivals { // these wait, and change nothing that is not asked for again
		if !e.underWay.begin() {
			panic(http.ErrAbortHandler) // to the child, a connection that is lost: it asks again
		}
		defer e.underWay.done()
	}
	err := e.actions.AnswerAll(r.Context(), token, call, func(answer link.Answer, stream bool) error {
		if err := r.Context().Err(); err != nil {
			return err // nobody waits for it, or the daemon ends
		}
		body, err := answer.Append(nil)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		if stream {
			body = append(body, '\n')
		} else {
			w.Header().Set("Content-Length", strconv.Itoa(len(body))) // no write for the end of it
		}
		_ = limits.SetWriteDeadline(time.Now().Add(e.linkWithin))
		if _, err := w.Write(body); err != nil {
			return err
		}
		err = limits.Flush()
		_ = limits.SetWriteDeadline(time.Time{})
		return err
	})
	if err != nil {
		panic(http.ErrAbortHandler) // to the child, a connection that is lost, also where this daemon ends
	}
}
