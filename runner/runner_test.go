package runner

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

func TestStartToEnd(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.sh("echo hello; echo there >&2; exit 7")
	e := j.wantExit(7)
	if got := j.log(); got != "hello\nthere\n" {
		t.Errorf("log is %q", got)
	}
	if e.LogBytes != 12 || e.Left != 0 || e.Error != "" || e.Signal != "" {
		t.Errorf("exit is %+v", e)
	}
	j.gone()
	p := j.process()
	if p.BootID != record.BootID() || p.MachineID != record.MachineID() || p.ChildStart == 0 || p.RunnerStart == 0 {
		t.Errorf("pid is %+v", p)
	}
	var names []string
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"cancel", "cmd", "dropped", "exit", "log", "pid", "timing"}; !slices.Equal(names, want) {
		t.Errorf("files of an ended job are %q, want %q", names, want)
	}
	if got := j.read(record.Cancel) + j.read(record.Dropped); !record.IsBlank([]byte(got)) {
		t.Errorf("cancel and dropped hold %q", got)
	}
}

func TestE1ExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		writeProgram(t, path, []byte(text), mode)
		if err := os.Chmod(path, mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "exit 5\n", 0o755)
	write("closed", "#!/bin/sh\nexit 5\n", 0o644)
	badInterpreter := write("bad", "#!/nope\n", 0o755)
	sh := func(s string) []string { return []string{"/bin/sh", "-c", s} }
	tests := []struct {
		argv   []string
		code   int
		signal string
		error  string
	}{
		{argv: sh("exit 0"), code: 0},
		{argv: sh("exit 7"), code: 7},
		{argv: sh("exit 255"), code: 255},
		{argv: sh("exit 256"), code: 0},
		{argv: sh("if"), code: 2},
		{argv: sh("(exit 3) | cat"), code: 0},
		{argv: sh("/nope"), code: 127},
		{argv: sh(dir + "/closed"), code: 126},
		{argv: sh("kill -9 $$"), code: 137, signal: "KILL"},
		{argv: sh("kill -TERM $$"), code: 143, signal: "TERM"},
		{argv: sh("kill -SEGV $$"), code: 139, signal: "SEGV"},
		{argv: sh("kill -HUP $$"), code: 129, signal: "HUP"},
		{argv: sh("kill -USR1 $$"), code: 128 + int(unix.SIGUSR1), signal: "USR1"},
		{argv: []string{"true"}, code: 0},
		{argv: []string{"false"}, code: 1},
		{argv: []string{"sh", "-c", "exit 9"}, code: 9},
		{argv: []string{plain}, code: 5},
		{argv: []string{"./plain"}, code: 5},
		{argv: []string{"plain"}, code: 5}, // dir is in PATH
		{argv: []string{"/nope"}, code: 127, error: "execute /nope: no such file or directory"},
		{argv: []string{plain + "/x"}, code: 127, error: "not a directory"},
		{argv: []string{"nope"}, code: 127, error: "execute nope: no such file or directory"},
		{argv: []string{""}, code: 127, error: "no such file or directory"},
		{argv: []string{badInterpreter}, code: 127, error: "no such file or directory"},
		{argv: []string{dir + "/closed"}, code: 126, error: "permission denied"},
		{argv: []string{"closed"}, code: 126, error: "permission denied"},
		{argv: []string{dir}, code: 126, error: "permission denied"},
		{argv: []string{"true", strings.Repeat("x", 4<<20)}, code: 126, error: "argument list too long"},
	}
	r := newRoot(t)
	for i, tt := range tests {
		s := r.spec(tt.argv...)
		s.Cwd = dir
		s.Env = append(s.Env, "PATH="+os.Getenv("PATH")+":"+dir)
		j := r.start(s)
		e := j.ended()
		name := strings.Join(tt.argv, " ")[:min(60, len(strings.Join(tt.argv, " ")))]
		if e.State != record.Exited || e.ExitCode == nil || *e.ExitCode != tt.code || e.Signal != tt.signal {
			t.Errorf("%d: %q: exit is %s, want %d %q", i, name, j.read(record.Exit), tt.code, tt.signal)
		}
		if !strings.Contains(e.Error, tt.error) || tt.error == "" && e.Error != "" {
			t.Errorf("%d: %q: error is %q, want %q", i, name, e.Error, tt.error)
		}
	}
}

