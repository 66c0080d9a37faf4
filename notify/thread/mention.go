package thread

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// spoken are the lines of a text that somebody says by themselves: a line that
// is quoted (it begins with ">"), indented by four spaces or a tab, or within a
// code fence is empty here. So are inline pieces between backticks.
func spoken(text string) []string {
	lines := strings.Split(text, "\n")
	fence := ""
	for i, l := range lines {
		body := strings.TrimLeft(l, " ")
		indent := len(l) - len(body)
		quoted := indent >= 4 || strings.HasPrefix(body, "\t") || strings.HasPrefix(body, ">")
		mark := ""
		if indent < 4 {
			mark = fenceOf(body)
		}
		switch {
		case fence != "":
			if mark != "" && mark[0] == fence[0] && len(mark) >= len(fence) && strings.TrimSpace(body[len(mark):]) == "" {
				fence = ""
			}
			lines[i] = ""
		case mark != "":
			fence = mark
			lines[i] = ""
		case quoted:
			lines[i] = ""
		default:
			lines[i] = withoutCode(strings.TrimSuffix(l, "\r"))
		}
	}
	return lines
}

// fenceOf is the fence that a line begins with: three backticks or tildes, or
// more.
func fenceOf(s string) string {
	for _, c := range [...]string{"`", "~"} {
		n := len(s) - len(strings.TrimLeft(s, c))
		if n < 3 {
			continue
		}
		if c == "`" && strings.Contains(s[n:], "`") {
			return "" // a piece of code on one line
		}
		return s[:n]
	}
	return ""
}

// withoutCode puts a space in the place of what is between backticks. One that
// has no other on its line is a backtick.
func withoutCode(s string) string {
	if !strings.Contains(s, "`") {
		return s
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '`')
		if i < 0 {
			b.WriteString(s)
			return b.String()
		}
		n := run(s[i:])
		end := -1
		for j := i + n; j < len(s); {
			if s[j] != '`' {
				j++
				continue
			}
			m := run(s[j:])
			if m == n {
				end = j + m
				break
			}
			j += m
		}
		if end < 0 {
			b.WriteString(s[:i+n])
			s = s[i+n:]
			continue
		}
		b.WriteString(s[:i] + " ")
		s = s[end:]
	}
}

// run is how many backticks s begins with.
func run(s string) int { return len(s) - len(strings.TrimLeft(s, "`")) }

// mentions are the names that a text mentions, each once, in their order.
// Whether somebody is called so is not looked at.
func mentions(text string) []string {
	var all []string
	for _, l := range spoken(text) {
		for at := 0; ; {
			i := strings.IndexByte(l[at:], '@')
			if i < 0 {
				break
			}
			before := l[:at+i]
			at += i + 1
			name := nameAt(l[at:])
			if name == "" || !standsAlone(before, l[at+len(name):]) {
				continue
			}
			at += len(name)
			if indexFold(all, name) < 0 {
				all = append(all, name)
			}
		}
	}
	return all
}

// nameAt is the name that s begins with, "" if there is none. A full stop, or a
// dash, at its end belongs to the sentence.
func nameAt(s string) string {
	n := 0
	for n < len(s) && nameByte(s[n]) {
		n++
	}
	name := strings.TrimRight(s[:n], ".-")
	if !ValidName(name) {
		return ""
	}
	return name
}

// standsAlone: the @ is no part of an e-mail address, a URL, a package's name
// (@scope/name) or an address of another kind (@who@where).
func standsAlone(before, after string) bool {
	word := before[strings.LastIndexAny(before, " \t")+1:]
	r, _ := utf8.DecodeLastRuneInString(word)
	switch {
	case word == "":
	case unicode.IsLetter(r), unicode.IsDigit(r), strings.ContainsRune(`._%+-\@=&#$~`, r):
		return false
	case r == '/' && word[0] != '@', r == ':' && strings.Contains(word, "/"):
		return false
	}
	if after == "" {
		return true
	}
	r, n := utf8.DecodeRuneInString(after)
	if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '@' {
		return false
	}
	next, _ := utf8.DecodeRuneInString(after[n:])
	return r != '/' || !unicode.IsLetter(next) && !unicode.IsDigit(next)
}

func indexFold(list []string, s string) int {
	for i, l := range list {
		if strings.EqualFold(l, s) {
			return i
		}
	}
	return -1
}
