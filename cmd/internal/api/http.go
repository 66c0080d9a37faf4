package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"space-job/cmd/internal/policy"
	"space-job/jobdir"
	"space-job/notify"
)

// The files of the HTTP endpoint. The port is there where one is to be served:
// what the daemon serves at or, until it has begun, what it was asked for, 0 for
// any. A line of the tokens is a token and the member that it stands for, which is
// "-" for nobody known.
const (
	portFile   = "port"
	tokenFile  = "token"
	SocketFile = "mcp.sock"
)

const (
	maxTokenFile = 1 << 20
	private      = 0o077 // permissions that nobody else may have on these files
)

// HTTPResult is how an HTTP client reaches the daemon.
type HTTPResult struct {
	URL    string `json:"url"` // "" while nothing is served
	Socket string `json:"socket"`
	Token  string `json:"token"`
	Member string `json:"member"` // that the token stands for, "" for nobody known
}

// SetHTTPPort asks for an endpoint at a port of 127.0.0.1, 0 for any, or for none
// with -1. The next daemon serves it, and those after it.
func (a *Actions) SetHTTPPort(port int) error {
	if port < -1 || port > 65535 {
		return invalid("http", strconv.Itoa(port), "is no port: 0 to 65535")
	}
	if err := a.root.Create(); err != nil {
		return fault(err)
	}
	if last, held := notify.DaemonOf(a.root); held && last.PID != os.Getpid() {
		e := AsError(fault(&notify.HeldError{Root: a.root.Path(), Holder: last}))
		return &Error{Code: e.Code, Message: e.Message, Hint: "end it first: space-job daemon stop"}
	}
	if port < 0 {
		if err := os.Remove(a.path(portFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fault(err)
		}
		return nil
	}
	return fault(jobdir.ReplaceFile(a.path(portFile), []byte(strconv.Itoa(port)+"\n"), false))
}

// HTTPPort is the port that is asked for or served; false: none is.
func (a *Actions) HTTPPort() (int, bool, error) {
	b, err := jobdir.ReadOwn(a.path(portFile), 64, private)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fault(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 || n > 65535 {
		return 0, false, &Error{Code: IO, Message: "read " + a.path(portFile) + ": it is no port", Hint: "space-job daemon --http PORT writes it anew"}
	}
	return n, true, nil
}

// HTTPSocket is the path of the Unix socket that the daemon serves at, too.
func (a *Actions) HTTPSocket() string { return a.path(SocketFile) }

// HTTP is how a client reaches the daemon as a member, "" for nobody known. It
// makes a token where the member has none.
func (a *Actions) HTTP(member string) (HTTPResult, error) {
	res := HTTPResult{Member: member, Socket: a.HTTPSocket()}
	if member != "" {
		if _, err := a.member("member", member); err != nil {
			return res, err
		}
	}
	if err := a.root.Create(); err != nil {
		return res, fault(err)
	}
	var err error
	if res.Token, err = a.token(member); err != nil {
		return res, err
	}
	port, there, err := a.HTTPPort()
	if err != nil {
		return res, err
	}
	if there && port > 0 {
		res.URL = fmt.Sprintf("http://127.0.0.1:%d/mcp", port)
	}
	return res, nil
}

// maxSocketPath is the longest path of a Unix socket, on macOS, which has less.
const maxSocketPath = 103

// WaitHTTP waits, a moment, until the daemon serves, and returns where. Whether it
// does is seen at its socket, as a port can be somebody else's; the socket of a
// daemon that was killed answers no more.
func (a *Actions) WaitHTTP(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		port, there, err := a.HTTPPort()
		if err != nil || !there {
			return "", err
		}
		network, address := "unix", a.HTTPSocket()
		if len(address) > maxSocketPath { // there is none
			network, address = "tcp", fmt.Sprintf("127.0.0.1:%d", port)
		}
		if port > 0 {
			if c, err := net.DialTimeout(network, address, time.Second); err == nil {
				_ = c.Close()
				return fmt.Sprintf("http://127.0.0.1:%d/mcp", port), nil
			}
		}
		select {
		case <-ctx.Done():
			return "", &Error{Code: Unavailable, Message: "the daemon does not serve HTTP yet", Hint: "see daemon.log in " + a.root.Path()}
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Tokens are the members by token, "" for nobody known.
func (a *Actions) Tokens() (map[string]string, error) {
	b, err := jobdir.ReadOwn(a.path(tokenFile), maxTokenFile, private)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault(err)
	}
	return parseTokens(b), nil
}

// parseTokens reads lines; one that is none is passed over, and lets nobody in.
func parseTokens(b []byte) map[string]string {
	tokens := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 2 || len(f[0]) < 32 {
			continue
		}
		if f[1] == "-" {
			f[1] = ""
		}
		tokens[f[0]] = f[1]
	}
	return tokens
}

// token is that of a member, made where there is none.
func (a *Actions) token(member string) (string, error) {
	unlock, err := jobdir.LockFile(a.path(tokenFile + ".lock"))
	if err != nil {
		return "", fault(err)
	}
	defer unlock()
	tokens, err := a.Tokens()
	if err != nil {
		return "", err
	}
	for t, m := range tokens {
		if m == member {
			return t, nil
		}
	}
	token, err := policy.Random(24)
	if err != nil {
		return "", fault(err)
	}
	old, err := jobdir.ReadOwn(a.path(tokenFile), maxTokenFile, private)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fault(err)
	}
	if len(old) > 0 && old[len(old)-1] != '\n' {
		old = append(old, '\n')
	}
	name := member
	if name == "" {
		name = "-"
	}
	return token, fault(jobdir.ReplaceFile(a.path(tokenFile), append(old, token+" "+name+"\n"...), true))
}

func (a *Actions) path(name string) string { return filepath.Join(a.root.Path(), name) }
