package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"space-job/jobdir"
)

// A process with these in its environment does one thing with a question, and dies
// at a step of that.
const (
	envAct   = "POLICY_TEST_ACT"
	envRoot  = "POLICY_TEST_ROOT"
	envPoint = "POLICY_TEST_POINT"
)

func TestMain(m *testing.M) {
	if act := os.Getenv(envAct); act != "" {
		os.Exit(crashAct(act))
	}
	os.Exit(m.Run())
}

func crashAct(act string) int {
	root, err := jobdir.OpenRoot(os.Getenv(envRoot))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	testOnlyCrash = func(point string) {
		if point == os.Getenv(envPoint) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	if err := doAct(&Store{root, time.Now}, act); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// crashStart is the start that it is all about: it sets no variable, so that a rule
// can be made of it.
func crashStart() Start {
	s := deploy()
	s.Env, s.Values = nil, []string{"PATH=/bin"}
	return s
}

// doAct takes a root one step on: from nothing to a question, to an approval, to
// one that is used, and back.
func doAct(s *Store, act string) error {
	start := crashStart()
	if act == "ask" {
		_, err := s.Ask(start, "why")
		return err
	}
	if act == "put back" { // which whoever uses it does
		b, err := os.ReadFile(filepath.Join(s.Root.Path(), "used"))
		if err != nil {
			return err
		}
		var q Question
		if err := json.Unmarshal(b, &q); err != nil {
			return err
		}
		return s.PutBack(&q)
	}
	all, _, err := s.List()
	if err != nil || len(all) != 1 {
		return fmt.Errorf("%d questions, %v", len(all), err)
	}
	audit := func(decision string) error {
		return s.Audit(Line{Decision: decision, Start: start, Request: all[0].ID})
	}
	if act == "use" {
		_, err := s.Consume(all[0].ID, &start, func() error { return audit("consume") })
		return err
	}
	_, err = s.Answer(all[0].ID, true, Who{"me", "person"}, "terminal", func(q *Question) error {
		if act == "always" {
			if _, err := s.AddRule(q, Allow); err != nil {
				return err
			}
		}
		return audit("approve")
	})
	return err
}

// gone is the state of no question.
const gone State = "gone"

// crashTable is every step at which a process may be killed while it changes what
// there is of a question, and where that stands then, for good.
var crashTable = []struct {
	act, point string
	want       State
}{
	{"ask", "question.write", gone},
	{"ask", "question.written", Pending},
	{"approve", "audit.write", Pending},
	{"approve", "audit.written", Pending},
	{"approve", "question.write", Pending},
	{"approve", "question.written", Approved},
	{"always", "rule.write", Pending},
	{"always", "rule.written", Pending},
	{"always", "question.write", Pending},
	{"always", "question.written", Approved},
	{"use", "audit.write", Approved},
	{"use", "audit.written", Approved},
	{"use", "consume.noted", Approved},
	{"use", "consume.removed", gone},
	{"use", "consume.synced", gone},
	{"put back", "question.write", gone},
	{"put back", "question.written", Approved},
}

// TestCrashTableIsWhole: the table has the points of the source, and no others.
func TestCrashTableIsWhole(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, c := range crashTable {
		tested[c.point] = true
	}
	there := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 1 {
				return true
			}
			if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != "crash" {
				return true
			}
			if lit, ok := call.Args[0].(*ast.BasicLit); ok {
				point, _ := strconv.Unquote(lit.Value)
				if there[point] = true; !tested[point] {
					t.Errorf("%s: nobody is killed at %s", name, point)
				}
			}
			return true
		})
	}
	for point := range tested {
		if !there[point] {
			t.Errorf("the table has %q, and the source does not", point)
		}
	}
}

// TestCrash: killed at any step, a question is as before or as after, a start goes
// through for one approval once at most, and what was interrupted can be done again.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, c := range crashTable {
		t.Run(c.act+" "+c.point, func(t *testing.T) {
			t.Parallel()
			s, _ := store(t)
			start := crashStart()
			must := func(acts ...string) {
				t.Helper()
				for _, act := range acts {
					if err := doAct(s, act); err != nil {
						t.Fatalf("%s: %v", act, err)
					}
				}
			}
			before := map[string][]string{"approve": {"ask"}, "always": {"ask"}, "use": {"ask", "approve"}, "put back": {"ask", "approve"}}
			must(before[c.act]...)
			if c.act == "put back" {
				q, _, err := s.List()
				if err != nil || len(q) != 1 {
					t.Fatal(q, err)
				}
				b, err := os.ReadFile(s.path(q[0].ID))
				if err == nil {
					err = os.WriteFile(filepath.Join(s.Root.Path(), "used"), b, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				must("use")
			}
			if c.act == "always" { // what it asks for
				if err := s.Root.Create(); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(s.Root.Path(), File), []byte(`{"rules":[{"verdict":"ask"}]}`), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			killed := exec.Command(os.Args[0])
			killed.Env = append(os.Environ(), envAct+"="+c.act, envPoint+"="+c.point, envRoot+"="+s.Root.Path())
			out, err := killed.CombinedOutput()
			if code := (*exec.ExitError)(nil); !errors.As(err, &code) || code.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("it was not killed: %v, %s", err, out)
			}

			all, damaged, err := s.List()
			if err != nil || len(damaged) > 0 || len(all) > 1 {
				t.Fatalf("%d questions, damaged %v, %v", len(all), damaged, err)
			}
			state := gone
			if len(all) == 1 {
				state = all[0].State
			}
			if state != c.want {
				t.Errorf("it is %s, want %s", state, c.want)
			}
			// What is left to be done is done, and the approval holds for one start.
			switch state {
			case gone:
				must("ask", "approve")
			case Pending:
				if c.act != "always" {
					c.act = "approve"
				}
				must(c.act)
			}
			used := 0
			for range 2 {
				if q, _, err := s.List(); err == nil && len(q) == 1 {
					if _, err := s.Consume(q[0].ID, &start, nil); err == nil {
						used++
					}
				}
			}
			if used != 1 {
				t.Errorf("%d starts went through", used)
			}
			if c.act == "always" {
				p := Load(s.Root.Path())
				if d := p.Decide(start.Request()); p.Broken() != nil || len(p.Rules) != 2 || d.Verdict != Allow {
					t.Errorf("the policy: %v, %d rules, %+v", p.Broken(), len(p.Rules), d)
				}
			}
			b, err := os.ReadFile(filepath.Join(s.Root.Path(), AuditLog))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
			for line := range bytes.Lines(b) {
				if !json.Valid(line) || !strings.HasSuffix(string(line), "\n") {
					t.Errorf("the audit log has %q", line)
				}
			}
		})
	}
}
