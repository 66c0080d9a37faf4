package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	way "space-job/cmd/internal/space"
)

// spaces writes spaces.json.
func (s *space) spaces(all map[string]way.Space) {
	s.t.Helper()
	b, err := json.Marshal(all)
	if err == nil {
		err = os.MkdirAll(s.root, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(s.root, way.File), b, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// fails runs a command that must fail with a code, and returns what it says.
func (s *space) fails(code int, args ...string) string {
	s.t.Helper()
	c := s.command(args...)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.Output()
	if c.ProcessState.ExitCode() != code {
		s.t.Fatalf("space-job %q: %v, want %d\n%s%s", args, err, code, out, said.String())
	}
	return said.String()
}

// sshd is an OpenSSH server on loopback, for this user and one key.
type sshd struct {
	t    *testing.T
	dir  string
	port int

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	count int        // connections so far; guarded by mu
	limit int        // bytes to the client until the next connection is cut; 0: none; guarded by mu
}

// newSSHD starts a server; where there is none, it skips the test. Each connection
// has a process of it, as from inetd, so that no port has to be guessed, and that
// connections can be cut.
func newSSHD(t *testing.T, options ...string) *sshd {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/sshd"); err != nil {
			t.Skip("there is no sshd here")
		}
	}
	if os.Geteuid() == 0 {
		_ = os.MkdirAll("/run/sshd", 0o755) // which the server wants
	}
	d := &sshd{t: t, dir: t.TempDir()}
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(d.dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	config := strings.Join(append([]string{
		"HostKey " + d.dir + "/host",
		"AuthorizedKeysFile " + d.dir + "/user.pub",
		"StrictModes no", "UsePAM no", "PidFile none", "PasswordAuthentication no", "KbdInteractiveAuthentication no",
		"LogLevel ERROR", "MaxStartups 100",
		"SetEnv HOME=" + d.dir, // what this user's shell does at a login has no part in this
	}, options...), "\n") + "\n"
	if err := os.WriteFile(d.dir+"/sshd_config", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d.port = l.Addr().(*net.TCPAddr).Port
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { d.serve(conn, program) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		d.cut()
		serving.Wait()
	})
	known, err := os.ReadFile(d.dir + "/host.pub")
	if err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("", "ssh") // the path of a socket has a hundred bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(short) })
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	d.write("known_hosts", fmt.Sprintf("[127.0.0.1]:%d %s", d.port, known))
	// One connection for all calls; those of the test of it have their own.
	d.write("ssh_config", fmt.Sprintf("Host box alone\n HostName 127.0.0.1\nHost box\n ControlMaster auto\n ControlPath %s/%%C\n ControlPersist 60\nHost *\n Port %d\n User %s\n UserKnownHostsFile %s/known_hosts\n IdentityFile %s/user\n IdentitiesOnly yes\n IdentityAgent none\n LogLevel ERROR\n", short, d.port, who.Username, d.dir, d.dir))
	return d
}

func (d *sshd) write(name, text string) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// serve is one connection: a process of the server, behind a pipe that can be cut.
func (d *sshd) serve(conn net.Conn, program string) {
	defer conn.Close()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		d.t.Error(err)
		return
	}
	syscall.CloseOnExec(fds[0])
	syscall.CloseOnExec(fds[1])
	theirs := os.NewFile(uintptr(fds[1]), "sshd")
	f := os.NewFile(uintptr(fds[0]), "sshd")
	ours, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		d.t.Error(err)
		return
	}
	d.mu.Lock()
	d.conns = append(d.conns, conn, ours)
	d.count++
	limit := d.limit
	d.limit = 0
	d.mu.Unlock()
	c := exec.Command(program, "-i", "-e", "-f", d.dir+"/sshd_config")
	c.Stdin, c.Stdout = theirs, theirs
	err = c.Start()
	_ = theirs.Close()
	if err != nil {
		d.t.Error(err)
		return
	}
	go func() {
		_, _ = io.Copy(ours, conn)
		_ = ours.Close()
	}()
	if limit > 0 {
		_, _ = io.CopyN(conn, ours, int64(limit))
	} else {
		_, _ = io.Copy(conn, ours)
	}
	_, _ = conn.Close(), ours.Close()
	_ = c.Wait()
}

// cut cuts all connections.
func (d *sshd) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}

// connections are how many there were.
func (d *sshd) connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count
}

