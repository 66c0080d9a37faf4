package install

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"space-job/cmd/internal/space"
)

// place is a Space of another kind of system, which is a folder here, and programs
// for it.
type place struct {
	t    *testing.T
	home string
	bin  string // what is found before all else over there
	req  space.InstallRequest
}

func newPlace(t *testing.T) *place {
	dir := t.TempDir()
	p := &place{t: t, home: dir + "/home", bin: dir + "/bin"}
	for _, d := range []string{p.home, p.bin, dir + "/programs/plan9-mips"} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.tool("uname", `case $1 in -s) echo Plan9;; *) echo mips;; esac`)
	for _, name := range programs {
		p.put(dir+"/programs/plan9-mips/"+name, "#!/bin/sh\necho "+name+" v1\n"+strings.Repeat("# a line\n", 30000))
	}
	p.req = space.InstallRequest{Exec: []string{"env", "HOME=" + p.home, "PATH=" + p.bin + ":" + os.Getenv("PATH")}, Version: "v1.2/../x", Programs: dir + "/programs"}
	return p
}

func (p *place) put(path, text string) {
	p.t.Helper()
	syscall.ForkLock.RLock() // what is forked while it is open for writing keeps it from being executed
	err := os.WriteFile(path, []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) tool(name, script string) { p.put(p.bin+"/"+name, "#!/bin/sh\n"+script+"\n") }

// there are the folders of programs, by name.
func (p *place) there() []string {
	p.t.Helper()
	entries, err := os.ReadDir(p.home + "/.local/share/space-job")
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		p.t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestInstall(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	path, err := Do(t.Context(), p.req)
	if err != nil {
		t.Fatal(err)
	}
	if dir := filepath.Base(filepath.Dir(path)); !strings.HasPrefix(dir, "v1.2..x-") || len(dir) != len("v1.2..x-")+16 {
		t.Errorf("the folder is %s", dir)
	}
	for _, name := range programs {
		got, err := os.ReadFile(filepath.Dir(path) + "/" + name)
		want, _ := os.ReadFile(p.req.Programs + "/plan9-mips/" + name)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	if all := p.there(); len(all) != 1 {
		t.Errorf("%q", all)
	}
	before, err := os.Stat(path)
	if err != nil || before.Mode() != 0o755 {
		t.Fatal(before.Mode(), err)
	}
	// Again: what is there is used.
	again, err := Do(t.Context(), p.req)
	after, bad := os.Stat(path)
	if err != nil || bad != nil || again != path || !after.ModTime().Equal(before.ModTime()) || !os.SameFile(before, after) {
		t.Errorf("%s, %v, %v", again, err, bad)
	}
	// Something else is left alone.
	p.put(path, "mine")
	var hint *hintError
	if _, err := Do(t.Context(), p.req); !errors.As(err, &hint) || !strings.Contains(err.Error(), "has something else") {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" || len(p.there()) != 1 {
		t.Errorf("%q, %v, %q", b, err, p.there())
	}
	// Another version stands beside it.
	p.req.Version = "v2"
	if other, err := Do(t.Context(), p.req); err != nil || other == path || len(p.there()) != 2 {
		t.Errorf("%s, %v, %q", other, err, p.there())
	}
}

// TestInstallFails: whatever is wrong is said, and leaves nothing.
func TestInstallFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, says string
		spoil      func(p *place)
	}{
		{"bytes that are lost", "what arrived there is not what was sent", func(p *place) { p.tool("cat", "exec head -c 1000") }},
		{"bytes that are others", "what arrived there is not what was sent", func(p *place) { p.tool("cat", "tr a b") }},
		{"a disk that is full", "write space-job there: ", func(p *place) { p.tool("cat", "head -c 1000; echo cat: no space left >&2; exit 1") }},
		{"a program that does not run", "it does not run there: nonsense", func(p *place) {
			p.put(p.req.Programs+"/plan9-mips/space-job", "#!/bin/sh\necho nonsense >&2\nexit 1\n")
		}},
		{"no programs", "it is a plan9-mips, and this is a ", func(p *place) { _ = os.RemoveAll(p.req.Programs) }},
		{"no home", "HOME there is", func(p *place) { p.req.Exec = append(p.req.Exec, "HOME=") }},
		{"a strange home", "might take that for something else", func(p *place) { p.req.Exec = append(p.req.Exec, "HOME="+p.home+"/a b$") }},
		{"a home that cannot be written", "mkdir", func(p *place) { p.put(p.home+"/.local", "") }},
		{"no shell", "", func(p *place) { p.req.Exec = []string{"/nonesuch/ssh", "box"} }},
		{"a shell that ends", "gone", func(p *place) { p.req.Exec = []string{"sh", "-c", "echo gone >&2; exit 1"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			c.spoil(p)
			path, err := Do(t.Context(), p.req)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %v", path, err)
			}
			if all := p.there(); len(all) != 0 {
				t.Errorf("it left %q", all)
			}
		})
	}
}

// TestNoisyShell: what a login prints is no answer.
func TestNoisyShell(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.req.Exec = append([]string{"sh", "-c", `echo welcome; echo Linux; printf 'no newline'; exec "$@"`, "sh"}, p.req.Exec...)
	if _, err := Do(t.Context(), p.req); err != nil {
		t.Error(err)
	}
}
