package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"space-job/jobdir"
	"space-job/notify"
)

const wireHello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"wire","version":"1"}}}` +
	"\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"

// wire is a client that writes bytes, and reads lines.
type wire struct {
	t      *testing.T
	root   string
	env    []string
	server *exec.Cmd
	in     io.WriteCloser
	pipe   io.Closer // of out
	out    *bufio.Reader
}

func newWire(t *testing.T) *wire {
	w := &wire{t: t, root: filepath.Join(t.TempDir(), "root")}
	w.env = append(os.Environ(), "SPACE_JOB_HOME="+w.root, "SPACE_JOB=", "SPACE_MEMBER=")
	t.Cleanup(func() { stopAll(w.root) })
	return w
}

// stdio starts a server, and shakes hands.
func (w *wire) stdio() {
	w.t.Helper()
	w.server = exec.Command("space-job", "mcp")
	w.server.Env = w.env
	in, err := w.server.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := w.server.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	w.in, w.pipe, w.out = in, out, bufio.NewReader(out)
	if err := w.server.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = w.server.Process.Kill()
		_ = w.server.Wait()
	})
	w.write(wireHello)
	w.read()
}

func (w *wire) write(s string) {
	w.t.Helper()
	if _, err := io.WriteString(w.in, s); err != nil {
		w.t.Fatal(err)
	}
}

type wireAnswer struct {
	ID    *int
	Error *struct {
		Code    int
		Message string
	}
	Result struct {
		IsError           bool
		StructuredContent struct {
			Job   string
			Error struct{ Code, Message string }
		}
	}
}

func (w *wire) read() (a wireAnswer) {
	w.t.Helper()
	line, err := w.out.ReadString('\n')
	if err != nil {
		w.t.Fatalf("%v after %.200q", err, line)
	}
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		w.t.Fatalf("%v: %.200q", err, line)
	}
	return a
}

func toolCall(id int, args string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"space_job","arguments":%s}}`, id, args)
}

// TestWireStdio: whatever is written, each request has its answer, and the server
// goes on.
func TestWireStdio(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.stdio()
	w.write(`{"jsonrpc":"2.0","id":1,"meth` + "\n")
	if a := w.read(); a.Error == nil || a.Error.Code != -32700 {
		t.Errorf("half a line: %+v", a)
	}
	w.write(toolCall(2, `{"action":"start","command":"`+strings.Repeat("x", 10<<20)+`"}`) + "\n")
	if a := w.read(); a.Error == nil || !strings.Contains(a.Error.Message, "too long") {
		t.Errorf("10 MB of command: %+v", a)
	}
	w.write(toolCall(3, `{"action":"start","command":"`+strings.Repeat("x", 2<<20)+`"}`) + "\n")
	if a := w.read(); !a.Result.IsError || a.Result.StructuredContent.Error.Code != "limit_exceeded" {
		t.Errorf("2 MB of command: %+v", a)
	}
	w.write(toolCall(4, `{"action":"logs","follow_ms":25001}`) + "\n")
	if a := w.read(); !a.Result.IsError || !strings.HasPrefix(a.Result.StructuredContent.Error.Message, "follow_ms: ") {
		t.Errorf("follow_ms 25001: %+v", a)
	}

	const many = 1000
	var all strings.Builder
	for i := range many {
		all.WriteString(toolCall(100+i, `{"action":"list"}`) + "\n")
	}
	go func() { _, _ = io.WriteString(w.in, all.String()) }()
	seen := make(map[int]bool)
	for range many {
		a := w.read()
		if a.ID == nil || a.Error != nil || a.Result.IsError || seen[*a.ID] {
			t.Fatalf("one of %d at once: %+v", many, a)
		}
		seen[*a.ID] = true
	}
	// What begins and has no end is nothing, also when the client hangs up.
	w.write(`{"jsonrpc":"2.0","id":5,"method":"ping"`)
	_ = w.in.Close()
	rest, err := io.ReadAll(w.out)
	if err != nil || strings.Contains(string(rest), `"result"`) {
		t.Errorf("after the last half line: %v, %q", err, rest)
	}
	if err := w.server.Wait(); err != nil {
		t.Errorf("hung up: %v", err)
	}
}

