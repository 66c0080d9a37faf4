package carrier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"space-job/cmd/internal/link"
)

// followed makes one call for what comes after an entry, and returns the cursor of
// the answer.
func followed(ctx context.Context, url string, after, n, ms int64) (int64, error) {
	args, err := json.Marshal(link.ReadArgs{After: &after, N: n, FollowMS: ms})
	if err != nil {
		return 0, err
	}
	a, err := Do(ctx, link.Request{Address: url, Token: "secret", Call: link.Call{Op: link.Read, Args: args}})
	if err != nil {
		return 0, err
	}
	if a.Error != nil {
		return 0, errors.New(a.Error.Message)
	}
	var to struct{ Cursor int64 }
	return to.Cursor, json.Unmarshal(a.Result, &to)
}

// parentOf answers what follows with answer, which gets the number of the request
// and its arguments.
func parentOf(t *testing.T, answer func(n int, args link.ReadArgs, say func(string), gone <-chan struct{})) *httptest.Server {
	requests := make(chan int, 1)
	requests <- 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := <-requests + 1
		requests <- n
		var c link.Call
		var args link.ReadArgs
		err := json.NewDecoder(r.Body).Decode(&c)
		if err == nil {
			err = json.Unmarshal(c.Args, &args)
		}
		if err != nil {
			t.Error(err)
			return
		}
		answer(n, args, func(line string) {
			fmt.Fprintln(w, line)
			_ = http.NewResponseController(w).Flush()
		}, r.Context().Done())
	}))
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return s
}

func upTo(cursor int64) string {
	return fmt.Sprintf(`{"result":{"entries":[],"cursor":%d},"end":%d}`, cursor, cursor)
}

// TestStream: one request has the answers of many calls, in order; what is over or
// broken is asked for anew from where it was, and a call that a stream cannot
// answer has a request of its own.
func TestStream(t *testing.T) {
	t.Parallel()
	type request struct {
		after, n int64
	}
	asked := make(chan request, 100)
	s := parentOf(t, func(n int, args link.ReadArgs, say func(string), gone <-chan struct{}) {
		asked <- request{*args.After, args.N}
		if !args.Stream || args.FollowMS < 1 || args.FollowMS > 20000 {
			t.Errorf("%+v", args)
		}
		at := *args.After
		switch n {
		case 1: // two answers, and its time is over
			say(upTo(at + 1))
			say(upTo(at + 3))
			say(upTo(at + 3))
		case 2: // it breaks in the middle of the second
			say(upTo(at + 1))
			say(`{"result":{"entr`)
			panic(http.ErrAbortHandler)
		case 3: // one answer, as a parent gives that knows no stream
			say(upTo(at + 1))
		case 4:
			say(upTo(at + 1))
			say(`{"end":0,"error":{"code":"conflict","message":"revoked"}}`)
		default:
			say(upTo(at + 1))
			<-gone
		}
	})
	ctx := t.Context()
	step := func(after, n, want int64, requests ...request) {
		t.Helper()
		if got, err := followed(ctx, s.URL, after, n, 20000); err != nil || got != want {
			t.Fatalf("after %d: %d, %v; want %d", after, got, err, want)
		}
		for _, r := range requests {
			select {
			case got := <-asked:
				if got != r {
					t.Errorf("asked for %+v, want %+v", got, r)
				}
			default:
				t.Errorf("%+v was not asked for", r)
			}
		}
		if len(asked) > 0 {
			t.Errorf("%+v was asked for, too", <-asked)
		}
	}
	step(0, 10, 1, request{0, 10})
	step(1, 10, 3)
	step(3, 10, 4, request{3, 10}) // the second request
	step(4, 10, 5, request{4, 10}) // the third
	step(5, 10, 6, request{5, 10}) // the fourth
	if _, err := followed(ctx, s.URL, 6, 10, 20000); err == nil || err.Error() != "revoked" {
		t.Error(err)
	}
	step(6, 10, 7, request{6, 10})
	step(6, 10, 7, request{6, 10}) // from another place than the stream is at
	step(7, 20, 8, request{7, 20}) // so many at once
}

// TestStreamShortWait: a call waits no longer than it is to, whatever the one before
// would have.
func TestStreamShortWait(t *testing.T) {
	t.Parallel()
	s := parentOf(t, func(n int, args link.ReadArgs, say func(string), gone <-chan struct{}) {
		if n == 1 {
			say(upTo(1))
			<-gone
			return
		}
		if args.FollowMS > 200 {
			t.Errorf("%d ms", args.FollowMS)
		}
		say(upTo(*args.After))
	})
	if got, err := followed(t.Context(), s.URL, 0, 1, 20000); got != 1 || err != nil {
		t.Fatal(got, err)
	}
	began := time.Now()
	got, err := followed(t.Context(), s.URL, 1, 1, 200)
	if took := time.Since(began); got != 1 || err != nil || took < 200*time.Millisecond || took > 10*time.Second {
		t.Errorf("after %v: %d, %v", took, got, err)
	}
}

// TestStreamGoes: a stream ends when its caller goes, and when nobody calls again.
func TestStreamGoes(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan struct{}, 10), make(chan int64, 10)
	s := parentOf(t, func(_ int, args link.ReadArgs, say func(string), gone <-chan struct{}) {
		begun <- struct{}{}
		if *args.After == 0 {
			say(upTo(1))
		}
		<-gone
		ended <- *args.After
	})
	end := func(want int64) {
		t.Helper()
		select {
		case got := <-ended:
			if got != want {
				t.Errorf("%d, want %d", got, want)
			}
		case <-time.After(keepStream + time.Minute):
			t.Fatal("it is still open")
		}
	}
	for _, before := range []bool{false, true} { // the first answer
		ctx, cancel := context.WithCancel(t.Context())
		after := int64(1)
		if !before {
			if got, err := followed(ctx, s.URL, 0, 1, 20000); got != 1 || err != nil {
				t.Fatal(got, err)
			}
			after = 0
		}
		go func() {
			<-begun
			time.Sleep(20 * time.Millisecond) // most often it waits by then, and it is to end at any time
			cancel()
		}()
		if _, err := followed(ctx, s.URL, 1, 1, 20000); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		end(after)
	}
	if got, err := followed(t.Context(), s.URL, 0, 1, 20000); got != 1 || err != nil {
		t.Fatal(got, err)
	}
	end(0)
}

// TestNoStream: what is no answer is no stream either, and is not read for ever.
func TestNoStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		say  string
		want string
	}{
		"other JSON": {`{"ok":true}`, "is no space-job"},
		"no JSON":    {"<html>", "is no space-job"},
		"nothing":    {"", "is no space-job"},
		"no end":     {`{"result":"` + strings.Repeat("x", maxAnswer), "is longer than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := parentOf(t, func(_ int, _ link.ReadArgs, say func(string), _ <-chan struct{}) {
				if c.say != "" {
					say(c.say)
				}
			})
			var u *link.UnreachableError
			if _, err := followed(t.Context(), s.URL, 0, 1, 20000); !errors.As(err, &u) || !u.Sent || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
		})
	}
}
