package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine is the most bytes of one message.
const maxLine = 4 << 20

// stdio is a transport that a message which is none does not end: it is answered
// with an error, as JSON-RPC has it, and the next line is read.
func stdio(in io.Reader, out io.WriteCloser) sdk.Transport {
	w := &lineWriter{w: out}
	r, pipe := io.Pipe()
	go func() { pipe.CloseWithError(sift(in, pipe, w)) }()
	return &sdk.IOTransport{Reader: r, Writer: w}
}

// answered is a transport whose reader does not see the end before what was asked
// has its answer: the SDK drops the answers that are not written by then, and with
// them which jobs were started. Told is done when the process is to end, which is an
// end, too. Leave is called then; within is how long the answers may take.
type answered struct {
	sdk.Transport
	told   context.Context
	leave  func()
	within time.Duration
}

func (t *answered) Connect(ctx context.Context) (sdk.Connection, error) {
	c, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &countingConn{Connection: c, t: t, open: make(map[jsonrpc.ID]bool), changed: make(chan struct{}, 1)}, nil
}

// countingConn knows which requests are not answered yet.
type countingConn struct {
	sdk.Connection
	t       *answered
	changed chan struct{} // there are fewer

	mu   sync.Mutex
	open map[jsonrpc.ID]bool // guarded by mu
}

func (c *countingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	until, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.t.told, cancel)()
	msg, err := c.Connection.Read(until)
	if r, ok := msg.(*jsonrpc.Request); ok && err == nil && r.IsCall() && r.Method != methodListen { // which has no answer before the end
		c.mu.Lock()
		c.open[r.ID] = true
		c.mu.Unlock()
	}
	if err == nil {
		return msg, nil
	}
	c.t.leave()
	last := time.NewTimer(c.t.within)
	defer last.Stop()
	for c.waits() {
		select {
		case <-c.changed:
		case <-last.C:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if c.t.told.Err() != nil {
		return nil, io.EOF
	}
	return nil, err
}

func (c *countingConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if r, ok := msg.(*jsonrpc.Response); ok {
		c.mu.Lock()
		delete(c.open, r.ID)
		c.mu.Unlock()
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
	return err
}

func (c *countingConn) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > 0
}

// sift passes on what are messages, one in a line, and answers what is not.
func sift(in io.Reader, messages io.Writer, answers io.Writer) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	for {
		line, long, err := readLine(lines)
		switch {
		case long:
			refuse(answers, jsonrpc.CodeInvalidRequest, "the message is too long: at most 4 MiB")
		case len(bytes.TrimSpace(line)) == 0:
		case !json.Valid(line):
			refuse(answers, jsonrpc.CodeParseError, "the line is no JSON")
		default:
			if _, wrong := jsonrpc.DecodeMessage(line); wrong != nil {
				refuse(answers, jsonrpc.CodeInvalidRequest, "the line is no JSON-RPC message")
			} else if _, err := messages.Write(append(bytes.TrimSpace(line), '\n')); err != nil {
				return err
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil // the reader sees io.EOF
			}
			return err
		}
	}
}

// readLine reads a line. One that is too long is read past, and not kept.
func readLine(r *bufio.Reader) (line []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}

func refuse(w io.Writer, code int64, why string) {
	b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why}})
	_, _ = w.Write(append(b, '\n'))
}

// lineWriter lets two write whole lines.
type lineWriter struct {
	mu sync.Mutex
	w  io.WriteCloser
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(b)
}

func (w *lineWriter) Close() error { return w.w.Close() }
