package space

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	t.Parallel()
	good, err := Parse([]byte(`{"local:dev": {"exec": ["docker", "exec", "-i", "dev"], "machine": true},
		"cloud:box": {"exec": ["ssh", "box"], "install": true, "program": ".local/bin/space-job"}}`))
	want := []Space{
		{Name: "cloud:box", Exec: []string{"ssh", "box"}, Install: true, Program: ".local/bin/space-job"},
		{Name: "local:dev", Exec: []string{"docker", "exec", "-i", "dev"}, Machine: true},
	}
	same := func(x, y Space) bool {
		return slices.Equal(x.Exec, y.Exec) && x.Name == y.Name && x.Install == y.Install && x.Machine == y.Machine && x.Program == y.Program
	}
	if err != nil || !slices.EqualFunc(good, want, same) {
		t.Errorf("%+v, %v", good, err)
	}
	for text, why := range map[string]string{
		``:                                   "is empty",
		`[]`:                                 "is no object",
		`{`:                                  "EOF",
		`null`:                               "is no object",
		`{"a":null}`:                         `"a": holds null`,
		`{"a":{}}`:                           "exec is no prefix",
		`{"a":{"exec":[]}}`:                  "exec is no prefix",
		`{"a":{"exec":[""]}}`:                "exec is no prefix",
		`{"a":{"exec":"ssh box"}}`:           `"a": json: cannot unmarshal string`,
		`{"a":{"exec":["ssh","b\u0000"]}}`:   "NUL",
		`{"a":{"exec":["x"],"instal":true}}`: `unknown field "instal"`,
		`{"a":{"exec":["x"]},"a":{"exec":["y"]}}`:            `has "a" twice`,
		`{"local":{"exec":["x"]}}`:                           "is the name of this Space",
		`{"a/b":{"exec":["x"]}}`:                             "something other than",
		`{".a":{"exec":["x"]}}`:                              "does not begin",
		`{"":{"exec":["x"]}}`:                                "is empty",
		`{"a":{"exec":["x"],"program":"a b"}}`:               "program has something other",
		`{"a":{"exec":["x"],"program":"-a"}}`:                "program has something other",
		`{"a":{"exec":["x"],"program":"a;b"}}`:               "program has something other",
		`{"a":{"exec":["x"]}} {}`:                            "something follows",
		`{"` + strings.Repeat("a", 65) + `":{"exec":["x"]}}`: "longer than 64",
	} {
		if all, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, %v, want an error with %q", text, all, err, why)
		}
	}
}

// TestLoad: what others may have written is not run.
func TestLoad(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if all, err := Load(root); err != nil || len(all) != 0 {
		t.Errorf("no file: %v, %v", all, err)
	}
	_, err := Find(root, "x")
	var unknown *UnknownError
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), `"x" is not known`) {
		t.Errorf("no file: %v", err)
	}
	path := filepath.Join(root, File)
	if err := os.WriteFile(path, []byte(`{"b":{"exec":["x"]},"a":{"exec":["y"]}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, err := Find(root, "a"); err != nil || s.Exec[0] != "y" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Find(root, "c"); err == nil || err.Error() != `"c" is none of a, b` {
		t.Errorf("an unknown one: %v", err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(root, "a"); err == nil || !strings.Contains(err.Error(), "may be written by others") {
		t.Errorf("writable: %v", err)
	}
	if err := os.Rename(path, path+".real"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".real", path); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(root, "a"); err == nil || errors.As(err, &unknown) {
		t.Errorf("a symbolic link: %v", err)
	}
}

// FuzzParse: whatever it takes can be run, and has names that are fit for a file.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"cloud:box": {"exec": ["ssh", "box"]}, "local:dev": {"exec": ["docker", "exec", "-i", "dev"], "install": true, "machine": true, "program": "x"}}`))
	f.Add([]byte(`{"a":{"exec":["x"]},"a":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := Parse(b)
		if err != nil {
			return
		}
		for i, s := range all {
			if CheckName(s.Name) != nil || s.Name == Local || filepath.Base(s.Name) != s.Name || len(s.Exec) == 0 || s.Exec[0] == "" || !PlainWord(s.Program) {
				t.Errorf("%+v", s)
			}
			if i > 0 && all[i-1].Name >= s.Name {
				t.Errorf("%q behind %q", s.Name, all[i-1].Name)
			}
		}
	})
}
