package carrier

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"space-job/cmd/internal/link"
)

// TestVia: a call goes by the proxy, and trusts the certificates, that who joined
// had in its environment. One whose certificate is not trusted has not been sent.
func TestVia(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"result":{},"end":1,"via":{"proxy":"http://elsewhere"}}`)
	}))
	t.Cleanup(s.Close)
	s.Config.ErrorLog = nil
	dir := t.TempDir()
	file := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	var proxied atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "CONNECT", http.StatusMethodNotAllowed)
			return
		}
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer to.Close()
		proxied.Add(1)
		w.WriteHeader(http.StatusOK)
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer from.Close()
		go func() { _, _ = io.Copy(to, from) }()
		_, _ = io.Copy(from, to)
	}))
	t.Cleanup(proxy.Close)
	call := func(v link.Via) (link.Answer, error) {
		return Do(context.Background(), link.Request{Address: s.URL, Via: v, Call: link.Call{Op: link.Claims}})
	}
	for _, v := range []link.Via{{}, {CertFile: filepath.Join(dir, "none")}} {
		_, err := call(v)
		var u *link.UnreachableError
		if !errors.As(err, &u) || u.Sent || !strings.HasPrefix(u.Error(), "x509: ") {
			t.Errorf("%+v: %v, %+v", v, err, u)
		}
	}
	for _, v := range []link.Via{{CertFile: file}, {CertDir: "/none:" + dir}, {CertFile: file, Proxy: proxy.URL}} {
		a, err := call(v)
		if err != nil || a.End != 1 || a.Via != v {
			t.Errorf("%+v: %+v, %v", v, a, err)
		}
	}
	// What is not there yet is looked for by the next call.
	later := link.Via{CertFile: filepath.Join(dir, "later")}
	if _, err := call(later); err == nil {
		t.Error("it is trusted")
	}
	if err := os.Rename(file, later.CertFile); err != nil {
		t.Fatal(err)
	}
	if _, err := call(later); err != nil {
		t.Error(err)
	}
	if n := proxied.Load(); n != 1 {
		t.Errorf("%d went by the proxy", n)
	}
}

// TestViaOfEnvironment: what a Join has found its way by is told.
func TestViaOfEnvironment(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", "ca.pem")
	t.Setenv("SSL_CERT_DIR", "/certs:more:")
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if v := viaOf("https://127.0.0.1:1"); v != (link.Via{CertFile: filepath.Join(wd, "ca.pem"), CertDir: "/certs:" + filepath.Join(wd, "more")}) {
		t.Errorf("%+v", v)
	}
	if v := viaOf("http://127.0.0.1:1"); v != (link.Via{}) {
		t.Errorf("%+v", v)
	}
}
