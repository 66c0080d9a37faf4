package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func p(s string) *string { return &s }

// TestDecide: every kind of rule against every kind of request.
func TestDecide(t *testing.T) {
	sh := func(s string) Request { return Request{Member: "ann", Space: Local, Command: s, Cwd: "/src/app"} }
	argv := func(a ...string) Request { return Request{Member: "ann", Space: Local, Argv: a, Cwd: "/src/app"} }
	with := func(q Request, f func(*Request)) Request { f(&q); return q }
	env := func(q Request, names ...string) Request { q.Env = names; return q }

	allowMake := []Rule{{Command: p("make *"), Verdict: Allow}, {Verdict: Ask}}
	denyRM := []Rule{{Command: p("rm *"), Verdict: Deny}}
	for _, c := range []struct {
		name     string
		personal bool
		rules    []Rule
		q        Request
		want     Verdict
		rule     int
	}{
		{"no rules", false, nil, sh("make"), Allow, 0},
		{"no rules, personal", true, nil, sh("make"), Ask, 0},
		{"a rule for all, personal", true, []Rule{{Verdict: Allow}}, sh("make"), Allow, 1},
		{"the first wins", false, []Rule{{Verdict: Deny}, {Verdict: Allow}}, sh("make"), Deny, 1},
		{"all that matches nothing", false, []Rule{{Space: p("other"), Verdict: Deny}}, sh("make"), Allow, 0},
		{"space", false, []Rule{{Space: p(Local), Verdict: Deny}}, sh("make"), Deny, 1},
		{"another Space", false, []Rule{{Space: p("box"), Verdict: Deny}}, Request{Space: "box", Command: "make"}, Deny, 1},
		{"another Space, not this one", true, nil, Request{Space: "box", Command: "make"}, Allow, 0},
		{"another Space, a person's", false, nil, Request{Space: "box", Machine: true, Command: "make"}, Ask, 0},
		{"another Space, a person's, by a rule", false, []Rule{{Space: p("box"), Command: p("make *"), Verdict: Allow}}, Request{Space: "box", Machine: true, Command: "make x"}, Allow, 1},

		// members
		{"allow for ann", true, []Rule{{Member: p("ann"), Verdict: Allow}}, sh("x"), Allow, 1},
		{"allow for bob", true, []Rule{{Member: p("bob"), Verdict: Allow}}, sh("x"), Ask, 0},
		{"allow for ann, who does not say so", true, []Rule{{Member: p("ann"), Verdict: Allow}}, with(sh("x"), func(q *Request) { q.Member = "" }), Ask, 0},
		{"deny for ann, who does not say so", false, []Rule{{Member: p("ann"), Verdict: Deny}}, with(sh("x"), func(q *Request) { q.Member = "" }), Deny, 1},
		{"deny for bob", false, []Rule{{Member: p("bob"), Verdict: Deny}}, sh("x"), Allow, 0},

		// folders
		{"in the folder", true, []Rule{{Cwd: p("/src/app"), Verdict: Allow}}, sh("x"), Allow, 1},
		{"below the folder", true, []Rule{{Cwd: p("/src"), Verdict: Allow}}, sh("x"), Allow, 1},
		{"a folder whose name begins so", true, []Rule{{Cwd: p("/src/ap"), Verdict: Allow}}, sh("x"), Ask, 0},
		{"the root", true, []Rule{{Cwd: p("/"), Verdict: Allow}}, sh("x"), Allow, 1},

		{"a folder that cannot be told", true, []Rule{{Cwd: p("/"), Verdict: Allow}}, with(sh("x"), func(q *Request) { q.Cwd = "" }), Ask, 0},
		{"a folder that cannot be told, denied", false, []Rule{{Cwd: p("/src"), Verdict: Deny}}, with(sh("x"), func(q *Request) { q.Cwd = "" }), Deny, 1},

		// patterns that allow
		{"a pattern", true, allowMake, sh("make test"), Allow, 1},
		{"as argv", true, allowMake, argv("make", "test"), Allow, 1},
		{"with quotes", true, allowMake, sh(`make "a b"`), Allow, 1},
		{"no argument", true, allowMake, sh("make"), Ask, 2},
		{"leading blank", true, allowMake, sh(" make test"), Ask, 2},
		{"leading newline", true, allowMake, sh("\nmake test"), Ask, 2},
		{"inside", true, allowMake, sh("xmake test"), Ask, 2},
		{"path", true, allowMake, sh("./make test"), Ask, 2},
		{"in capitals", true, allowMake, sh("MAKE test"), Ask, 2},
		{"leading variable", true, allowMake, sh("PATH=/tmp make test"), Ask, 2},
		{"semicolon", true, allowMake, sh("make test; rm x"), Ask, 2},
		{"and", true, allowMake, sh("make test && rm x"), Ask, 2},
		{"background", true, allowMake, sh("make test & rm x"), Ask, 2},
		{"pipe", true, allowMake, sh("make test | sh"), Ask, 2},
		{"newline", true, allowMake, sh("make test\nrm x"), Ask, 2},
		{"carriage return", true, allowMake, sh("make test\rrm x"), Ask, 2},
		{"substitution", true, allowMake, sh("make $(rm x)"), Ask, 2},
		{"backquotes", true, allowMake, sh("make `rm x`"), Ask, 2},
		{"within double quotes", true, allowMake, sh(`make "$(rm x)"`), Ask, 2},
		{"variable", true, allowMake, sh("make $X"), Ask, 2},
		{"output", true, allowMake, sh("make test >/etc/x"), Ask, 2},
		{"input", true, allowMake, sh("make -f - </tmp/x"), Ask, 2},
		{"process substitution", true, allowMake, sh("make -f <(echo)"), Ask, 2},
		{"backslash", true, allowMake, sh("make te\\st"), Ask, 2},
		{"argv within a shell", true, allowMake, argv("sh", "-c", "make test"), Ask, 2},
		{"a program with a blank", true, allowMake, argv("make test", "x"), Ask, 2},
		{"an argument with a semicolon", true, allowMake, argv("make", "x;y"), Ask, 2},
		{"sets PATH", true, allowMake, env(sh("make test"), "PATH"), Ask, 2},
		{"sets PATH, argv", true, allowMake, env(argv("make", "test"), "PATH"), Ask, 2},
		{"sets what the rule names", true, []Rule{{Command: p("make *"), Env: []string{"CI"}, Verdict: Allow}}, env(sh("make test"), "CI"), Allow, 1},
		{"sets one more", true, []Rule{{Command: p("make *"), Env: []string{"CI"}, Verdict: Allow}}, env(sh("make test"), "CI", "PATH"), Ask, 0},
		{"all is allowed, with variables", true, []Rule{{Verdict: Allow}}, env(sh("make test"), "PATH"), Allow, 1},
		{"written out", true, []Rule{{Command: p("make * && make *"), Verdict: Allow}}, sh("make a && make b"), Allow, 1},
		{"written out, and more", true, []Rule{{Command: p("make * && make *"), Verdict: Allow}}, sh("make a && make b && rm x"), Ask, 0},
		{"no way out of quotes", true, []Rule{{Command: p("git commit -m '*'"), Verdict: Allow}}, sh("git commit -m 'x' -F '/etc/x'"), Ask, 0},
		{"within quotes", true, []Rule{{Command: p("git commit -m '*'"), Verdict: Allow}}, sh("git commit -m 'a b'"), Allow, 1},
		{"comment", true, []Rule{{Command: p("git push * --dry-run"), Verdict: Allow}}, sh("git push -f # --dry-run"), Ask, 0},
		{"no wildcards are but *", true, []Rule{{Command: p("mak? [a-z]"), Verdict: Allow}}, sh("make a"), Ask, 0},

		// to the letter
		{"exact", true, []Rule{{Exact: p("a; b *"), Verdict: Allow}}, sh("a; b *"), Allow, 1},
		{"exact is no pattern", true, []Rule{{Exact: p("a *"), Verdict: Allow}}, sh("a b"), Ask, 0},
		{"exact is no argv", true, []Rule{{Exact: p("a b"), Verdict: Allow}}, argv("a", "b"), Ask, 0},
		{"exact, with a variable", true, []Rule{{Exact: p("a b"), Verdict: Allow}}, env(sh("a b"), "X"), Ask, 0},
		{"argv", true, []Rule{{Argv: []string{"a", "b c"}, Verdict: Allow}}, argv("a", "b c"), Allow, 1},
		{"another argv", true, []Rule{{Argv: []string{"a", "b c"}, Verdict: Allow}}, argv("a", "b", "c"), Ask, 0},
		{"argv is no shell string", true, []Rule{{Argv: []string{"a", "b"}, Verdict: Allow}}, sh("a b"), Ask, 0},
		{"deny to the letter", false, []Rule{{Exact: p("make deploy"), Verdict: Deny}}, sh("  make   deploy\n"), Deny, 1},
		{"deny to the letter, as argv", false, []Rule{{Exact: p("make deploy"), Verdict: Deny}}, argv("make", "deploy"), Deny, 1},
		{"deny an argv, as shell string", false, []Rule{{Argv: []string{"make", "deploy"}, Verdict: Deny}}, sh("true && make deploy"), Deny, 1},
		{"deny another", false, []Rule{{Exact: p("make deploy"), Verdict: Deny}}, sh("make deploy-test"), Allow, 0},

		// patterns that deny
		{"deny", false, denyRM, sh("rm -rf x"), Deny, 1},
		{"alone", false, denyRM, sh("rm"), Deny, 1},
		{"a longer name", false, denyRM, sh("rmdir x"), Allow, 0},
		{"as an argument", false, denyRM, sh("echo rm x"), Allow, 0},
		{"in a quoted argument", false, denyRM, sh(`git commit -m "x; rm y"`), Allow, 0},
		{"as argv", false, denyRM, argv("rm", "x"), Deny, 1},
		{"as argv with a folder", false, denyRM, argv("/bin/rm", "x"), Deny, 1},
		{"blanks", false, denyRM, sh("  \t rm\t x"), Deny, 1},
		{"newlines", false, denyRM, sh("\n\nrm x\n"), Deny, 1},
		{"a comment before", false, denyRM, sh("# x\nrm x"), Deny, 1},
		{"capitals", false, denyRM, sh("RM x"), Deny, 1},
		{"folder", false, denyRM, sh("/bin/rm x"), Deny, 1},
		{"relative folder", false, denyRM, sh("../../bin/rm x"), Deny, 1},
		{"quotes", false, denyRM, sh(`r'm' x`), Deny, 1},
		{"double quotes", false, denyRM, sh(`"rm" x`), Deny, 1},
		{"empty quotes", false, denyRM, sh(`r""m x`), Deny, 1},
		{"backslash", false, denyRM, sh(`\rm x`), Deny, 1},
		{"a line that goes on", false, denyRM, sh("r\\\nm x"), Deny, 1},
		{"behind another", false, denyRM, sh("true; rm x"), Deny, 1},
		{"behind and", false, denyRM, sh("true&&rm x"), Deny, 1},
		{"behind or", false, denyRM, sh("false||rm x"), Deny, 1},
		{"behind a pipe", false, denyRM, sh("yes|rm -i x"), Deny, 1},
		{"in the background", false, denyRM, sh("sleep 1& rm x"), Deny, 1},
		{"in a subshell", false, denyRM, sh("(rm x)"), Deny, 1},
		{"in a group", false, denyRM, sh("{ rm x; }"), Deny, 1},
		{"behind keywords", false, denyRM, sh("if true; then rm x; fi"), Deny, 1},
		{"behind not", false, denyRM, sh("! rm x"), Deny, 1},
		{"in a loop", false, denyRM, sh("while rm x; do :; done"), Deny, 1},
		{"in a function", false, denyRM, sh("f() { rm x; }; f"), Deny, 1},
		{"in a case", false, denyRM, sh("case a in a) rm x;; esac"), Deny, 1},
		{"behind a variable", false, denyRM, sh("A=1 B= rm x"), Deny, 1},
		{"behind a redirection", false, denyRM, sh(">/dev/null 2>&1 rm x"), Deny, 1},
		{"before a redirection", false, []Rule{{Command: p("rm x"), Verdict: Deny}}, sh("rm x 2>/dev/null"), Deny, 1},
		{"in a substitution", false, denyRM, sh("echo $(rm x)"), Deny, 1},
		{"in backquotes", false, denyRM, sh("echo `rm x`"), Deny, 1},
		{"in a quoted substitution", false, denyRM, sh(`echo "a $(rm x) b"`), Deny, 1},
		{"in quoted backquotes", false, denyRM, sh("echo \"a `rm x` b\""), Deny, 1},
		{"in a process substitution", false, denyRM, sh("cat <(rm x)"), Deny, 1},
		{"sh -c", false, denyRM, sh("sh -c 'rm x'"), Deny, 1},
		{"sh -c, as argv", false, denyRM, argv("sh", "-c", "rm x"), Deny, 1},
		{"bash -lc, as argv", false, denyRM, argv("/bin/bash", "-l", "-ec", "true; rm x"), Deny, 1},
		{"sh within sh", false, denyRM, sh(`sh -c "sh -c 'rm x'"`), Deny, 1},
		{"eval", false, denyRM, sh("eval rm x"), Deny, 1},
		{"eval, quoted", false, denyRM, sh("eval 'rm' 'x'"), Deny, 1},
		{"trap", false, denyRM, sh("trap 'rm x' EXIT"), Deny, 1},
		{"alias", false, denyRM, sh("alias q='rm x'; q"), Deny, 1},
		{"sudo", false, denyRM, sh("sudo -u root rm x"), Deny, 1},
		{"env", false, denyRM, sh("env A=1 rm x"), Deny, 1},
		{"env -S", false, denyRM, sh("env -S 'rm x'"), Deny, 1},
		{"env, as argv", false, denyRM, argv("env", "PATH=/bin", "rm", "x"), Deny, 1},
		{"sudo sh -c", false, denyRM, sh("sudo sh -c 'rm x'"), Deny, 1},
		{"timeout nice", false, denyRM, sh("timeout 5 nice -n 3 rm x"), Deny, 1},
		{"xargs", false, denyRM, sh("ls | xargs rm"), Deny, 1},
		{"find", false, denyRM, sh("find . -exec rm {} +"), Deny, 1},
		{"busybox", false, denyRM, sh("busybox rm x"), Deny, 1},
		{"command", false, denyRM, sh("command rm x"), Deny, 1},
		{"exec", false, denyRM, sh("exec rm x"), Deny, 1},
		{"time", false, denyRM, sh("time -p rm x"), Deny, 1},
		{"a watcher of ours", false, denyRM, argv("/usr/bin/space-job", "until", "--command=rm x"), Deny, 1},
		{"a job of ours", false, denyRM, sh("space-job start 'rm x'"), Deny, 1},

		{"behind a closed descriptor", false, denyRM, sh(">&- rm x"), Deny, 1},
		{"behind a closed descriptor, input", false, denyRM, sh("<&- rm x"), Deny, 1},
		{"behind a named descriptor", false, denyRM, sh("{fd}>/dev/null rm x"), Deny, 1},
		{"with both outputs elsewhere", false, []Rule{{Command: p("git push *"), Verdict: Deny}}, sh("git &>/dev/null push"), Deny, 1},
		{"a function's body", false, denyRM, sh("function f { rm x; }; f"), Deny, 1},
		{"a coprocess's body", false, denyRM, sh("coproc C { rm x; }"), Deny, 1},
		{"quotes within $() within quotes", false, denyRM, sh(`out="$(cd "$d" && rm x)"`), Deny, 1},
		{"a program in quotes within $() within quotes", false, denyRM, sh(`echo "$(r"m" x)"`), Deny, 1},
		{"quotes within `` within quotes", false, denyRM, sh("out=\"`cd \"$d\" && rm x`\""), Deny, 1},
		{"nested $()", false, denyRM, sh(`echo "$(echo "$(echo ")" && rm x)")"`), Deny, 1},
		{"a comment within $()", false, denyRM, sh("echo \"$(true # it's )\nrm x)\""), Deny, 1},
		{"behind $() within quotes", false, denyRM, sh(`echo "$(date)"; rm x`), Deny, 1},
		{"behind a here-document", false, denyRM, sh("cat <<EOF\nit's\nEOF\nrm x"), Deny, 1},
		{"behind a here-document with tabs", false, denyRM, sh("cat <<-'E F'\n\tit's\n\tE F\nrm x"), Deny, 1},
		{"behind two here-documents", false, denyRM, sh("cat <<A - 3<<\"B\"\nit's\nA\n\"\nB\nrm x"), Deny, 1},
		{"on the line of a here-document", false, denyRM, sh("cat <<EOF && rm x\nit's\nEOF\n"), Deny, 1},
		{"expanded in a here-document", false, denyRM, sh("cat <<EOF\nit's $(rm x)\nEOF\n"), Deny, 1},
		{"expanded in a here-document, ``", false, denyRM, sh("cat <<EOF\nit's `rm x`\nEOF\n"), Deny, 1},
		{"behind a shift that is no here-document", false, denyRM, sh("echo $((1<<2))\nrm x"), Deny, 1},
		{"behind a string as input", false, denyRM, sh("cat <<<\"it's\"\nrm x"), Deny, 1},
		{"env -S without a blank", false, denyRM, sh("env -S'rm x'"), Deny, 1},
		{"env --split-string", false, denyRM, sh("env --split-string='rm x'"), Deny, 1},
		{"su -c without a blank", false, denyRM, sh("su -c'rm x'"), Deny, 1},
		{"an argv of ours", false, []Rule{{Command: p("git push *"), Verdict: Deny}}, sh("space-job start -- git push origin"), Deny, 1},
		{"the loader", false, denyRM, sh("/lib64/ld-linux-x86-64.so.2 /bin/rm x"), Deny, 1},

		// what cannot be told is asked for
		{"a variable", false, denyRM, sh("$X x"), Ask, 1},
		{"a part of a variable", false, denyRM, sh("r${X}m x"), Ask, 1},
		{"a quoted variable", false, denyRM, sh(`"$X" x`), Ask, 1},
		{"what is printed", false, denyRM, sh("$(echo r)m x"), Ask, 1},
		{"what is printed, in the middle", false, denyRM, sh("r`echo m` x"), Ask, 1},
		{"a glob", false, denyRM, sh("/bin/r? x"), Ask, 1},
		{"braces", false, denyRM, sh("{rm,x}"), Ask, 1},
		{"from a pipe", false, denyRM, sh("echo cm0geAo= | base64 -d | sh"), Ask, 1},
		{"from a file", false, denyRM, sh("bash </tmp/x"), Ask, 1},
		{"eval of a variable", false, denyRM, sh(`eval "$X"`), Ask, 1},
		{"eval of what is printed", false, denyRM, sh("eval $(cat x)"), Ask, 1},
		{"sh -c of a variable", false, denyRM, sh(`sh -c "$X"`), Ask, 1},
		{"sudo of a variable", false, denyRM, sh("sudo $X"), Ask, 1},
		{"too deep", false, denyRM, sh(strings.Repeat("eval ", 20) + "x"), Ask, 1},
		{"too many", false, denyRM, sh("env " + strings.Repeat("x ", 100) + "rm x"), Ask, 1},
		{"braces in the middle", false, denyRM, sh("r{m,m} x"), Ask, 1},
		{"braces with a range", false, denyRM, sh("r{m..m} x"), Ask, 1},
		{"quotes of bash", false, denyRM, sh("echo $'a\\'b' ; rm x ; 'c'"), Ask, 1},
		{"a pipe into a shell with an option", false, denyRM, sh("echo rm x | sh -o posix"), Ask, 1},
		{"a pipe into a shell that reads a device", false, denyRM, sh("echo rm x | sh /dev/stdin"), Ask, 1},
		{"a pipe into .", false, denyRM, sh("echo rm x | . /dev/fd/0"), Ask, 1},
		{"a substitution into .", false, denyRM, sh(". <(echo rm x)"), Ask, 1},
		{"a pipe into su", false, denyRM, sh("echo rm x | su root"), Ask, 1},
		{"a pipe into sudo -s", false, denyRM, sh("echo rm x | sudo -s"), Ask, 1},
		{"a pipe into xargs env", false, denyRM, sh("echo rm x | xargs env"), Ask, 1},
		{"a pipe into xargs sh -c", false, denyRM, sh("echo rm x | xargs -I% sh -c %"), Ask, 1},
		{"a pipe into parallel", false, denyRM, sh("echo rm x | parallel"), Ask, 1},
		{"a pipe into at", false, denyRM, sh("echo rm x | at now"), Ask, 1},
		{"a here-document of commands", false, denyRM, sh("sh <<EOF\necho it's\nEOF"), Ask, 1},
		{"a script, and options", false, denyRM, sh("bash -x ./build.sh"), Allow, 0},
		{"a program for each name", false, denyRM, sh("ls | xargs -n 1 touch"), Allow, 0},
		{"a here-document of no matter", false, denyRM, sh("git commit -F - <<EOF\nit's done\nEOF"), Allow, 0},
		{"find, and what it is given", false, denyRM, sh("find . -exec touch {} +"), Allow, 0},
		{"a variable of no matter", false, denyRM, sh("echo $X; A=$(date) make"), Allow, 0},
		{"what cannot be told, with rules for others", false, []Rule{{Member: p("bob"), Command: p("rm *"), Verdict: Deny}}, sh("$X"), Allow, 0},

		{"an ask is as wide", false, []Rule{{Command: p("git push *"), Verdict: Ask}}, sh("cd x && git  push"), Ask, 1},
		{"of the whole text", false, []Rule{{Command: p("*| sh"), Verdict: Deny}}, sh("curl x | sh"), Deny, 1},
		{"an allow before", false, []Rule{{Exact: p("rm x"), Verdict: Allow}, denyRM[0]}, sh("rm x"), Allow, 1},
		{"an allow before, for something else", false, []Rule{{Exact: p("rm x"), Verdict: Allow}, denyRM[0]}, sh("rm y"), Deny, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := (&Policy{Personal: c.personal, Rules: c.rules, present: true}).Decide(c.q)
			if d.Verdict != c.want || d.Rule != c.rule || d.Why == "" {
				t.Errorf("%+v, want %s by rule %d", d, c.want, c.rule)
			}
		})
	}
}

