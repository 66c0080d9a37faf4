package api

import (
	"cmp"
	"context"
	"errors"
	"sort"
	"strconv"
	"sync"
	"syscall"
	"time"

	"space-job/cmd/internal/link"
	"space-job/jobdir"
	"space-job/notify/thread"
)

// served is what a process remembers that answers the calls of children: many
// follow the thread at once, and each calls again and again. Actions of one root
// share it.
type served struct {
	mu      sync.Mutex
	invites map[string]readInvite // by id. Guarded by mu

	hub hub
}

// readInvite is a file of an invite as it was read: it is read again when another
// file is in its place.
type readInvite struct {
	ino  uint64
	at   syscall.Timespec
	size int64
	invite

	token string // the last one that was found to be its
}

// cachedInvite is invite for who asks often. It reports whether token was found to
// be that of the member.
func (a *Actions) cachedInvite(id, token string) (v *invite, known bool, err error) {
	var st syscall.Stat_t
	if err := syscall.Lstat(a.path(invitePath(id)), &st); err != nil {
		v, err := a.invite(id)
		return v, false, err
	}
	s := a.served
	s.mu.Lock()
	was, ok := s.invites[id]
	s.mu.Unlock()
	if ok && was.ino == st.Ino && was.size == st.Size && was.at == changeTime(&st) {
		if was.token == token {
			return &was.invite, true, nil
		}
		v = &was.invite
	} else if v, err = a.invite(id); err != nil || v == nil {
		return v, false, err
	}
	known = v.Token != "" && v.Token == secretDigest(link.SplitToken(token))
	if !known {
		token = ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	const most = 10_000
	if s.invites == nil || len(s.invites) > most {
		s.invites = make(map[string]readInvite)
	}
	s.invites[id] = readInvite{st.Ino, changeTime(&st), st.Size, *v, token} // older than the file, if anything
	return v, known, nil
}

// hub reads the thread once for all who follow it. What comes is handed out at
// once, and what comes right after that together, a moment later, which is longer
// the more follow: many who all post would have an answer for each entry each.
type hub struct {
	mu        sync.Mutex
	running   bool
	waiters   int
	followers int           // how many waited when entries were last handed out
	idle      time.Time     // when the last one went
	entries   []hubEntry    // the newest, oldest first
	from      int64         // what entries come after
	last      int64         // the newest of them
	news      chan struct{} // closed when there are more, or running is over
	bodies    map[int64]followed
}

type hubEntry struct {
	seq  int64
	json []byte
}

const (
	handOut   = 5 * time.Millisecond // for each follower: between two times that entries are handed out
	maxPause  = 250 * time.Millisecond
	hubKeeps  = 1000             // entries
	hubLooks  = 5 * time.Second  // at whether anybody follows
	hubLinger = 30 * time.Second // without anybody who does
)

// follow waits for entries after one, as ThreadRead does, and returns the result
// as JSON. It reports false where they are older than what it has.
func (h *hub) follow(ctx context.Context, t *thread.Thread, after int64, n int) (res followed, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters++
	defer func() { h.waiters--; h.idle = time.Now() }()
	for {
		if !h.running {
			if !h.start(t) {
				return res, false
			}
		}
		switch {
		case after < h.from:
			return res, false
		case after < h.last:
			return h.body(after, n), true
		}
		news := h.news
		h.mu.Unlock()
		over := false
		select {
		case <-news:
		case <-ctx.Done():
			over = true
		}
		h.mu.Lock()
		if over {
			return h.body(after, n), true
		}
	}
}

// start begins to read. h is locked.
func (h *hub) start(t *thread.Thread) bool {
	end, err := t.End()
	if err != nil {
		return false
	}
	h.running, h.entries, h.from, h.last = true, nil, end, end
	h.news, h.bodies = make(chan struct{}), nil
	go h.run(t, end)
	return true
}

// run reads until nobody follows any more, or it fails: then each follower finds
// out for itself.
func (h *hub) run(t *thread.Thread, at int64) {
	f := t.Follower(at)
	defer f.Close()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), hubLooks)
		entries, err := f.Next(ctx)
		cancel()
		h.mu.Lock()
		if len(entries) > 0 {
			for i := range entries {
				line := jobdir.Line(&entries[i])
				h.entries = append(h.entries, hubEntry{entries[i].Seq, line[:len(line)-1]})
			}
			if more := len(h.entries) - hubKeeps; more > 0 {
				h.from = h.entries[more-1].seq
				h.entries = append([]hubEntry(nil), h.entries[more:]...)
			}
			at = entries[len(entries)-1].Seq
			h.followers = h.waiters
			h.last, h.bodies = at, nil
			close(h.news)
			h.news = make(chan struct{})
		}
		if err == nil && len(entries) == 0 { // it may have been cut
			if end, e := t.End(); e != nil || end < at {
				err = cmp.Or(e, errors.New("the thread was cut"))
			}
		}
		if err != nil || h.waiters == 0 && time.Since(h.idle) > hubLinger {
			h.running = false
			close(h.news)
			h.mu.Unlock()
			return
		}
		pause := min(time.Duration(h.followers)*handOut, maxPause)
		h.mu.Unlock()
		if len(entries) > 0 {
			time.Sleep(pause)
		}
	}
}

// body is a ThreadResult in JSON, made once for all who have read as far. h is
// locked.
func (h *hub) body(after int64, n int) followed {
	first := sort.Search(len(h.entries), func(i int) bool { return h.entries[i].seq > after })
	list := h.entries[first:]
	n = min(n, fitting(list, func(e *hubEntry) int { return len(e.json) }))
	whole := len(list) <= n
	if !whole {
		list = list[:n]
	} else if res, ok := h.bodies[after]; ok {
		return res
	}
	cursor := after
	b := []byte(`{"entries":[`)
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e.json...)
		cursor = e.seq
	}
	b = append(b, `],"cursor":`...)
	b = strconv.AppendInt(b, cursor, 10)
	b = append(b, `,"has_more_before":`...)
	b = append(strconv.AppendBool(b, after > 0), '}')
	res := followed{b, h.last, cursor}
	if whole {
		if h.bodies == nil {
			h.bodies = make(map[int64]followed)
		}
		h.bodies[after] = res
	}
	return res
}
