package until

import (
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"space-job/jobdir"
)

// Condition is what a watcher waits for: exactly one of File, Port, Command,
// PRChecks, Job and Log, with what belongs to it. Its JSON is the field until
// of a job's cmd.
type Condition struct {
	File     string `json:"file,omitempty"`
	Port     int    `json:"port,omitempty"`
	Host     string `json:"host,omitempty"` // of Port; "": DefaultHost
	Command  string `json:"command,omitempty"`
	PRChecks string `json:"pr_checks,omitempty"` // OWNER/REPO#N
	Job      string `json:"job,omitempty"`
	Log      string `json:"log,omitempty"`   // a job
	Match    string `json:"match,omitempty"` // of Log: a regular expression

	Interval   time.Duration `json:"-"` // between two looks; 0: as the kind of condition has it
	TryTimeout time.Duration `json:"-"` // of one try; 0: as the kind of condition has it
}

// DefaultHost is the host of a port that is given alone.
const DefaultHost = "127.0.0.1"

// Kinds of conditions, as their fields are called.
const (
	kindFile     = "file"
	kindPort     = "port"
	kindCommand  = "command"
	kindPRChecks = "pr_checks"
	kindJob      = "job"
	kindLog      = "log"
)

const (
	maxPath     = 4096 // the kernel's
	maxCommand  = 127 << 10
	maxPattern  = 4 << 10
	minInterval = 10 * time.Millisecond
)

// A ValueError is a condition that is refused: which field, what was given,
// and what is wrong with it. Without a value the field is what is wrong.
type ValueError struct {
	Field string // "until.port", "interval"
	Value string
	Why   string
	Hint  string
}

func (e *ValueError) Error() string {
	if e.Value == "" && e.Field == "until" {
		return e.Field + ": " + e.Why
	}
	return fmt.Sprintf("%s: %q %s", e.Field, e.Value, e.Why)
}

func refuse(kind, value, why string) *ValueError {
	return &ValueError{Field: "until." + kind, Value: value, Why: why}
}

// kinds are the kinds that a condition is of: one, if it is right.
func (c *Condition) kinds() (kinds []string) {
	for _, k := range [...]struct {
		kind string
		set  bool
	}{
		{kindFile, c.File != ""},
		{kindPort, c.Port != 0},
		{kindCommand, c.Command != ""},
		{kindPRChecks, c.PRChecks != ""},
		{kindJob, c.Job != ""},
		{kindLog, c.Log != ""},
	} {
		if k.set {
			kinds = append(kinds, k.kind)
		}
	}
	return kinds
}

func (c *Condition) kind() string {
	if k := c.kinds(); len(k) == 1 {
		return k[0]
	}
	return ""
}

const howto = "one of: file, port, command, pr_checks; job, log"

// One takes the one condition out of those that were given. Interval and
// tryTimeout are 0 where none was given.
func One(given []Condition, interval, tryTimeout time.Duration) (Condition, error) {
	if len(given) == 0 {
		return Condition{}, &ValueError{Field: "until", Why: "no condition is given", Hint: howto}
	}
	if len(given) > 1 {
		var kinds []string
		for i := range given {
			kinds = append(kinds, given[i].kinds()...)
		}
		return Condition{}, &ValueError{Field: "until", Why: strconv.Itoa(len(given)) + " conditions are given (" + strings.Join(kinds, ", ") + ")",
			Hint: "a watcher has one; wait for several jobs, or put them into one command"}
	}
	c := given[0]
	c.Interval, c.TryTimeout = interval, tryTimeout
	return c, nil
}

// Resolve checks a condition in full, and makes it independent of where and by
// whom it was given: paths are absolute, ids whole. The working directory is
// that of the job. Where a job is not there the error is one of package
// jobdir; else it is a *ValueError.
func (c Condition) Resolve(root *jobdir.Root, cwd string) (Condition, error) {
	switch kinds := c.kinds(); len(kinds) {
	case 1:
	case 0:
		return c, &ValueError{Field: "until", Why: "no condition is given", Hint: howto}
	default:
		return c, &ValueError{Field: "until", Why: "more than one condition is given (" + strings.Join(kinds, ", ") + ")", Hint: howto}
	}
	kind := c.kind()
	if c.Host != "" && kind != kindPort {
		return c, refuse("host", c.Host, "belongs to a port")
	}
	if c.Match != "" && kind != kindLog {
		return c, refuse("match", c.Match, "belongs to a log")
	}
	if c.Interval != 0 {
		switch {
		case kind == kindJob || kind == kindLog:
			return c, &ValueError{Field: "interval", Value: c.Interval.String(), Why: "has no meaning for a " + kind + ": its files say at once what happens"}
		case c.Interval < minInterval:
			return c, &ValueError{Field: "interval", Value: c.Interval.String(), Why: "is too short: at least 10ms"}
		}
	}
	if c.TryTimeout != 0 {
		switch {
		case kind == kindFile || kind == kindJob || kind == kindLog:
			return c, &ValueError{Field: "try_timeout", Value: c.TryTimeout.String(), Why: "has no meaning for a " + kind + ": there are no tries"}
		case c.TryTimeout < minInterval:
			return c, &ValueError{Field: "try_timeout", Value: c.TryTimeout.String(), Why: "is too short: at least 10ms"}
		}
	}
	var err error
	switch kind {
	case kindFile:
		if _, err = ParseFile(c.File); err == nil && c.File[0] != '/' {
			// Not cleaned: the kernel's way up, where links are in between.
			c.File = strings.TrimSuffix(cwd, "/") + "/" + strings.TrimPrefix(c.File, "./")
		}
	case kindPort:
		if c.Host == "" {
			c.Host = DefaultHost
		}
		if err = checkHost(c.Host, c.Host); err == nil && (c.Port < 1 || c.Port > 65535) {
			err = refuse(kindPort, strconv.Itoa(c.Port), "is not within 1..65535")
		}
	case kindCommand:
		_, err = ParseCommand(c.Command)
	case kindPRChecks:
		_, err = ParsePullRequest(c.PRChecks)
	case kindJob:
		c.Job, err = resolveJob(root, c.Job)
	case kindLog:
		if _, err = compile(c.Log+":"+c.Match, c.Match); err == nil {
			c.Log, err = resolveJob(root, c.Log)
		}
	}
	return c, err
}

