// Package carrier brings the calls of package link to where a parent is: over
// HTTP, or to a program behind an exec prefix. It is a package apart as it links
// net/http, which the space-job command does not: that runs [Main], in the program
// space-jobd, for one call.
//
// A call that has no answer is a *link.UnreachableError, which says whether the
// parent may have done what it was asked for. Neither addresses nor tokens are in
// arguments or errors of it, but for the prefix itself.
package carrier

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"space-job/cmd/internal/link"
	"space-job/cmd/internal/space"
)

const (
	dialWithin   = 3 * time.Second
	answerWithin = 15 * time.Second // beyond what a call waits for by itself
	maxAnswer    = 16 << 20
)

var errTooLong = fmt.Errorf("its answer is longer than %d MiB", maxAnswer>>20)

// Do makes one call. Its error is that of ctx, a *link.UnreachableError, or says
// what is wrong with the request.
func Do(ctx context.Context, r link.Request) (link.Answer, error) { return do(ctx, r, true) }

// do makes one call. With stream it may keep what answers it open for the next one.
func do(ctx context.Context, r link.Request, stream bool) (link.Answer, error) {
	address, err := link.ParseAddress(r.Address)
	if err != nil {
		return link.Answer{}, fmt.Errorf("address: %w", err)
	}
	if r.Op == link.Join && address.Exec == nil {
		if v := viaOf(address.URL); v != (link.Via{}) { // rather than what is known from a join before
			r.Via = v
		}
	}
	within := answerWithin
	var args link.ReadArgs // all that wait have its follow_ms
	if len(r.Args) > 0 && json.Unmarshal(r.Args, &args) == nil {
		within += time.Duration(args.FollowMS) * time.Millisecond
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var a link.Answer
	switch {
	case address.Exec != nil:
		a, err = overExec(limited, address.Exec, r)
	case stream && streams(address.URL, r.Op, &args):
		a, err = overStream(limited, address.URL, r, args)
	default:
		a, err = overHTTP(limited, address.URL, r)
	}
	var unreachable *link.UnreachableError
	switch {
	case ctx.Err() != nil:
		return a, ctx.Err()
	case errors.As(err, &unreachable) && limited.Err() != nil:
		unreachable.Late, unreachable.Err = true, fmt.Errorf("no answer within %v", within)
	}
	a.Via = r.Via // whatever it says itself
	return a, err
}

func overHTTP(ctx context.Context, url string, r link.Request) (link.Answer, error) {
	res, err := send(ctx, url, r)
	if err != nil {
		return link.Answer{}, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = errTooLong
	}
	if err != nil {
		return link.Answer{}, &link.UnreachableError{Sent: true, Err: pathless(err)}
	}
	return parse(b, func() string { return noSpaceJob(res) })
}

// noSpaceJob says so of what has answered.
func noSpaceJob(res *http.Response) string {
	return "what answers there is no space-job (HTTP status " + res.Status + ")"
}

// send sends a call, and returns once an answer begins.
func send(ctx context.Context, url string, r link.Request) (*http.Response, error) {
	body, err := json.Marshal(r.Call)
	if err != nil {
		return nil, err
	}
	var connected atomic.Bool // what TLS is there has been agreed on
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/link", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.GetBody = nil // never sent again behind our back: the key is the caller's
	req.Header.Set("Authorization", "Bearer "+r.Token)
	req.Header.Set("Content-Type", "application/json")
	res, err := clientOf(r.Via).Do(req)
	if err != nil {
		var cert *tls.CertificateVerificationError
		if errors.As(err, &cert) {
			forget(r.Via)
		}
		return nil, &link.UnreachableError{Sent: connected.Load(), Err: pathless(err)}
	}
	if res.StatusCode != http.StatusOK { // whatever a proxy says in JSON
		res.Body.Close()
		return nil, &link.UnreachableError{Sent: true, Err: errors.New(noSpaceJob(res))}
	}
	return res, nil
}

// parse reads an answer; otherwise says what it is when it is none.
func parse(b []byte, otherwise func() string) (link.Answer, error) {
	var a link.Answer
	if err := json.Unmarshal(b, &a); err != nil || a.Error == nil && a.Result == nil {
		return link.Answer{}, &link.UnreachableError{Sent: true, Err: errors.New(otherwise())}
	}
	return a, nil
}

// pathless is an error without the address in front, which the caller names.
func pathless(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the connection was closed before the answer was there")
	}
	for {
		under := errors.Unwrap(err)
		if under == nil {
			return err
		}
		err = under
	}
}

func overExec(ctx context.Context, prefix []string, r link.Request) (link.Answer, error) {
	r.Address = ""
	line, err := json.Marshal(r)
	if err != nil {
		return link.Answer{}, err
	}
	c := space.Command(ctx, prefix, "space-job", "link")
	c.WaitDelay = time.Second
	// Its standard input stays open until it has answered: that it closes says that
	// nobody waits any more.
	in, err := c.StdinPipe()
	if err != nil {
		return link.Answer{}, err
	}
	var out, said bytes.Buffer
	c.Stdout, c.Stderr = &limited{b: &out, left: maxAnswer}, &limited{b: &said, left: 4 << 10}
	if err := c.Start(); err != nil {
		return link.Answer{}, &link.UnreachableError{Err: err}
	}
	var sent atomic.Bool
	go func() {
		if _, err := in.Write(append(line, '\n')); err == nil {
			sent.Store(true)
		}
	}()
	err = c.Wait()
	if out.Len() == 0 {
		why := strings.TrimSpace(said.String())
		why = strings.TrimSuffix(why[strings.LastIndexByte(why, '\n')+1:], ".")
		if err != nil && why == "" {
			why = err.Error()
		}
		if why == "" {
			why = "it said nothing"
		}
		return link.Answer{}, &link.UnreachableError{Sent: sent.Load(), Err: errors.New(why)}
	}
	return parse(out.Bytes(), func() string { return "what answers there is no space-job" })
}

// limited keeps the beginning of what is written.
type limited struct {
	b    *bytes.Buffer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	l.b.Write(b[:n])
	return len(b), nil
}

// Main makes the one call that is on stdin, a link.Request in a line, writes the
// answer to stdout and exits. A call without an answer has an answer, too: see
// link.Unanswered.
func Main() {
	in := bufio.NewReaderSize(os.Stdin, 64<<10)
	line, err := in.ReadBytes('\n')
	var r link.Request
	if err == nil || err == io.EOF {
		err = json.Unmarshal(line, &r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "space-job: error: link: read the call on stdin: "+err.Error())
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // who waited is gone
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	a, err := do(ctx, r, false)
	if err != nil {
		a = link.Unanswered(err)
	}
	b, err := json.Marshal(a)
	if err == nil {
		_, err = os.Stdout.Write(append(b, '\n'))
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}
