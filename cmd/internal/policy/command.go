package policy

import (
	"bytes"
	"path"
	"strings"

	"space-job/jobdir"
)

// glob reports whether * and text make up the whole of s; a * stands for bytes
// that may be in it.
func glob(pattern, s string, may func(byte) bool) bool {
	p, i := 0, 0
	star, from := -1, 0 // the last *, and where what it stands for ends
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0 && may(s[from]):
			from++
			p, i = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// narrow is how a rule that allows matches.
func narrow(pattern, s string) bool {
	never := ";&|<>()$`#\\"
	if strings.ContainsAny(pattern, `'"`) {
		never += `'"`
	}
	return glob(pattern, s, func(c byte) bool {
		return c >= ' ' && c != 0x7f && strings.IndexByte(never, c) < 0
	})
}

// wide is how a rule that asks or denies matches.
func wide(pattern, s string) bool {
	any := func(byte) bool { return true }
	if glob(pattern, s, any) {
		return true
	}
	program, ok := strings.CutSuffix(pattern, " *")
	return ok && glob(program, s, any)
}

// folded is text in small letters, with one blank for many.
func folded(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

// text is a command as a rule that asks or denies looks at it.
type text struct {
	forms  []string // the whole, and each simple command in it; folded
	opaque bool     // something in it runs that cannot be told from here
	looked int      // bytes that were looked at, again and again where it is nested
}

// maxLooked bounds the work: beyond it is opaque.
const maxLooked = 1 << 20

// more reports whether there is still work to be put in.
func (t *text) more(n int) bool {
	if t.looked += n; t.looked > maxLooked {
		t.opaque = true
		return false
	}
	return true
}

func newText(q *Request) *text {
	t := &text{}
	if q.Command != "" {
		t.add(q.Command)
		t.parse(q.Command, 0)
	} else {
		t.add(jobdir.ShellLine(q.Argv))
		words := make([]word, len(q.Argv))
		for i, s := range q.Argv {
			words[i].text = s
		}
		t.simple(words, 0)
	}
	return t
}

func (t *text) add(s string) { t.forms = append(t.forms, folded(s)) }

func (t *text) matches(r *Rule) bool {
	var pattern string
	compare := func(p, s string) bool { return p == s }
	switch {
	case r.Command != nil:
		pattern, compare = *r.Command, wide
	case r.Exact != nil:
		pattern = *r.Exact
	default:
		pattern = strings.Join(r.Argv, " ")
	}
	pattern = folded(pattern)
	for _, s := range t.forms {
		if compare(pattern, s) {
			return true
		}
	}
	return false
}

// word is one word of a simple command, without its quotes.
type word struct {
	text  string
	vague bool // something in it is expanded
}

const (
	maxDepth  = 8
	maxSuffix = 64
)

// parse takes a shell string apart, so far that no quoting hides a command. It
// takes too much for a command rather than too little.
func (t *text) parse(s string, depth int) {
	if depth > maxDepth {
		t.opaque = true
	}
	if depth > maxDepth || !t.more(len(s)) {
		return
	}
	var (
		words []word
		cur   []byte
		has   bool // there is a word, empty or not
		vague bool
		drop  bool // the word is where something is redirected to
		here  bool // the word ends a here-document
		tabs  bool // whose lines may begin with tabs
		docs  []document
	)
	endWord := func() {
		if has && here {
			docs = append(docs, document{string(cur), tabs})
			here = false
		}
		if has && !drop {
			words = append(words, word{string(cur), vague})
		}
		if has {
			drop = false
		}
		cur, has, vague = nil, false, false
	}
	end := func() {
		endWord()
		drop, here = false, false
		t.simple(words, depth)
		words = nil
	}
	substitution := func() {
		at := command(words)
		if len(at) == 0 && !assigns(string(cur)) || len(at) > 0 && among(name(at), wrappers+shells+evaluators) {
			t.opaque = true // what it prints is run
		}
		end()
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i++; i < len(s) && s[i] != '\n' {
				cur, has = append(cur, s[i]), true
			}
		case '\'':
			n := strings.IndexByte(s[i+1:], '\'')
			if n < 0 {
				n = len(s) - i - 1
			}
			cur, has = append(cur, s[i+1:i+1+n]...), true
			i += n + 1
		case '"':
			has = true
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
					if i++; s[i] == '\n' {
						continue
					}
				} else if n := t.substituted(s[i:], depth); n > 0 {
					cur, vague = append(cur, s[i:i+n]...), true
					i += n - 1
					continue
				} else if s[i] == '$' {
					vague = true
				}
				cur = append(cur, s[i])
			}
		case '$':
			if i+1 < len(s) && s[i+1] == '(' {
				i++
				substitution()
				break
			}
			if i+1 < len(s) && s[i+1] == '\'' {
				t.opaque = true // where it ends depends on the shell
			}
			cur, has, vague = append(cur, c), true, true
		case '`':
			substitution()
		case '&':
			if i+1 < len(s) && s[i+1] == '>' { // both outputs or, for another shell, an end
				endWord()
				t.simple(words, depth)
				break
			}
			end()
		case '\n':
			end()
			for _, d := range docs {
				body, n := d.cut(s[i+1:])
				i += n
				for k := 0; k < len(body); k++ {
					if body[k] == '\\' {
						k++
					} else if m := t.substituted(body[k:], depth); m > 0 {
						k += m - 1
					}
				}
				t.parse(body, depth+1) // it may be for a shell
			}
			docs = nil
		case ';', '|', '(', ')':
			end()
		case '<', '>':
			if strings.Trim(string(cur), "0123456789") == "" && !vague || len(cur) > 0 && cur[0] == '{' && cur[len(cur)-1] == '}' {
				cur, has, vague = nil, false, false // the number or the name of a descriptor
			}
			endWord()
			from := i
			for i+1 < len(s) && strings.IndexByte("<>&|", s[i+1]) >= 0 {
				i++
			}
			drop, here = true, s[from:i+1] == "<<"
			if tabs = here && i+1 < len(s) && s[i+1] == '-'; tabs {
				i++
			}
		case ' ', '\t', '\r', '\v', '\f':
			endWord()
		case '#':
			if has {
				cur = append(cur, c)
				break
			}
			for i+1 < len(s) && s[i+1] != '\n' {
				i++
			}
		case '*', '?', '[', ',', '.':
			vague = vague || c != ',' && c != '.' || bytes.IndexByte(cur, '{') >= 0
			cur, has = append(cur, c), true
		default:
			cur, has = append(cur, c), true
		}
	}
	end()
}

