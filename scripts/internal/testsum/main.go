// Testsum reads what go test -json writes and prints it as go test does: the
// result of each package, the whole output of each failed test, and why a test
// was skipped, and at the end the slowest tests. The line of counts goes to the
// file that it is given. A line that starts with "== " names what follows. It
// exits with 1 if a test or a build failed, or if no test ran.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Elapsed    float64
	Output     string
}

type result struct {
	name    string
	elapsed float64
}

const slowest = 5

func main() {
	var (
		part                    string
		passed, failed, skipped int
		broken                  bool // a package failed
		tests                   []result
	)
	output := map[string]*strings.Builder{} // of tests still running
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if line == "" && err != nil {
			break
		}
		var e event
		if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
			fmt.Print(line)
			if s, ok := strings.CutPrefix(line, "== "); ok {
				part = strings.TrimSpace(s)
			}
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Print(e.Output)
		case "build-fail":
			broken = true
		case "output":
			switch {
			case e.Test == "":
				if worthShowing(e.Output) {
					fmt.Print(e.Output)
				}
			default:
				if output[key] == nil {
					output[key] = new(strings.Builder)
				}
				output[key].WriteString(e.Output)
			}
		case "pass", "fail", "skip":
			if e.Test == "" {
				broken = broken || e.Action == "fail"
				for k, o := range output { // a test that never ended: its package panicked or timed out
					if strings.HasPrefix(k, key) {
						failed++
						show(o)
						delete(output, k)
					}
				}
				continue
			}
			switch e.Action {
			case "pass":
				passed++
			case "skip":
				skipped++
				showReason(output[key])
			case "fail":
				failed++
				show(output[key])
			}
			delete(output, key)
			if !strings.Contains(e.Test, "/") {
				tests = append(tests, result{fmt.Sprintf("%s %s (%s)", e.Package, e.Test, part), e.Elapsed})
			}
		}
	}
	for _, o := range output { // of a package that never ended
		failed++
		show(o)
	}

	slices.SortStableFunc(tests, func(a, b result) int { return cmp.Compare(b.elapsed, a.elapsed) })
	fmt.Println("\nslowest tests:")
	for _, t := range tests[:min(slowest, len(tests))] {
		fmt.Printf("  %6.2fs  %s\n", t.elapsed, t.name)
	}
	counts := fmt.Sprintf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	if err := os.WriteFile(os.Args[1], []byte(counts), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	if broken || failed > 0 || passed == 0 {
		os.Exit(1)
	}
}

// worthShowing leaves out the bare PASS of a package and what has no tests.
func worthShowing(s string) bool {
	return s != "PASS\n" && !strings.Contains(s, "[no test files]") && !strings.HasPrefix(s, "testing: warning: no tests to run")
}

// showReason prints what a skipped test said first, and that it was skipped.
func showReason(o *strings.Builder) {
	if o == nil {
		return
	}
	var lines []string
	for line := range strings.Lines(o.String()) {
		if !strings.HasPrefix(line, "=== ") {
			lines = append(lines, line)
		}
	}
	for i, line := range lines {
		if i == 0 || strings.HasPrefix(strings.TrimSpace(line), "--- SKIP") {
			fmt.Print(line)
		}
	}
}

// show prints a test's output without the lines that only say it was running.
func show(o *strings.Builder) {
	if o == nil {
		return
	}
	for line := range strings.Lines(o.String()) {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Print(line)
		}
	}
}
