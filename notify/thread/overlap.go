package thread

import (
	"path"
	"slices"
	"strings"
)

// overlaps are the pairs of a and b, as parseFiles made them, that may be about
// one file or one branch: the first element is of a.
func overlaps(a, b []string) [][2]string {
	var all [][2]string
	for _, x := range a {
		for _, y := range b {
			if overlap(x, y) {
				all = append(all, [2]string{x, y})
			}
		}
	}
	return all
}

// overlap reports whether two of them may be about one file: one is the other or
// is a directory above it, or a glob can match what the other covers. It is
// rather true than false. A branch meets the same branch, and a path that is
// written as its name is.
func overlap(x, y string) bool {
	bx, isX := strings.CutPrefix(x, branchPrefix)
	by, isY := strings.CutPrefix(y, branchPrefix)
	switch {
	case isX && isY:
		return meet(withoutBraces(bx), withoutBraces(by))
	case isX || isY:
		return path.Clean(bx) == path.Clean(by)
	}
	if strings.HasPrefix(x, "/") != strings.HasPrefix(y, "/") {
		return false // one of them would have to be looked for, from somewhere
	}
	const globs = `*?[{\`
	if !strings.ContainsAny(x, globs) && !strings.ContainsAny(y, globs) {
		return above(x, y) || above(y, x)
	}
	a, dirA := components(x)
	b, dirB := components(y)
	return meetAll(a, b, dirA, dirB)
}

// above reports whether a path is another, or a folder above it.
func above(x, y string) bool {
	x, y = strings.TrimRight(path.Clean(x), "/"), strings.TrimRight(path.Clean(y), "/")
	return x == y || x == "." || strings.HasPrefix(y, x) && y[len(x)] == '/'
}

// components are the parts of a path. Neither "." nor "/" has any. dir: it is
// more likely a directory than a file.
func components(s string) (parts []string, dir bool) {
	for p := range strings.SplitSeq(withoutBraces(s), "/") {
		if p != "" && p != "." {
			parts = append(parts, p)
		}
	}
	if n := len(parts); n > 0 && strings.LastIndexByte(parts[n-1], '.') > 0 && !strings.HasSuffix(s, "/") {
		return parts, false
	}
	return parts, true
}

// withoutBraces puts a star in the place of {a,b}.
func withoutBraces(s string) string {
	for {
		i := strings.IndexByte(s, '{')
		if i < 0 {
			return s
		}
		n := strings.IndexByte(s[i:], '}')
		if n < 0 {
			return s
		}
		s = s[:i] + "*" + s[i+n+1:]
	}
}

// meetAll compares component by component. Where one comes to its end, it is the
// other or above it. A "**" stands for any number of components.
func meetAll(a, b []string, dirA, dirB bool) bool {
	n, m := len(a), len(b)
	for k := 0; ; k++ {
		if k == n || k == m {
			return true // the one is above the other
		}
		if a[k] == "**" || b[k] == "**" || !meet(a[k], b[k]) {
			break
		}
	}
	// What is left of a and b, from these components on. Rows from the end.
	row := make([]bool, m+1) // of i+1
	for j := range row {
		row[j] = true // a is at its end
	}
	for i := n - 1; i >= 0; i-- {
		now := make([]bool, m+1)
		// b is at its end: it covers what a still names, if it is a directory. Of
		// one that came here only through a "**" of a, that is not taken for sure.
		now[m] = true
		if a[i] == "**" && m > 0 && !dirB && b[m-1] != "**" {
			now[m] = row[m] && !slices.ContainsFunc(a[i+1:], func(c string) bool { return c != "**" })
		}
		for j := m - 1; j >= 0; j-- {
			switch {
			case a[i] == "**" && b[j] == "**":
				now[j] = true
			case a[i] == "**":
				now[j] = row[j] || now[j+1]
			case b[j] == "**":
				end := now[j+1] // the "**" stands for nothing
				more := row[j]  // it stands for a[i], and perhaps more
				if i == n-1 && !dirA && slices.ContainsFunc(b[j+1:], func(c string) bool { return c != "**" }) {
					more = false // what is behind it would be below a file
				}
				now[j] = end || more
			default:
				now[j] = row[j+1] && meet(a[i], b[j])
			}
		}
		row = now
	}
	return row[0]
}

// meet reports whether one text can match both globs: * any text, ? one
// character, [...] one of some, which is taken for any.
func meet(a, b string) bool {
	x, y := tokens(a), tokens(b)
	row := make([]bool, len(y)+1) // of the end of x
	row[len(y)] = true
	for j := len(y) - 1; j >= 0; j-- {
		row[j] = y[j] == star && row[j+1]
	}
	for i := len(x) - 1; i >= 0; i-- {
		now := make([]bool, len(y)+1)
		now[len(y)] = x[i] == star && row[len(y)]
		for j := len(y) - 1; j >= 0; j-- {
			switch {
			case x[i] == star || y[j] == star:
				now[j] = x[i] == star && (row[j] || now[j+1]) || y[j] == star && (now[j+1] || row[j])
			default:
				now[j] = row[j+1] && (x[i] == any1 || y[j] == any1 || x[i] == y[j])
			}
		}
		row = now
	}
	return row[0]
}

const (
	star rune = -1 - iota
	any1
)

// tokens are the characters of a glob, with star and any1 among them.
func tokens(s string) []rune {
	var out []rune
	for r := []rune(s); len(r) > 0; {
		switch {
		case r[0] == '*':
			out = append(out, star)
		case r[0] == '?':
			out = append(out, any1)
		case r[0] == '[':
			// The first bracket may be one of the set.
			if end := slices.Index(r[min(2, len(r)):], ']'); end >= 0 {
				out = append(out, any1)
				r = r[2+end+1:]
				continue
			}
			out = append(out, r[0])
		case r[0] == '\\' && len(r) > 1:
			out = append(out, r[1])
			r = r[1:]
		default:
			out = append(out, r[0])
		}
		r = r[1:]
	}
	return out
}
