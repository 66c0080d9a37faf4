package until

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"
)

// resolvedFor is how long the addresses of a name are believed.
const resolvedFor = 5 * time.Second

func (w *watcher) port(ctx context.Context) (End, error) {
	var wait pause
	p := prober{host: w.Host, port: w.Port, lookup: w.lookup}
	for delay := w.portSoon; ; delay = min(delay*2, w.portSlow) {
		at, err := p.try(ctx, w.portTry)
		if ctx.Err() != nil {
			return End{}, ctx.Err()
		}
		if err == nil {
			what := w.String() + " accepts connections"
			if net.ParseIP(w.Host) == nil {
				what += " (at " + at + ")"
			}
			return End{CodeHolds, what}, nil
		}
		w.log.see("not yet: " + failure(err))
		if err := wait.wait(ctx, delay); err != nil {
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
	until     time.Time // when they are asked for again
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
	if err != nil || len(found) == 0 {
		return err
	}
	p.addresses = p.addresses[:0]
	for _, a := range found {
		p.addresses = append(p.addresses, net.JoinHostPort(a, port))
	}
	p.until = time.Now().Add(resolvedFor)
	return nil
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
