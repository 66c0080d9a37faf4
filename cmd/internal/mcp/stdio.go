package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"sync"

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
