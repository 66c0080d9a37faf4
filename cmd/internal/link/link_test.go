package link

import (
	"errors"
	"strings"
	"testing"
)

const testSecret = "393cdd215580d5b0.209fcc18e26a7be25525c164a862cd35050d9cbe1badd65e"

// TestLink: a link is read as it was made, and a letter that was changed, is
// missing or was added is found wherever it stands.
func TestLink(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://127.0.0.1:7411", "https://space.example.com/a", Address{Exec: []string{"ssh", "-p", "2222", "box"}}.String()} {
		l := Link{address, testSecret}
		s := l.String()
		if strings.ContainsAny(s, " \n'\"") {
			t.Errorf("%q does not fit into quotes", s)
		}
		if got, err := Parse(" " + s + "\n"); err != nil || got != l {
			t.Errorf("%+v, %v", got, err)
		}
		for i := range len(s) {
			for _, c := range []string{"", "a", "B", "7", "~", s[i:i+1] + s[i:i+1]} {
				if c == s[i:i+1] {
					continue
				}
				changed := s[:i] + c + s[i+1:]
				if _, err := Parse(changed); !errors.Is(err, ErrDamaged) {
					t.Fatalf("%q: %v", changed, err)
				}
			}
			if i > 0 && s[i] != s[i-1] {
				swapped := s[:i-1] + s[i:i+1] + s[i-1:i] + s[i+1:]
				if _, err := Parse(swapped); !errors.Is(err, ErrDamaged) {
					t.Fatalf("%q: %v", swapped, err)
				}
			}
		}
	}
	for _, s := range []string{"", ".", "space-job:", "https://example.com", Link{"http://127.0.0.1:1", "short.secret"}.String()} {
		if _, err := Parse(s); !errors.Is(err, ErrDamaged) {
			t.Errorf("%q: %v", s, err)
		}
	}
	if _, err := Parse(Link{"http://box:7411", testSecret}.String()); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("plain http to another machine: %v", err)
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"http://127.0.0.1:80":              "http://127.0.0.1:80",
		"http://localhost:80/":             "http://localhost:80",
		"http://[::1]:80":                  "http://[::1]:80",
		"https://box":                      "https://box",
		"https://box:8443/space/":          "https://box:8443/space",
		`exec:["ssh","box"]`:               "exec:WyJzc2giLCJib3giXQ",
		"exec:WyJzc2giLCJib3giXQ":          "exec:WyJzc2giLCJib3giXQ",
		"http://box:80":                    "",
		"http://10.0.0.1":                  "",
		"http://127.0.0.1.example.com":     "",
		"http://localhost.example.com":     "",
		"https://":                         "",
		"https://user:pass@box":            "",
		"https://box/?a=b":                 "",
		"ftp://box":                        "",
		"box":                              "",
		"":                                 "",
		"exec:":                            "",
		"exec:[]":                          "",
		`exec:[""]`:                        "",
		`exec:"ssh box"`:                   "",
		"exec:[\"ssh\",\"a\\u0000b\"]":     "",
		"http://127.0.0.1:80#fragment":     "",
		"http://0.0.0.0:80":                "",
		"http://127.0.0.1@box.example.com": "",
	} {
		a, err := ParseAddress(s)
		if (err == nil) != (want != "") || err == nil && a.String() != want {
			t.Errorf("%q: %q, %v; want %q", s, a.String(), err, want)
		}
		if err == nil {
			if again, err := ParseAddress(a.String()); err != nil || again.String() != want {
				t.Errorf("%q: %v, %v", want, again, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Link{"http://127.0.0.1:7411", testSecret}.String())
	f.Add("space-job:exec:WyJzc2giLCJib3giXQ#" + testSecret + ".00000000")
	f.Fuzz(func(t *testing.T, s string) {
		if l, err := Parse(s); err == nil && l.String() != strings.TrimSpace(s) {
			t.Errorf("%q is read as %q", s, l.String())
		}
	})
}
