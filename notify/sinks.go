package notify

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// Sinks are kept in <root>/sinks, each in a file <name>.json of mode 0600, as an
// address or a command may hold a secret. Whoever changes something there holds
// the lock of the file .lock.
const (
	sinksDir   = "sinks"
	sinkSuffix = ".json"
	sinksLock  = ".lock"

	maxSinkName    = 64
	maxSinkCommand = 64 << 10 // half of what the kernel takes as one argument
	maxSinkWebhook = 8 << 10
	maxSinkFile    = 1 << 20
)

// Formats of what a webhook is sent.
const (
	FormatJSON  = "json"  // the Message
	FormatSlack = "slack" // {"text"}, as Slack and its like read it
)

// ErrNoSink is the error of a sink that is not there.
var ErrNoSink = errors.New("no such sink")

// DamagedSink is a file among the sinks that cannot be read as one.
type DamagedSink struct {
	Name string // of the sink, as far as the file's name says it
	Path string
	Err  error
}

// CheckSinkName refuses what cannot name a sink, with a *thread.InvalidError.
func CheckSinkName(name string) error {
	why := ""
	switch {
	case name == "":
		why = "is empty"
	case len(name) > maxSinkName:
		why = "is too long: at most " + strconv.Itoa(maxSinkName) + " bytes"
	case strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != "",
		name[0] == '.' || name[0] == '-':
		why = "is no name: use letters, digits, _, . and -, and begin with none of the last two"
	default:
		return nil
	}
	return &thread.InvalidError{Field: "name", Value: name, Why: why}
}

// Check refuses what cannot be a sink, with a *thread.InvalidError. It changes the
// format from "" to the one that holds then.
func (c *SinkConfig) Check() error {
	if err := CheckSinkName(c.Name); err != nil {
		return err
	}
	switch {
	case c.Command == "" && c.Webhook == "":
		return &thread.InvalidError{Field: "command", Value: "", Why: "is empty, and there is no webhook"}
	case c.Command != "" && c.Webhook != "":
		return &thread.InvalidError{Field: "webhook", Value: c.Webhook, Why: "and a command exclude each other"}
	case c.Webhook != "":
		return c.checkWebhook()
	}
	return c.checkCommand()
}

func (c *SinkConfig) checkCommand() error {
	refused := func(why string) error { return &thread.InvalidError{Field: "command", Value: c.Command, Why: why} }
	switch {
	case strings.TrimSpace(c.Command) == "":
		return refused("is blank")
	case strings.IndexByte(c.Command, 0) >= 0:
		return refused("holds a NUL byte")
	case len(c.Command) > maxSinkCommand:
		return refused("is too long: at most 64 KiB; put it into a file")
	case c.Format != "":
		return &thread.InvalidError{Field: "format", Value: c.Format, Why: "is for a webhook: a command reads the text"}
	}
	return nil
}

func (c *SinkConfig) checkWebhook() error {
	refused := func(why string) error { return &thread.InvalidError{Field: "webhook", Value: c.Webhook, Why: why} }
	if len(c.Webhook) > maxSinkWebhook {
		return refused("is too long: at most 8 KiB")
	}
	if strings.IndexFunc(c.Webhook, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) >= 0 {
		return refused("holds a blank or a control character")
	}
	u, err := url.Parse(c.Webhook)
	if err != nil {
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return refused("is no address: " + err.Error())
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" {
		return refused("is no address that begins with http:// or https://")
	}
	if u.Hostname() == "" {
		return refused("names no host")
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return refused("has no port from 1 to 65535")
		}
	}
	switch c.Format {
	case "":
		c.Format = FormatJSON
	case FormatJSON, FormatSlack:
	default:
		return &thread.InvalidError{Field: "format", Value: c.Format, Why: "is neither " + FormatJSON + " nor " + FormatSlack}
	}
	return nil
}

// Target is where the sink brings a message, in one line that holds no secret
// of an address: what follows the host is masked.
func (c SinkConfig) Target() string {
	if c.Webhook == "" {
		return c.Command
	}
	u, err := url.Parse(c.Webhook)
	if err != nil {
		return "..."
	}
	masked := u.Scheme + "://" + u.Host
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		masked += "/..."
	}
	return masked
}

