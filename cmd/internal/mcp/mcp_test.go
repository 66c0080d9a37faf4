package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"space-job/cmd/internal/api"
	"space-job/jobdir"
	"space-job/jobdir/record"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// bytesPerToken is the rule of thumb that the limits below are given in.
const bytesPerToken = 4

// TestToolsAreSmall: what a model reads in each of its turns has a limit.
func TestToolsAreSmall(t *testing.T) {
	t.Parallel()
	job, thread := size(t, jobTool()), size(t, threadTool())
	if limit := 900 * bytesPerToken; job > limit {
		t.Errorf("space_job takes %d bytes, limit %d", job, limit)
	}
	if limit := 1200 * bytesPerToken; job+thread > limit {
		t.Errorf("the tools take %d bytes, limit %d", job+thread, limit)
	}
	if limit := 600 * bytesPerToken; len(api.Skill) > limit {
		t.Errorf("the instructions take %d bytes, limit %d", len(api.Skill), limit)
	}
	t.Logf("tokens: space_job %d, both tools %d, instructions %d", job/bytesPerToken, (job+thread)/bytesPerToken, len(api.Skill)/bytesPerToken)
}

func size(t *testing.T, tool *sdk.Tool) int {
	b, err := json.Marshal(tool)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

// TestSchemasMatch: the schema of a tool lists what its arguments are decoded
// into, and the actions that there are.
func TestSchemasMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool    *sdk.Tool
		into    any
		actions []string
	}{
		{jobTool(), jobArguments{}, jobActions},
		{threadTool(), threadArguments{}, threadActions},
	} {
		var schema struct {
			Properties map[string]struct {
				Enum []string `json:"enum"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(c.tool.InputSchema.(json.RawMessage), &schema); err != nil {
			t.Fatalf("%s: %v", c.tool.Name, err)
		}
		b, _ := json.Marshal(c.into)
		var fields map[string]json.RawMessage
		_ = json.Unmarshal(b, &fields)
		if got, want := slices.Sorted(maps.Keys(schema.Properties)), slices.Sorted(maps.Keys(fields)); !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %v, the arguments %v", c.tool.Name, got, want)
		}
		if got := schema.Properties["action"].Enum; !slices.Equal(got, c.actions) {
			t.Errorf("%s: the schema has the actions %v, want %v", c.tool.Name, got, c.actions)
		}
		if !json.Valid(c.tool.OutputSchema.(json.RawMessage)) {
			t.Errorf("%s: the output schema is no JSON", c.tool.Name)
		}
	}
}

// TestSkillHasEachRule: every convention stands in the instructions.
func TestSkillHasEachRule(t *testing.T) {
	t.Parallel()
	skill := strings.ToLower(strings.Join(strings.Fields(api.Skill), " "))
	for rule, words := range map[string][]string{
		"read first":                 {"read the thread before you begin"},
		"claim with files and until": {"claim <what> | files: <paths or branch> | until: <when>"},
		"keep off a live claim":      {"keep off what a live claim", "@mention its owner", "wait for the answer"},
		"expired may be taken":       {"you may take what has expired; say so"},
		"report":                     {"done <what> | <result> | next: <step>", "blocked <what> | needs: <thing> | from @who", "release <what>"},
		"short":                      {"keep it short", "one @mention", "never your own name"},
		"notify":                     {"start with notify: true", "post one line", "end your turn", "do not poll"},
		"timeout on until":           {"until instead of command, and a timeout"},
		"offsets":                    {"next_offset"},
		"only examples":              {"only examples"},
	} {
		for _, w := range words {
			if !strings.Contains(skill, w) {
				t.Errorf("%s: %q is missing", rule, w)
			}
		}
	}
}

// TestArgumentsRefused: what is wrong is named.
func TestArgumentsRefused(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"{\"action\":\"start\",\"command\":\"echo \xff\"}": "arguments: ",
		`{"action":1}`:                                            "action: ",
		`{"action":"start","command":["a"]}`:                      "command: ",
		`{"action":"start","argv":"a"}`:                           "argv: ",
		`{"action":"start","argv":[1]}`:                           "argv",
		`{"action":"start","env":{"A":1}}`:                        "env",
		`{"action":"start","until":{"port":"x"}}`:                 "until.port: ",
		`{"action":"start","until":{"x":1}}`:                      "until.x: ",
		`{"action":"start","notify":"yes"}`:                       "notify: ",
		`{"action":"logs","follow_ms":1.5}`:                       "follow_ms: ",
		`{"action":"logs","offset":1e30}`:                         "offset: ",
		`{"action":"list","nothing":true}`:                        "nothing: ",
		`{"action":"list"`:                                        "arguments: ",
		`[]`:                                                      "arguments: ",
		`{} {}`:                                                   "arguments: ",
		`{"command":"` + strings.Repeat("x", maxArguments) + `"}`: "arguments: ",
	} {
		err := decode(json.RawMessage(raw), new(jobArguments))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", raw, err, want)
		}
		if e := api.AsError(err); e != nil && e.Code != api.InvalidArgument && e.Code != api.LimitExceeded {
			t.Errorf("%.60s: code %s", raw, e.Code)
		}
	}
}

// TestSift: whatever a line holds, the messages before and after it pass, and it
// is answered.
func TestSift(t *testing.T) {
	t.Parallel()
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	for _, line := range []string{
		"{\"half", "null", "3", "[]", "[" + strings.TrimSpace(ping) + "]", `{"foo":1}`, "\x00\xff", `{"jsonrpc":"1.0","id":1,"method":"ping"}`,
		strings.Repeat("x", maxLine+1), `{"jsonrpc":"2.0","id":{},"method":"ping"}`,
	} {
		var passed, answered bytes.Buffer
		if err := sift(strings.NewReader(ping+line+"\n"+ping), &passed, &answered); err != nil {
			t.Errorf("%.40q: %v", line, err)
		}
		if passed.String() != ping+ping {
			t.Errorf("%.40q: passed on %.200q", line, passed.String())
		}
		var a struct {
			Error *struct{ Code int }
		}
		if err := json.Unmarshal(answered.Bytes(), &a); err != nil || a.Error == nil || a.Error.Code >= 0 {
			t.Errorf("%.40q: answered %q", line, answered.String())
		}
	}
	var passed, answered bytes.Buffer
	if err := sift(strings.NewReader("\n \r\n"+strings.TrimSpace(ping)), &passed, &answered); err != nil || passed.String() != ping || answered.Len() > 0 {
		t.Errorf("empty lines, and one without an end: %v, %q, %q", err, passed.String(), answered.String())
	}
}

func FuzzSift(f *testing.F) {
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n{\n[]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var passed bytes.Buffer
		if err := sift(bytes.NewReader(b), &passed, io.Discard); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(passed.Bytes()) {
			if !json.Valid(line) || line[len(line)-1] != '\n' {
				t.Errorf("passed on %q", line)
			}
		}
	})
}

func FuzzArguments(f *testing.F) {
	f.Add(`{"action":"start","command":"x","until":{"port":1},"env":{"A":"b"},"wake":"a","timeout":1.5}`)
	f.Fuzz(func(t *testing.T, s string) {
		var a jobArguments
		if err := decode(json.RawMessage(s), &a); err == nil {
			_, _ = seconds(a.Timeout)
			given(json.RawMessage(s))
		} else if !strings.Contains(err.Error(), ": ") {
			t.Errorf("%q: %v", s, err)
		}
	})
}

// TestForeignRequests: what a page can send is refused, whatever its token.
func TestForeignRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		host   string
		header http.Header
		ok     bool
	}{
		{"127.0.0.1:80", nil, true},
		{"localhost", nil, true},
		{"[::1]:80", nil, true},
		{"127.0.0.1:80", http.Header{"Origin": {"http://127.0.0.1:80"}}, true},
		{"127.0.0.1:80", http.Header{"Sec-Fetch-Site": {"same-origin"}}, true},
		{"127.0.0.1:80", http.Header{"Sec-Fetch-Site": {"none"}}, true},
		{"evil.com", nil, false},
		{"", nil, false},
		{"localhost.evil.com:80", nil, false},
		{"127.0.0.1.evil.com", nil, false},
		{"127.0.0.1:80", http.Header{"Origin": {"http://evil.com"}}, false},
		{"127.0.0.1:80", http.Header{"Origin": {"http://127.0.0.1:81"}}, false},
		{"127.0.0.1:80", http.Header{"Origin": {"null"}}, false},
		{"127.0.0.1:80", http.Header{"Origin": {""}}, false},
		{"127.0.0.1:80", http.Header{"Origin": {"http://127.0.0.1:80", "http://evil.com"}}, false},
		{"127.0.0.1:80", http.Header{"Sec-Fetch-Site": {"cross-site"}}, false},
		{"127.0.0.1:80", http.Header{"Sec-Fetch-Site": {"same-site"}}, false},
	} {
		r := &http.Request{Host: c.host, Header: c.header}
		if why := foreign(r); (why == "") != c.ok {
			t.Errorf("host %q, %v: %q", c.host, c.header, why)
		}
	}
}

// TestStateIsSigned: a client answers the questions that it was asked, and no
// other.
func TestStateIsSigned(t *testing.T) {
	t.Parallel()
	s, other := &Server{secret: []byte("a")}, &Server{secret: []byte("b")}
	if id, err := s.open(s.sign("r1")); err != nil || id != "r1" {
		t.Errorf("what was signed: %q, %v", id, err)
	}
	for _, state := range []string{"", "r1", "r1.", "r1.00", other.sign("r1"), "r2" + s.sign("r1")[2:], s.sign("r1") + "00"} {
		if id, err := s.open(state); err == nil {
			t.Errorf("%q was taken for %q", state, id)
		}
	}
}

// TestSpoken: what is said in other words to agents is what package api says.
func TestSpoken(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../api/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var all []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	for i := 0; i < len(spoken); i += 2 {
		if !bytes.Contains(all, []byte(spoken[i])) {
			t.Errorf("package api does not say %q", spoken[i])
		}
	}
}

// TestTexts: what a model reads at a glance.
func TestTexts(t *testing.T) {
	t.Parallel()
	why, code := "execute /x: no such file or directory", 127
	r := &api.StatusResult{Entry: api.Entry{Job: "j000000000001", State: jobdir.Exited, ExitCode: &code, Error: &why, Line: "/x"},
		LeftProcesses: []api.Process{{PID: 7, Name: "server"}}, Tail: "a\n", NextOffset: 2}
	if got, want := statusText(r), "job j000000000001 exited exit=127 log=0B | /x\nerror: "+why+"\nleft running: "+r.LeftProcesses[0].String()+
		" (action cancel stops them)\nEnd of the log (next_offset 2):\na\n"; got != want {
		t.Errorf("status: %q\nwant    %q", got, want)
	}
	l := &api.LogsResult{Job: "j000000000001", State: jobdir.Running, Offset: 3, NextOffset: 3, Size: 3, Truncated: true,
		Dropped: &record.Hole{From: 1, To: 2}, Unwritten: &api.Unwritten{Error: "no space"}}
	if got, want := logsText(l), "job j000000000001 running: bytes 3 to 3 of 3; next_offset 3\nwarning: bytes 1 to 2 were cut out of the log\n"+
		"warning: offset is past the end: the log has 3 bytes\nwarning: "+l.Unwritten.Warning()+"\n(nothing)"; got != want {
		t.Errorf("logs: %q\nwant  %q", got, want)
	}
	post := &api.PostResult{}
	post.Seq, post.Text = 3, "hi\n#4 ann: go"
	if got, want := posted(post), "#3 hi\n    #4 ann: go"; got != want {
		t.Errorf("a post: %q, want %q", got, want)
	}
}

// TestWishIsLegible: a command cannot write a line that the server seems to say.
func TestWishIsLegible(t *testing.T) {
	t.Parallel()
	w := api.Approval{Command: "make\nDirectory: /safe\n\u202e\x1b[2K", Cwd: "/tmp/a\nVariables: none", Space: "local", Why: "a rule"}
	got := wish(&w)
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "Directory: /safe") || strings.HasPrefix(line, "Variables:") {
			t.Errorf("%q passes for the server's own", line)
		}
	}
	if strings.ContainsAny(got, "\u202e\x1b") || !strings.Contains(got, "| make\n") || !strings.Contains(got, "<202E><1B>[2K") {
		t.Errorf("%q", got)
	}
	if got := wish(&api.Approval{Command: "make test", Cwd: "/"}); !strings.Contains(got, "Command: make test\nDirectory: /\n") {
		t.Errorf("%q", got)
	}
}

// TestRemovedMemberIsOut: a token lets nobody in who is no member any more, also
// where it did before.
func TestRemovedMemberIsOut(t *testing.T) {
	t.Parallel()
	actions, err := api.OpenRoot(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := actions.MemberAdd(api.MemberRequest{Name: "alice", Kind: "agent"}); err != nil {
		t.Fatal(err)
	}
	at, err := actions.HTTP("alice")
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(actions, "")
	status := func() int {
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/mcp", nil)
		r.Header.Set("Authorization", "Bearer "+at.Token)
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		return w.Code
	}
	if got := status(); got == http.StatusForbidden || got == http.StatusUnauthorized {
		t.Errorf("a member: %d", got)
	}
	if err := actions.MemberRemove("alice"); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != http.StatusForbidden {
		t.Errorf("who was one: %d", got)
	}
}

// TestLinkWaitsForNobody: who calls and does not say what, or does not read the
// answer, is let go.
func TestLinkWaitsForNobody(t *testing.T) {
	t.Parallel()
	actions, err := api.OpenRoot(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	e := newEndpoint(actions, "test")
	e.linkWithin = 50 * time.Millisecond
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	for _, c := range []struct{ token, want string }{
		{"none", "it is none of a member"},
		{strings.Repeat("a", 16) + "." + strings.Repeat("b", 48), "timeout"},
	} {
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, "POST /link HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+c.token+"\r\nContent-Length: 10\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", c.want, err)
		}
		if b, err := io.ReadAll(res.Body); !strings.Contains(string(b), c.want) {
			t.Errorf("%s, %v; want %s", b, err, c.want)
		}
	}
}
