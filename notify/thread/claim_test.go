package thread

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"space-job/jobdir"
)

var zone = time.FixedZone("XST", 5*3600+1800)

// noon is when the claims of the tests are read.
var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, zone)

func TestStatements(t *testing.T) {
	t.Parallel()
	in := func(h, m int) time.Time { return time.Date(2026, 5, 4, h, m, 0, 0, zone) }
	for _, c := range []struct {
		text string
		want []statement
	}{
		{"CLAIM parser | files: src/parser | until: 15:04",
			[]statement{{verb: "CLAIM", what: "parser", files: []string{"src/parser"}, until: in(15, 4)}}},
		{"  claim:  the   Parser|FILES :  a.go ,b.go,  c/|Until: +2h  ",
			[]statement{{verb: "CLAIM", what: "the Parser", files: []string{"a.go", "b.go", "c/"}, until: in(14, 0), loose: true}}},
		{"CLAIM x | until: 30m | files: a b", []statement{{verb: "CLAIM", what: "x", files: []string{"a", "b"}, until: in(12, 30)}}},
		{"CLAIM x | branch: feature/x | until: 1h", []statement{{verb: "CLAIM", what: "x", files: []string{"branch feature/x"}, until: in(13, 0)}}},
		{"CLAIM x | files: branch b, ./a/../c, \"d e/f\" | until: 1h",
			[]statement{{verb: "CLAIM", what: "x", files: []string{"branch b", "c", "d e/f"}, until: in(13, 0)}}},
		{"CLAIM x | files: src/{a,b}.go, branch:refs/heads/y | until: 1h",
			[]statement{{verb: "CLAIM", what: "x", files: []string{"src/{a,b}.go", "branch y"}, until: in(13, 0)}}},
		{"CLAIM x | files: `src/a.go` | until: 1h", []statement{{verb: "CLAIM", what: "x", files: []string{"src/a.go"}, until: in(13, 0)}}},
		{"CLAIM x | files: a | until: 11:00 (takes over from @bob, expired 10:00)",
			[]statement{{verb: "CLAIM", what: "x", files: []string{"a"}, until: in(11, 0).Add(24 * time.Hour)}}},
		{"hello\nCLAIM x | files: a | until: 1h\nbye\nRELEASE y", []statement{
			{verb: "CLAIM", what: "x", files: []string{"a"}, until: in(13, 0), line: 1}, {verb: "RELEASE", what: "y", line: 3}}},
		{"DONE x | all pass | next: review", []statement{{verb: "DONE", what: "x", result: "all pass", next: "review"}}},
		{"done x | result: all: pass |NEXT:review", []statement{{verb: "DONE", what: "x", result: "all: pass", next: "review", loose: true}}},
		{"RELEASE the parser", []statement{{verb: "RELEASE", what: "the parser"}}},
		{"BLOCKED x | needs: the schema | from @bob", []statement{{verb: "BLOCKED", what: "x", needs: "the schema", from: "bob"}}},
		{"Blocked x | from: @bob | needs: y", []statement{{verb: "BLOCKED", what: "x", needs: "y", from: "bob", loose: true}}},

		// Prose, and what others said.
		{"done, thanks", nil},
		{"Done with it | see above", nil},
		{"claim what you like", nil},
		{"blocked by @bob", nil},
		{"CLAIMS are live", nil},
		{"> CLAIM x | files: a | until: 1h", nil},
		{"    CLAIM x | files: a | until: 1h", nil},
		{"`CLAIM x | files: a | until: 1h`", nil},
		{"```\nCLAIM x | files: a | until: 1h\n```", nil},
		{"I CLAIM x | files: a | until: 1h", nil},
	} {
		got, err := statements(c.text, noon)
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%q: %+v, %v", c.text, got, err)
			continue
		}
		for i := range got {
			if g, w := fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", c.want[i]); g != w {
				t.Errorf("%q:\n%s, want\n%s", c.text, g, w)
			}
		}
	}
}

func TestStatementsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"CLAIM":                                                         "does not say what",
		"CLAIM | files: a | until: 1h":                                  "does not say what",
		"CLAIM x":                                                       "does not say which files or branch: CLAIM <what>",
		"CLAIM x | until: 1h":                                           "does not say which files or branch: CLAIM <what>",
		"CLAIM x | files: | until: 1h":                                  `nothing behind "files:": CLAIM <what>`,
		"CLAIM x | files: a":                                            "does not say until",
		"CLAIM x | files: a | until:":                                   "does not say until",
		"claim x | files: a":                                            "does not say until",
		"CLAIM x | files: a | until: 1h | until: 2h":                    `has "until:" twice: CLAIM <what>`,
		"CLAIM x | files: a | until: soon":                              `until: "soon" is no time`,
		"CLAIM x | files: a | until: 25:00":                             "is no time of the day",
		"CLAIM x | files: a | until: 12:60":                             "is no time of the day",
		"CLAIM x | files: a | until: 0m":                                "is not above zero",
		"CLAIM x | files: a | until: -5m":                               "is no time",
		"CLAIM x | files: a | until: 2026-05-04T11:59:00+05:30":         "is over already: it is 12:00 XST here",
		"CLAIM x | files: a | until: 99999999h":                         "is no time",
		"CLAIM x | files: a | until: 99999h":                            "is too far away",
		"CLAIM x | files: a | until: 9999d":                             "is too far away",
		"CLAIM x | a | until: 1h":                                       `"a" in CLAIM is neither`,
		"CLAIM x | files: \"a | until: 1h":                              "a quote that does not end",
		"CLAIM x | files: branch | until: 1h":                           "a branch without a name",
		"CLAIM x | needs: a | until: 1h":                                `CLAIM has no "needs:": CLAIM <what>`,
		"CLAIM " + strings.Repeat("x", 201) + " | files: a | until: 1h": "longer than 200 bytes",
		"DONE x":                          "with what result",
		"DONE x | fine":                   "what is next",
		"DONE x | fine | next:":           "what is next",
		"DONE x | a | b | next: y":        `"b" in DONE`,
		"RELEASE":                         "does not say what",
		"RELEASE x | y":                   "nothing behind",
		"BLOCKED x | from @bob":           "what it needs",
		"BLOCKED x | needs: y":            "from @whom",
		"BLOCKED x | needs: y | from bob": `"from bob" in BLOCKED`,
		"fine\n\nCLAIM x | files: a":      "does not say until",
	} {
		_, err := statements(text, noon)
		var refused *InvalidError
		if !errors.As(err, &refused) || refused.Field != "text" || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestUntil(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"15:04": "2026-05-04T15:04:00+05:30", "9:30": "2026-05-05T09:30:00+05:30", "12:00": "2026-05-05T12:00:00+05:30", "12:01": "2026-05-04T12:01:00+05:30",
		"00:00": "2026-05-05T00:00:00+05:30", "15:04 XST": "2026-05-04T15:04:00+05:30", "15:04 +05:30": "2026-05-04T15:04:00+05:30",
		"30m": "2026-05-04T12:30:00+05:30", "+2h": "2026-05-04T14:00:00+05:30", "1h30m": "2026-05-04T13:30:00+05:30", "1h 30m": "2026-05-04T13:30:00+05:30", "2d": "2026-05-06T12:00:00+05:30",
		"2026-05-04T15:04:00+02:00": "2026-05-04T15:04:00+02:00", "2026-05-04T15:04:05Z": "2026-05-04T15:04:05Z", "2026-05-04T15:04Z": "2026-05-04T15:04:00Z",
		"2H": "2026-05-04T14:00:00+05:30", "+ 1H 30M": "2026-05-04T13:30:00+05:30", "1\tD": "2026-05-05T12:00:00+05:30", "15:04 xst": "2026-05-04T15:04:00+05:30", " 2026-05-04t15:04:05z ": "2026-05-04T15:04:05Z",
		"2026-05-04 15:04": "2026-05-04T15:04:00+05:30", "2026-05-06 15:04 XST": "2026-05-06T15:04:00+05:30",
	} {
		got, why := parseUntil(s, noon)
		if why != "" || got.Format(time.RFC3339) != want {
			t.Errorf("%q: %s, %s, want %s", s, got.Format(time.RFC3339), why, want)
		}
	}
	for _, s := range []string{"", "x", "15", "15:4", "15:04 CET", "24:00", "1:2:3", "h", "1", "-1h", "+-1h", "++1h", "10000d", "2026-05-04", "2026-05-04 10:00"} {
		if got, why := parseUntil(s, noon); why == "" {
			t.Errorf("%q: %v", s, got)
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"src", "src/a.go", true}, {"src/", "src/a/b/c.go", true}, {"src", "srcs/a.go", false}, {"src/a", "src/ab", false},
		{"src/a.go", "src/b.go", false}, {".", "anything/at/all", true}, {"/", "/etc/passwd", true}, {"/srv/a", "/srv/a/b", true}, {"/a", "a", false},
		{"src/*.go", "src/a.go", true}, {"src/*.go", "src/a.md", false}, {"src/*.go", "src", true}, {"src/*.go", "src/a/b.go", false}, {"src/*", "src/a/b.go", true},
		{"src/*.go", "src/a*", true}, {"src/a*.go", "src/b*.go", false}, {"src/*a.go", "src/b*.go", true}, {"*.go", "main.go", true}, {"*.md", "src/a.go", false},
		{"src/**", "src/a/b/c.go", true}, {"src/**/x.go", "src/a/b/x.go", true}, {"src/**/x.go", "src/x.go", true}, {"src/**/x.go", "src/a/b/y.go", false},
		{"src/**/x.go", "src/a", true}, {"**/*.go", "docs/readme.md", false}, {"**/*.go", "docs/a.go", true}, {"**/*.go", "docs", true}, {"**", "a/b", true},
		{"a/**/b", "a/**/c", true}, // a/b/c is below both
		{"a/**", "b/**", false}, {"v1.2/**/x", "v1.2", true}, {"v1.2", "v1.2/a", true},
		{"file?.go", "file1.go", true}, {"file?.go", "file10.go", false}, {"[ab].go", "a.go", true}, {"[ab].go", "xy.go", false}, {"src/{a,b}.go", "src/b.go", true}, {"src/{a,b}.go", "src/b.md", false},
		{"日本/*.go", "日本/語.go", true}, {"日本/?.go", "日本/語.go", true}, {`a\*b`, "a*b", true}, {`a\*b`, "axb", false},
		{"branch x", "branch x", true}, {"branch x", "branch y", false}, {"branch x", "branch x/y", false}, {"branch feature/*", "branch feature/a", true},
		{"branch x", "x", true}, {"branch feature/x", "feature/x", true}, {"branch x", "x/y", false}, {"branch x", "y", false},
	} {
		for _, p := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			if got := overlap(p[0], p[1]); got != c.want {
				t.Errorf("%q and %q: %v", p[0], p[1], got)
			}
		}
	}
}

