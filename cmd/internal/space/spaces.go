package space

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"space-job/jobdir"
)

// File is the name of the list of Spaces in a root.
const File = "spaces.json"

// Local is the name of the Space that the root itself is in. No other has it.
const Local = "local"

const (
	maxFile   = 1 << 20
	maxSpaces = 1000
	maxName   = 64
	writable  = 0o022 // permissions that would let others write the file
)

// Program is how space-job is called where nobody says otherwise.
const Program = "space-job"

// Space is how to get to one: an entry of spaces.json.
type Space struct {
	Name    string   `json:"-"`
	Exec    []string `json:"exec"`              // a program and its arguments, in front of what is to be run over there
	Install bool     `json:"install,omitempty"` // where there is no space-job, bring it there
	Machine bool     `json:"machine,omitempty"` // a person's own: a start there is asked for, unless a rule allows it
	Program string   `json:"program,omitempty"` // space-job over there: a name or a path; "": Program
}

// UnknownError is a name that spaces.json does not have.
type UnknownError struct {
	Name  string
	Known []string // in order
	Path  string   // of the file
}

func (e *UnknownError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("%q is not known: %s names no Space", e.Name, e.Path)
	}
	return fmt.Sprintf("%q is none of %s", e.Name, strings.Join(e.Known, ", "))
}

// CheckName says what is wrong with the name of a Space: it has letters, digits
// and . _ : -, begins with a letter or a digit, and has at most 64 bytes.
func CheckName(name string) error {
	const first = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	switch {
	case name == "":
		return errors.New("is empty")
	case len(name) > maxName:
		return fmt.Errorf("is longer than %d bytes", maxName)
	case strings.Trim(name[:1], first) != "":
		return errors.New("does not begin with a letter or a digit")
	case strings.Trim(name, first+"._:-") != "":
		return errors.New("has something other than letters, digits and . _ : -")
	}
	return nil
}

// Load reads the Spaces of a root, in the order of their names. Without the file
// there are none. A file that cannot be used (damaged, with a field or a name that
// is not known, a symbolic link, somebody else's, open to the writing of others)
// is an error, whole: it says what is run.
func Load(root string) ([]Space, error) {
	path := filepath.Join(root, File)
	b, err := jobdir.ReadOwn(path, maxFile, writable)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return all, nil
}

// Find is one of the Spaces of a root; of a name that is not there the error is
// an *UnknownError.
func Find(root, name string) (Space, error) {
	all, err := Load(root)
	if err != nil {
		return Space{}, err
	}
	unknown := &UnknownError{Name: name, Path: filepath.Join(root, File)}
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
		unknown.Known = append(unknown.Known, s.Name)
	}
	return Space{}, unknown
}

// Parse reads the text of spaces.json.
func Parse(b []byte) ([]Space, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	t, err := d.Token()
	switch {
	case err == io.EOF:
		return nil, errors.New("is empty")
	case err != nil:
		return nil, err
	case t != json.Delim('{'):
		return nil, errors.New(`is no object: {"box": {"exec": ["ssh", "box"]}} is one`)
	}
	all := []Space{}
	for d.More() {
		if t, err = d.Token(); err != nil {
			return nil, err
		}
		name, _ := t.(string)
		var s *Space
		if err := d.Decode(&s); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		if s == nil {
			return nil, fmt.Errorf("%q: holds null", name)
		}
		s.Name = name
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		if slices.ContainsFunc(all, func(o Space) bool { return o.Name == name }) {
			return nil, fmt.Errorf("has %q twice", name)
		}
		if all = append(all, *s); len(all) > maxSpaces {
			return nil, fmt.Errorf("has more than %d Spaces", maxSpaces)
		}
	}
	if _, err := d.Token(); err != nil { // the end of the object
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows its end")
	}
	slices.SortFunc(all, func(x, y Space) int { return strings.Compare(x.Name, y.Name) })
	return all, nil
}

func (s *Space) check() error {
	if err := CheckName(s.Name); err != nil {
		return fmt.Errorf("the name %w", err)
	}
	switch {
	case s.Name == Local:
		return errors.New("is the name of this Space")
	case len(s.Exec) == 0 || s.Exec[0] == "":
		return errors.New(`exec is no prefix: ["ssh", "box"] is one`)
	case slices.ContainsFunc(s.Exec, func(arg string) bool { return strings.IndexByte(arg, 0) >= 0 }):
		return errors.New("exec holds a NUL byte")
	case !PlainWord(s.Program):
		return errors.New("program has something other than letters, digits and . _ / ~ + - : a shell over there may read it")
	}
	return nil
}

// PlainWord reports whether a shell takes s for one word, and that for itself (but
// for ~, which is a home).
func PlainWord(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/~+-") == "" && !strings.HasPrefix(s, "-")
}

// program is what is run over there.
func (s *Space) program() string {
	if s.Program == "" {
		return Program
	}
	return s.Program
}
