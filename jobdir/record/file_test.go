package record

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func openDir(t *testing.T, path string) int {
	t.Helper()
	fd, err := Open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "content")
	write(t, filepath.Join(dir, "empty"), "")
	if err := errors.Join(
		os.Symlink("file", filepath.Join(dir, "link")),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
		os.Mkdir(filepath.Join(dir, "dir"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	d := openDir(t, dir)
	for _, c := range []struct {
		name    string
		room    int
		want    string
		err     error
		regular bool
		size    int64
	}{
		{"file", 100, "content", nil, true, 7},
		{"file", 7, "content", nil, true, 7},
		{"file", 3, "con", nil, true, 7},
		{"empty", 3, "", nil, true, 0},
		{"fifo", 3, "", unix.ESPIPE, false, 0},
		{"link", 3, "", unix.ELOOP, false, 0},
		{"dir", 3, "", unix.EISDIR, false, 0},
		{"missing", 3, "", fs.ErrNotExist, false, 0},
	} {
		b, err := ReadFile(d, c.name, make([]byte, c.room))
		if string(b) != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s into %d bytes: %q, %v", c.name, c.room, b, err)
		}
		size, modified, ok := StatRegular(d, c.name)
		if size != c.size || ok != c.regular || ok == modified.IsZero() {
			t.Errorf("%s: size %d, of %v, %v", c.name, size, modified, ok)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	d := openDir(t, dir)
	for name, want := range map[string]error{"link": unix.ELOOP, "missing": fs.ErrNotExist} {
		_, err := Open(d, name, unix.O_RDONLY, 0)
		var p *fs.PathError
		if !errors.Is(err, want) || !errors.As(err, &p) || p.Path != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	fd, err := Open(d, "new", unix.O_WRONLY|unix.O_CREAT, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("the descriptor passes through exec: %v", err)
	}
}

func TestReserveAndWrite(t *testing.T) {
	t.Parallel()
	long := bytes.Repeat([]byte("x"), ReservedSize)
	for name, reserve := range map[string]func(int) error{
		"Reserve":          Reserve,
		"reserveByWriting": func(fd int) error { return reserveByWriting(fd, ReservedSize) },
	} {
		path := filepath.Join(t.TempDir(), "record")
		fd := openFile(t, path)
		if err := reserve(fd); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b := read(t, path); !IsBlank([]byte(b)) {
			t.Errorf("%s: not blank: %.20q", name, b)
		}
		for _, b := range [][]byte{[]byte("{}\n"), long, []byte("shorter"), nil} {
			if err := Write(fd, b); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got := read(t, path); got != string(b) {
				t.Errorf("%s: wrote %d bytes, there are %d", name, len(b), len(got))
			}
		}
	}
}

func TestPunch(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), Log)
	write(t, path, strings.Repeat("x", 64<<10))
	fd := openFile(t, path)
	if err := Punch(fd, 8<<10, 16<<10); err == unix.ENOTSUP {
		t.Skip("no holes here")
	} else if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("x", 8<<10) + strings.Repeat("\x00", 16<<10) + strings.Repeat("x", 40<<10)
	if read(t, path) != want {
		t.Error("more or less than the range was freed")
	}
}

func TestRenameNoReplace(t *testing.T) {
	t.Parallel()
	for name, rename := range map[string]func(int, string, string) error{
		"RenameNoReplace": RenameNoReplace,
		"renameByLink":    renameByLink,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := openDir(t, dir)
			at := func(name string) string { return filepath.Join(dir, name) }
			job := func(name string) {
				if err := os.Mkdir(at(name), 0o700); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(at(name), Cmd), name)
			}

			write(t, at(".exit"), "first")
			if err := rename(d, ".exit", "exit"); err != nil {
				t.Error(err)
			}
			write(t, at(".exit"), "second")
			if err := rename(d, ".exit", "exit"); err != unix.EEXIST {
				t.Errorf("over a file: %v", err)
			}
			if got := read(t, at("exit")); got != "first" {
				t.Errorf("exit is %q", got)
			}
			if got := read(t, at(".exit")); got != "second" {
				t.Errorf(".exit is %q", got)
			}

			job(".new-1")
			if err := rename(d, ".new-1", "j1"); err != nil {
				t.Error(err)
			}
			job(".new-2")
			if err := rename(d, ".new-2", "j1"); err != unix.EEXIST {
				t.Errorf("over a job: %v", err)
			}
			if err := os.Mkdir(at("empty"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := rename(d, ".new-2", "empty"); err != unix.EEXIST {
				t.Errorf("over an empty directory: %v", err)
			}
			if err := os.Symlink("nowhere", at("link")); err != nil {
				t.Fatal(err)
			}
			if err := rename(d, ".new-2", "link"); err != unix.EEXIST {
				t.Errorf("over a link: %v", err)
			}
			if err := rename(d, ".new-2", "exit"); err != unix.EEXIST {
				t.Errorf("over a file: %v", err)
			}
			if got := read(t, filepath.Join(at("j1"), Cmd)); got != ".new-1" {
				t.Errorf("j1 holds %q", got)
			}
			if err := rename(d, "missing", "j9"); err != unix.ENOENT {
				t.Errorf("of nothing: %v", err)
			}
		})
	}
}
