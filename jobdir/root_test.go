package jobdir

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"space-job/jobdir/record"
)

func TestDefaultRoot(t *testing.T) {
	for _, c := range []struct{ home, xdg, user, want, err string }{
		{"/s", "/x", "/u", "/s", ""},
		{"", "/x", "/u", "/x/space-job", ""},
		{"", "", "/u", "/u/.local/state/space-job", ""},
		{"s", "/x", "/u", "", `root: "s" is not an absolute path (SPACE_JOB_HOME)`},
		{"", "x", "/u", "", `root: "x" is not an absolute path (XDG_STATE_HOME)`},
		{"", "", "", "", `root: "" cannot be: none of SPACE_JOB_HOME, XDG_STATE_HOME and HOME is set`},
	} {
		t.Setenv("SPACE_JOB_HOME", c.home)
		t.Setenv("XDG_STATE_HOME", c.xdg)
		t.Setenv("HOME", c.user)
		got, err := DefaultRoot()
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != c.want || text != c.err || err != nil && !errors.As(err, new(*RootError)) {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// TestR9Modes: files and directories are for their owner alone, whatever the umask.
func TestR9Modes(t *testing.T) {
	// Not parallel: the umask belongs to the whole process.
	for _, mask := range []int{0, 0o022, 0o777} {
		t.Run(fmt.Sprintf("umask %03o", mask), func(t *testing.T) {
			path := filepath.Join(scratch(t), "not", "there", "yet")
			old := syscall.Umask(mask)
			defer syscall.Umask(old)
			r, err := OpenRoot(path)
			if err != nil {
				t.Fatal(err)
			}
			if ids, err := r.IDs(); err != nil || len(ids) != 0 {
				t.Errorf("a root that does not exist: %v, %v", ids, err)
			}
			if err := r.Create(); err != nil {
				t.Fatal(err)
			}
			key, err := r.LockKey("k")
			if err != nil {
				t.Fatal(err)
			}
			key.Unlock()
			err = filepath.WalkDir(filepath.Dir(filepath.Dir(path)), func(p string, e os.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := e.Info()
				want := os.FileMode(0o600)
				if e.IsDir() {
					want = 0o700
				}
				if info.Mode().Perm() != want {
					t.Errorf("%s has mode %v", p, info.Mode())
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Create(); err != nil {
				t.Errorf("Create again: %v", err)
			}
		})
	}
}

// elsewhere moves a directory and leaves a symbolic link in its place.
func elsewhere(path string) error {
	if err := os.Rename(path, path+".moved"); err != nil {
		return err
	}
	return os.Symlink(path+".moved", path)
}

// TestRootIsALink: the root itself may be a symbolic link.
func TestRootIsALink(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	makeJob(t, r, testID, nil)
	if err := elsewhere(r.path); err != nil {
		t.Fatal(err)
	}
	r, err := OpenRoot(r.path)
	if err == nil {
		err = r.Create()
	}
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := r.IDs(); err != nil || len(ids) != 1 {
		t.Errorf("%v, %v", ids, err)
	}
}

func TestR9RefusedRoots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		spoil  func(t *testing.T, r *Root) error
		reason string
	}{
		{"group may write", func(t *testing.T, r *Root) error { return os.Chmod(r.path, 0o770) }, "may be written by others (mode 0770)"},
		{"all may write", func(t *testing.T, r *Root) error { return os.Chmod(r.path, 0o707) }, "may be written by others (mode 0707)"},
		{"all may write jobs", func(t *testing.T, r *Root) error { return os.Chmod(r.jobs(), 0o777) }, "may be written by others (mode 0777)"},
		{"all may write keys", func(t *testing.T, r *Root) error { return os.Chmod(r.keys(), 0o777) }, "may be written by others (mode 0777)"},
		{"owned by another", func(t *testing.T, r *Root) error {
			if os.Geteuid() != 0 {
				t.Skip("only root can give a directory away")
			}
			return os.Chown(r.path, 12345, -1)
		}, "is owned by uid 12345, not by uid 0"},
		{"jobs elsewhere", func(t *testing.T, r *Root) error { return elsewhere(r.jobs()) }, "is a symbolic link"},
		{"keys elsewhere", func(t *testing.T, r *Root) error { return elsewhere(r.keys()) }, "is a symbolic link"},
		{"a file", func(t *testing.T, r *Root) error {
			os.RemoveAll(r.path)
			return os.WriteFile(r.path, nil, 0o600)
		}, "is not a directory"},
		{"below a file", func(t *testing.T, r *Root) error {
			os.RemoveAll(filepath.Dir(r.path))
			return os.WriteFile(filepath.Dir(r.path), nil, 0o600)
		}, "not a directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &Root{path: filepath.Join(scratch(t), "above", "root")}
			if err := r.Create(); err != nil {
				t.Fatal(err)
			}
			if err := c.spoil(t, r); err != nil {
				t.Fatal(err)
			}
			var refused *RootError
			if _, err := OpenRoot(r.path); !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.reason) {
				t.Errorf("OpenRoot: %v", err)
			}
			if err := r.Create(); !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.reason) {
				t.Errorf("Create: %v", err)
			}
		})
	}
	if _, err := OpenRoot("relative"); !errors.As(err, new(*RootError)) {
		t.Errorf("a relative root: %v", err)
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	if _, err := r.Newest(); err != ErrNotFound {
		t.Errorf("Newest of none: %v", err)
	}
	if l, err := r.List(8); err != nil || l.Total != 0 || len(l.Newest) != 0 || len(l.Some) != 0 {
		t.Errorf("List of none: %+v, %v", l, err)
	}
	var want []ID
	for range 500 {
		id := ID(fmt.Sprintf("j%012x", rand.Uint64()>>16))
		want = append(want, id)
		if err := os.Mkdir(r.Job(id).Dir(), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{".new-j6c1f0a2b9d3e", ".gone-j6c1f0a2b9d3e", "j6c1f0a2b9d3", "j6c1f0a2b9d3E", "k6c1f0a2b9d3e", "j6c1f0a2b9d3e0", "a", "\xff\n"} {
		if err := os.Mkdir(filepath.Join(r.jobs(), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	slices.Reverse(want)
	if got, err := r.IDs(); err != nil || !slices.Equal(got, want) {
		t.Errorf("IDs: %d, %v; want %d", len(got), err, len(want))
	}
	for _, n := range []int{-1, 0, 1, 2, 20, 249, 250, 499, 500, 501, 5000} {
		l, err := r.List(n)
		if err != nil || l.Total != len(want) || !slices.Equal(l.Newest, want[:min(max(n, 0), len(want))]) {
			t.Errorf("List(%d): %d of %d, %v", n, len(l.Newest), l.Total, err)
		}
		if len(l.Some) != sampledIDs || !slices.IsSorted(l.Some) || !slices.Contains(want, l.Some[0]) {
			t.Errorf("List(%d): a sample of %v", n, l.Some)
		}
	}
	if got, err := r.Newest(); err != nil || got != want[0] {
		t.Errorf("Newest: %s, %v", got, err)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	for _, id := range []ID{"j6c1f0a2b9d3e", "j6c1f0a2c9d3e", "j6c1f0a2baaaa"} {
		makeJob(t, r, id, nil)
	}
	for _, c := range []struct {
		given string
		want  ID
		err   string
	}{
		{"j6c1f0a2b9d3e", "j6c1f0a2b9d3e", ""},
		{"6c1f0a2b9d3e", "j6c1f0a2b9d3e", ""},
		{"aaaa", "j6c1f0a2baaaa", ""},
		{"b9d3e", "j6c1f0a2b9d3e", ""},
		{"9d3e", "", `job "9d3e": fits 2 jobs: j6c1f0a2c9d3e j6c1f0a2b9d3e`},
		{"bbbb", "", "no such job"},
		{"j6c1f0a2b9d3f", "", "no such job"},
		{"aaa", "", "not an id"},
		{"", "", "not an id"},
		{"AAAA", "", "not an id"},
		{"j6c1f", "", "not an id"},
		{"../j6c1f0a2b9d3e", "", "not an id"},
		{"06c1f0a2b9d3e", "", "not an id"},
		{"j6c1f0a2b9d3e\n", "", "not an id"},
	} {
		got, err := r.Resolve(c.given)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("Resolve(%q) = %q, %v; want %q, %q", c.given, got, err, c.want, c.err)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("j6c1f0a2b9d3e")
	f.Add("J6c1f0a2b9d3e")
	f.Add("j6c1f0a2b9d3e/..")
	f.Fuzz(func(t *testing.T, s string) {
		id, ok := record.ParseID(s)
		if !ok {
			return
		}
		if string(id) != s || strings.Trim(s[1:], "0123456789abcdef") != "" || s[0] != 'j' || len(s) != 13 {
			t.Fatalf("%q is an id", s)
		}
		if next := id.Next(); s != "jffffffffffff" && (next <= id || next.Time().Before(id.Time())) {
			t.Fatalf("%s comes after %s", next, id)
		}
		if at := id.Time(); record.NewID(at) > id || record.NewID(at).Next() < id {
			t.Fatalf("%s is of %v, whose id is %s", id, at, record.NewID(at))
		}
	})
}

func TestFileSystem(t *testing.T) {
	t.Parallel()
	r := must[*Root](t)(OpenRoot(filepath.Join(t.TempDir(), "not", "yet")))
	info, err := r.FileSystem()
	if err != nil || info.Type == "" || info.TotalBytes == 0 || info.FreeBytes > info.TotalBytes {
		t.Errorf("%+v, %v", info, err)
	}
}

// BenchmarkNewest20Of20000 is what a list of the newest jobs costs: it should
// be little more than reading the names.
func BenchmarkNewest20Of20000(b *testing.B) {
	r := newRoot(b)
	for i := range 20_000 {
		if err := os.Mkdir(filepath.Join(r.jobs(), fmt.Sprintf("j%012x", i*7919)), 0o700); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if l, err := r.List(20); err != nil || len(l.Newest) != 20 || l.Total != 20_000 {
			b.Fatal(len(l.Newest), l.Total, err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	r := newRoot(b)
	j := makeJob(b, r, testID, map[string]string{record.Exit: exitJSON(Exited, 0, testID.Time())})
	b.Run("Read", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Job(j.id).Read(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("State", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Job(j.id).State(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