// document is a here-document whose lines are still to come.
type document struct {
	end  string
	tabs bool
}

// cut is the document at the beginning of s, and how long it is with its end.
func (d *document) cut(s string) (body string, n int) {
	for n < len(s) {
		line, _, _ := strings.Cut(s[n:], "\n")
		from := n
		n = min(n+len(line)+1, len(s))
		if d.tabs {
			line = strings.TrimLeft(line, "\t")
		}
		if line == d.end {
			return s[:from], n
		}
	}
	return s, n
}

// substituted takes apart what a text begins with, between double quotes, that is
// run and replaced by what it prints: $(...) or `...`. n is its length, 0 for none.
func (t *text) substituted(s string, depth int) (n int) {
	switch {
	case s[0] == '`':
		var inner []byte
		for n = 1; n < len(s) && s[n] != '`'; n++ {
			if s[n] == '\\' && n+1 < len(s) && strings.IndexByte("$`\"\\", s[n+1]) >= 0 {
				n++
			}
			inner = append(inner, s[n])
		}
		t.parse(string(inner), depth+1)
	case strings.HasPrefix(s, "$("):
		if n = 2 + closing(s[2:]); strings.Contains(s[:min(n, len(s))], "case") || n >= len(s) {
			t.opaque = true // a parenthesis may be none
		}
		t.parse(s[2:min(n, len(s))], depth+1)
	default:
		return 0
	}
	if !t.more(n) {
		return len(s)
	}
	return min(n+1, len(s))
}

// closing is where the parenthesis is closed that s stands behind; len(s) if it is
// not.
func closing(s string) int {
	quoted := []bool{false} // for each level, whether double quotes are open
	for i := 0; i < len(s); i++ {
		top := len(quoted) - 1
		switch c := s[i]; {
		case c == '\\':
			i++
		case c == '"':
			quoted[top] = !quoted[top]
		case c == '(' && (!quoted[top] || s[max(i-1, 0)] == '$'):
			quoted = append(quoted, false)
		case quoted[top]:
		case c == ')':
			if quoted = quoted[:top]; top == 0 {
				return i
			}
		case c == '\'':
			n := strings.IndexByte(s[i+1:], '\'')
			if n < 0 {
				return len(s)
			}
			i += n + 1
		case c == '#' && (i == 0 || strings.IndexByte(" \t\n;&|()", s[i-1]) >= 0):
			n := strings.IndexByte(s[i:], '\n')
			if n < 0 {
				return len(s)
			}
			i += n
		}
	}
	return len(s)
}

// Words that a command comes behind, and programs that run what they are given.
const (
	keywords = " if then else elif while until do ! { } time coproc function "
	wrappers = " sudo doas env nohup nice ionice timeout gtimeout setsid stdbuf unbuffer chroot unshare nsenter command builtin exec xargs parallel find fd busybox toybox" +
		" setpriv prlimit chrt setarch linux64 pkexec run0 fakeroot dbus-run-session xvfb-run tmux screen space-job" +
		" strace ltrace ssh watch flock script su runuser systemd-run chpst taskset caffeinate time entr "
	shells     = " sh bash dash zsh ksh mksh ash fish csh tcsh rbash su runuser "
	evaluators = " eval trap alias space-job "
	readers    = " parallel at batch crontab " // what they read is run
)