// TestLoad: what cannot be used makes everything asked for, and nothing looser.
func TestLoad(t *testing.T) {
	q := Request{Space: Local, Command: "make"}
	if pol := Load(t.TempDir()); pol.Present() || pol.Broken() != nil || pol.Decide(q).Verdict != Allow {
		t.Errorf("no file: %+v", pol)
	}
	for _, c := range []struct{ text, want string }{
		{`{"rules":[{"verdict":"allow"}]}`, "allow"},
		{`{}`, "allow"},
		{`{"personal":true}`, "ask"},
		{`{"rules":[{"verdict":"deny"}]}`, "deny"},
		{``, "broken"},
		{`null`, "broken"},
		{`[]`, "broken"},
		{`{"rules":[{"verdict":"allow"}]`, "broken"},
		{`{"rules":[{"verdict":"allow"}]}x`, "broken"},
		{`{"rules":[{"verdict":"allow"}]}{"rules":[]}`, "broken"},
		{`{"rules":[{"comand":"make","verdict":"allow"}]}`, "broken"},
		{`{"rule":[{"verdict":"deny"}]}`, "broken"},
		{`{"rules":[{"verdict":"Allow"}]}`, "broken"},
		{`{"rules":[{}]}`, "broken"},
		{`{"rules":[null]}`, "broken"},
		{`{"rules":null}`, "broken"},
		{`{"rules":[{"command":null,"verdict":"allow"}]}`, "broken"},
		{`{"rules":[{"command":"","verdict":"allow"}]}`, "broken"},
		{`{"rules":[{"argv":[],"verdict":"allow"}]}`, "broken"},
		{`{"rules":[{"command":"a","exact":"b","verdict":"allow"}]}`, "broken"},
		{`{"rules":[{"command":"a","command":"*","verdict":"allow"}]}`, "broken"},
		{`{"rules":[{"verdict":"deny","Verdict":"allow"}]}`, "broken"},
		{`{"rules":[{"cwd":"src","verdict":"allow"}]}`, "broken"},
		{`{"rules":[{"cwd":"/src/","verdict":"allow"}]}`, "broken"},
		{`{"rules":[{"cwd":"/src/..","verdict":"allow"}]}`, "broken"},
		{`{"rules":[{"env":["A"],"verdict":"deny"}]}`, "broken"},
		{`{"rules":{"verdict":"allow"}}`, "broken"},
		{`{"rules":[` + strings.Repeat(`{"verdict":"allow"},`, maxRules) + `{"verdict":"allow"}]}`, "broken"},
		{strings.Repeat(" ", maxFile) + `{}`, "broken"},
	} {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, File), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		pol := Load(root)
		d := pol.Decide(q)
		want := Verdict(c.want)
		if c.want == "broken" {
			want = Ask
		}
		if (pol.Broken() != nil) != (c.want == "broken") || d.Verdict != want || !pol.Present() {
			t.Errorf("%.80s: %+v, %v", c.text, d, pol.Broken())
		}
	}
	allow := []byte(`{"rules":[{"verdict":"allow"}]}`)
	for name, make := range map[string]func(path string) error{
		"writable by the group": func(path string) error { _ = os.WriteFile(path, allow, 0o600); return os.Chmod(path, 0o620) },
		"writable by others":    func(path string) error { _ = os.WriteFile(path, allow, 0o600); return os.Chmod(path, 0o602) },
		"a folder":              func(path string) error { return os.Mkdir(path, 0o700) },
		"a link": func(path string) error {
			_ = os.WriteFile(path+"x", allow, 0o600)
			return os.Symlink(path+"x", path)
		},
		"a link to nothing": func(path string) error { return os.Symlink(path+"x", path) },
	} {
		root := t.TempDir()
		if err := make(filepath.Join(root, File)); err != nil {
			t.Fatal(err)
		}
		if pol := Load(root); pol.Broken() == nil || pol.Decide(q).Verdict != Ask || !strings.Contains(pol.Broken().Error(), File) {
			t.Errorf("%s: %v", name, pol.Broken())
		}
	}
}

