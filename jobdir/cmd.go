package jobdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"space-job/jobdir/record"
)

// Format is the version of the format that this package writes.
const Format = 1

// Cmd is the cmd file: what was asked for. The starter writes it once.
type Cmd struct {
	Format    int             `json:"format"`
	ID        ID              `json:"id"`
	Name      string          `json:"name"`
	Argv      []string        `json:"argv"`
	Command   string          `json:"command"` // when it was given as a shell string
	Until     json.RawMessage `json:"until"`   // the condition of a watcher, see package until; nil: null
	Cwd       string          `json:"cwd"`
	Env       []string        `json:"env"`       // names only: no value ever reaches a file
	TimeoutS  float64         `json:"timeout_s"` // 0: none, null in the file
	Notify    bool            `json:"notify"`
	Wake      []string        `json:"wake"`
	Key       string          `json:"key"`
	StartedBy StartedBy       `json:"started_by"`
	CreatedAt time.Time       `json:"created_at"`
	MaxLog    int64           `json:"max_log"` // 0: every byte is kept, null in the file

	raw []byte // the file it was read from, for the fields that only a newer version knows
}

// StartedBy says who started a job. Unknown is "".
type StartedBy struct {
	Member string `json:"member"`
	Kind   string `json:"kind"`
	Job    string `json:"job"` // the job that the starter belongs to
}

// cmdFile is Cmd as it is read.
type cmdFile struct {
	Cmd
	// A time that is none is missing, and missing ones are derived: it must
	// not hide the rest.
	CreatedAt any `json:"created_at"`
	// The exact bytes of argv, written only where JSON cannot hold them.
	ArgvBase64 [][]byte `json:"argv_base64"`
}

var cmdFields = []string{
	"format", "id", "name", "argv", "argv_base64", "command", "until", "cwd", "env", "timeout_s",
	"notify", "wake", "key", "started_by", "created_at", "max_log",
}

// ReadOnly reports whether the job belongs to a newer version, and so must not
// be written to.
func (c *Cmd) ReadOnly() bool { return c.Format > Format }

// ParseCmd reads the content of a cmd file. Missing fields are left empty; a
// format above Format is read as far as it can be.
func ParseCmd(b []byte) (*Cmd, error) {
	if record.IsBlank(b) {
		return nil, errors.New("cmd: is empty")
	}
	var f cmdFile
	err := json.Unmarshal(b, &f)
	if f.Format > Format && errors.As(err, new(*json.UnmarshalTypeError)) {
		err = nil // a field that has another type by now is one that we do not know
	}
	if err != nil {
		return nil, errors.New("cmd: " + inWords(err))
	}
	if f.Format < 1 {
		return nil, fmt.Errorf("cmd: format %d is none", f.Format)
	}
	c := &f.Cmd
	c.raw = b
	if string(c.Until) == "null" {
		c.Until = nil
	}
	if s, ok := f.CreatedAt.(string); ok {
		// In UTC, or a zone that time.Parse takes could not be written again.
		if at, err := time.Parse(time.RFC3339Nano, s); err == nil && at.UTC().Year() > 0 && at.UTC().Year() < 10000 {
			c.CreatedAt = at.UTC()
		}
	}
	c.restore(f.ArgvBase64)
	return c, nil
}

// inWords is an error of json.Unmarshal without the names of Go's types.
func inWords(err error) string {
	var wrong *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &wrong):
		return err.Error()
	case wrong.Field == "":
		return "is no object, but " + article(wrong.Value)
	}
	return strings.TrimPrefix(wrong.Field, "Cmd.") + " cannot be " + article(wrong.Value)
}

func article(what string) string {
	if strings.HasPrefix(what, "array") || strings.HasPrefix(what, "object") {
		return "an " + what
	}
	return "a " + what
}

// restore puts the exact bytes of argv back, if they are those of this argv.
func (c *Cmd) restore(exact [][]byte) {
	if len(exact) != len(c.Argv) {
		return
	}
	argv := make([]string, len(exact))
	for i, b := range exact {
		argv[i] = string(b)
		if valid(argv[i]) != c.Argv[i] {
			return
		}
	}
	if n := len(argv) - 1; n >= 0 && c.Command == c.Argv[n] {
		c.Command = argv[n]
	}
	c.Argv = argv
}

// valid is s as a JSON string holds it.
func valid(s string) string {
	text, _ := Text([]byte(s), false)
	return text
}