func among(word, list string) bool {
	return !strings.Contains(word, " ") && strings.Contains(list, " "+word+" ")
}

// command is what of a simple command begins with its program.
func command(words []word) []word {
	behind := false // a keyword: its options follow
	for len(words) > 0 && (among(words[0].text, keywords) || assigns(words[0].text) || behind && strings.HasPrefix(words[0].text, "-")) {
		words, behind = words[1:], true
	}
	return words
}

// simple looks at one simple command.
func (t *text) simple(words []word, depth int) {
	words = command(words)
	t.program(words, depth)
	for i := 1; i < len(words); i++ {
		if words[i].text == "{" { // of a function
			t.simple(words[i:], depth)
			break
		}
	}
	if len(words) == 0 {
		return
	}
	base := name(words)
	if !among(base, wrappers) && !strings.HasPrefix(base, "ld-linux") && !strings.HasPrefix(base, "ld-musl") {
		return
	}
	for i := 1; i < len(words); i++ {
		if i > maxSuffix {
			t.opaque = true
			return
		}
		if !strings.HasPrefix(words[i].text, "-") && !assigns(words[i].text) {
			t.program(words[i:], depth)
		}
		if strings.ContainsAny(words[i].text, " \t\n") {
			t.given(word{text: words[i].text}, depth)
		}
		switch w := words[i].text; {
		case base == "xargs" && among(strings.ToLower(path.Base(w)), wrappers+shells+evaluators),
			(base == "sudo" || base == "doas") && (w == "-s" || w == "-i" || w == "--shell" || w == "--login"):
			t.opaque = true // what it reads
		}
	}
}

// program looks at a program and its arguments.
func (t *text) program(words []word, depth int) {
	if len(words) == 0 {
		return
	}
	if words[0].vague {
		t.opaque = true
	}
	args := make([]string, len(words))
	n := len(words)
	for i, w := range words {
		args[i] = w.text
		n += len(w.text)
	}
	if !t.more(2 * n) {
		return
	}
	t.add(strings.Join(args, " "))
	base := name(words)
	args[0] = base
	t.add(strings.Join(args, " "))
	switch {
	case among(base, shells):
		script, option, stdin, value := false, false, false, false
		for _, w := range words[1:] {
			if strings.HasPrefix(w.text, "-") || strings.HasPrefix(w.text, "+") {
				option = option || strings.Contains(w.text, "c")
				stdin = stdin || w.text == "-s" || w.text == "-"
				value = len(w.text) == 2 && strings.ContainsAny(w.text, "oO") || w.text == "--rcfile" || w.text == "--init-file"
				continue
			}
			script = script || !value
			value = false
			stdin = stdin || device(w.text)
		}
		if base == "su" || base == "runuser" {
			script = option // a name is that of a user
		}
		if !script || stdin {
			t.opaque = true // what it reads
		}
		if option {
			for _, w := range words[1:] {
				t.given(w, depth)
			}
		}
	case among(base, readers):
		t.opaque = true
	case base == "." || base == "source":
		if len(words) == 1 || words[1].vague || device(words[1].text) {
			t.opaque = true // what it reads
		}
	case base == "eval":
		t.parse(strings.Join(args[1:], " "), depth+1)
		fallthrough
	case among(base, evaluators):
		for _, w := range words[1:] {
			t.given(w, depth)
		}
	}
}

// given is a word that is run as a shell string.
func (t *text) given(w word, depth int) {
	if w.vague {
		t.opaque = true
	}
	t.parse(w.text, depth+1)
	if len(w.text) > 2 && w.text[0] == '-' && w.text[1] != '-' {
		t.parse(w.text[2:], depth+1) // behind an option of one letter
	}
	if _, value, ok := strings.Cut(w.text, "="); ok {
		t.parse(value, depth+1)
	}
}

// device reports whether a file that is read can be stdin.
func device(s string) bool {
	s = path.Clean(s)
	return strings.HasPrefix(s, "/dev/") || strings.HasPrefix(s, "/proc/")
}

// name is the program's name without its folder.
func name(words []word) string { return strings.ToLower(path.Base(words[0].text)) }

// assigns reports whether a word is NAME=value.
func assigns(s string) bool {
	n, _, ok := strings.Cut(s, "=")
	if !ok || n == "" || n[0] >= '0' && n[0] <= '9' {
		return false
	}
	for i := range len(n) {
		c := n[i]
		if c != '_' && c != '+' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return true
}
