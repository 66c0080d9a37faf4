package until

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func listen(t *testing.T, address string) (port int, l net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("this machine cannot listen on %s: %v", address, err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port, l
}

// freePort is a port that nobody listens on, for now.
func freePort(t *testing.T) int {
	t.Helper()
	port, l := listen(t, "127.0.0.1:0")
	l.Close()
	return port
}

func TestU1OpenAtTheStart(t *testing.T) {
	t.Parallel()
	port, _ := listen(t, "127.0.0.1:0")
	w := begin(t, newRoot(t), Condition{Port: port}, nil)
	w.ends(0, "port 127.0.0.1:"+strconv.Itoa(port)+" accepts connections")
	few(t, w, 2)
}

func TestU1OpensLater(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	w := begin(t, newRoot(t), Condition{Port: port}, nil)
	w.says("not yet: connection refused")
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Skip(err) // somebody else was given it
	}
	defer l.Close()
	began := time.Now()
	w.ends(0, "accepts connections")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("seen after %v", took)
	}
	few(t, w, 3)
}

// TestU1OneConnection: a server that serves once is not asked twice.
func TestU1OneConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Condition{
		"address": {Interval: 10 * time.Millisecond},
		"IPv6":    {Interval: 10 * time.Millisecond, Host: "::1"},
		"name":    {Interval: 10 * time.Millisecond, Host: "here.test"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := "127.0.0.1:0"
			if c.Host == "::1" {
				address = "[::1]:0"
			}
			port, l := listen(t, address)
			l.Close()
			c.Port = port
			w := begin(t, newRoot(t), c, func(w *watcher) {
				w.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
			})
			w.says("not yet: connection refused")
			time.Sleep(50 * time.Millisecond) // several tries
			w.goesOn()
			l, err := net.Listen("tcp", strings.Replace(address, ":0", ":"+strconv.Itoa(port), 1))
			if err != nil {
				t.Skip(err) // somebody else was given it
			}
			w.ends(0, "accepts connections")
			few(t, w, 3)
			n := 0
			_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
			for {
				c, err := l.Accept()
				if err != nil {
					break
				}
				n++
				c.Close()
			}
			l.Close()
			if n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestU1SecondAddress: a listener on ::1 only is found by a name that has
// another address, too.
func TestU1SecondAddress(t *testing.T) {
	t.Parallel()
	port, _ := listen(t, "[::1]:0")
	w := begin(t, newRoot(t), Condition{Port: port, Host: "both.test"}, func(w *watcher) {
		w.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1", "::1"}, nil }
	})
	w.ends(0, "(at [::1]:"+strconv.Itoa(port)+")")
	begin(t, newRoot(t), Condition{Port: port, Host: "::1"}, nil).ends(0, "port [::1]:")
}

// TestU1Localhost: the machine's own name for itself leads to a listener on ::1,
// also where its tables know no such address, or no such name.
func TestU1Localhost(t *testing.T) {
	t.Parallel()
	port, _ := listen(t, "[::1]:0")
	for name, c := range map[string]struct {
		host  string
		found []string
	}{
		"both":     {"localhost", []string{"::1", "127.0.0.1"}},
		"one":      {"localhost", []string{"127.0.0.1"}},
		"none":     {"LocalHost.", nil},
		"below it": {"db.localhost", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin(t, newRoot(t), Condition{Port: port, Host: c.host}, func(w *watcher) {
				w.lookup = func(_ context.Context, host string) ([]string, error) {
					if c.found == nil {
						return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
					}
					return c.found, nil
				}
			}).ends(0, "(at [::1]:")
		})
	}
	// The tables of the machine itself.
	begin(t, newRoot(t), Condition{Port: port, Host: "localhost"}, nil).ends(0, "(at [::1]:")
}

// TestU1NoAddress: a name without an address holds no condition.
func TestU1NoAddress(t *testing.T) {
	t.Parallel()
	p := prober{host: "empty.test", port: 1, lookup: func(context.Context, string) ([]string, error) { return nil, nil }}
	if at, err := p.try(t.Context(), time.Second); err == nil {
		t.Errorf("accepts connections at %q", at)
	}
}

// deaf is a port that drops what comes: nobody accepts, and there is no more
// room to wait in.
func deaf(t *testing.T) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := at.(*syscall.SockaddrInet4).Port
	for range 10 {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+strconv.Itoa(port), 100*time.Millisecond)
		if err != nil {
			return port
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Skip("this kernel queues every connection")
	return 0
}

// TestU1Dropped: one try costs a second, whichever other addresses there are,
// and an address that answers does not wait for one that does not.
func TestU1Dropped(t *testing.T) {
	t.Parallel()
	port := deaf(t)
	if d := newWatcher(nil, Condition{}, nil).portTry; d != time.Second {
		t.Errorf("a try takes %v", d)
	}
	const try = 200 * time.Millisecond
	p := prober{host: "deaf.test", port: port, lookup: func(context.Context, string) ([]string, error) {
		return []string{"127.0.0.1", "127.0.0.1", "127.0.0.1"}, nil
	}}
	began := time.Now()
	_, err := p.try(t.Context(), try)
	if took := time.Since(began); err == nil || failure(err) != "no answer in time" || took < try || took > 10*try {
		t.Errorf("%v after %v", err, took)
	}

	w := begin(t, newRoot(t), Condition{Port: port, TryTimeout: 50 * time.Millisecond, Interval: 10 * time.Millisecond}, nil)
	w.says("not yet: no answer in time")
	time.Sleep(200 * time.Millisecond) // several tries
	w.goesOn()
	few(t, w, 2)

	l, err := net.Listen("tcp", "[::1]:"+strconv.Itoa(port))
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	p.lookup = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1", "::1"}, nil }
	p.until = time.Time{}
	began = time.Now()
	if at, err := p.try(t.Context(), time.Minute); err != nil || !strings.HasPrefix(at, "[::1]:") || time.Since(began) > 30*time.Second {
		t.Errorf("%s, %v after %v", at, err, time.Since(began))
	}
}

// TestU1NameLater: a name that does not resolve yet is asked for again.
func TestU1NameLater(t *testing.T) {
	t.Parallel()
	port, _ := listen(t, "127.0.0.1:0")
	var known atomic.Bool
	w := begin(t, newRoot(t), Condition{Port: port, Host: "later.test", Interval: 10 * time.Millisecond}, func(w *watcher) {
		w.lookup = func(_ context.Context, host string) ([]string, error) {
			if !known.Load() {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			return []string{"127.0.0.1"}, nil
		}
	})
	w.says("not yet: the name does not resolve (no such host)")
	known.Store(true)
	w.ends(0, "accepts connections (at 127.0.0.1:")
	few(t, w, 3)
}
