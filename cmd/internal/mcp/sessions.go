package mcp

import (
	"net/http"
	"sync"
	"time"
)

// sessions are those of HTTP clients of the older protocol. Where there are too
// many, the one that was left alone for the longest goes: its client is told that
// there is no such session when it comes back, and begins another. One with a
// request under way, such as a stream that a client listens to, stays.
type sessions struct {
	most int

	mu    sync.Mutex
	all   map[string]*session // by id. Guarded by mu
	fresh int                 // that are being made, and have no id yet. Guarded by mu
}

type session struct {
	server *Server
	open   int       // requests under way
	used   time.Time // when the last one came or went
}

// begin makes room for the request. It reports false where there is none for
// another session. Done is told, at the end, the id of the session that the
// request has made, if it has.
func (l *sessions) begin(r *http.Request, server *Server) (done func(made string), ok bool) {
	id := r.Header.Get(sessionHeader)
	l.mu.Lock()
	defer l.mu.Unlock()
	if id != "" {
		s := l.all[id]
		if s == nil || s.server != server { // the SDK refuses it
			return func(string) {}, true
		}
		s.open++
		s.used = time.Now()
		return func(string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			s.open--
			s.used = time.Now()
			if r.Method == http.MethodDelete {
				delete(l.all, id)
			}
		}, true
	}
	if r.Method != http.MethodPost { // the SDK refuses it
		return func(string) {}, true
	}
	if len(l.all)+l.fresh >= l.most && !l.evict() {
		return nil, false
	}
	l.fresh++
	return func(made string) {
		there := made != "" && server.session(made) != nil // the hello may have been none
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fresh--
		if there {
			l.all[made] = &session{server: server, used: time.Now()}
		}
	}, true
}

// evict ends the session that was left alone for the longest. l.mu is held.
func (l *sessions) evict() bool {
	oldest := ""
	for id, s := range l.all {
		if s.open == 0 && (oldest == "" || s.used.Before(l.all[oldest].used)) {
			oldest = id
		}
	}
	if oldest == "" {
		return false
	}
	s := l.all[oldest]
	delete(l.all, oldest)
	go s.server.endSession(oldest)
	return true
}
