package thread

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

var mentionCases = map[string]string{
	"":                                  "",
	"@bob":                              "bob",
	"hello @bob, and @carol.":           "bob carol",
	"@bob.":                             "bob",
	"@bob: go":                          "bob",
	"(@bob)":                            "bob",
	"<@bob>":                            "bob",
	"\"@bob\" '@carol'":                 "bob carol",
	"@bob's turn":                       "bob",
	"ask:@bob":                          "bob",
	"@bob/@carol":                       "bob carol",
	"@bob,@carol;@dave":                 "bob carol dave",
	"@bob @Bob @BOB":                    "bob",
	"@a.b-c_d":                          "a.b-c_d",
	"@bob...":                           "bob",
	"@bob--":                            "bob",
	"@ bob":                             "",
	"@@bob":                             "",
	"@bob@example.social":               "",
	"mail bob@example.com":              "",
	"bob.x+y@carol":                     "",
	"é@bob":                             "",
	"@bobé":                             "",
	"npm i @types/node":                 "",
	"https://example.com/@bob":          "",
	"\\@bob":                            "",
	"@-bob @.bob":                       "",
	"@" + strings.Repeat("x", 65):       "",
	"> @bob said":                       "",
	"   > @bob said":                    "",
	">@bob":                             "",
	"    @bob":                          "",
	"\t@bob":                            "",
	"  \t@bob":                          "",
	"   @bob":                           "bob",
	"x\n> @bob\n@carol":                 "carol",
	"```\n@bob\n```\n@carol":            "carol",
	"~~~ sh\n@bob\n```\n@x\n~~~\n@y":    "y",
	"````\n```\n@bob\n````\n@carol":     "carol",
	"```\n@bob":                         "",
	"use `@bob` or @carol":              "carol",
	"``a ` @bob`` @carol":               "carol",
	"a ` b @bob":                        "bob",
	"```x @bob``` @carol":               "carol",
	"a `b\n@bob` c":                     "bob",
	"JOB j000000000000 exited\r\n@bob":  "bob",
	"@bob\r":                            "bob",
	"End of the log:\n    @bob CLAIM x": "",
}

func TestMentions(t *testing.T) {
	t.Parallel()
	for text, want := range mentionCases {
		if got := strings.Join(mentions(text), " "); got != want {
			t.Errorf("%q mentions %q, want %q", text, got, want)
		}
	}
}

// FuzzMentions: a mention is a name that stands behind an @ in a line that is
// not quoted, and quoting every line leaves none.
func FuzzMentions(f *testing.F) {
	for text := range mentionCases {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		all := mentions(text)
		for i, name := range all {
			if !ValidName(name) || !strings.Contains(text, "@"+name) || indexFold(all[:i], name) >= 0 {
				t.Fatalf("%q mentions %q", text, all)
			}
		}
		for _, quote := range []string{"> ", "    ", "\t"} {
			quoted := quote + strings.ReplaceAll(text, "\n", "\n"+quote)
			if got := mentions(quoted); len(got) > 0 {
				t.Fatalf("%q mentions %q", quoted, got)
			}
		}
		if len(spoken(text)) != len(strings.Split(text, "\n")) {
			t.Fatalf("%q: lines are lost", text)
		}
		// What is added in words of its own is always heard, unless a fence is open.
		if !strings.ContainsAny(text, "`~") && !slices.Contains(mentions(text+"\n\n@zoe"), "zoe") && indexFold(all, "zoe") < 0 {
			t.Fatalf("%q: @zoe is not heard", text)
		}
	})
}
