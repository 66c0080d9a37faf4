//go:build linux

// Bench measures space-job beside a shell with no runner at all (the floor)
// and beside the job runners that are installed. It imports nothing of the
// product: it calls the programs and reads files, as any user would.
//
// Tools take turns, so that what disturbs the machine disturbs all of them,
// and a figure is the ratio of medians to the floor of the same run. Ratios
// can be compared between runs; milliseconds only within one.
//
// Bench makes itself a child subreaper: whatever a tool detaches stays its
// descendant, is measured, and is killed at the end. It signals nothing else.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// bench is one run: its sizes, its folder, and the rows measured so far.
type bench struct {
	starts, burst, running, ended, rounds int
	followed                              int
	zeros, lines, writes, big             int64
	idle                                  time.Duration
	dir                                   string
	spaceJob                              string
	names                                 []string // of the tools that take part
	rows                                  []row
}

// row is one line of the table: what was asked of space-job, and a cell for
// each tool.
type row struct {
	measure   string
	must, aim limit
	got       float64 // space-job's figure, in the unit of must and aim
	cells     map[string]string
}

// limit is an upper bound, "" where there is none.
type limit struct {
	text  string
	value float64
}

func times(x float64) limit { return limit{fmt.Sprintf("x%.2f", x), x} }
func within(d time.Duration) limit {
	return limit{short(d), d.Seconds()}
}

var measures = []struct {
	name string
	f    func(*bench)
	what string
}{
	{"start", (*bench).start, "start, and start to recorded end"},
	{"burst", (*bench).manyStarts, "200 starts one after another, until all are recorded"},
	{"log", (*bench).logs, "1 GiB of zeros, 20 million lines, a million writes of 100 bytes"},
	{"memory", (*bench).memory, "PSS and processes of 100 running jobs, and what they do while idle"},
	{"list", (*bench).list, "the newest 20 of 20,000 jobs, against ls -f"},
	{"read", (*bench).read, "logs --offset and status at the end of 5 GiB, against 5 kB"},
	{"follow", (*bench).follow, "a byte written to the same byte returned"},
	{"notify", (*bench).notify, "the end of a job to its waiter and to its entry; a thousand at once; what the daemon takes meanwhile"},
	{"thread", (*bench).thread, "a post to a thread of 100,000 entries, and reading it, against 100 entries"},
	{"cancel", (*bench).cancel, "a tree of four processes that obeys TERM"},
	{"until", (*bench).until, "a file's appearance to its watcher's end; 100 watchers of files and ports while idle"},
	{"space", (*bench).space, "a call to another Space over a shared ssh connection, against ssh running the same"},
	{"mcp", (*bench).mcp, "a start over MCP, the first answer, what a model reads, and a hundred clients that follow"},
}

func main() {
	if writeAsTold() {
		return
	}
	b := &bench{}
	size := func(p *int64, name string, value int64, usage string) { flag.Int64Var(p, name, value, usage) }
	flag.IntVar(&b.starts, "starts", 50, "rounds of start")
	flag.IntVar(&b.burst, "burst", 200, "jobs of burst")
	flag.IntVar(&b.rounds, "rounds", 3, "rounds of burst and log")
	flag.IntVar(&b.running, "running", 100, "running jobs of memory")
	flag.IntVar(&b.followed, "followed", 1000, "jobs of notify that run and end together")
	flag.IntVar(&b.ended, "ended", 20000, "ended jobs of list")
	size(&b.zeros, "zeros", 1<<30, "bytes of zeros of log")
	size(&b.lines, "lines", 20e6, "lines of log")
	size(&b.writes, "writes", 1e6, "writes of 100 bytes of log")
	size(&b.big, "big", 5<<30, "size of the large log of read")
	flag.DurationVar(&b.idle, "idle", 30*time.Second, "how long the running jobs of memory are watched")
	flag.StringVar(&b.spaceJob, "space-job", "", "the space-job to measure (default: from PATH)")
	only := flag.String("only", "", "measures to make, with commas between (default: all)")
	use := flag.String("tools", "", "tools beside space-job and the floor, with commas between (default: all that are installed)")
	tmp := flag.String("dir", os.TempDir(), "where everything is put, and removed again")
	quick := flag.Bool("quick", false, "a tenth of everything: for a look, not for a judgement")
	compare := flag.Bool("compare", false, "try how the tools behave instead of measuring how fast they are")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: scripts/bench [flags]\n\nmeasures:")
		for _, m := range measures {
			fmt.Fprintf(os.Stderr, "  %-8s %s\n", m.name, m.what)
		}
		fmt.Fprintln(os.Stderr, "\nflags:")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() > 0 {
		fail(fmt.Errorf("unexpected %q", flag.Arg(0)))
	}
	if *quick {
		b.starts, b.burst, b.rounds, b.running, b.ended = 10, 20, 1, 10, 2000
		b.followed = 100
		b.zeros, b.lines, b.writes, b.idle = b.zeros/10, b.lines/10, b.writes/10, 3*time.Second
	}
	if *use != "" {
		b.names = strings.Split(*use, ",")
	}
	if b.spaceJob == "" {
		b.spaceJob, _ = exec.LookPath("space-job")
	} else {
		var err error
		b.spaceJob, err = filepath.Abs(b.spaceJob)
		fail(err)
	}

	fail(becomeSubreaper())
	var err error
	b.dir, err = os.MkdirTemp(*tmp, "space-job-bench-")
	fail(err)
	atExit = func() {
		killDescendants()
		os.RemoveAll(b.dir)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		leave(130)
	}()
	os.Unsetenv("SPACE_JOB")

	if *compare {
		b.compare()
		leave(0)
	}
	for _, name := range strings.Split(cmp.Or(*only, "all"), ",") {
		known := name == "all"
		for _, m := range measures {
			if name == "all" || name == m.name {
				known = true
				say("%s: %s", m.name, m.what)
				m.f(b)
				killDescendants()
			}
		}
		if !known {
			fail(fmt.Errorf("-only: no measure %q", name))
		}
	}
	b.print()
	leave(0)
}

