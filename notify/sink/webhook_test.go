package sink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"space-job/notify"
)

// request is what arrived at a server.
type request struct {
	method, path, body string
	header             http.Header
}

// serve answers with f, and passes on what arrived.
func serve(t *testing.T, f http.HandlerFunc) (address string, arrived <-chan request) {
	t.Helper()
	c := make(chan request, 100)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		c <- request{r.Method, r.URL.Path, string(b), r.Header.Clone()}
		f(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, c
}

// hook is a webhook sink as New makes it, with another limit.
func hook(address, format string, limit time.Duration) *webhook {
	h := New(notify.SinkConfig{Name: "h", Webhook: address, Format: format}).(*webhook)
	h.limit = limit
	return h
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	address, arrived := serve(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for range 2 { // the same each time
		if err := hook(address+"/secret", "json", long).Deliver(t.Context(), message()); err != nil {
			t.Fatal(err)
		}
		r := <-arrived
		if r.method != "POST" || r.path != "/secret" || r.header.Get("Content-Type") != "application/json" || r.header.Get("Idempotency-Key") != "job/j6c1f0a2b9d3e" {
			t.Errorf("%+v", r)
		}
		want := `{"key":"job/j6c1f0a2b9d3e","job":"j6c1f0a2b9d3e","state":"exited","exit_code":7,"duration_ms":775000,"log_bytes":48210,"name":"unit tests",` +
			`"text":"JOB j6c1f0a2b9d3e exited exit=7 12m55s log=48210B | unit tests\nEnd of the log:\n    a < b & c\n"}` + "\n"
		if r.body != want {
			t.Errorf("body %s, want %s", r.body, want)
		}
	}
	lost := message()
	lost.State, lost.ExitCode, lost.DurationMS = "lost", nil, nil
	if err := hook(address, "json", long).Deliver(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	if r := <-arrived; !strings.Contains(r.body, `"state":"lost","exit_code":null,"duration_ms":null,`) {
		t.Errorf("body %s", r.body)
	}
	if err := hook(address, "slack", long).Deliver(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	r := <-arrived
	var body map[string]string
	if err := json.Unmarshal([]byte(r.body), &body); err != nil || len(body) != 1 || !strings.HasSuffix(body["text"], "\n    a &lt; b &amp; c\n") || r.header.Get("Idempotency-Key") == "" {
		t.Errorf("body %s", r.body)
	}
}

// TestN1Webhook: what each way to fail means for the next attempt.
func TestN1Webhook(t *testing.T) {
	t.Parallel()
	soon := time.Now().Add(90 * time.Second).UTC()
	answer := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
			fmt.Fprint(w, "\n  no: \x1b[2J\x00because\nsecret\n")
		}
	}
	const said = ": no:  [2J because"
	for _, c := range []struct {
		name      string
		answer    http.HandlerFunc
		permanent bool
		after     time.Duration
		want      string
	}{
		{"500", answer(500), false, 0, "500 Internal Server Error" + said},
		{"502", answer(502), false, 0, "502 Bad Gateway" + said},
		{"503", answer(503, "Retry-After", "30"), false, 30 * time.Second, "503 Service Unavailable" + said},
		{"429 in seconds", answer(429, "Retry-After", "120"), false, 2 * time.Minute, "429 Too Many Requests" + said},
		{"429 with a date", answer(429, "Retry-After", soon.Format(http.TimeFormat), "Date", soon.Add(-90*time.Second).Format(http.TimeFormat)), false, 90 * time.Second, "429 Too Many Requests" + said},
		{"429 with a date that has been", answer(429, "Retry-After", soon.Add(-time.Hour).Format(http.TimeFormat)), false, 0, "429 Too Many Requests" + said},
		{"429 with nonsense", answer(429, "Retry-After", "soon"), false, 0, "429 Too Many Requests" + said},
		{"429 alone", answer(429), false, 0, "429 Too Many Requests" + said},
		{"408", answer(408), false, 0, "408 Request Timeout" + said},
		{"400", answer(400), true, 0, "400 Bad Request" + said},
		{"401", answer(401), true, 0, "401 Unauthorized" + said},
		{"403", answer(403, "Retry-After", "5"), true, 0, "403 Forbidden" + said},
		{"404", answer(404), true, 0, "404 Not Found" + said},
		{"410", answer(410), true, 0, "410 Gone" + said},
		{"499", answer(499), true, 0, "499" + said},
		{"600", answer(600), false, 0, "600" + said},
		{"dropped before the reply", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
		}, false, 0, "the connection was closed before the answer"},
		{"dropped within the reply", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				fmt.Fprint(conn, "HTTP/1.1 200 O")
				conn.Close()
			}
		}, false, 0, "the connection was closed before the answer"},
		{"no HTTP", func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				fmt.Fprint(conn, "220 smtp ready\r\n")
				conn.Close()
			}
		}, false, 0, "net/http: HTTP/1.x transport connection broken"},
		{"a header without end", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
			w.WriteHeader(200)
		}, false, 0, "net/http: HTTP/1.x transport connection broken"},
		{"a body without end", func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			for {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		}, false, 0, "500 Internal Server Error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			address, arrived := serve(t, c.answer)
			err := hook(address+"/secret?token=secret", "json", long).Deliver(t.Context(), message())
			judge(t, err, c.permanent, c.after, address+"/...: "+c.want)
			if n := len(arrived); n != 1 {
				t.Errorf("%d attempts in one", n)
			}
		})
	}
}