// Sinks are the sinks of a root, by name. A file that cannot be read as one is
// named in damaged, and stops no other.
func Sinks(root *jobdir.Root) (sinks []SinkConfig, damaged []DamagedSink, err error) {
	dir, there, err := root.Dir(sinksDir)
	if err != nil || !there {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		name, isSink := strings.CutSuffix(e.Name(), sinkSuffix)
		var c SinkConfig
		err := errors.New("its name does not end with " + sinkSuffix)
		if isSink {
			c, err = readSink(path, name)
		}
		switch {
		case err == nil:
			sinks = append(sinks, c)
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
		default:
			damaged = append(damaged, DamagedSink{name, path, err})
		}
	}
	slices.SortFunc(sinks, func(a, b SinkConfig) int { return strings.Compare(a.Name, b.Name) })
	return sinks, damaged, nil
}

func readSink(path, name string) (SinkConfig, error) {
	b, err := record.ReadFile(-1, path, make([]byte, maxSinkFile))
	if err != nil {
		return SinkConfig{}, jobdir.Pathless(err)
	}
	var c SinkConfig
	if err := json.Unmarshal(b, &c); err != nil {
		return SinkConfig{}, err
	}
	if c.Name != name {
		return SinkConfig{}, errors.New("its name is not that of the file")
	}
	err = c.Check()
	var refused *thread.InvalidError
	if errors.As(err, &refused) { // without the value: it may hold a secret
		err = errors.New("its " + refused.Field + " " + refused.Why)
	}
	return c, err
}

// AddSink adds a sink, or replaces the one of that name: what waits for that
// goes to the new one. Everything is checked before anything is written.
func AddSink(root *jobdir.Root, c SinkConfig) (existed bool, err error) {
	if err := c.Check(); err != nil {
		return false, err
	}
	if c.Command != "" { // here alone: a sink whose program is gone is none that is damaged
		if err := thread.CheckCommand("command", c.Command); err != nil {
			return false, err
		}
	}
	dir, err := root.MakeDurableDir(sinksDir)
	if err != nil {
		return false, err
	}
	unlock, err := jobdir.LockFile(filepath.Join(dir, sinksLock))
	if err != nil {
		return false, err
	}
	defer unlock()
	path := filepath.Join(dir, c.Name+sinkSuffix)
	_, err = os.Lstat(path)
	existed = err == nil
	return existed, jobdir.ReplaceFile(path, jobdir.Line(c), true)
}

// RemoveSink removes a sink, whether its file can be read or not, and all that
// waits for it: it returns how many messages that were. ErrNoSink: there is none.
func RemoveSink(root *jobdir.Root, name string) (dropped int, err error) {
	if err := CheckSinkName(name); err != nil {
		return 0, err
	}
	dir, there, err := root.Dir(sinksDir)
	if err != nil {
		return 0, err
	}
	if !there {
		return 0, ErrNoSink
	}
	unlock, err := jobdir.LockFile(filepath.Join(dir, sinksLock))
	if err != nil {
		return 0, err
	}
	defer unlock()
	waiting, err := waitingFor(root, name) // before a daemon drops them, too
	if err != nil {
		return 0, err
	}
	err = os.Remove(filepath.Join(dir, name+sinkSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, ErrNoSink
	}
	if err == nil {
		err = jobdir.SyncDir(dir)
	}
	if err != nil {
		return 0, err
	}
	return dropSink(root, name, waiting)
}

// waitingFor are the jobs whose messages wait for a sink, or were given up on.
func waitingFor(root *jobdir.Root, name string) (map[jobdir.ID]bool, error) {
	ids, err := outboxIDs(root)
	waiting := make(map[jobdir.ID]bool)
	for _, id := range ids {
		// What cannot be read is told of where it is delivered.
		if e, err := readEntry(entryPath(root, id), id); err == nil && waits(e.Sinks[name]) {
			waiting[id] = true
		}
	}
	return waiting, err
}

func waits(t Target) bool { return t.State == Pending || t.State == Failed }

// dropSink takes a sink that is gone out of the outbox, and returns how many
// messages waited for it: those that are known, and what it finds. A daemon does
// so, too, but there may be none.
func dropSink(root *jobdir.Root, name string, waiting map[jobdir.ID]bool) (n int, err error) {
	ids, err := outboxIDs(root)
	for _, id := range ids {
		e := changeEntry(root, id, func(e *Entry) bool {
			t, ok := e.Sinks[name]
			delete(e.Sinks, name)
			if waits(t) {
				waiting[id] = true
			}
			return ok
		})
		if err == nil {
			err = e
		}
	}
	return len(waiting), err
}
