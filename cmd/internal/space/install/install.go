// Package install brings the programs of space-job to a Space that has none, over
// its exec prefix. It is a package apart as it links a checksum, which the
// space-job command does not: that runs [Main], in the program space-jobd.
//
// One shell over there (PREFIX... sh) is told on its standard input what to do, a
// command at a time, and what it prints is waited for: no word of it is in an argv.
// Each program comes through another. It needs sh, uname, mkdir, mv, rm, cat, chmod, and
// sha256sum or shasum.
//
// The three programs go into a folder of their own, whose name has the version and
// their checksum: ~/.local/share/space-job/VERSION-CHECKSUM. They are received in
// another folder, compared there by SHA-256, tried, and come to their name by one
// rename. A folder of that name that is there is used if it has the very same
// programs, and otherwise left as it is: nothing is ever written over. What breaks
// off leaves a folder .new-... at most, which the next time does not use.
//
// The programs are those beside this one, where the Space is of its kind of system.
// For another kind they are looked for in a folder that the caller names, below
// linux-arm64 and the like, as a release has them.
package install

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"space-job/cmd/internal/space"
)

// programs are what is brought, in this order.
var programs = [...]string{"space-job", "space-runner", "space-jobd"}

const (
	stepWithin = 30 * time.Second // an answer of the shell
	sendWithin = 10 * time.Minute // one program
	maxProgram = 256 << 20
)

// Main does the one request that is on stdin, writes what came of it to stdout and
// exits.
func Main() {
	var req space.InstallRequest
	if err := json.NewDecoder(os.Stdin).Decode(&req); err != nil {
		fmt.Fprintln(os.Stderr, "space-job: error: install: read the request on stdin: "+err.Error())
		os.Exit(2)
	}
	path, err := Do(context.Background(), req)
	res := space.InstallResult{Program: path}
	if err != nil {
		res.Error = err.Error()
		var hint *hintError
		if errors.As(err, &hint) {
			res.Hint = hint.hint
		}
	}
	b, err := json.Marshal(res)
	if err == nil {
		_, err = os.Stdout.Write(append(b, '\n'))
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// hintError is an error that somebody can do something about.
type hintError struct {
	error
	hint string
}

// Do brings the programs to a Space, and returns the path of space-job over there.
func Do(ctx context.Context, req space.InstallRequest) (string, error) {
	sh, err := open(ctx, req.Exec)
	if err != nil {
		return "", err
	}
	defer sh.close()
	system, home, err := sh.look()
	if err != nil {
		return "", err
	}
	files, err := load(system, req.Programs)
	if err != nil {
		return "", err
	}
	target := home + "/.local/share/space-job/" + folder(req.Version, files)
	program := target + "/" + programs[0]
	if !space.PlainWord(program) {
		return "", fmt.Errorf("its path there would be %q, and a shell might take that for something else", program)
	}
	if there, err := sh.same(target, files); err != nil || there {
		return program, err
	}
	name, err := random()
	if err != nil {
		return "", err
	}
	hidden := filepath.Dir(target) + "/.new-" + name
	if _, err := sh.ask("mkdir -p " + quote(filepath.Dir(target)) + " && mkdir -m 700 " + quote(hidden)); err != nil {
		return "", err
	}
	if err := sh.receive(hidden, files); err != nil {
		_, _ = sh.ask("rm -rf " + quote(hidden))
		return "", err
	}
	// Where somebody else was faster, mv puts the folder into theirs.
	_, err = sh.ask("{ [ -e " + quote(target) + " ] || mv " + quote(hidden) + " " + quote(target) + "; } && rm -rf " + quote(hidden) + " " + quote(target+"/"+filepath.Base(hidden)))
	if err != nil {
		return "", err
	}
	there, err := sh.same(target, files)
	if err == nil && !there {
		err = fmt.Errorf("%s is gone again", target)
	}
	return program, err
}

// file is one program.
type file struct {
	name string
	data []byte
	sum  string
}

// load reads the programs for a kind of system, such as linux-arm64.
func load(system, others string) ([]file, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(self)
	if system != runtime.GOOS+"-"+runtime.GOARCH {
		dir = filepath.Join(others, system)
	}
	files := make([]file, len(programs))
	for i, name := range programs {
		data, err := readProgram(filepath.Join(dir, name))
		if err != nil {
			if dir != filepath.Dir(self) {
				err = &hintError{fmt.Errorf("it is a %s, and this is a %s-%s: %w", system, runtime.GOOS, runtime.GOARCH, err),
					"put the programs of the release for " + system + " into " + dir}
			}
			return nil, err
		}
		sum := sha256.Sum256(data)
		files[i] = file{name, data, hex.EncodeToString(sum[:])}
	}
	return files, nil
}

func readProgram(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxProgram+1))
	if err == nil && (len(b) == 0 || len(b) > maxProgram) {
		err = fmt.Errorf("%s: %d bytes are no program", path, len(b))
	}
	return b, err
}