// judge looks at the error of an attempt.
func judge(t *testing.T, err error, permanent bool, after time.Duration, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.ContainsAny(err.Error(), "\n\x1b") {
		t.Fatalf("%v, want %q", err, want)
	}
	var p *notify.PermanentError
	if errors.As(err, &p) != permanent {
		t.Errorf("permanent: %v", !permanent)
	}
	var r *notify.RetryError
	got := time.Duration(0)
	if errors.As(err, &r) {
		got = r.After
	}
	if got != after {
		t.Errorf("again after %v, want %v", got, after)
	}
}

func TestN1WebhookRefused(t *testing.T) {
	t.Parallel()
	// Of a port that was free a moment ago, somebody else may have made something.
	judge(t, hook("http://127.0.0.1:1/secret", "json", long).Deliver(t.Context(), message()), false, 0, "http://127.0.0.1:1/...: dial tcp 127.0.0.1:1: connect: connection refused")

	err := hook("http://user:secret@nowhere.invalid/secret", "json", long).Deliver(t.Context(), message())
	judge(t, err, false, 0, "http://nowhere.invalid/...: dial tcp: lookup nowhere.invalid")
}

// TestN1WebhookHangs: before it accepts, before the answer, and within it.
func TestN1WebhookHangs(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	start := time.Now()
	for name, f := range map[string]http.HandlerFunc{
		"no answer": func(http.ResponseWriter, *http.Request) { <-release },
		"half a head": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				defer conn.Close()
				fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nX: ")
				<-release
			}
		},
	} {
		address, _ := serve(t, f)
		t.Run(name, func(t *testing.T) {
			judge(t, hook(address+"/secret", "json", short).Deliver(t.Context(), message()), false, 0, address+"/...: no answer within 1 s")
		})
	}
	t.Run("never accepted", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		address := "http://" + l.Addr().String()
		judge(t, hook(address+"/secret", "json", short).Deliver(t.Context(), message()), false, 0, address+"/...: no answer within 1 s")
	})
	// What comes after a good head is not waited for; that of a bad one is, and
	// the verdict stays.
	for code, ok := range map[int]bool{200: true, 403: false} {
		address, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			w.(http.Flusher).Flush()
			<-release
		})
		err := hook(address, "json", short).Deliver(t.Context(), message())
		if ok && err != nil {
			t.Error(err)
		}
		if !ok {
			judge(t, err, true, 0, address+": 403 Forbidden")
		}
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestWebhookCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	defer close(release)
	address, arrived := serve(t, func(http.ResponseWriter, *http.Request) { <-release })
	result := make(chan error, 1)
	go func() { result <- hook(address, "json", long).Deliver(ctx, message()) }()
	<-arrived
	cancel()
	select {
	case err := <-result:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("goes on")
	}
}

