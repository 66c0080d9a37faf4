package thread

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"space-job/jobdir"
)

// Member is somebody who can be mentioned: what is kept in members/<name>.json.
type Member struct {
	Name        string    `json:"name"`
	Kind        string    `json:"kind"`         // Person or Agent
	WakeCommand string    `json:"wake_command"` // a shell command that gets the item on its stdin, or
	WakePane    string    `json:"wake_pane"`    // a tmux pane
	WakeSocket  string    `json:"wake_socket"`  // of the tmux server that has the pane; "": the usual one
	AddedAt     time.Time `json:"added_at,omitzero"`
}

// Wakeable reports whether there is anything to run that wakes the member.
func (m *Member) Wakeable() bool { return m.WakeCommand != "" || m.WakePane != "" }

// Author is the member as who wrote something.
func (m *Member) Author() Author { return Author{m.Name, m.Kind} }

// Errors that callers match with errors.Is.
var (
	ErrNoMember = errors.New("no such member")
	ErrNoItem   = errors.New("no such item")
	ErrNoEntry  = errors.New("no such entry")
)

// InvalidError is a value that is refused, before anything is written.
type InvalidError struct {
	Field, Value, Why string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("%s: %q %s", e.Field, e.Value, e.Why) }

const maxName = 64

// ValidName reports whether a member may have this name.
func ValidName(s string) bool {
	if s == "" || len(s) > maxName || s[0] == '.' || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if !nameByte(s[i]) {
			return false
		}
	}
	return true
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
}

// CheckName says what is wrong with the name of a member.
func CheckName(s string) error {
	if ValidName(s) {
		return nil
	}
	return &InvalidError{"member", s, "is no name: 1 to 64 letters, digits, dots, underscores and dashes, with no dot or dash at the beginning"}
}

// LoginName is the name of the user of this process, "" where it cannot be
// told. The user is a person, and needs no file to be a member.
func LoginName() string {
	name := ""
	if u, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil {
		name = u.Username
	} else if name = os.Getenv("LOGNAME"); name == "" {
		name = os.Getenv("USER")
	}
	if ValidName(name) {
		return name
	}
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && nameByte(byte(r)) {
			return r
		}
		return '_'
	}, name)
	name = strings.TrimLeft(name[:min(len(name), maxName)], ".-")
	if !ValidName(name) {
		return ""
	}
	return name
}

func (t *Thread) memberPath(name string) string { return t.path(membersDir, name+".json") }

// Member is one member: from its file, or the login name as a person. The error
// of one that is not there is ErrNoMember.
func (t *Thread) Member(name string) (Member, error) {
	if err := CheckName(name); err != nil {
		return Member{}, err
	}
	b, err := readSmall(t.memberPath(name))
	switch {
	case missing(err):
		if name == LoginName() {
			return Member{Name: name, Kind: Person}, nil
		}
		return Member{}, ErrNoMember
	case err != nil:
		return Member{}, err
	}
	var m Member
	if err = json.Unmarshal(b, &m); err == nil && (m.Name != name || m.Kind != Person && m.Kind != Agent) {
		err = errors.New("it does not describe the member " + name)
	}
	if err != nil {
		return Member{}, fmt.Errorf("%s is damaged: %w", t.memberPath(name), err)
	}
	return m, nil
}

// Members are all members, by name. The login name is one of them. One whose
// file is damaged is left out, with a warning.
func (t *Thread) Members() ([]Member, error) {
	files, err := names(t.path(membersDir))
	if err != nil {
		return nil, err
	}
	var all []Member
	login := LoginName()
	for _, f := range files {
		name, ok := strings.CutSuffix(f, ".json")
		if !ok || !ValidName(name) {
			continue
		}
		m, err := t.Member(name)
		if errors.Is(err, ErrNoMember) {
			continue
		}
		if err != nil {
			t.warn("%v", err)
			continue
		}
		all = append(all, m)
		if name == login {
			login = ""
		}
	}
	if login != "" {
		all = append(all, Member{Name: login, Kind: Person})
	}
	return all, nil
}