// folder is the name of the folder of these programs.
func folder(version string, files []file) string {
	all := sha256.New()
	for _, f := range files {
		fmt.Fprintln(all, f.sum, f.name)
	}
	var b strings.Builder
	for _, r := range version {
		if r < 0x80 && (r == '.' || r == '-' || r == '+' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			b.WriteRune(r)
		}
	}
	return b.String() + "-" + hex.EncodeToString(all.Sum(nil))[:16]
}

// shell is a shell over there. What it prints counts between two lines that begin
// with a word that nobody else knows.
type shell struct {
	ctx    context.Context
	prefix []string
	mark   string
	cmd    *exec.Cmd
	in     *os.File
	out    *os.File
	read   *bufio.Reader
	said   strings.Builder // on stderr; whole when gone is closed
	gone   chan struct{}
}

func open(ctx context.Context, prefix []string) (*shell, error) {
	mark, err := random()
	if err != nil {
		return nil, err
	}
	s := &shell{ctx: ctx, prefix: prefix, mark: mark, cmd: space.Command(ctx, prefix, "sh"), gone: make(chan struct{})}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		_, _ = inR.Close(), inW.Close()
		return nil, err
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = inR, outW, limited{&s.said}
	s.cmd.WaitDelay = time.Second
	err = s.cmd.Start()
	_, _ = inR.Close(), outW.Close()
	if err != nil {
		_, _ = inW.Close(), outR.Close()
		return nil, err
	}
	s.in, s.out, s.read = inW, outR, bufio.NewReader(outR)
	go func() {
		_ = s.cmd.Wait()
		close(s.gone)
	}()
	return s, nil
}

func (s *shell) close() {
	_ = s.in.Close()
	select {
	case <-s.gone:
	case <-time.After(time.Second):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM)
	}
	_ = s.out.Close()
}

// limited keeps the beginning of what is written.
type limited struct{ b *strings.Builder }

func (l limited) Write(b []byte) (int, error) {
	if l.b.Len() < 4<<10 {
		l.b.Write(b)
	}
	return len(b), nil
}

// ask runs a command, and returns what it prints.
func (s *shell) ask(command string) (string, error) {
	if err := s.tell("echo " + s.mark + " begin; ( " + command + " ) 2>&1; echo " + s.mark + " $?"); err != nil {
		return "", err
	}
	_, status, err := s.until()
	if err == nil && status != "begin" {
		err = errors.New("the shell there says what it was not asked for")
	}
	if err != nil {
		return "", err
	}
	out, status, err := s.until()
	if err == nil && status != "0" {
		if err = errors.New(out); out == "" {
			err = errors.New("exit status " + status)
		}
	}
	return out, err
}

func (s *shell) tell(line string) error {
	_ = s.out.SetReadDeadline(time.Now().Add(stepWithin))
	if _, err := s.in.WriteString(line + "\n"); err != nil {
		return s.broken(err)
	}
	return nil
}

// until reads to the next mark, and returns what stands before it and behind it.
func (s *shell) until() (before, behind string, err error) {
	var out strings.Builder
	for {
		text, err := s.read.ReadString('\n')
		if err != nil {
			return "", "", s.broken(err)
		}
		// What a command printed last may have no newline.
		if at := strings.Index(text, s.mark+" "); at >= 0 {
			out.WriteString(text[:at])
			return strings.TrimRight(out.String(), "\n"), strings.TrimSpace(text[at+len(s.mark)+1:]), nil
		}
		if out.Len() < 64<<10 {
			out.WriteString(text)
		}
	}
}