// pathOf is the path of a program of ours.
func pathOf(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// reach is the Space of another root behind the server.
func (d *sshd) reach(there *space) way.Space { return d.reachAs("box", there) }

func (d *sshd) reachAs(host string, there *space) way.Space {
	return way.Space{Exec: []string{"ssh", "-F", d.dir + "/ssh_config", host, "env", "SPACE_JOB_HOME=" + there.root}, Program: pathOf(d.t, "space-job")}
}

// ago is how long ago something was, in a status for people.
var ago = regexp.MustCompile(`\bnow\b|\b[0-9][0-9a-z]* ago\b`)

// TestSSH: all that --space does, over a real server: secrets and quotes in the
// request, and in nobody's argv.
func TestSSH(t *testing.T) {
	t.Parallel()
	d := newSSHD(t)
	here, there := newSpace(t), newSpace(t)
	here.spaces(map[string]way.Space{"cloud:box": d.reach(there)})
	secret := "s3cr3t 'with\" quotes\n$(and) a line"
	command := `printf '%s|' "$TOKEN" "$1 it's"; echo end; exit 7`
	job := here.run("--space", "cloud:box", "start", "-e", "TOKEN="+secret, "--name", "a 'b' \"c\"", command)
	here.fails(7, "wait", job, "--space", "cloud:box")
	log := here.run("--space", "cloud:box", "logs", job, "--offset", "0")
	if want := secret + "| it's|"; !strings.HasPrefix(log, want) || !strings.HasSuffix(log, "end") {
		t.Errorf("%q", log)
	}
	for _, args := range [][]string{{"status", job, "--json"}, {"list", "--json"}, {"logs", job, "--json"}, {"status", job}, {"logs", job, "--plain", "--encoding", "utf-8"}} {
		far, near := here.run(append([]string{"--space", "cloud:box"}, args...)...), there.run(args...)
		far, near = ago.ReplaceAllString(far, "ago"), ago.ReplaceAllString(near, "ago") // the one comes after the other
		if far = strings.ReplaceAll(far, "space-job --space cloud:box ", "space-job "); far != near {
			t.Errorf("%q\n%s\nand over there:\n%s", args, far, near)
		}
	}
	if got := there.run("status", job, "--json"); !strings.Contains(got, `"name":"a 'b' \"c\""`) {
		t.Error(got)
	}
	for _, root := range []string{here.root, there.root} {
		out, err := exec.Command("grep", "-rl", "s3cr3t", root).Output()
		for path := range strings.FieldsSeq(string(out)) {
			if path != filepath.Join(there.root, "jobs", job, "log") {
				t.Errorf("the secret is in %s (%v)", path, err)
			}
		}
	}
	if got := here.run("list", "--json", "--all"); got != "" {
		t.Errorf("jobs here: %s", got)
	}
	// A stop, by the end of the id.
	job = here.run("--space", "cloud:box", "start", "sleep 1000")
	here.fails(75, "--space", "cloud:box", "wait", job, "--timeout", "0")
	here.fails(75, "--space", "cloud:box", "wait", job, "--timeout", "0.01")
	if got := here.run("--space", "cloud:box", "cancel", job[5:], "--reason", "it's $enough"); !strings.Contains(got, job+"  cancelled") {
		t.Error(got)
	}
	if got := there.run("status", job, "--json"); !strings.Contains(got, `"reason":"it's $enough"`) {
		t.Error(got)
	}
	// Errors are those of the Space, and say so.
	if got := here.fails(3, "--space", "cloud:box", "status", "ffff"); !strings.Contains(got, `error: space cloud:box: there is no job "ffff"`) || !strings.Contains(got, "space-job --space cloud:box list --all") {
		t.Error(got)
	}
	if got := here.fails(2, "--space", "cloud:box", "start", "-C", "/nonesuch", "true"); !strings.Contains(got, "/nonesuch") {
		t.Error(got)
	}
	key := []string{"--space", "cloud:box", "start", "--key", "once", "true"}
	if first, second := here.run(key...), here.run(key...); first != second {
		t.Errorf("one key: %s, %s", first, second)
	}
}

// TestRunElsewhere: its log as it grows and its code, one long poll after another.
func TestRunElsewhere(t *testing.T) {
	t.Parallel()
	d := newSSHD(t)
	here, there := newSpace(t), newSpace(t)
	here.spaces(map[string]way.Space{"box": d.reach(there)})
	c := here.command("--space", "box", "run", `for i in 1 2 3; do echo line $i; sleep 0.05; done; printf '\377\200'; exit 4`)
	out, err := c.Output()
	if want := "line 1\nline 2\nline 3\n\xff\x80"; string(out) != want || c.ProcessState.ExitCode() != 4 {
		t.Errorf("%q, %v", out, err)
	}
}

// TestConnectionCut: a log that is followed goes on where it was when its connection
// is cut in the middle of an answer, again and again.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	d := newSSHD(t)
	here, there := newSpace(t), newSpace(t)
	here.spaces(map[string]way.Space{"box": d.reachAs("alone", there)})
	job := there.run("start", `seq 1 100000; echo end`)
	there.run("wait", job)
	want := there.run("logs", job, "--offset", "0", "-f")
	cuts := 0
	c := here.command("--space", "box", "logs", job, "--offset", "0", "-f")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var got []byte
	b := make([]byte, 32<<10)
	for {
		n, err := out.Read(b)
		got = append(got, b[:n]...)
		if err != nil {
			break
		}
		if cuts < 2 { // the next connection ends within its answer
			cuts++
			d.mu.Lock()
			d.limit = 100 << 10
			d.mu.Unlock()
		}
	}
	if err := c.Wait(); err != nil || strings.TrimSuffix(string(got), "\n") != want {
		t.Errorf("%d bytes of %d, %v\n%s", len(got), len(want), err, said.String())
	}
	if n := d.connections(); n < 4 {
		t.Errorf("%d connections, so none was cut", n)
	}
}