// claimsOf is a short form of the live claims.
func claimsOf(t *testing.T, th *Thread) string {
	t.Helper()
	var all []string
	for _, c := range must(th.Claims())(t) {
		s := c.Owner.Member + ":" + c.What
		if c.Blocked != nil {
			s += "(" + c.Blocked.From + ")"
		}
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

func TestClaims(t *testing.T) {
	t.Parallel()
	th := newThread(t)
	now := noon.UTC()
	th.now = func() time.Time { return now }
	crowd(t, th, 3)
	say := func(who Author, text string) Posted {
		t.Helper()
		return must(th.Post(Post{Author: who, Text: text}))(t)
	}
	want := func(claims string) {
		t.Helper()
		if got := claimsOf(t, th); got != claims {
			t.Errorf("claims: %q, want %q", got, claims)
		}
	}
	want("")
	if o := say(agent(0), "CLAIM Parser | files: src/parser | until: 1h").Claims[0]; !o.Live {
		t.Errorf("%+v", o)
	}
	want("a0:Parser")
	// Of somebody else, on the same ground: posted, and not live.
	p := say(agent(1), "CLAIM tests | files: docs, src/parser/x.go | until: 1h")
	if o := p.Claims[0]; o.Live || len(o.Overlaps) != 1 || o.Overlaps[0].Claim.Owner.Member != "a0" || o.Overlaps[0].Files[0] != "src/parser/x.go" || o.Overlaps[0].With[0] != "src/parser" {
		t.Errorf("%+v", p.Claims)
	}
	want("a0:Parser")
	// By command it is refused, and nothing is posted.
	end := must(th.End())(t)
	var refused *OverlapError
	if _, err := th.Post(Post{Author: agent(1), Text: "CLAIM tests | files: src | until: 1h", Claims: true}); !errors.As(err, &refused) || !strings.Contains(err.Error(), "@a0 has claimed \"Parser\"") {
		t.Errorf("%v", err)
	}
	if got := must(th.End())(t); got != end {
		t.Errorf("a refused claim was posted as entry %d", got)
	}
	// Only the owner ends it, and only under its name.
	for _, text := range []string{"DONE parser | fine | next: x", "RELEASE parser"} {
		if o := say(agent(1), text).Claims[0]; o.Ended || o.Owner != "a0" {
			t.Errorf("%s: %+v", text, o)
		}
	}
	if o := say(agent(0), "RELEASE pars").Claims[0]; o.Ended || o.Owner != "" {
		t.Errorf("%+v", o)
	}
	say(Author{"ann", Person}, "release parser")
	want("a0:Parser")
	// Blocked, it stays, and who is asked has an item.
	p = say(agent(0), "BLOCKED parser | needs: x | from @a2")
	if len(p.Items) != 1 || p.Items[0].To != "a2" || p.Claims[0].Owner != "a0" {
		t.Errorf("%+v", p)
	}
	want("a0:Parser(a2)")
	// Its own claims do not meet one another; the same what is renewed.
	say(agent(0), "CLAIM parser | files: src | until: 2h")
	say(agent(0), "CLAIM docs | files: src/docs | until: 2h")
	want("a0:parser a0:docs")
	now = now.Add(90 * time.Minute)
	want("a0:parser a0:docs")
	say(agent(0), "done  PARSER | passes | next: review")
	want("a0:docs")
	// Past its time another may take it, and says so.
	now = now.Add(30 * time.Minute)
	want("")
	until := now.Local().Format("15:04")
	p = say(agent(1), "CLAIM d | files: src/docs/a | until: 1h\nand more")
	if want := "CLAIM d | files: src/docs/a | until: 1h (takes over from @a0, expired " + until + ")\nand more"; p.Entry.Text != want || len(p.Claims[0].Over) != 1 || len(p.Items) != 0 {
		t.Errorf("%q, want %q; %+v", p.Entry.Text, want, p.Claims[0])
	}
	want("a1:d")
	if p := say(agent(1), "RELEASE d"); !p.Claims[0].Ended {
		t.Errorf("%+v", p.Claims)
	}
	// What was released is no ground of anybody.
	if p := say(agent(2), "CLAIM d | files: src/docs/a | until: 1h"); strings.Contains(p.Entry.Text, "takes over") || !p.Claims[0].Live {
		t.Errorf("%+v", p)
	}
	// Made anew from the thread, it is the same.
	want("a2:d")
	before, _ := readSmall(th.path(threadDir, claimsName))
	for _, damage := range []string{"", "x", "[]", `{"seq":-1}`, `{"seq":1e3,"claims":[]}`} {
		th.Warn = nil
		if damage == "" {
			if err := remove(th.path(threadDir, claimsName)); err != nil {
				t.Fatal(err)
			}
		} else if err := jobdir.ReplaceFile(th.path(threadDir, claimsName), []byte(damage), false); err != nil {
			t.Fatal(err)
		}
		want("a2:d")
	}
	if after, _ := readSmall(th.path(threadDir, claimsName)); string(after) != string(before) {
		t.Errorf("made anew:\n%swas\n%s", after, before)
	}
}

// TestClaimText: what the command writes is read back as what was asked for.
func TestClaimText(t *testing.T) {
	t.Parallel()
	now := time.Now()
	text := must(ClaimText(" the  parser ", []string{"a b.go", "src/", "branch", "c,d"}, "rel 2", "30m", now))(t)
	got, err := statements(text, now.Local())
	if err != nil || len(got) != 1 || got[0].what != "the parser" || !slices.Equal(got[0].files, []string{"a b.go", "src/", "branch", "c,d", "branch rel 2"}) {
		t.Fatalf("%s: %+v, %v", text, got, err)
	}
	if d := got[0].until.Sub(now.Add(30 * time.Minute)); d < 0 || d >= time.Second {
		t.Errorf("%s: off by %v", text, d)
	}
	for _, c := range []struct {
		what, file, branch, until, field string
	}{
		{"", "a", "", "1h", "what"}, {"x|y", "a", "", "1h", "what"}, {"x\ny", "a", "", "1h", "what"}, {"x", "a|b", "", "1h", "files"}, {"x", "a`b", "", "1h", "files"}, {"x", "", "", "1h", "files"},
		{"x", "a", "b\"c", "1h", "branch"}, {"x", "a", "", "then", "until"}, {strings.Repeat("x", 300), "a", "", "1h", "what"},
	} {
		_, err := ClaimText(c.what, []string{c.file}, c.branch, c.until, now)
		var refused *InvalidError
		if !errors.As(err, &refused) || refused.Field != c.field {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// FuzzParseClaim: no line makes the parser fail, what it reads is whole, and
// what it reads of a CLAIM it reads again when it is written anew.
func FuzzParseClaim(f *testing.F) {
	for _, s := range []string{
		"CLAIM x | files: a, b/*.go, branch c | until: 15:04", "DONE x | fine | next: y", "RELEASE x", "BLOCKED x | needs: y | from @bob",
		"claim: x|files:\"a b\" {c,d}|until:+2h (takes over from @a, expired 10:00)", "CLAIM |||", "CLAIM x | files: branch:branch | until: 2026-05-04T15:04:00+02:00", "CLAIM\tx|branch: y|until: 1d",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > MaxPost || !utf8.ValidString(text) {
			return
		}
		all, err := statements(text, noon)
		if err != nil && !errors.As(err, new(*InvalidError)) {
			t.Fatalf("%q: %v", text, err)
		}
		for _, s := range all {
			if s.what == "" || strings.Contains(s.what, "|") || s.verb == verbClaim && (len(s.files) == 0 || !s.until.After(noon)) ||
				s.verb == verbDone && (s.result == "" || s.next == "") || s.verb == verbBlocked && (s.needs == "" || !ValidName(s.from)) {
				t.Fatalf("%q: %+v", text, s)
			}
			if s.verb != verbClaim {
				continue
			}
			again, why := parseFiles(showFiles(s.files))
			if why != "" && !strings.Contains(strings.Join(s.files, ""), `"`) || why == "" && !slices.Equal(again, s.files) && !strings.Contains(strings.Join(s.files, ""), `"`) {
				t.Fatalf("%q: %q is read again as %q, %s", text, s.files, again, why)
			}
			for _, file := range s.files {
				if !overlap(file, file) {
					t.Fatalf("%q does not overlap itself", file)
				}
				for _, other := range s.files {
					if overlap(file, other) != overlap(other, file) {
						t.Fatalf("%q and %q: it depends on who asks", file, other)
					}
				}
			}
		}
	})
}
