package thread

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
)

// The words that a line about a claim begins with.
const (
	verbClaim   = "CLAIM"
	verbDone    = "DONE"
	verbRelease = "RELEASE"
	verbBlocked = "BLOCKED"
)

// The shapes of such lines, as they are named to who gets them wrong.
var shapes = map[string]string{
	verbClaim:   "CLAIM <what> | files: <paths or branch> | until: <when>",
	verbDone:    "DONE <what> | <result> | next: <step>",
	verbRelease: "RELEASE <what>",
	verbBlocked: "BLOCKED <what> | needs: <thing> | from @who",
}

// statement is a line about a claim.
type statement struct {
	verb   string
	what   string
	files  []string // of CLAIM: paths and globs; a branch is "branch NAME"
	until  time.Time
	result string // of DONE
	next   string
	needs  string // of BLOCKED
	from   string
	line   int  // of the text
	loose  bool // the word is not in capitals: prose, unless there is such a claim
}

// foldWhat is how two whats are compared.
func foldWhat(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

// SameWhat reports whether two whats are one: capitals and blanks do not count.
func SameWhat(a, b string) bool { return foldWhat(a) == foldWhat(b) }

// ClaimText is the line of a claim. A file with a blank in it is quoted. A time of
// the day is one of the zone that now is in; it is written with the zone here.
func ClaimText(what string, files []string, branch, until string, now time.Time) (string, error) {
	for _, p := range [][2]string{{"what", what}, {"branch", branch}} {
		switch {
		case p[0] == "what" && strings.TrimSpace(p[1]) == "":
			return "", &InvalidError{p[0], p[1], "is empty"}
		case strings.ContainsAny(p[1], "|`\"") || strings.ContainsFunc(p[1], unicode.IsControl):
			return "", &InvalidError{p[0], p[1], "holds what a line about a claim cannot: | \" ` or a line break"}
		}
	}
	if len(what) > maxWhat {
		return "", &InvalidError{"what", what, fmt.Sprintf("is longer than %d bytes", maxWhat)}
	}
	all := []string{}
	for _, f := range files {
		if f = strings.TrimSpace(f); f == "" || len(f) > maxPath || strings.ContainsAny(f, "|`\"") || strings.ContainsFunc(f, unicode.IsControl) {
			return "", &InvalidError{"files", f, "is no path, or holds what a line about a claim cannot: | \" ` or a line break"}
		}
		all = append(all, cleanPath(f))
	}
	if branch != "" {
		all = append(all, branchPrefix+strings.TrimSpace(branch))
	}
	at, why := parseUntil(strings.Join(strings.Fields(until), " "), now)
	if why != "" {
		return "", &InvalidError{"until", until, why}
	}
	if at.Nanosecond() > 0 {
		at = at.Truncate(time.Second).Add(time.Second)
	}
	return fmt.Sprintf("CLAIM %s | files: %s | until: %s", strings.Join(strings.Fields(what), " "), showFiles(all), at.Local().Format(time.RFC3339)), nil
}

const (
	maxWhat  = 200
	maxFiles = 200
	maxPath  = 1024
)

// statements are the lines of a text that are about claims. The error says what
// is wrong with the first that is none and was meant to be.
func statements(text string, at time.Time) ([]statement, error) {
	var all []statement
	whole := strings.Split(text, "\n")
	for i, l := range spoken(text) {
		// Backticks and what is between them are gone from l; a name of a file
		// may well be in some.
		if strings.TrimSpace(l) == "" || verbOf(l) == "" {
			continue
		}
		s, err := parseStatement(strings.ReplaceAll(whole[i], "`", ""), at)
		if err != nil {
			return nil, err
		}
		if s != nil {
			s.line = i
			all = append(all, *s)
		}
	}
	return all, nil
}

// verbOf is the word about claims that a line begins with.
func verbOf(l string) string {
	word, _, _ := strings.Cut(strings.TrimLeft(l, " "), " ")
	word, _, _ = strings.Cut(word, "|")
	word, _, _ = strings.Cut(word, "\t")
	word = strings.ToUpper(strings.TrimRight(word, ":\r"))
	if shapes[word] == "" {
		return ""
	}
	return word
}

// takeover is what is said of ground whose claim has expired.
const takeover = " (takes over from "

// parseStatement reads one line. There is none, and no error, where the line is
// prose that begins with such a word.
func parseStatement(l string, at time.Time) (*statement, error) {
	verb := verbOf(l)
	if verb == "" {
		return nil, nil
	}
	l = strings.TrimSpace(l)
	if i := strings.LastIndex(l, takeover); i >= 0 && strings.HasSuffix(l, ")") {
		l = l[:i]
	}
	s := &statement{verb: verb, loose: !strings.HasPrefix(l, verb)}
	rest := strings.TrimLeft(strings.TrimLeft(l[len(verb):], ":"), " \t")
	fields := strings.Split(rest, "|")
	for i := range fields {
		fields[i] = strings.Join(strings.Fields(fields[i]), " ")
	}
	s.what = fields[0]
	fields = fields[1:]

	// What is not in capitals is a statement only if it has all that one has.
	wrong := func(format string, args ...any) (*statement, error) {
		if s.loose && !hasField(fields) {
			return nil, nil
		}
		return nil, &InvalidError{"text", l, fmt.Sprintf(format, args...) + ": " + shapes[verb]}
	}
	switch {
	case s.what == "":
		return wrong("%s does not say what", verb)
	case len(s.what) > maxWhat:
		return wrong("%s is of something longer than %d bytes", verb, maxWhat)
	}
	named := map[string]string{}
	var plain []string
	for _, f := range fields {
		name, value := fieldOf(f)
		switch {
		case f == "":
		case name == "":
			plain = append(plain, f)
		default:
			if _, twice := named[name]; twice {
				return wrong("%s has %q twice", verb, name+":")
			}
			named[name] = value
		}
	}
	allow := func(names ...string) string {
		for name := range named {
			if !slices.Contains(names, name) {
				return name
			}
		}
		return ""
	}
	switch verb {
	case verbClaim:
		if name := allow("files", "branch", "until"); name != "" {
			return wrong("CLAIM has no %q", name+":")
		}
		if len(plain) > 0 {
			return wrong("%q in CLAIM is neither files nor until", plain[0])
		}
		for _, name := range [...]string{"files", "branch"} {
			value, given := named[name]
			if given && value == "" {
				return wrong("CLAIM has nothing behind %q", name+":")
			}
			if name == "branch" && given {
				value = "branch " + value
			}
			files, why := parseFiles(value)
			if why != "" {
				return wrong("CLAIM has %s", why)
			}
			s.files = append(s.files, files...)
		}
		if len(s.files) == 0 {
			return wrong("CLAIM does not say which files or branch")
		}
		when, given := named["until"]
		if !given || when == "" {
			return wrong("CLAIM does not say until when")
		}
		until, why := parseUntil(when, at)
		if why != "" {
			return wrong("until: %q %s", when, why)
		}
		s.until = until
	case verbDone:
		if name := allow("next", "result"); name != "" {
			return wrong("DONE has no %q", name+":")
		}
		if r := named["result"]; r != "" {
			plain = append([]string{r}, plain...)
		}
		switch {
		case len(plain) == 0:
			return wrong("DONE does not say with what result")
		case len(plain) > 1:
			return wrong("%q in DONE is not what is next", plain[1])
		case named["next"] == "":
			return wrong("DONE does not say what is next")
		}
		s.result, s.next = plain[0], named["next"]
	case verbRelease:
		if len(fields) > 0 && (len(plain) > 0 || len(named) > 0) {
			return wrong("RELEASE has nothing behind what it releases")
		}
	case verbBlocked:
		if name := allow("needs", "from"); name != "" {
			return wrong("BLOCKED has no %q", name+":")
		}
		if named["needs"] == "" {
			return wrong("BLOCKED does not say what it needs")
		}
		if len(plain) > 0 {
			return wrong("%q in BLOCKED is neither needs nor from @who", plain[0])
		}
		who := nameAt(strings.TrimPrefix(named["from"], "@"))
		if who == "" || !strings.HasPrefix(named["from"], "@") {
			return wrong("BLOCKED does not say from @whom")
		}
		s.needs, s.from = named["needs"], who
	}
	return s, nil
}

// fieldNames are what may stand before a colon.
var fieldNames = [...]string{"files", "branch", "until", "next", "needs", "from", "result"}

// fieldOf splits "files: a" and "from @who". A field with no name of ours has
// none.
func fieldOf(f string) (name, value string) {
	before, after, ok := strings.Cut(f, ":")
	before = strings.ToLower(strings.TrimSpace(before))
	if before == "file" {
		before = "files"
	}
	if ok && slices.Contains(fieldNames[:], before) {
		return before, strings.TrimSpace(after)
	}
	if word, rest, ok := strings.Cut(f, " "); ok && strings.EqualFold(word, "from") && strings.HasPrefix(rest, "@") {
		return "from", rest
	}
	return "", ""
}

func hasField(fields []string) bool {
	return slices.ContainsFunc(fields, func(f string) bool { name, _ := fieldOf(f); return name != "" })
}

// branchPrefix is how a branch is told from a path.
const branchPrefix = "branch "

// parseFiles reads paths, globs and branches, with commas or blanks between
// them; one with blanks in it is quoted. why says what is wrong.
func parseFiles(s string) (files []string, why string) {
	var words []string
	for rest := s; ; {
		rest = strings.TrimLeft(rest, " ,\t")
		if rest == "" {
			break
		}
		if rest[0] == '"' {
			end := strings.IndexByte(rest[1:], '"')
			if end < 0 {
				return nil, "a quote that does not end"
			}
			words = append(words, "\x00"+rest[1:1+end]) // quoted: never the word "branch"
			rest = rest[end+2:]
			continue
		}
		n, depth := 0, 0
		for ; n < len(rest); n++ {
			switch c := rest[n]; {
			case c == '{':
				depth++
			case c == '}' && depth > 0:
				depth--
			}
			if rest[n] == ' ' || rest[n] == '\t' || rest[n] == ',' && depth == 0 {
				break
			}
		}
		words = append(words, rest[:n])
		rest = rest[n:]
	}
	branch := false
	for _, w := range words {
		w, quoted := strings.CutPrefix(w, "\x00")
		if !quoted && !branch {
			if strings.EqualFold(w, "branch") || strings.EqualFold(w, "branch:") {
				branch = true
				continue
			}
			if len(w) > len("branch:") && strings.EqualFold(w[:len("branch:")], "branch:") {
				w, branch = w[len("branch:"):], true
			}
		}
		if w == "" || len(w) > maxPath || strings.ContainsFunc(w, unicode.IsControl) {
			return nil, fmt.Sprintf("a path that is none: %.80q", w)
		}
		if branch {
			w, branch = branchPrefix+strings.TrimPrefix(w, "refs/heads/"), false
		} else {
			w = cleanPath(w)
		}
		if !slices.Contains(files, w) {
			files = append(files, w)
		}
	}
	switch {
	case branch:
		return nil, "a branch without a name"
	case len(files) > maxFiles:
		return nil, fmt.Sprintf("more than %d files", maxFiles)
	}
	return files, ""
}

func cleanPath(s string) string {
	clean := path.Clean(s)
	if strings.HasSuffix(s, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// showFiles is how parseFiles reads them again.
func showFiles(files []string) string {
	out := make([]string, len(files))
	for i, f := range files {
		if name, ok := strings.CutPrefix(f, branchPrefix); ok {
			out[i] = branchPrefix + quoteWord(name)
		} else {
			out[i] = quoteWord(f)
		}
	}
	return strings.Join(out, ", ")
}

func quoteWord(s string) string {
	if strings.ContainsAny(s, " ,\t") || strings.EqualFold(s, "branch") || len(s) > 6 && strings.EqualFold(s[:7], "branch:") {
		return `"` + s + `"`
	}
	return s
}

// ZoneOf is the zone that now is in, as it is at the time that an until: says: in
// seconds east of UTC, and its name. Where that says none, it is the zone at now.
func ZoneOf(until string, now time.Time) (name string, east int) {
	at, why := parseUntil(strings.Join(strings.Fields(until), " "), now)
	if why != "" {
		at = now
	}
	return at.In(now.Location()).Zone()
}

// parseUntil reads 15:04 (the next one), RFC 3339, a date and a time, 30m or
// +2h, in small letters or capitals. why says what is wrong.
func parseUntil(s string, at time.Time) (until time.Time, why string) {
	const forms = "is no time (use 15:04, 30m, +2h or 2026-05-04T15:04:00+02:00)"
	s = strings.ToUpper(strings.TrimSpace(s))
	clock := s
	for _, zone := range [...]string{at.Format("MST"), at.Format("-07:00"), at.Format("-0700")} {
		if before, ok := strings.CutSuffix(clock, " "+strings.ToUpper(zone)); ok {
			clock = before
			break
		}
	}
	if h, m, ok := strings.Cut(clock, ":"); ok && len(h) >= 1 && len(h) <= 2 && len(m) == 2 && digits(h) && digits(m) {
		t, err := time.Parse("15:04", fmt.Sprintf("%02s:%s", h, m))
		if err != nil {
			return until, "is no time of the day: 00:00 to 23:59"
		}
		y, mo, d := at.Date()
		for day := range 3 {
			until = time.Date(y, mo, d+day, t.Hour(), t.Minute(), 0, 0, at.Location())
			if until.After(at) {
				return until, ""
			}
		}
		return until, forms
	}
	for _, layout := range [...]string{time.RFC3339, "2006-01-02T15:04Z07:00", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04Z07:00", "2006-01-02 15:04 -0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			return future(t, at)
		}
	}
	for _, layout := range [...]string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"} {
		if t, err := time.ParseInLocation(layout, clock, at.Location()); err == nil {
			return future(t, at)
		}
	}
	d, ok := duration(strings.ToLower(strings.Join(strings.Fields(strings.TrimPrefix(s, "+")), "")))
	switch {
	case !ok:
		return until, forms
	case d <= 0:
		return until, "is not above zero"
	case d > 10*366*24*time.Hour: // a slip, rather than a plan
		return until, "is too far away: ten years are the most"
	}
	return future(at.Add(d), at)
}

func future(t, at time.Time) (time.Time, string) {
	switch {
	case !t.After(at):
		return t, "is over already: it is " + at.Format("15:04 MST") + " here"
	case t.Year() > 9999:
		return t, "is too far away"
	}
	return t, ""
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// duration is 30m, 1h30m, 90s or 2d.
func duration(s string) (time.Duration, bool) {
	if days, ok := strings.CutSuffix(s, "d"); ok && digits(days) && len(days) < 5 {
		var n time.Duration
		for _, c := range days {
			n = 10*n + time.Duration(c-'0')
		}
		return n * 24 * time.Hour, true
	}
	if s == "" || strings.Trim(s, "0123456789.hms") != "" {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}