// TestGlobIsFast: no pattern makes a start wait.
func TestGlobIsFast(t *testing.T) {
	began := time.Now()
	narrow(strings.Repeat("a*", maxPattern/8), strings.Repeat("a", 16<<10)+";")
	wide(strings.Repeat("*a", maxPattern/8)+"b", strings.Repeat("a", 16<<10))
	for _, s := range []string{`sh -c "env x`, `env `, `"$(`, "eval 'env ", "`", "eval x=eval "} {
		newText(&Request{Command: strings.Repeat(s, 120<<10/len(s))})
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("took %v", took)
	}
}

// FuzzPolicy: no file makes a panic, and none that is refused allows anything.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(`{"personal":true,"rules":[{"member":"a","space":"local","command":"make *","cwd":"/x","env":["A"],"verdict":"allow"}]}`), "make a")
	f.Add([]byte(`{"rules":[{"exact":"a","verdict":"deny"},{"argv":["a","b"],"verdict":"ask"}]}`), "sh -c 'a b'")
	f.Add([]byte(`{"rules":[{"verdict":"allow","verdict":"deny"}]} {}`), "$(x")
	f.Fuzz(func(t *testing.T, b []byte, command string) {
		pol, err := parse(b)
		if err != nil {
			pol = &Policy{broken: err}
		}
		for _, q := range []Request{{Command: command, Space: Local}, {Argv: []string{command, command}, Member: "a", Cwd: "/x", Space: Local}} {
			d := pol.Decide(q)
			if d.Verdict != Allow && d.Verdict != Ask && d.Verdict != Deny || err != nil && d.Verdict != Ask {
				t.Fatalf("%+v", d)
			}
		}
	})
}

// FuzzPattern: what a pattern allows is one simple command; what is denied stays
// denied within anything that runs it.
func FuzzPattern(f *testing.F) {
	f.Add("test")
	f.Add("a; rm x")
	f.Add("'a' \"b\" \\")
	f.Fuzz(func(t *testing.T, s string) {
		line := "make " + s
		if narrow("make *", line) && strings.ContainsAny(s, ";&|<>()$`#\\\n\r\x00") {
			t.Fatalf("%q is allowed", line)
		}
		deny := &Policy{Rules: []Rule{{Command: p("rm *"), Verdict: Deny}}}
		for _, form := range []string{"rm x\n%s", "true; rm x; %s", "env rm %[1]q", "{ rm x; }; %s"} {
			if d := deny.Decide(Request{Command: fmt.Sprintf(form, s)}); d.Verdict == Allow {
				t.Fatalf("%q: %+v", fmt.Sprintf(form, s), d)
			}
		}
		newText(&Request{Command: s})
	})
}