// send writes a file there, through a shell of its own, which becomes what reads the
// bytes: whatever happens to that, none of them is ever taken for a command.
func (s *shell) send(path string, data []byte) error {
	one, err := open(s.ctx, s.prefix)
	if err != nil {
		return err
	}
	defer one.close()
	if err := one.tell("umask 077; echo " + one.mark + " begin; exec sh -c 'cat >\"$1\" && chmod 755 \"$1\" && echo \"$0\" 0' " + one.mark + " " + quote(path)); err != nil {
		return err
	}
	if _, _, err := one.until(); err != nil {
		return err
	}
	_ = one.in.SetWriteDeadline(time.Now().Add(sendWithin))
	_ = one.out.SetReadDeadline(time.Now().Add(sendWithin))
	_, _ = one.in.Write(data) // whether all of it is there says the checksum
	_ = one.in.Close()
	_, _, err = one.until()
	return err
}

// broken says why the shell answers no more.
func (s *shell) broken(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the shell there does not answer")
	}
	_ = s.in.Close()
	select {
	case <-s.gone:
		if said := strings.TrimSpace(s.said.String()); said != "" {
			return errors.New(said[strings.LastIndexByte(said, '\n')+1:])
		}
		return fmt.Errorf("the shell there ended: %v", s.cmd.ProcessState)
	case <-time.After(2 * time.Second):
		return fmt.Errorf("the shell there does not answer: %w", err)
	}
}

// look asks what kind of system it is, and for the home.
func (s *shell) look() (system, home string, err error) {
	out, err := s.ask("uname -s; uname -m; echo \"$HOME\"; command -v sha256sum || command -v shasum || echo none")
	lines := strings.Split(out, "\n")
	if err != nil || len(lines) != 4 {
		if err == nil {
			err = fmt.Errorf("uname says %q", out)
		}
		return "", "", fmt.Errorf("look around there: %w", err)
	}
	arch := lines[1]
	switch arch {
	case "x86_64", "amd64":
		arch = "amd64"
	case "aarch64", "arm64":
		arch = "arm64"
	}
	home = lines[2]
	switch {
	case !strings.HasPrefix(home, "/"):
		return "", "", fmt.Errorf("HOME there is %q, which is no folder", home)
	case lines[3] == "none":
		return "", "", errors.New("there is neither sha256sum nor shasum there, so what arrives could not be verified")
	}
	return strings.ToLower(lines[0]) + "-" + arch, strings.TrimRight(home, "/"), nil
}

const sums = "if command -v sha256sum >/dev/null; then sha256sum"

// same reports whether a folder there has these programs. One that is there and has
// others is an error.
func (s *shell) same(dir string, files []file) (bool, error) {
	names := strings.Join(programs[:], " ")
	out, err := s.ask("if [ ! -e " + quote(dir) + " ]; then echo none; else cd " + quote(dir) + " && " + sums + " " + names + "; else shasum -a 256 " + names + "; fi; fi")
	if out == "none" {
		return false, nil
	}
	var want []string
	for _, f := range files {
		want = append(want, f.sum+"  "+f.name)
	}
	if err != nil || out != strings.Join(want, "\n") {
		return false, &hintError{fmt.Errorf("%s is there and has something else, which is left as it is", dir), "see what it is; it may be removed over there"}
	}
	return true, nil
}

// receive puts the programs into a folder there, compares and tries them.
func (s *shell) receive(dir string, files []file) error {
	for _, f := range files {
		if err := s.send(dir+"/"+f.name, f.data); err != nil {
			return fmt.Errorf("write %s there: %w", f.name, err)
		}
	}
	if there, err := s.same(dir, files); err != nil || !there {
		return errors.New("what arrived there is not what was sent")
	}
	if _, err := s.ask(quote(dir+"/"+programs[0]) + " --version"); err != nil {
		return &hintError{fmt.Errorf("it does not run there: %w", err), "bring static programs: those of a release, or of scripts/build"}
	}
	return nil
}

// random is a word that nobody guesses.
func random() (string, error) {
	var b [8]byte
	_, err := rand.Read(b[:])
	return hex.EncodeToString(b[:]), err
}

// quote is a word for the shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
