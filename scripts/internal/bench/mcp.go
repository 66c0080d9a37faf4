//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// mcpClient speaks to a server on its stdin and stdout.
type mcpClient struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	n   int
}

const hello = `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}`

func (t *spaceJob) mcp(args ...string) (*mcpClient, error) {
	c := &mcpClient{cmd: exec.Command(t.path, append([]string{"mcp"}, args...)...)}
	c.cmd.Env = t.env
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = c.call("initialize", hello)
	if err == nil {
		_, err = io.WriteString(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	}
	return c, err
}

// call is the result of a request.
func (c *mcpClient) call(method, params string) (json.RawMessage, error) {
	c.n++
	if _, err := fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", c.n, method, params); err != nil {
		return nil, err
	}
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var m struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, err
		}
		if m.ID == c.n && m.Error != nil {
			return nil, errors.New(string(m.Error))
		}
		if m.ID == c.n {
			return m.Result, nil
		}
	}
}

func (c *mcpClient) close() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

// mcp measures what the front for agents adds.
func (b *bench) mcp() {
	t := b.one()
	if t == nil {
		return
	}
	_, err := call(t.env, t.path, "member", "add", "bench", "--kind", "agent")
	fail(err)
	b.mcpStart(t)
	b.mcpFirst(t)
	b.mcpBytes(t)
	b.mcpFollow(t)
	_, _ = call(t.env, t.path, "daemon", "stop")
}

func (b *bench) mcpStart(t *spaceJob) {
	c, err := t.mcp()
	fail(err)
	defer c.close()
	var cli, mcp sample
	for range b.starts {
		begun := time.Now()
		id, err := call(t.env, t.path, "start", "true")
		fail(err)
		cli = append(cli, time.Since(begun))
		_, err = t.Wait(id, 20*time.Second)
		fail(err)
		begun = time.Now()
		res, err := c.call("tools/call", `{"name":"space_job","arguments":{"action":"start","command":"true"}}`)
		fail(err)
		mcp = append(mcp, time.Since(begun))
		_, err = t.Wait(jobOf(res), 20*time.Second)
		fail(err)
	}
	b.add(row{measure: "MCP: start, server up, against space-job start", must: times(1.4), aim: times(1.1), got: ratio(mcp, cli),
		cells: map[string]string{ours: fmt.Sprintf("x%.2f, %s", ratio(mcp, cli), short(mcp.median()))}})
}

func ratio(a, b sample) float64 { return float64(a.median()) / float64(b.median()) }

func jobOf(result json.RawMessage) string {
	var r struct {
		StructuredContent struct{ Job string }
	}
	_ = json.Unmarshal(result, &r)
	return r.StructuredContent.Job
}

func (b *bench) mcpFirst(t *spaceJob) {
	var version, first sample
	for range b.starts {
		begun := time.Now()
		_, err := call(t.env, t.path, "--version")
		fail(err)
		version = append(version, time.Since(begun))
		begun = time.Now()
		c, err := t.mcp()
		fail(err)
		first = append(first, time.Since(begun))
		c.close()
	}
	b.add(row{measure: "MCP: first answer, exec included, against space-job --version", must: times(6), aim: times(3), got: ratio(first, version),
		cells: map[string]string{ours: fmt.Sprintf("x%.2f, %s", ratio(first, version), short(first.median()))}})
}

// mcpBytes: what a model reads of the tools, and from a start to knowing the end.
func (b *bench) mcpBytes(t *spaceJob) {
	c, err := t.mcp("--member", "bench")
	fail(err)
	defer c.close()
	tools, err := c.call("tools/list", `{}`)
	fail(err)
	tokens := len(tools) / 4
	b.add(row{measure: "MCP: tokens of the tools (4 bytes each)", must: limit{"1800", 1800}, aim: limit{"1200", 1200}, got: float64(tokens),
		cells: map[string]string{ours: strconv.Itoa(tokens)}})

	const args = `{"name":"space_job","arguments":{"action":"start","name":"unit tests","command":"for i in $(seq 20); do echo \"ok  example/package/$i  0.04s\"; done","cwd":"/","notify":true}}`
	res, err := c.call("tools/call", args)
	fail(err)
	out, err := call(t.env, t.path, "inbox", "--member", "bench", "--follow-ms", "20000", "--json")
	fail(err)
	var item struct{ Text string }
	fail(json.Unmarshal([]byte(strings.SplitN(out, "\n", 2)[0]), &item))
	n := len(args) + len(res) + len(item.Text)
	b.add(row{measure: "MCP: bytes from start to knowing the end of 20 lines, one call", must: limit{"2500", 2500}, aim: limit{"1500", 1500}, got: float64(n),
		cells: map[string]string{ours: strconv.Itoa(n)}})
}

// mcpFollow: a hundred clients over HTTP, each of which follows a job that says
// nothing.
func (b *bench) mcpFollow(t *spaceJob) {
	const clients = 100
	wait := 25 * time.Second
	if b.idle < 30*time.Second {
		wait = b.idle
	}
	_, _ = call(t.env, t.path, "daemon", "stop")
	_, err := call(t.env, t.path, "daemon", "--detach", "--http", "0")
	fail(err)
	var access struct{ URL, Token string }
	out, err := call(t.env, t.path, "mcp", "token", "--json")
	fail(err)
	fail(json.Unmarshal([]byte(out), &access))
	var daemon struct{ PID int }
	lock, err := os.ReadFile(filepath.Join(t.dir, "home", "daemon.lock"))
	fail(err)
	fail(json.Unmarshal(lock, &daemon))
	ids := make([]string, clients)
	for i := range ids {
		ids[i], err = t.Start("sleep", "1000")
		fail(err)
	}
	var all sync.WaitGroup
	before, _ := readProcess(daemon.PID)
	for i, id := range ids {
		all.Go(func() {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"space_job","arguments":{"action":"logs","job":%q,"offset":0,"follow_ms":%d},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, i+1, id, wait.Milliseconds())
			req, err := http.NewRequest("POST", access.URL, strings.NewReader(body))
			fail(err)
			for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
				"Authorization": "Bearer " + access.Token, "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "space_job"} {
				req.Header.Set(k, v)
			}
			res, err := http.DefaultClient.Do(req)
			fail(err)
			defer res.Body.Close()
			answer, err := io.ReadAll(res.Body)
			fail(err)
			if !bytes.Contains(answer, []byte(`"next_offset":0`)) {
				fail(fmt.Errorf("a client that follows got %.300s", answer))
			}
		})
	}
	all.Wait()
	after, ok := readProcess(daemon.PID)
	if !ok {
		fail(fmt.Errorf("the daemon, process %d, is gone", daemon.PID))
	}
	took := time.Duration(after.ticks-before.ticks) * 10 * time.Millisecond
	for _, id := range ids {
		_, err := call(t.env, t.path, "cancel", id)
		fail(err)
	}
	b.add(row{measure: fmt.Sprintf("MCP: CPU of %d clients that follow jobs for %s", clients, wait), must: within(time.Second), aim: within(200 * time.Millisecond),
		got: took.Seconds(), cells: map[string]string{ours: short(took)}})
}