// AddMember adds a member, or replaces the one of that name. Everything is
// checked before anything is written.
func (t *Thread) AddMember(m Member) (existed bool, err error) {
	if err := CheckName(m.Name); err != nil {
		return false, err
	}
	if m.Name == daemonName {
		return false, &InvalidError{"member", m.Name, "is who tells of jobs that have ended: take another name"}
	}
	if m.Kind != Person && m.Kind != Agent {
		return false, &InvalidError{"kind", m.Kind, "is neither agent nor person"}
	}
	if m.WakeCommand != "" && m.WakePane != "" {
		return false, &InvalidError{"wake_pane", m.WakePane, "is given beside a wake_command: one of them"}
	}
	if err := checkCommand(m.WakeCommand); err != nil {
		return false, err
	}
	if err := checkPane(m.WakePane); err != nil {
		return false, err
	}
	all, err := t.Members()
	if err != nil {
		return false, err
	}
	for _, o := range all {
		if o.Name != m.Name && strings.EqualFold(o.Name, m.Name) {
			return false, &InvalidError{"member", m.Name, "differs from the member " + o.Name + " in capitals only"}
		}
	}
	dir, err := t.root.MakeDir(membersDir)
	if err != nil {
		return false, err
	}
	if m.AddedAt.IsZero() {
		m.AddedAt = t.now().UTC().Truncate(time.Millisecond)
	}
	_, err = os.Lstat(t.memberPath(m.Name))
	existed = err == nil
	return existed, jobdir.ReplaceFile(filepath.Join(dir, m.Name+".json"), jobdir.Line(m), true)
}

// RemoveMember removes a member. Its inbox stays as it is; nobody can add to it.
func (t *Thread) RemoveMember(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	err := os.Remove(t.memberPath(name))
	if missing(err) {
		return ErrNoMember
	}
	if err == nil {
		err = jobdir.SyncDir(t.path(membersDir))
	}
	return err
}

// shellWords are the beginnings of a command that no file has to stand for.
const shellWords = " . : cd command eval exec export if for set test trap ulimit umask unset until while { ( ! [ "

// checkCommand refuses a waker that could not run.
func checkCommand(s string) error {
	const field = "wake_command"
	if s == "" {
		return nil
	}
	fields := strings.Fields(s)
	if len(fields) == 0 {
		return &InvalidError{field, s, "is empty"}
	}
	for i := range len(s) {
		if s[i] == 0 {
			return &InvalidError{field, s, "holds a NUL byte"}
		}
	}
	word := fields[0]
	if strings.Contains(shellWords, " "+word+" ") || strings.ContainsAny(word, "$`'\"\\;&|()<>=*?[]{}~#!") {
		return nil // for the shell to make out
	}
	if strings.Contains(word, "/") && !filepath.IsAbs(word) {
		return &InvalidError{field, s, "is a relative path: it runs in /, so give the path from there"}
	}
	if info, err := os.Stat(word); err == nil && filepath.IsAbs(word) && info.IsDir() {
		return &InvalidError{field, s, "is not executable: it is a directory"}
	}
	if _, err := exec.LookPath(word); err != nil {
		var why *exec.Error
		if errors.As(err, &why) {
			err = why.Err
		}
		return &InvalidError{field, s, "is not executable: " + err.Error()}
	}
	return nil
}

// checkPane refuses what tmux would take for something else than a target.
func checkPane(s string) error {
	if s == "" {
		return nil
	}
	if s[0] == '-' || len(s) > 200 {
		return &InvalidError{"wake_pane", s, "is no tmux pane, such as %3 or work:0.1"}
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return &InvalidError{"wake_pane", s, "is no tmux pane, such as %3 or work:0.1"}
		}
	}
	return nil
}