// TestWebhookRedirect: one that keeps the message and the scheme is followed.
func TestWebhookRedirect(t *testing.T) {
	t.Parallel()
	address, arrived := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch to := r.URL.Query().Get("to"); to {
		case "":
		default:
			code := 0
			_, _ = fmt.Sscan(r.URL.Query().Get("code"), &code)
			w.Header().Set("Location", to)
			w.WriteHeader(code)
		}
	})
	for _, c := range []struct {
		code int
		to   string
		want string
		hops int
	}{
		{307, "/moved", "", 2},
		{308, "/moved", "", 2},
		{301, "/moved", "301 Moved Permanently, which is not followed", 1},
		{302, "/moved", "302 Found, which is not followed", 1},
		{303, "/moved", "303 See Other, which is not followed", 1},
		{308, "https://127.0.0.1:1/secret", "308 Permanent Redirect, which is not followed", 1},
		{308, "ftp://127.0.0.1:1/secret", "308 Permanent Redirect, which is not followed", 1},
		{308, "/hook?code=308&to=%2Fhook%3Fcode%3D308%26to%3D%252Fmoved", "", 4},
	} {
		err := hook(fmt.Sprintf("%s/hook?code=%d&to=%s", address, c.code, strings.NewReplacer("%", "%25", "?", "%3F", "&", "%26").Replace(c.to)), "json", long).Deliver(t.Context(), message())
		if c.want == "" && err != nil {
			t.Errorf("%d %s: %v", c.code, c.to, err)
		}
		if c.want != "" {
			judge(t, err, false, 0, address+"/...: "+c.want)
		}
		if len(arrived) != c.hops {
			t.Errorf("%d %s: %d requests, want %d", c.code, c.to, len(arrived), c.hops)
		}
		for len(arrived) > 0 {
			if r := <-arrived; r.method != "POST" || r.body == "" || r.header.Get("Idempotency-Key") == "" {
				t.Errorf("%d %s: %+v", c.code, c.to, r)
			}
		}
	}
	// Round in circles.
	address, arrived = serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/secret", http.StatusPermanentRedirect)
	})
	judge(t, hook(address, "json", long).Deliver(t.Context(), message()), false, 0, address+": 308 Permanent Redirect, which is not followed")
	if len(arrived) != maxRedirects+1 {
		t.Errorf("%d requests", len(arrived))
	}
}

func TestN1RetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 12, 2, 4, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		said, date string
		want       time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"1", "", time.Second},
		{" 120 ", "", 2 * time.Minute},
		{"-1", "", 0},
		{"1.5", "", 0},
		{"86400", "", 24 * time.Hour},
		{"86401", "", 24 * time.Hour},
		{"99999999999999999999999999", "", 24 * time.Hour},
		{"Wed, 02 Dec 2026 04:00:30 GMT", "", 30 * time.Second},
		{"Wed, 02 Dec 2026 03:00:30 GMT", "", 0},
		{"Wed, 02 Dec 2099 03:00:30 GMT", "", 24 * time.Hour},
		{"Wednesday, 02-Dec-26 04:00:30 GMT", "", 30 * time.Second},
		{"Wed, 02 Dec 2026 05:00:30 GMT", "Wed, 02 Dec 2026 05:00:00 GMT", 30 * time.Second}, // its clock is an hour ahead
		{"Wed, 02 Dec 2026 04:00:30 GMT", "yesterday", 30 * time.Second},
		{"2026-12-02T04:00:30Z", "", 0},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.said)
		if c.date != "" {
			h.Set("Date", c.date)
		}
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q, sent %q: %v, want %v", c.said, c.date, got, c.want)
		}
	}
}