// TestWireTerm: a server that is told to end in the middle of a request ends, and
// says nothing that is half.
func TestWireTerm(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.stdio()
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	w.write(toolCall(1, `{"action":"start","argv":["cat","`+gate+`"]}`) + "\n")
	job := w.read().Result.StructuredContent.Job
	before := watches(w.server.Process.Pid)
	w.write(toolCall(2, `{"action":"logs","job":"`+job+`","follow_ms":25000}`) + "\n")
	inTime(t, "the follow watches", 20*time.Second, func() bool { return watches(w.server.Process.Pid) > before })
	if err := w.server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	rest, err := io.ReadAll(w.out)
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(rest)) {
		if !json.Valid([]byte(line)) {
			t.Errorf("half a line: %q", line)
		}
	}
	if !strings.Contains(string(rest), `"id":2,"result"`) || !strings.Contains(string(rest), `"next_offset":0`) {
		t.Errorf("the follow has no answer: %q", rest)
	}
	if err := w.server.Wait(); err != nil {
		t.Errorf("told to end: %v", err)
	}
	if d := time.Since(begin); d > 10*time.Second {
		t.Errorf("it ended after %s", d)
	}
	status := exec.Command("space-job", "status", job)
	status.Env = w.env
	if out, err := status.CombinedOutput(); err != nil || !strings.Contains(string(out), "running") {
		t.Errorf("the job did not go on: %v, %s", err, out)
	}
}

// TestWireHangUp: a client that hangs up has the answers of what it asked before,
// and nothing waits any more; one that does not read ends no start in the middle.
func TestWireHangUp(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	w.stdio()
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	w.write(toolCall(1, `{"action":"start","key":"k","argv":["cat","`+gate+`"]}`) + "\n" +
		toolCall(2, `{"action":"start","command":"trap '' TERM; cat '`+gate+`'"}`) + "\n")
	jobs := map[int]string{}
	for range 2 {
		a := w.read()
		jobs[*a.ID] = a.Result.StructuredContent.Job
	}
	w.write(toolCall(3, `{"action":"logs","job":"`+jobs[1]+`","offset":0,"follow_ms":25000}`) + "\n" +
		toolCall(4, `{"action":"start","command":"true"}`) + "\n" +
		toolCall(5, `{"action":"cancel","job":"`+jobs[1]+`"}`) + "\n" +
		toolCall(5, `{"action":"list"}`) + "\n" + // an id that is in use, perhaps
		toolCall(6, `{"action":"logs","job":"`+jobs[2]+`","offset":0,"follow_ms":25000}`) + "\n")
	_ = w.in.Close()
	rest, err := io.ReadAll(w.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"3", "4", "5", "6"} {
		if !strings.Contains(string(rest), `"id":`+id+`,"result"`) {
			t.Errorf("request %s has no answer: %q", id, rest)
		}
	}
	if err := w.server.Wait(); err != nil {
		t.Errorf("hung up: %v", err)
	}
	if d := time.Since(begin); d > 15*time.Second {
		t.Errorf("it ended after %s", d)
	}

	w.stdio()
	_ = w.pipe.Close() // nobody reads any more
	w.write(toolCall(1, `{"action":"start","key":"unheard","command":"true"}`) + "\n")
	if err := w.server.Wait(); err != nil {
		t.Errorf("nobody reads: %v", err)
	}
	again := exec.Command("space-job", "start", "--json", "--key", "unheard", "true")
	again.Env = w.env
	if out, err := again.CombinedOutput(); err != nil || !strings.Contains(string(out), `"existing":true`) {
		t.Errorf("the start that nobody heard of: %v, %s", err, out)
	}
}

