package carrier

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"space-job/cmd/internal/link"
)

// keepStream is how long a stream that nobody waits for is kept for the next call.
const keepStream = 5 * time.Second

// stream is one call that has one answer after another. Those who follow a thread
// call again and again: the next call is answered by what the last one has opened,
// and costs the parent no request.
type stream struct {
	at      place
	res     *http.Response
	hangUp  context.CancelFunc
	answers chan streamed
	idle    *time.Timer
	kept    int // how often, as a timer may come late
}

// place is where a stream is: what calls it can answer.
type place struct {
	url, token string
	after, n   int64
}

type streamed struct {
	link.Answer
	err error
}

// open are the streams that wait for the next call.
var open struct {
	mu  sync.Mutex
	all map[place]*stream
}

// streams reports whether a call can be answered by a stream. A proxy may hold back
// what comes in pieces: where there can be one, there is none.
func streams(url, op string, args *link.ReadArgs) bool {
	return op == link.Read && args.FollowMS > 0 && args.After != nil && args.Before == nil && strings.HasPrefix(url, "http:")
}

// overStream makes a call that waits for what comes after an entry.
func overStream(ctx context.Context, url string, r link.Request, args link.ReadArgs) (link.Answer, error) {
	until := time.Now().Add(time.Duration(args.FollowMS) * time.Millisecond)
	args.Stream = true
	for {
		s := take(place{url, r.Token, *args.After, args.N})
		fresh := s == nil
		if fresh {
			args.FollowMS = max(time.Until(until).Milliseconds(), 1)
			var err error
			if r.Args, err = json.Marshal(args); err != nil {
				return link.Answer{}, err
			}
			if s, err = openStream(ctx, url, r, &args); err != nil {
				return link.Answer{}, err
			}
		}
		// The parent minds the time of the call that has opened it, and is asked anew
		// where this one is not to wait as long: it may not be there any more.
		var enough <-chan time.Time
		if !fresh {
			enough = time.After(time.Until(until))
		}
		var got streamed
		select {
		case got = <-s.answers:
		case <-enough:
			s.hangUp()
			continue
		case <-ctx.Done():
			s.hangUp()
			return link.Answer{}, &link.UnreachableError{Sent: true, Err: ctx.Err()}
		}
		var to struct {
			Cursor int64 `json:"cursor"`
		}
		if got.err == nil && got.Error == nil {
			if err := json.Unmarshal(got.Result, &to); err != nil {
				got.err = err
			}
		}
		over := got.err != nil || to.Cursor == *args.After // and it may have been opened long before this call
		if over && !fresh && got.Error == nil && (got.err != nil || time.Now().Before(until)) {
			s.hangUp()
			continue
		}
		if got.err != nil {
			s.hangUp()
			return link.Answer{}, &link.UnreachableError{Sent: true, Err: pathless(got.err)}
		}
		if got.Error != nil {
			s.hangUp()
		} else {
			keep(s, to.Cursor)
		}
		return got.Answer, nil
	}
}

// openStream returns once the first answer comes. ctx is that of one call, and ends
// no stream that is open.
func openStream(ctx context.Context, url string, r link.Request, args *link.ReadArgs) (*stream, error) {
	life, hangUp := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, hangUp)
	defer stop()
	res, err := send(life, url, r)
	if err != nil {
		hangUp()
		return nil, err
	}
	s := &stream{at: place{url, r.Token, *args.After, args.N}, res: res, hangUp: hangUp, answers: make(chan streamed)}
	go s.read(life)
	return s, nil
}

// read reads one answer after another, each when the one before has been taken. The
// last one is an error.
func (s *stream) read(life context.Context) {
	defer s.res.Body.Close()
	in := &io.LimitedReader{R: s.res.Body}
	lines := json.NewDecoder(in)
	for first := true; ; first = false {
		var got streamed
		in.N = maxAnswer
		got.err = lines.Decode(&got.Answer)
		switch {
		case got.err != nil && in.N <= 0:
			got.err = errTooLong
		case got.err == nil && got.Error == nil && got.Result == nil, first && notJSON(got.err):
			got.err = errors.New(noSpaceJob(s.res))
		}
		select {
		case s.answers <- got:
		case <-life.Done():
			return
		}
		if got.err != nil {
			return
		}
	}
}

// notJSON: what came was read, and is no answer.
func notJSON(err error) bool {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	return errors.As(err, &syntax) || errors.As(err, &kind) || errors.Is(err, io.EOF)
}

// take is the stream that has what comes at a place, nil where there is none.
func take(at place) *stream {
	open.mu.Lock()
	defer open.mu.Unlock()
	s := open.all[at]
	if s != nil {
		s.idle.Stop()
		delete(open.all, at)
	}
	return s
}

// keep keeps a stream, that has told what comes as far as after, for the next call,
// for a while.
func keep(s *stream, after int64) {
	open.mu.Lock()
	defer open.mu.Unlock()
	s.at.after = after
	s.kept++
	if open.all == nil {
		open.all = make(map[place]*stream)
	}
	if open.all[s.at] != nil {
		s.hangUp()
		return
	}
	open.all[s.at] = s
	kept := s.kept
	s.idle = time.AfterFunc(keepStream, func() {
		open.mu.Lock()
		defer open.mu.Unlock()
		if open.all[s.at] == s && s.kept == kept {
			delete(open.all, s.at)
			s.hangUp()
		}
	})
}