// Marshal is the content of the file. Fields that were read and are not known
// here are kept.
func (c *Cmd) Marshal() []byte {
	b := make([]byte, 0, 512)
	field := func(name string) {
		if b = append(b, ','); len(b) == 1 {
			b[0] = '{'
		}
		b = record.AppendString(b, name)
		b = append(b, ':')
	}
	text := func(name, s string) {
		field(name)
		b = record.AppendString(b, s)
	}
	list := func(name string, items []string) {
		field(name)
		b = append(b, '[')
		for i, s := range items {
			if i > 0 {
				b = append(b, ',')
			}
			b = record.AppendString(b, s)
		}
		b = append(b, ']')
	}

	field("format")
	b = strconv.AppendInt(b, int64(c.Format), 10)
	text("id", string(c.ID))
	text("name", c.Name)
	list("argv", c.Argv)
	if slices.ContainsFunc(c.Argv, func(s string) bool { return !utf8.ValidString(s) }) {
		exact := make([][]byte, len(c.Argv))
		for i, s := range c.Argv {
			exact[i] = []byte(s)
		}
		encoded, _ := json.Marshal(exact)
		field("argv_base64")
		b = append(b, encoded...)
	}
	text("command", c.Command)
	field("until")
	if c.Until == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, c.Until...)
	}
	text("cwd", c.Cwd)
	list("env", c.Env)
	field("timeout_s")
	if c.TimeoutS == 0 || math.IsNaN(c.TimeoutS) || math.IsInf(c.TimeoutS, 0) {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendFloat(b, c.TimeoutS, 'f', -1, 64)
	}
	field("notify")
	b = strconv.AppendBool(b, c.Notify)
	list("wake", c.Wake)
	text("key", c.Key)
	field("started_by")
	b = append(b, `{"member":`...)
	b = record.AppendString(b, c.StartedBy.Member)
	b = append(b, `,"kind":`...)
	b = record.AppendString(b, c.StartedBy.Kind)
	b = append(b, `,"job":`...)
	b = record.AppendString(b, c.StartedBy.Job)
	b = append(b, '}')
	text("created_at", c.CreatedAt.UTC().Format(record.TimeFormat))
	field("max_log")
	if c.MaxLog == 0 {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, c.MaxLog, 10)
	}
	for _, f := range c.unknown() {
		field(f.name)
		b = append(b, f.value...)
	}
	return append(b, '}', '\n')
}

type unknownField struct {
	name  string
	value json.RawMessage
}

// unknown lists the fields of the file that Cmd does not have, by name.
func (c *Cmd) unknown() []unknownField {
	if c.raw == nil {
		return nil
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(c.raw, &all) != nil {
		return nil
	}
	var list []unknownField
	for name, value := range all {
		// encoding/json takes a name in other capitals for the known one.
		if !slices.ContainsFunc(cmdFields, func(f string) bool { return strings.EqualFold(f, name) }) {
			list = append(list, unknownField{name, value})
		}
	}
	slices.SortFunc(list, func(a, b unknownField) int { return strings.Compare(a.name, b.name) })
	return list
}

// maxLine is how many characters of a job are shown where it has one line.
const maxLine = 120

// Line is the job in one line of at most 120 characters: its name, else its
// condition, else its command, else its argv quoted for a shell. Control
// characters are replaced.
func (c *Cmd) Line() string {
	if s := clean(c.Name); s != "" {
		return s
	}
	if s := c.Condition(); s != "" {
		return clean("until " + s)
	}
	if s := clean(c.Command); s != "" {
		return s
	}
	var b strings.Builder
	for i, arg := range c.Argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(quote(arg))
		if b.Len() > maxLine*utf8.UTFMax {
			break // an argv can be megabytes long
		}
	}
	return clean(b.String())
}

// Condition is what a watcher waits for, in words; "" where the job is none.
func (c *Cmd) Condition() string {
	var u struct {
		File, Host, Command, Job, Log, Match string
		Port                                 int
		PRChecks                             string `json:"pr_checks"`
	}
	if c.Until == nil || json.Unmarshal(c.Until, &u) != nil {
		return ""
	}
	switch {
	case u.File != "":
		return "file " + u.File
	case u.Port != 0 && strings.Contains(u.Host, ":"):
		return "port [" + u.Host + "]:" + strconv.Itoa(u.Port)
	case u.Port != 0:
		return "port " + u.Host + ":" + strconv.Itoa(u.Port)
	case u.Command != "":
		return "command " + u.Command
	case u.PRChecks != "":
		return "pr_checks " + u.PRChecks
	case u.Job != "":
		return "job " + u.Job
	case u.Log != "":
		return "log " + u.Log + " matches " + u.Match
	}
	return ""
}

// ShellLine is an argv as one would type it.
func ShellLine(argv []string) string {
	quoted := make([]string, len(argv))
	for i, s := range argv {
		quoted[i] = quote(s)
	}
	return strings.Join(quoted, " ")
}

// clean makes one line of s: blanks for what would break or forge one.
func clean(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.TrimFunc(s, notShown) {
		if n++; n > maxLine {
			// One character too many: the last that fits makes room for a sign.
			line := b.String()
			_, size := utf8.DecodeLastRuneInString(line)
			return line[:len(line)-size] + "…"
		}
		if notShown(r) {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}

// notShown: white space, controls, line separators, and the marks that turn
// the direction of text.
func notShown(r rune) bool {
	return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) ||
		r == '\u2028' || r == '\u2029' || r == '\ufeff'
}

// quote writes one word as a shell would have to be given it.
func quote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