// resolveJob is the id of a job that is there and whole.
func resolveJob(root *jobdir.Root, given string) (string, error) {
	id, err := root.Resolve(given)
	if err == nil {
		_, err = root.Job(id).State()
	}
	return string(id), err
}

// Parse reads one condition of a kind: file, port, command, pr_checks, job or
// log.
func Parse(kind, s string) (Condition, error) {
	switch kind {
	case kindFile:
		return ParseFile(s)
	case kindPort:
		return ParsePort(s)
	case kindCommand:
		return ParseCommand(s)
	case kindPRChecks:
		return ParsePRChecks(s)
	case kindJob:
		return ParseJob(s)
	case kindLog:
		return ParseLog(s)
	}
	return Condition{}, &ValueError{Field: "until", Value: kind, Why: "is no kind of condition", Hint: howto}
}

// ParseFile checks a path.
func ParseFile(s string) (Condition, error) {
	switch {
	case s == "":
		return Condition{}, refuse(kindFile, s, "is empty")
	case strings.IndexByte(s, 0) >= 0:
		return Condition{}, refuse(kindFile, s, "holds a NUL byte")
	case len(s) >= maxPath:
		return Condition{}, refuse(kindFile, s[:40]+"...", "is too long: a path must stay under 4096 bytes")
	}
	return Condition{File: s}, nil
}

// ParsePort reads [HOST:]PORT. An IPv6 address stands in brackets.
func ParsePort(s string) (Condition, error) {
	host, port := "", s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		host, port = s[:i], s[i+1:]
		if inner, ok := strings.CutPrefix(host, "["); ok {
			if inner, ok = strings.CutSuffix(inner, "]"); !ok || !strings.Contains(inner, ":") {
				return Condition{}, refuse(kindPort, s, "has brackets that hold no IPv6 address")
			}
			host = inner
		} else if strings.Contains(host, ":") {
			e := refuse(kindPort, s, "leaves open where the address ends")
			e.Hint = "put an IPv6 address into brackets: [::1]:5432"
			return Condition{}, e
		}
		if host != "" {
			if err := checkHost(host, s); err != nil {
				return Condition{}, err
			}
		}
	}
	n, err := strconv.ParseUint(port, 10, 32)
	switch {
	case port == "" || strings.Trim(port, "0123456789") != "":
		return Condition{}, refuse(kindPort, s, "is no port: a number within 1..65535 is")
	case err != nil || n < 1 || n > 65535:
		return Condition{}, refuse(kindPort, s, "is not within 1..65535")
	}
	return Condition{Port: int(n), Host: host}, nil
}

// checkHost: an address, or what may be a name.
func checkHost(host, given string) error {
	if strings.Contains(host, ":") {
		address, _, _ := strings.Cut(host, "%")
		if net.ParseIP(address) == nil {
			return refuse(kindPort, given, "names no IPv6 address")
		}
		return nil
	}
	if len(host) > 253 || strings.HasPrefix(host, "-") || strings.IndexFunc(host, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("/@[]%?#\"'\\", r) || r == unicode.ReplacementChar
	}) >= 0 {
		return refuse(kindPort, given, "names no host")
	}
	return nil
}

// ParseCommand checks a shell string.
func ParseCommand(s string) (Condition, error) {
	switch {
	case strings.TrimSpace(s) == "":
		return Condition{}, refuse(kindCommand, s, "is empty")
	case strings.IndexByte(s, 0) >= 0:
		return Condition{}, refuse(kindCommand, s, "holds a NUL byte")
	case len(s) >= maxCommand:
		return Condition{}, refuse(kindCommand, s[:40]+"...", "is too long: a command must stay under 127 KiB")
	}
	return Condition{Command: s}, nil
}