// TestWaitIsOneCall: a wait is made over there, and goes on when it is cut.
func TestWaitIsOneCall(t *testing.T) {
	t.Parallel()
	here, there := newSpace(t), newSpace(t)
	dir := t.TempDir()
	// The pid of each connection, once its hello has come through.
	script := `"$@" | { read -r hello; echo "$hello"; echo $$ >>` + dir + `/calls; cat; }`
	here.spaces(map[string]way.Space{"box": {Exec: []string{"env", "SPACE_JOB_HOME=" + there.root, "sh", "-c", script, "sh"}}})
	signal := filepath.Join(dir, "go")
	job := there.run("start", "--until-file", signal, "-t", "60")
	c := here.command("--space", "box", "wait", job)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	calls := func() string {
		b, _ := os.ReadFile(dir + "/calls")
		return strings.Join(strings.Fields(string(b)), " ")
	}
	first := ""
	here.await("a call", func() string { first = calls(); return fmt.Sprint(first != "") }, "true")
	pid, err := strconv.Atoi(first)
	if err == nil {
		err = syscall.Kill(-pid, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
	here.await("another call", func() string { return fmt.Sprint(calls() != first) }, "true")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if n := len(strings.Fields(calls())); n != 2 {
		t.Errorf("%d calls for one wait that was cut once", n)
	}
}

// TestStartCut: a start whose answer is lost is said to be that, and with a key is
// made again: one job.
func TestStartCut(t *testing.T) {
	t.Parallel()
	here, there := newSpace(t), newSpace(t)
	itself := pathOf(t, "space-job")
	once := filepath.Join(t.TempDir(), "once")
	// The first time, the answer goes nowhere. The words of each call are written down.
	words := filepath.Join(t.TempDir(), "words")
	script := `echo "$*" >>` + words + `; if mkdir ` + once + ` 2>/dev/null; then "$@" | head -n 1; exit 1; fi; exec "$@"`
	here.spaces(map[string]way.Space{"box": {Exec: []string{"env", "SPACE_JOB_HOME=" + there.root, "sh", "-c", script, "sh"}, Program: itself}})
	if got := here.fails(1, "--space", "box", "start", "true"); !strings.Contains(got, "may have been done") || !strings.Contains(got, "space-job --space box list") {
		t.Error(got)
	}
	if got := strings.Count(there.run("list", "--json")+"\n", "\n"); got != 1 {
		t.Errorf("%d jobs", got)
	}
	if err := os.Remove(once); err != nil {
		t.Fatal(err)
	}
	job := here.run("--space", "box", "start", "--key", "k", "-e", "TOKEN=s3cr3t", "echo once")
	if jobs := there.run("list", "--json"); strings.Count(jobs+"\n", "\n") != 2 || !strings.Contains(jobs, job) {
		t.Error(jobs)
	}
	b, err := os.ReadFile(words)
	if want := strings.Repeat(itself+" start --request - --json\n", 3); err != nil || string(b) != want {
		t.Errorf("%q, %v", b, err)
	}
}

// TestNoAnswer: what stands in the way is one clear line, and nothing is made.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	asks := newSSHD(t, "PasswordAuthentication yes", "PubkeyAuthentication no")
	open := newSSHD(t)
	here, there := newSpace(t), newSpace(t)
	stranger := open.reach(there)
	stranger.Exec = slices.Clone(stranger.Exec)
	open.write("no_hosts", "")
	config, err := os.ReadFile(open.dir + "/ssh_config")
	if err != nil {
		t.Fatal(err)
	}
	open.write("strange_config", strings.Replace(string(config), "known_hosts", "no_hosts", 1))
	stranger.Exec[2] = open.dir + "/strange_config"
	none := open.reach(there)
	none.Program = "space-job-nonesuch"
	here.spaces(map[string]way.Space{
		"asks":      asks.reach(there),
		"stranger":  stranger,
		"none":      none,
		"no-prefix": {Exec: []string{"/nonesuch/docker", "exec", "x"}},
		"refused":   {Exec: []string{"ssh", "-F", open.dir + "/ssh_config", "-p", "1", "alone"}},
		"no-stdin":  {Exec: []string{"sh", "-c", `exec "$@" </dev/null`, "sh", "env", "SPACE_JOB_HOME=" + there.root}, Program: pathOf(t, "space-job")},
	})
	for _, c := range []struct{ name, says, hints string }{
		{"asks", "space asks: it cannot be reached: ", "no password is asked for"},
		{"stranger", "Host key verification failed.", "connect once by hand"},
		{"none", "there is no space-job-nonesuch", `"install": true`},
		{"no-prefix", "its prefix cannot be run: ", "spaces.json"},
		{"refused", "Connection refused", "try it by hand"},
		{"no-stdin", "none came on standard input", "docker exec -i"},
	} {
		for _, args := range [][]string{{"list"}, {"start", "true"}} {
			if c.name == "asks" && args[0] == "list" {
				continue // the server takes its time to refuse
			}
			code := 1
			if c.name == "no-stdin" {
				code = 2
			}
			began := time.Now()
			got := here.fails(code, append([]string{"--space", c.name}, args...)...)
			if !strings.Contains(got, c.says) || !strings.Contains(got, c.hints) || strings.Count(got, "\n") != 2 {
				t.Errorf("%s %q: %s", c.name, args, got)
			}
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s %q: it took %v", c.name, args, took)
			}
		}
	}
	if got := here.fails(2, "--space", "unknown", "list"); !strings.Contains(got, `"unknown" is none of asks, no-prefix, no-stdin, none, refused, stranger`) {
		t.Error(got)
	}
	if _, err := os.Stat(there.root); err == nil {
		t.Error("a root was made over there")
	}
	for _, args := range [][]string{{"thread", "read"}, {"doctor"}, {"inbox"}} {
		if got := here.fails(2, append([]string{"--space", "none"}, args...)...); !strings.Contains(got, "is about this Space only") {
			t.Errorf("%q: %s", args, got)
		}
	}
	if got := here.run("--space", "local", "list", "--json"); got != "" {
		t.Error(got)
	}
}

