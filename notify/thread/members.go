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

// CheckName says what is wrong with the name of a member that is given as field.
func CheckName(field, s string) error {
	if ValidName(s) {
		return nil
	}
	return &InvalidError{field, s, "is no name: 1 to 64 letters, digits, dots, underscores and dashes, with no dot or dash at the beginning"}
}

// CheckNewName is CheckName of somebody who is to become a member.
func CheckNewName(field, s string) error {
	if strings.EqualFold(s, daemonName) {
		return &InvalidError{field, s, "is who tells of jobs that have ended: take another name"}
	}
	return CheckName(field, s)
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
	if err := CheckName("member", name); err != nil {
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
// file cannot be read is left out, with a warning.
func (t *Thread) Members() ([]Member, error) {
	all, unread, err := t.members()
	for _, u := range unread {
		t.warn("%v", u.err)
	}
	return all, err
}

// unreadMember is a member whose file cannot be read.
type unreadMember struct {
	name string
	err  error
}

func (t *Thread) members() (all []Member, unread []unreadMember, err error) {
	files, err := names(t.path(membersDir))
	if err != nil {
		return nil, nil, err
	}
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
			unread = append(unread, unreadMember{name, err})
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
	return all, unread, nil
}

// AddMember adds a member, or replaces the one of that name. Everything is
// checked before anything is written.
func (t *Thread) AddMember(m Member) (existed bool, err error) {
	if err := CheckNewName("member", m.Name); err != nil {
		return false, err
	}
	if m.Kind != Person && m.Kind != Agent {
		return false, &InvalidError{"kind", m.Kind, "is neither agent nor person"}
	}
	if m.WakeCommand != "" && m.WakePane != "" {
		return false, &InvalidError{"wake_pane", m.WakePane, "is given beside a wake_command: one of them"}
	}
	if err := checkWaker(m.WakeCommand); err != nil {
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
	dir, err := t.root.MakeDurableDir(membersDir)
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
	if err := CheckName("member", name); err != nil {
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

func checkWaker(command string) error {
	if command == "" {
		return nil
	}
	return CheckCommand("wake_command", command)
}

// CheckCommand refuses a shell command, given as field, that could not run in /
// some day: one that the shell cannot read, or that begins with a program that
// is not there. What only the shell can make out it lets pass.
func CheckCommand(field, command string) error {
	refused := func(why string) error { return &InvalidError{field, command, why} }
	switch {
	case strings.TrimSpace(command) == "":
		return refused("is empty")
	case strings.IndexByte(command, 0) >= 0:
		return refused("holds a NUL byte")
	}
	// -n reads the command and runs nothing of it.
	var exit *exec.ExitError
	if out, err := exec.Command("/bin/sh", "-n", "-c", command).CombinedOutput(); errors.As(err, &exit) && exit.Exited() {
		why := strings.ToValidUTF8(strings.Join(strings.Fields(string(out)), " "), "\ufffd")
		return refused("is no shell command: " + why[:min(len(why), 200)])
	}
	program, ok := firstProgram(command)
	if !ok {
		return nil
	}
	if strings.Contains(program, "/") && !filepath.IsAbs(program) {
		return refused("is a relative path: it runs in /, so give the path from there")
	}
	if info, err := os.Stat(program); err == nil && filepath.IsAbs(program) && info.IsDir() {
		return refused("is not executable: it is a directory")
	}
	if _, err := exec.LookPath(program); err != nil {
		var why *exec.Error
		if errors.As(err, &why) {
			err = why.Err
		}
		return refused("is not executable: " + err.Error())
	}
	return nil
}

// shellWords are the beginnings of a command that no file has to stand for.
const shellWords = " . : cd case command echo eval exit export false for if kill printf pwd read set test trap true type ulimit umask unset until wait while { ( ! [ "

// firstProgram is the program that a shell command begins with, where that can
// be told without being a shell: behind assignments and exec, in quotes or not.
func firstProgram(command string) (string, bool) {
	for {
		command = strings.TrimLeft(command, " \t\n")
		word, rest := command, ""
		quoted := false
		if command != "" && (command[0] == '\'' || command[0] == '"') {
			if word, rest, quoted = strings.Cut(command[1:], command[:1]); !quoted || rest != "" && !strings.ContainsAny(rest[:1], " \t\n;|&") {
				return "", false
			}
		} else if i := strings.IndexAny(command, " \t\n;|&"); i >= 0 {
			word, rest = command[:i], command[i:]
		}
		name, _, assigns := strings.Cut(word, "=")
		plain := !strings.ContainsAny(word, "$`'\"\\()<>*?[]{}~#!")
		switch {
		case word == "":
			return "", false
		case quoted:
			return word, !strings.ContainsAny(word, "$`\\")
		case !plain: // for the shell to make out
			return "", false
		case word == "exec" || assigns && isVariable(name):
			command = rest
		default:
			return word, !strings.Contains(shellWords, " "+word+" ")
		}
	}
}

func isVariable(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
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