// PullRequest names one.
type PullRequest struct {
	Owner, Repo string
	Number      int
}

func (p PullRequest) String() string {
	return p.Owner + "/" + p.Repo + "#" + strconv.Itoa(p.Number)
}

// ParsePullRequest reads OWNER/REPO#N. What it returns can be given to a
// program: no part of it looks like a flag.
func ParsePullRequest(s string) (PullRequest, error) {
	bad := func() (PullRequest, error) {
		return PullRequest{}, refuse(kindPRChecks, s, "is no pull request: OWNER/REPO#NUMBER is one")
	}
	repository, number, ok := strings.Cut(s, "#")
	owner, repo, also := strings.Cut(repository, "/")
	if !ok || !also || !isName(owner) || !isName(repo) {
		return bad()
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 1 || number[0] < '1' || number[0] > '9' {
		return bad()
	}
	return PullRequest{owner, repo, int(n)}, nil
}

// isName: letters, digits and _ . -, none of the latter two at the beginning.
func isName(s string) bool {
	for i, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
		case i > 0 && (r == '-' || r == '.'):
		case r == '.' && len(s) > 1 && s != "..": // .github
		default:
			return false
		}
	}
	return s != "" && len(s) <= 100
}

// ParsePRChecks checks OWNER/REPO#N.
func ParsePRChecks(s string) (Condition, error) {
	p, err := ParsePullRequest(s)
	if err != nil {
		return Condition{}, err
	}
	return Condition{PRChecks: p.String()}, nil
}

// ParseJob takes an id as it is given. Whether there is such a job is for
// Resolve to say.
func ParseJob(s string) (Condition, error) {
	if s == "" {
		return Condition{}, refuse(kindJob, s, "is empty")
	}
	return Condition{Job: s}, nil
}

// ParseLog reads ID:REGEXP.
func ParseLog(s string) (Condition, error) {
	id, match, ok := strings.Cut(s, ":")
	if !ok || id == "" {
		return Condition{}, refuse(kindLog, s, "is no ID:REGEXP")
	}
	if _, err := compile(s, match); err != nil {
		return Condition{}, err
	}
	return Condition{Log: id, Match: match}, nil
}

func compile(given, match string) (*regexp.Regexp, error) {
	if match == "" {
		return nil, refuse(kindLog, given, "has no pattern behind the id")
	}
	if len(match) > maxPattern {
		return nil, refuse(kindLog, given[:40]+"...", "has a pattern that is too long: at most 4 KiB")
	}
	re, err := regexp.Compile(match)
	if err != nil {
		return nil, refuse(kindLog, given, "has a bad pattern: "+strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return re, nil
}

// JSON is the condition as it stands in a job's cmd.
func (c Condition) JSON() json.RawMessage {
	b, err := json.Marshal(struct {
		Condition
		IntervalS   float64 `json:"interval_s,omitempty"`
		TryTimeoutS float64 `json:"try_timeout_s,omitempty"`
	}{c, c.Interval.Seconds(), c.TryTimeout.Seconds()})
	if err != nil {
		panic(err) // a type of ours that JSON has no form for
	}
	return b
}

// Args are the arguments of space-job until for a condition that was resolved.
func (c Condition) Args() []string {
	var a []string
	switch c.kind() {
	case kindFile:
		a = []string{"--file=" + c.File}
	case kindPort:
		a = []string{"--port=" + net.JoinHostPort(c.Host, strconv.Itoa(c.Port))}
	case kindCommand:
		a = []string{"--command=" + c.Command}
	case kindPRChecks:
		a = []string{"--pr-checks=" + c.PRChecks}
	case kindJob:
		a = []string{"--job=" + c.Job}
	case kindLog:
		a = []string{"--log=" + c.Log + ":" + c.Match}
	}
	if c.Interval > 0 {
		a = append(a, "--interval="+seconds(c.Interval))
	}
	if c.TryTimeout > 0 {
		a = append(a, "--try-timeout="+seconds(c.TryTimeout))
	}
	return a
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// String is the condition in words, for one line.
func (c Condition) String() string {
	switch c.kind() {
	case kindFile:
		return "file " + oneLine(c.File, 300)
	case kindPort:
		return "port " + net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
	case kindCommand:
		return "command " + oneLine(c.Command, 300)
	case kindPRChecks:
		return "the required checks of " + oneLine(c.PRChecks, 300)
	case kindJob:
		return "job " + oneLine(c.Job, 40)
	case kindLog:
		return "a line of the log of " + oneLine(c.Log, 40) + " that matches " + oneLine(c.Match, 300)
	}
	return "nothing"
}

// oneLine makes one line of at most so many bytes of what somebody else wrote.
func oneLine(s string, most int) string {
	cut := len(s) > most
	if cut {
		s = s[:most]
	}
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.IsSpace(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\ufeff' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd")))
	if cut {
		s += "..."
	}
	return s
}
