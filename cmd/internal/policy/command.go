package policy

import (
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
	)
	endWord := func() {
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
		drop = false
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
			inner := i + 1
			has = true
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
					if i++; s[i] == '\n' {
						continue
					}
				} else if s[i] == '$' || s[i] == '`' {
					vague = true
				}
				cur = append(cur, s[i])
			}
			t.substituted(s[inner:min(i, len(s))], depth)
		case '$':
			if i+1 < len(s) && s[i+1] == '(' {
				i++
				substitution()
				break
			}
			cur, has, vague = append(cur, c), true, true
		case '`':
			substitution()
		case ';', '&', '|', '\n', '(', ')':
			end()
		case '<', '>':
			if strings.Trim(string(cur), "0123456789") == "" && !vague {
				cur, has = nil, false // the number of a descriptor
			}
			endWord()
			for i+1 < len(s) && strings.IndexByte("<>&|-", s[i+1]) >= 0 {
				i++
			}
			drop = true
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
		case '*', '?', '[', ',':
			vague = vague || c != ',' || len(cur) > 0 && cur[0] == '{'
			cur, has = append(cur, c), true
		default:
			cur, has = append(cur, c), true
		}
	}
	end()
}

// substituted looks for commands between double quotes.
func (t *text) substituted(s string, depth int) {
	if i := strings.IndexByte(s, '`'); i >= 0 {
		t.parse(strings.ReplaceAll(s[i+1:], "`", "\n"), depth+1)
	}
	if _, rest, ok := strings.Cut(s, "$("); ok {
		t.parse(rest, depth+1)
	}
}

// Words that a command comes behind, and programs that run what they are given.
const (
	keywords = " if then else elif while until do ! { } time coproc function "
	wrappers = " sudo doas env nohup nice ionice timeout gtimeout setsid stdbuf unbuffer chroot unshare nsenter command builtin exec xargs parallel find fd busybox toybox" +
		" strace ltrace ssh watch flock script su runuser systemd-run chpst taskset caffeinate time entr "
	shells     = " sh bash dash zsh ksh mksh ash fish csh tcsh rbash su runuser "
	evaluators = " eval trap alias space-job "
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
	if len(words) == 0 || !among(name(words), wrappers) {
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
			t.parse(words[i].text, depth+1)
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
		script, option, stdin := false, false, false
		for _, w := range words[1:] {
			if strings.HasPrefix(w.text, "-") || strings.HasPrefix(w.text, "+") {
				option = option || strings.Contains(w.text, "c")
				stdin = stdin || w.text == "-s" || w.text == "-"
				continue
			}
			script = true
		}
		if !script || stdin {
			t.opaque = true // what it reads
		}
		if option {
			for _, w := range words[1:] {
				t.given(w, depth)
			}
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
	if _, value, ok := strings.Cut(w.text, "="); ok {
		t.parse(value, depth+1)
	}
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