var atExit = func() {}

func leave(code int) {
	atExit()
	os.Exit(code)
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		leave(1)
	}
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (b *bench) add(r row) { b.rows = append(b.rows, r) }

// sample is what one tool took, round by round.
type sample []time.Duration

func (s sample) median() time.Duration {
	if len(s) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s))[len(s)/2]
}

// ratios adds a row of medians as ratios to the floor's.
func (b *bench) ratios(measure string, must, aim limit, took map[string]sample, failed map[string]error) {
	r := row{measure: measure, must: must, aim: aim, cells: map[string]string{}}
	base := took[floorName].median().Seconds()
	for name, s := range took {
		if name == floorName {
			r.cells[name] = short(s.median())
			continue
		}
		x := s.median().Seconds() / base
		r.cells[name] = fmt.Sprintf("x%.2f %s", x, short(s.median()))
		if name == ours {
			r.got = x
		}
	}
	for name, err := range failed {
		r.cells[name] = "failed"
		say("  %s: %v", name, err)
	}
	b.add(r)
}

// print writes the machine and the table.
func (b *bench) print() {
	fmt.Println(machine(b.dir))
	fmt.Println()
	var names []string
	for _, r := range b.rows {
		for name := range r.cells {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	rank := func(name string) int {
		return slices.Index([]string{ours, floorName, "nq", "task-spooler", "tmux", "dtach", "gob"}, name)
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Compare(rank(x), rank(y)) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "measure\tmust\taim\treached\t%s\n", strings.Join(names, "\t"))
	for _, r := range b.rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s", r.measure, cmp.Or(r.must.text, "-"), cmp.Or(r.aim.text, "-"), r.reached())
		for _, name := range names {
			fmt.Fprintf(w, "\t%s", cmp.Or(r.cells[name], "-"))
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

func (r row) reached() string {
	switch {
	case r.cells[ours] == "" || r.must.text == "":
		return "-"
	case r.cells[ours] == "failed":
		return "FAILED"
	case r.aim.text != "" && r.got <= r.aim.value:
		return "aim"
	case r.got <= r.must.value:
		return "must"
	}
	return "MISSED"
}

// machine is one line about where the figures come from.
func machine(dir string) string {
	model, cores := "unknown CPU", 0
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(cpuinfo)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			model = strings.TrimSpace(v)
			cores++
		}
	}
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d cores (%d used); Linux %s; %s; %s; %s", model, max(cores, runtime.NumCPU()), runtime.NumCPU(),
		strings.TrimSpace(string(release)), fileSystem(dir), runtime.Version(), time.Now().Format("2006-01-02"))
}

// fileSystem names the type of the mount that dir is on.
func fileSystem(dir string) string {
	kind, longest := "unknown file system", 0
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || len(f[1]) < longest {
			continue
		}
		if f[1] == "/" || dir == f[1] || strings.HasPrefix(dir, f[1]+"/") {
			kind, longest = f[2], len(f[1])
		}
	}
	return kind
}

// short writes a duration with three digits.
func short(d time.Duration) string {
	unit, name := time.Second, "s"
	if d < time.Second {
		unit, name = time.Millisecond, "ms"
	}
	return strconv.FormatFloat(d.Seconds()/unit.Seconds(), 'g', 3, 64) + " " + name
}