// TestWireHTTP: who is not meant is refused, and a client that vanishes leaves no
// watch.
func TestWireHTTP(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	run := func(args ...string) string {
		c := exec.Command("space-job", args...)
		c.Env = w.env
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	daemon := 0
	if _, err := fmt.Sscanf(run("daemon", "--detach", "--http", "0"), "the daemon runs: process %d", &daemon); err != nil {
		t.Fatal(err)
	}
	token := run("mcp", "token")
	b, err := os.ReadFile(filepath.Join(w.root, "port"))
	if err != nil {
		t.Fatal(err)
	}
	host := "127.0.0.1:" + strings.TrimSpace(string(b))
	// send writes a request as it stands, and leaves the connection open.
	send := func(host, body string, headers ...string) net.Conn {
		conn, err := net.Dial("tcp", "127.0.0.1:"+strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		head := fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n", host, len(body))
		for _, h := range headers {
			head += h + "\r\n"
		}
		go func() { _, _ = io.WriteString(conn, head+"\r\n"+body) }()
		return conn
	}
	answer := func(conn net.Conn) *http.Response {
		t.Helper()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	hello, _, _ := strings.Cut(wireHello, "\n")
	auth := "Authorization: Bearer " + token
	for _, c := range []struct {
		host    string
		headers []string
		want    int
	}{
		{host, []string{auth}, 200},
		{host, []string{auth, "Origin: http://" + host}, 200},
		{"evil.com", []string{auth}, 403},
		{host, []string{auth, "Origin: http://evil.com"}, 403},
		{host, []string{auth, "Origin: null"}, 403},
		{host, []string{auth, "Sec-Fetch-Site: cross-site"}, 403},
		{host, nil, 401},
		{host, []string{"Authorization: Bearer " + strings.Repeat("0", len(token))}, 401},
		{host, []string{"Authorization: Basic " + token}, 401},
	} {
		if res := answer(send(c.host, hello, c.headers...)); res.StatusCode != c.want {
			t.Errorf("%s %q: %s, want %d", c.host, c.headers, res.Status, c.want)
		}
	}
	if res := answer(send(host, strings.Repeat("x", 10<<20), auth)); res.StatusCode != 413 {
		t.Errorf("10 MB: %s", res.Status)
	}

	session := "Mcp-Session-Id: " + answer(send(host, hello, auth)).Header.Get("Mcp-Session-Id")
	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	job := run("start", "--", "cat", gate)
	before := watches(daemon)
	conn := send(host, toolCall(1, `{"action":"logs","job":"`+job+`","follow_ms":25000}`), auth, session)
	inTime(t, "the follow watches", 20*time.Second, func() bool { return watches(daemon) > before })
	_ = conn.Close()
	inTime(t, "the watch is freed", time.Second, func() bool { return watches(daemon) <= before })
}

// TestWireHTTPStop: a daemon that is told to end answers what is under way: who
// waits for a log has it, a start is told of, and what listens sees a proper end.
func TestWireHTTPStop(t *testing.T) {
	t.Parallel()
	w := newWire(t)
	run := func(args ...string) string {
		c := exec.Command("space-job", args...)
		c.Env = w.env
		out, err := c.Output()
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	daemon := 0
	if _, err := fmt.Sscanf(run("daemon", "--detach", "--http", "0"), "the daemon runs: process %d", &daemon); err != nil {
		t.Fatal(err)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			run("daemon", "stop")
		}
	})
	token := run("mcp", "token")
	b, err := os.ReadFile(filepath.Join(w.root, "port"))
	if err != nil {
		t.Fatal(err)
	}
	url := "http://127.0.0.1:" + strings.TrimSpace(string(b)) + "/mcp"
	type got struct {
		status int
		body   string
		header http.Header
		err    error
	}
	ask := func(method, body string, headers ...string) (g got) {
		r, err := http.NewRequest(method, url, strings.NewReader(body))
		if err != nil {
			return got{err: err}
		}
		headers = append(headers, "Authorization", "Bearer "+token, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return got{err: err}
		}
		defer res.Body.Close()
		all, err := io.ReadAll(res.Body)
		return got{res.StatusCode, string(all), res.Header, err}
	}
	hello, initialized, _ := strings.Cut(wireHello, "\n")
	begin := func() (session string) {
		session = ask("POST", hello).header.Get("Mcp-Session-Id")
		ask("POST", initialized, "Mcp-Session-Id", session)
		return session
	}
	session := begin()

	gate := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	job, other := run("start", "--", "cat", gate), run("start", "--", "cat", gate)
	deaf := run("start", "trap '' TERM; echo deaf; cat '"+gate+"'; cat '"+gate+"'")
	inTime(t, "it is deaf", 20*time.Second, func() bool { return run("logs", deaf) == "deaf" })
	before := watches(daemon)
	follow := make(chan got, 1)
	go func() {
		follow <- ask("POST", toolCall(1, `{"action":"logs","job":"`+job+`","follow_ms":25000}`), "Mcp-Session-Id", session)
	}()
	modern := make(chan got, 1)
	go func() {
		call := strings.Replace(toolCall(1, `{"action":"logs","job":"`+other+`","follow_ms":25000}`), `"params":{`,
			`"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"wire","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},`, 1)
		modern <- ask("POST", call, "Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "space_job")
	}()
	listen := make(chan got, 1)
	go func() { listen <- ask("GET", "", "Mcp-Session-Id", session) }()
	inTime(t, "both watch", 20*time.Second, func() bool { return watches(daemon) >= before+2 })

	// Jobs are started all the while, under names that tell them apart.
	const starters = 4
	type start struct {
		name string
		got  got
	}
	began := make(chan bool, starters)
	starts := make(chan []start, starters)
	for i := range starters {
		session := begin()
		go func() {
			var all []start
			for n := 0; ; n++ {
				name := fmt.Sprintf("start-%d-%d-", i, n)
				g := ask("POST", toolCall(n, `{"action":"start","command":"true","name":"`+name+`"}`), "Mcp-Session-Id", session)
				all = append(all, start{name, g})
				if n == 0 {
					began <- true
				}
				if g.err != nil || g.status != 200 {
					starts <- all
					return
				}
			}
		}()
	}
	for range starters {
		<-began
	}
	// The last of all: the deaf job is killed soon.
	cancel := make(chan got, 1)
	go func() {
		cancel <- ask("POST", toolCall(2, `{"action":"cancel","job":"`+deaf+`"}`), "Mcp-Session-Id", session)
	}()
	inTime(t, "it is cancelled", 20*time.Second, func() bool {
		info, err := os.Stat(filepath.Join(w.root, "jobs", deaf, "cancel"))
		return err == nil && info.Size() > 0
	})
	run("daemon", "stop")
	stopped = true
	for name, c := range map[string]chan got{"a follow": follow, "a follow of today": modern} {
		if g := <-c; g.err != nil || !strings.Contains(g.body, `"next_offset":0`) {
			t.Errorf("%s: %v, %d %s", name, g.err, g.status, g.body)
		}
	}
	if g := <-cancel; g.err != nil || !strings.Contains(g.body, `"unavailable"`) {
		t.Errorf("a cancel: %v, %d %s", g.err, g.status, g.body)
	}
	if g := <-listen; g.err != nil || g.status != 200 {
		t.Errorf("what listens: %v, %d", g.err, g.status)
	}
	list := run("list", "--all")
	for range starters {
		for _, s := range <-starts {
			told := s.got.err == nil && s.got.status == 200 && strings.Contains(s.got.body, `"state":"running"`)
			if n := strings.Count(list, s.name); told && n != 1 || !told && n != 0 {
				t.Errorf("%s is there %d times, and the client: %v, %d %s", s.name, n, s.got.err, s.got.status, s.got.body)
			}
		}
	}
}

// TestParentEndsMeanwhile: to a child that waits for something, the end of the
// parent's daemon is a connection that is lost.
func TestParentEndsMeanwhile(t *testing.T) {
	t.Parallel()
	p := newParent(t)
	a := p.childOf(t, "ann")
	a.run("daemon", "stop") // its own calls
	root, err := jobdir.OpenRoot(p.root)
	if err != nil {
		t.Fatal(err)
	}
	daemon, _ := notify.DaemonOf(root)
	before := watches(daemon.PID)
	c := a.command("inbox", "--member", "ann", "--take", "--follow-ms", "25000")
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	inTime(t, "the parent watches", patience, func() bool { return watches(daemon.PID) > before })
	p.run("daemon", "stop")
	if err := c.Wait(); err == nil || !strings.Contains(said.String(), "the parent of this Space cannot be reached") || strings.Contains(said.String(), "no space-job") {
		t.Errorf("%v: %s", err, said.String())
	}
}

// inTime fails the test if something does not become true in time.
func inTime(t *testing.T, what string, within time.Duration, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", within, what)
		}
	}
}

// watches counts what a process has the kernel watch.
func watches(pid int) (n int) {
	infos, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, f := range infos {
		b, _ := os.ReadFile(f)
		n += strings.Count(string(b), "inotify wd:")
	}
	return n
}
