package carrier

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"space-job/cmd/internal/link"
)

// viaOf is how this process reaches a URL, by its environment.
func viaOf(address string) link.Via {
	var v link.Via
	req, err := http.NewRequest(http.MethodPost, address, nil)
	if err != nil {
		return v
	}
	if proxy, err := http.ProxyFromEnvironment(req); err == nil && proxy != nil { // none to loopback
		v.Proxy = proxy.String()
	}
	if req.URL.Scheme == "https" {
		v.CertFile = absolute(os.Getenv("SSL_CERT_FILE"))
		var dirs []string
		for _, dir := range filepath.SplitList(os.Getenv("SSL_CERT_DIR")) {
			if dir = absolute(dir); dir != "" {
				dirs = append(dirs, dir)
			}
		}
		v.CertDir = strings.Join(dirs, string(filepath.ListSeparator))
	}
	return v
}

// absolute: a daemon is in another folder.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	return abs
}

// clients keep connections open, as a daemon calls again and again: one for each
// way.
var clients struct {
	mu  sync.Mutex
	all map[link.Via]*http.Client
}

// clientOf is the client of a way; of none, that of the environment.
func clientOf(v link.Via) *http.Client {
	clients.mu.Lock()
	defer clients.mu.Unlock()
	if c := clients.all[v]; c != nil {
		return c
	}
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialWithin}).DialContext,
		TLSHandshakeTimeout: dialWithin,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
	}
	if proxy, err := url.Parse(v.Proxy); err == nil && v.Proxy != "" {
		t.Proxy = http.ProxyURL(proxy)
	}
	if v.CertFile != "" || v.CertDir != "" {
		t.TLSClientConfig = &tls.Config{RootCAs: rootsOf(v)}
	}
	c := &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if clients.all == nil {
		clients.all = make(map[link.Via]*http.Client)
	}
	clients.all[v] = c
	return c
}

// forget has the certificates of a way read again by the next call: they may have
// been renewed.
func forget(v link.Via) {
	clients.mu.Lock()
	defer clients.mu.Unlock()
	if c := clients.all[v]; c != nil {
		c.CloseIdleConnections()
		delete(clients.all, v)
	}
}

// rootsOf are the certificates of the system, and those of a way. What cannot be
// read is not trusted, which a call says.
func rootsOf(v link.Via) *x509.CertPool {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	add := func(path string) {
		if b, err := os.ReadFile(path); err == nil {
			pool.AppendCertsFromPEM(b)
		}
	}
	add(v.CertFile)
	for _, dir := range filepath.SplitList(v.CertDir) {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			add(filepath.Join(dir, e.Name()))
		}
	}
	return pool
}