func TestE2BytesInTheCommand(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	args := []string{
		"", " ", "'", `"`, "a\nb", "\t", "😀", "-x", "--", "%s", "$HOME", "`id`", "*", `\`, "\xff\xfe", "\x01\x7f", "é",
		strings.Repeat("x", 100<<10),
	}
	j := r.run(append([]string{"printf", `[%s]`}, args...)...)
	j.wantExit(0)
	want := "[" + strings.Join(args, "][") + "]"
	if got := j.log(); got != want {
		t.Errorf("the command saw %.200q, want %.200q", got, want)
	}
}

func TestE3Environment(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	s := r.spec("env", "-0")
	s.Env = []string{
		"PATH=" + os.Getenv("PATH"), record.EnvHome + "=" + r.path, "EMPTY=", "EQUALS=b=c", "LINES=one\ntwo\n", "TAB=\t",
		record.EnvJob + "=j000000000001", "GOMAXPROCS=7", "GODEBUG=madvdontneed=1", "SECRET=" + "hunter" + "2000", "BYTES=\xff", "SPACE_JOBS=kept",
		"LARGE=" + strings.Repeat("l", 100<<10), "LARGER=" + strings.Repeat("m", 100<<10), // together more than a pipe holds
	}
	j := r.start(s)
	j.wantExit(0)
	got := strings.Split(strings.TrimSuffix(j.log(), "\x00"), "\x00")
	want := slices.DeleteFunc(slices.Clone(s.Env), func(kv string) bool { return kv == record.EnvJob+"=j000000000001" })
	want = append(want, record.EnvJob+"="+string(j.id))
	if !slices.Equal(got, want) {
		t.Errorf("the command's environment is %.3000q, want %.3000q", got, want)
	}
	if err := os.Truncate(j.file(record.Log), 0); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(r.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), "hunter2000") {
			t.Errorf("%s holds a value of the environment", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestE4Cwd(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{dir + "/missing": unix.ENOENT, file: unix.ENOTDIR} {
		s := r.spec("true")
		s.Cwd = path
		_, err := lockedStart(s)
		var pe *fs.PathError
		if !errors.As(err, &pe) || pe.Path != path || !errors.Is(err, want) {
			t.Errorf("start in %s: %v, want %v", path, err, want)
		}
	}
	if names := r.names(); len(names) != 0 {
		t.Errorf("refused starts left %q", names)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := r.spec("pwd")
	s.Cwd = dir
	j := r.start(s)
	j.wantExit(0)
	if got := j.log(); got != dir+"\n" {
		t.Errorf("pwd printed %q, want %q", got, dir)
	}
}

func TestE4CwdNotPermitted(t *testing.T) {
	t.Parallel()
	const uid = 60001
	r := rootOf(t, uid)
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	o := r.order("true")
	o.Cwd = closed
	out, err := runCommand(t, unprivileged(t, uid, starter(o)))
	if err == nil || !strings.Contains(out, closed+": permission denied") {
		t.Errorf("start in a closed directory: %v, %q", err, out)
	}
	if names := r.names(); len(names) != 0 {
		t.Errorf("a refused start left %q", names)
	}
	j := r.started(unprivileged(t, uid, starter(r.order("id", "-u"))))
	j.wantExit(0)
	if got := j.log(); got != "60001\n" {
		t.Errorf("id printed %q", got)
	}
}

func TestStartFaults(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for name, change := range map[string]func(*Spec){
		"no runner":         func(s *Spec) { s.Runner = r.path + "/none" },
		"runner is no file": func(s *Spec) { s.Runner = r.path },
		"runner is no program": func(s *Spec) {
			s.Runner = filepath.Join(t.TempDir(), "text")
			if err := os.WriteFile(s.Runner, []byte("text"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(s.Runner, 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"no root": func(s *Spec) { s.Root = r.path + "/none" },
		"claim refused": func(s *Spec) {
			s.Claim = func(record.ID) error { return &fs.PathError{Op: "claim", Path: "key", Err: unix.EIO} }
		},
	} {
		s := r.spec("true")
		change(&s)
		_, err := lockedStart(s)
		var pe *fs.PathError
		if !errors.As(err, &pe) || pe.Path == "" {
			t.Errorf("%s: %v, want a *fs.PathError", name, err)
		}
	}
	if names := r.names(); len(names) != 0 {
		t.Errorf("failed starts left %q", names)
	}
}

// An id that is taken, by a job or by anything, gives way to the next.
func TestIDsTaken(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	var claimed []record.ID
	s := r.spec("true")
	s.Claim = func(id record.ID) error {
		claimed = append(claimed, id)
		if len(claimed) <= 3 {
			if err := os.MkdirAll(filepath.Join(r.path, record.Jobs, string(id), "x"), 0o700); err != nil {
				t.Error(err)
			}
		}
		return nil
	}
	j := r.start(s)
	j.wantExit(0)
	if len(claimed) != 4 || claimed[3] != j.id || claimed[3] != claimed[0].Next().Next().Next() {
		t.Errorf("claimed %q, got %s", claimed, j.id)
	}
	if !strings.Contains(j.read(record.Cmd), string(j.id)) {
		t.Errorf("cmd is %q, want its id to be %s", j.read(record.Cmd), j.id)
	}
}

func TestE5CallersDescriptors(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	path := filepath.Join(r.path, "lock")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c := starter(r.order("sleep", "777"))
	for range 6 {
		c.ExtraFiles = append(c.ExtraFiles, null)
	}
	c.ExtraFiles = append(c.ExtraFiles, f) // 9
	j := r.started(c)                      // returns at the end of the starter's stdout: nobody holds that
	f.Close()
	again, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	// What another test forks has it until it is executed.
	waitFor(t, "the caller's lock", func() bool { return unix.Flock(int(again.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil })
	if _, ok := j.exit(); ok || !j.held() {
		t.Error("the job has ended")
	}
}

func TestR9Modes(t *testing.T) {
	t.Parallel()
	for _, umask := range []string{"0000", "0022", "0777"} {
		r := newRoot(t)
		c := starter(r.order("/bin/sh", "-c", "umask"))
		c.Args = append([]string{"sh", "-c", "umask " + umask + `; exec "$0" "$@"`, c.Path}, c.Args[1:]...)
		c.Path = "/bin/sh"
		j := r.started(c)
		j.wantExit(0)
		if got := j.log(); got != umask+"\n" {
			t.Errorf("umask %s: the job has %q", umask, got)
		}
		j.gone()
		for name, want := range map[string]fs.FileMode{
			"": 0o700, record.Cmd: 0o600, record.Pid: 0o600, record.Log: 0o600, record.Exit: 0o600,
			record.Timing: 0o600, record.Cancel: 0o600, record.Dropped: 0o600,
		} {
			st, err := os.Stat(j.file(name))
			if err != nil {
				t.Error(err)
			} else if st.Mode().Perm() != want {
				t.Errorf("umask %s: mode of %q is %v, want %v", umask, name, st.Mode().Perm(), want)
			}
		}
	}
}