// TestInstall: where there is no space-job it is brought, if the Space says so: once,
// and again when it is gone.
func TestInstall(t *testing.T) {
	t.Parallel()
	here, there := newSpace(t), newSpace(t)
	home := t.TempDir()
	bare := way.Space{Exec: []string{"env", "-i", "HOME=" + home, "PATH=/usr/bin:/bin", "SPACE_JOB_HOME=" + there.root}}
	brought := bare
	brought.Install = true
	here.spaces(map[string]way.Space{"bare": bare, "new": brought})
	if got := here.fails(1, "--space", "bare", "start", "true"); !strings.Contains(got, "space bare: there is no space-job") || strings.Count(got, "\n") != 2 {
		t.Error(got)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	start := func() (said string) {
		c := here.command("--space", "new", "run", "echo $0 is here; exit 5")
		var b bytes.Buffer
		c.Stderr = &b
		out, err := c.Output()
		if string(out) != "/bin/sh is here\n" || c.ProcessState.ExitCode() != 5 {
			t.Fatalf("%q, %v\n%s", out, err, b.String())
		}
		return b.String()
	}
	if got := start(); strings.Count(got, "brought there") != 1 {
		t.Error(got)
	}
	if got := start(); got != "" {
		t.Errorf("the second time: %s", got)
	}
	dirs, err := filepath.Glob(home + "/.local/share/space-job/*")
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%q, %v", dirs, err)
	}
	if err := os.RemoveAll(dirs[0]); err != nil {
		t.Fatal(err)
	}
	if got := start(); strings.Count(got, "brought there") != 1 {
		t.Errorf("when it was gone: %s", got)
	}
}
