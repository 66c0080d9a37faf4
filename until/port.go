package until

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// resolvedFor is how long the addresses of a name are believed.
const resolvedFor = 5 * time.Second

func (w *watcher) port(ctx context.Context) (End, error) {
	var wait pause
	p := prober{host: w.Host, port: w.Port, lookup: w.lookup}
	holds := func(at string) (End, error) {
		what := w.String() + " accepts connections"
		if net.ParseIP(w.Host) == nil {
			what += " (at " + at + ")"
		}
		return End{CodeHolds, what}, nil
	}
	for delay := w.portSoon; ; delay = min(delay*2, w.portSlow) {
		at, err := p.try(ctx, w.portTry)
		if ctx.Err() != nil {
			return End{}, ctx.Err()
		}
		if err == nil {
			return holds(at)
		}
		w.log.see("not yet: " + failure(err))
		if delay == w.portSlow && errors.Is(err, syscall.ECONNREFUSED) && p.local() {
			at, err = p.knockAt(ctx, w.portSlow)
			if at != "" {
				return holds(at)
			}
		} else {
			err = wait.wait(ctx, delay)
		}
		if err != nil {
			return End{}, err
		}
	}
}

// prober tries the addresses of a host.
type prober struct {
	host   string
	port   int
	lookup func(context.Context, string) ([]string, error)

	addresses []string
	knocks    []netip.AddrPort // the same, where all are this machine's own
	until     time.Time        // when they are asked for again
}

// try connects to every address at once, so that one that does not answer
// keeps no other waiting. It returns the first that accepts, or why none does.
func (p *prober) try(ctx context.Context, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := p.resolve(ctx); err != nil {
		return "", err
	}
	if len(p.addresses) == 1 {
		return p.addresses[0], connect(ctx, p.addresses[0])
	}
	type result struct {
		address string
		err     error
	}
	results := make(chan result, len(p.addresses))
	for _, a := range p.addresses {
		go func() { results <- result{a, connect(ctx, a)} }()
	}
	var err error
	for range p.addresses {
		r := <-results
		if r.err == nil {
			return r.address, nil
		}
		if err == nil || errors.Is(err, syscall.ECONNREFUSED) { // the rarer failure says more
			err = r.err
		}
	}
	return "", err
}

func (p *prober) resolve(ctx context.Context) error {
	if p.addresses != nil && time.Now().Before(p.until) {
		return nil
	}
	port := strconv.Itoa(p.port)
	if _, err := netip.ParseAddr(p.host); err == nil {
		p.addresses = []string{net.JoinHostPort(p.host, port)}
		p.until = time.Now().Add(1 << 62)
		return nil
	}
	found, err := p.lookup(ctx, p.host)
	if isLocalhost(p.host) {
		found = addLoopbacks(found)
	}
	switch {
	case len(found) > 0:
	case err != nil:
		return err
	default:
		return &net.DNSError{Err: "no addresses", Name: p.host, IsNotFound: true}
	}
	p.addresses = p.addresses[:0]
	for _, a := range found {
		p.addresses = append(p.addresses, net.JoinHostPort(a, port))
	}
	p.until = time.Now().Add(resolvedFor)
	return nil
}

// isLocalhost reports whether a name is one for this machine itself, whatever
// its tables say of it (RFC 6761).
func isLocalhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// addLoopbacks completes what localhost was found to be: many a container's
// /etc/hosts knows 127.0.0.1 alone, and servers that are told to listen on
// localhost are on ::1 nevertheless. What the machine does not have is left out,
// as it would never say "connection refused".
func addLoopbacks(found []string) []string {
	for _, a := range []string{"127.0.0.1", "::1"} {
		if slices.Contains(found, a) {
			continue
		}
		if c, err := net.ListenPacket("udp", net.JoinHostPort(a, "0")); err == nil {
			_ = c.Close()
			found = append(found, a)
		}
	}
	return found
}

// local reports whether all addresses are this machine's own, where an attempt
// has an answer at once.
func (p *prober) local() bool {
	p.knocks = p.knocks[:0]
	for _, s := range p.addresses {
		a, err := netip.ParseAddrPort(s)
		if err != nil || !canKnock(a.Addr()) {
			return false
		}
		p.knocks = append(p.knocks, a)
	}
	return len(p.knocks) > 0
}

// knockAt tries the addresses of this machine every so often, at little cost,
// as long as all refuse. It returns the one that accepts, or "" when a try in
// full is called for.
func (p *prober) knockAt(ctx context.Context, pace time.Duration) (string, error) {
	knockers := make([]*knocker, len(p.knocks))
	questions := make([]*question, len(p.knocks))
	for i, a := range p.knocks {
		k, ok := newKnocker(a)
		if k != nil {
			defer k.close()
		}
		if !ok {
			var wait pause
			return "", wait.wait(ctx, pace)
		}
		knockers[i], questions[i] = k, &k.question
	}
	accepts := make(chan string, 1)
	stop := keepAsking(pace, questions, func(i int, answer syscall.Errno) bool {
		switch {
		case i < 0 || answer != 0:
			accepts <- ""
		case !knockers[i].isItself():
			accepts <- p.knocks[i].String()
		default:
			if knockers[i].renew() {
				return true
			}
			accepts <- ""
		}
		return false
	})
	defer stop()              // before they are closed
	var anew <-chan time.Time // a name may have other addresses by then
	if _, err := netip.ParseAddr(p.host); err != nil {
		t := time.NewTimer(resolvedFor)
		defer t.Stop()
		anew = t.C
	}
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-anew:
	case at := <-accepts:
		return at, nil
	}
	stop()
	select {
	case at := <-accepts: // it is asked once
		return at, nil
	default:
		return "", nil
	}
}

// dialer has no keep-alive to set up: the connection is closed at once.
var dialer = net.Dialer{KeepAlive: -1}

func connect(ctx context.Context, address string) error {
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	itself := c.LocalAddr().String() == c.RemoteAddr().String()
	_ = c.Close()
	if itself { // the kernel happened to pick the port itself for our end
		return syscall.ECONNREFUSED
	}
	return nil
}

// failure is why a connection failed, in a few words that stay the same while
// the reason does.
func failure(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "the name does not resolve (" + oneLine(dns.Err, 100) + ")"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
	}
	return oneLine(innermost(err), 100)
}
