package carrier

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"space-job/cmd/internal/link"
)

// TestNoAnswer: what is not the parent is not taken for it, whatever it says, and
// is not read for ever; nor does the token go anywhere else.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	elsewhere := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere = true }))
	t.Cleanup(other.Close)
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   string
	}{
		"a proxy's error": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(`{"error":{"code":"upstream","message":"the upstream is down"}}`))
		}, "HTTP status 502"},
		"a redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", other.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "HTTP status 307"},
		"other JSON": {func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"ok":true}`)) }, "is no space-job"},
		"no end": {func(w http.ResponseWriter) {
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, "is longer than 16 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { c.answer(w) }))
			t.Cleanup(s.Close)
			a, err := Do(context.Background(), link.Request{Address: s.URL, Token: "secret", Call: link.Call{Op: link.Claims}})
			var u *link.UnreachableError
			if !errors.As(err, &u) || !u.Sent || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%+v, %v", a, err)
			}
			if elsewhere {
				t.Error("the call went on to another server")
			}
		})
	}
}
