package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

var (
	crashN    = flag.Int("crash.n", 0, "jobs of the random crash test (0: a number that takes a few seconds)")
	crashSeed = flag.Uint64("crash.seed", 0, "seed of the random crash test (0: another one each time)")
)

func init() {
	roles["crash-start"] = crashStartRole
	roles["crash-cancel"] = crashCancelRole
}

// A crashOrder is what the starter that dies is told.
type crashOrder struct {
	startOrder
	Key      string
	FileSize uint64 // a hard limit on what the runner may write to one file, 0: none
	Ready    bool   // say so on stdout just before the start
}

// crashStartRole starts a job with a key. It prints the id.
func crashStartRole(args []string) int {
	var o crashOrder
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		fmt.Println(err)
		return 2
	}
	root, err := jobdir.OpenRoot(o.Root)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if o.FileSize > 0 {
		lim := unix.Rlimit{Cur: o.FileSize, Max: o.FileSize}
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	if o.Crash != "" {
		crashAt(o.Crash)
	}
	if o.Ready {
		fmt.Println("ready")
	}
	s := o.spec()
	s.Describe = func(id record.ID, created time.Time) []byte { return describeKeyed(id, created, o.Argv, o.Key) }
	if o.Key != "" {
		key, err := root.LockKey(o.Key)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer key.Unlock()
		s.Claim = key.Set
	}
	id, err := Start(s)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(id)
	return 0
}

func describeKeyed(id record.ID, created time.Time, argv []string, key string) []byte {
	c := jobdir.Cmd{Format: jobdir.Format, ID: id, Argv: argv, Cwd: "/", Key: key, CreatedAt: created}
	return c.Marshal()
}

// crashCancelRole cancels a job and dies at a point of that.
func crashCancelRole(args []string) int {
	crashAt(args[1])
	if err := Cancel(context.Background(), args[0], record.CancelRecord{At: time.Now(), By: "crash"}); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// How the process that dies comes to its point.
type crashWay string

const (
	starting  crashWay = "starting"  // the starter
	running   crashWay = "running"   // the runner, by itself
	ending    crashWay = "ending"    // the runner, when the command exits with 7
	notFound  crashWay = "not found" // the runner, when there is no such command
	timingOut crashWay = "timing out"
	cancelled crashWay = "cancelled"
	flooding  crashWay = "flooding" // the runner, over a log that is kept short
	discarded crashWay = "discarded"
	asking    crashWay = "asking" // the canceller
)

// none is the state of a job that nobody can see.
const none record.State = "none"

// crashTable is every point at which a process may be killed while it writes,
// and what may be seen of the job from then on.
var crashTable = []struct {
	point string
	ways  []crashWay
	want  record.State // at once, and for good
}{
	{"start.handover", []crashWay{starting}, none},
	{"start.mkdir", []crashWay{starting}, none},
	{"start.locked", []crashWay{starting}, none},
	{"start.cancel", []crashWay{starting}, none},
	{"start.dropped", []crashWay{starting}, none},
	{"start..timing", []crashWay{starting}, none},
	{"start..exit", []crashWay{starting}, none},
	{"start.pipe", []crashWay{starting}, none},
	{"start.cmd", []crashWay{starting}, none},
	{"start.claimed", []crashWay{starting}, none},
	{"start.visible", []crashWay{starting}, record.Lost},
	{"start.launched", []crashWay{starting}, record.Exited},

	{"run.armed", []crashWay{running, ending}, record.Lost},
	{"run.forked", []crashWay{running, ending}, record.Lost},
	{"run.pid", []crashWay{running, ending}, record.Lost},

	{"log.read", []crashWay{running, ending, flooding}, record.Lost},
	{"log.dropped", []crashWay{flooding}, record.Lost},
	{"log.punched", []crashWay{flooding}, record.Lost},
	{"log.discarding", []crashWay{discarded}, record.Lost},

	{"end.begin", []crashWay{ending, notFound, timingOut, cancelled}, record.Lost},
	{"end.timing", []crashWay{ending, notFound, timingOut, cancelled}, record.Lost},
	{"end.timed", []crashWay{ending, notFound, timingOut, cancelled}, record.Lost},
	{"end.written", []crashWay{ending, notFound, timingOut, cancelled}, record.Lost},
	{"end.synced", []crashWay{ending, notFound, timingOut, cancelled}, record.Lost},
	{"end.renamed", []crashWay{ending, notFound, timingOut, cancelled}, record.Exited},
	{"end.durable", []crashWay{ending, notFound, timingOut, cancelled}, record.Exited},

	{"cancel.written", []crashWay{asking}, record.Running},
}

// TestCrashTableIsWhole: the table has the points of the source, and no others.
func TestCrashTableIsWhole(t *testing.T) {
	got := map[string]bool{}
	for _, c := range crashTable {
		if got[c.point] {
			t.Errorf("the table has %s twice", c.point)
		}
		got[c.point] = true
	}
	want := crashPoints(t)
	for point, where := range want {
		if !got[point] {
			t.Errorf("%s: no row for crash point %q", where, point)
		}
	}
	for point := range got {
		if want[point].Line == 0 {
			t.Errorf("the table has %q, and the source does not", point)
		}
	}
}

// crashPoints are the arguments of all calls of crash in the source of this
// package. One that is "prefix" + v stands for every element of the list of
// names of package record that v ranges over.
func crashPoints(t *testing.T) map[string]token.Position {
	t.Helper()
	fset := token.NewFileSet()
	parse := func(path string) *ast.File {
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	text := func(e ast.Expr) (string, bool) {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return "", false
		}
		s, err := strconv.Unquote(lit.Value)
		return s, err == nil
	}
	names := map[string]string{} // constants of package record
	ast.Inspect(parse("../jobdir/record/names.go"), func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			names[v.Names[0].Name], _ = text(v.Values[0])
		}
		return true
	})

	points := map[string]token.Position{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		var loops []*ast.RangeStmt
		ast.Inspect(parse(path), func(n ast.Node) bool {
			if l, ok := n.(*ast.RangeStmt); ok {
				loops = append(loops, l)
			}
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.Ident); !ok || f.Name != "crash" {
				return true
			}
			where := fset.Position(call.Pos())
			if s, ok := text(call.Args[0]); ok {
				points[s] = where
				return true
			}
			sum, ok := call.Args[0].(*ast.BinaryExpr)
			if !ok {
				t.Fatalf("%s: a crash point that this test cannot read", where)
			}
			prefix, _ := text(sum.X)
			found := false
			for _, l := range loops {
				list, ok := l.X.(*ast.CompositeLit)
				if !ok || l.Pos() > call.Pos() || l.End() < call.End() {
					continue
				}
				for _, e := range list.Elts {
					if name, ok := e.(*ast.SelectorExpr); ok && names[name.Sel.Name] != "" {
						points[prefix+names[name.Sel.Name]] = where
						found = true
					}
				}
			}
			if !found {
				t.Fatalf("%s: a crash point that this test cannot read", where)
			}
			return true
		})
	}
	return points
}

// TestCrash kills the starter, the runner or a canceller at each point, and
// looks at what is left: by package jobdir, which has no part in writing it.
func TestCrash(t *testing.T) {
	for _, c := range crashTable {
		for _, way := range c.ways {
			t.Run(c.point+" "+string(way), func(t *testing.T) {
				t.Parallel()
				testCrash(t, c.point, way, c.want)
			})
		}
	}
}

func testCrash(t *testing.T, point string, way crashWay, want record.State) {
	r := newRoot(t)
	root := openRoot(t, r)
	o := crashOrder{startOrder: r.order(), Key: "the key"}
	ended := record.Exited // how a job that got as far as its end has ended
	code := 7
	output := "one\ntwo\n"
	const leavesOne = "(trap '' HUP; exec sleep 600) & echo one; echo two; "
	script := leavesOne + "exit 7"
	switch way {
	case running, asking:
		script = leavesOne + "wait"
	case timingOut:
		script = leavesOne + "wait"
		o.Timeout = 100 * time.Millisecond
		ended = record.TimedOut
	case cancelled:
		script = leavesOne + "wait"
		ended = record.Cancelled
	case flooding:
		o.MaxLog = 2 << 20
		script = "seq 1000000; sleep 600"
		output = numbers(1000000)
	case discarded:
		o.FileSize = 64 << 10
		script = "seq 20000; exit 7" // what is too much fits into the pipe
		output = numbers(20000)
	}
	o.Argv = []string{"/bin/sh", "-c", script}
	if way == notFound {
		o.Argv = []string{"/nope"}
		code = 127
		output = ""
	}

	// Come to the point.
	crashFile := filepath.Join(r.path, "crash")
	var job *testJob
	switch way {
	case starting:
		o.Crash = point
		wantKilled(t, helperWith(t, "crash-start", o))
	case asking:
		job = crashStart(t, r, o)
		job.logHas("two\n")
		wantKilled(t, func() error {
			_, err := runCommand(t, helper("crash-cancel", job.dir, point))
			return err
		})
	default:
		if err := os.WriteFile(crashFile, []byte(point), 0o600); err != nil {
			t.Fatal(err)
		}
		job = crashStart(t, r, o)
		if way == cancelled {
			job.logHas("two\n")
			job.ask()
		}
		job.gone()
		if err := os.Remove(crashFile); err != nil {
			t.Fatal(err)
		}
	}

	// What can be seen.
	ids, err := root.IDs()
	if err != nil {
		t.Fatal(err)
	}
	if want == none {
		if len(ids) != 0 {
			t.Fatalf("jobs can be seen: %v", ids)
		}
		if left := r.processes(); len(left) != 0 {
			t.Errorf("processes of a job that cannot be seen: %v", left)
		}
	} else {
		if len(ids) != 1 || job != nil && job.id != ids[0] {
			t.Fatalf("jobs that can be seen: %v", ids)
		}
		if job == nil {
			job = r.job(ids[0])
		}
		if want == record.Exited {
			want = ended
		}
		if point == "start.launched" {
			job.wantExit(7)
		}
		seen := record.State("")
		look := func() {
			t.Helper()
			info, err := root.Job(job.id).Read()
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case info.Damaged != "":
				t.Fatalf("damaged: %s", info.Damaged)
			case info.State != want:
				t.Fatalf("state is %s, want %s", info.State, want)
			case seen != "" && info.State != seen:
				t.Fatalf("state was %s, and is %s", seen, info.State)
			case want == record.Exited && (info.Exit.ExitCode == nil || *info.Exit.ExitCode != code):
				t.Fatalf("exit is %+v, want code %d", info.Exit, code)
			case want != record.Exited && info.Exit != nil && info.Exit.ExitCode != nil:
				t.Fatalf("a made-up code: %+v", info.Exit)
			}
			seen = info.State
			wantBeginning(t, root.Job(job.id), output, want != record.Lost)
		}
		look()
		wantSound(t, root)
		wantOwned(t, r, root)

		switch want {
		case record.Running:
			want, seen = record.Cancelled, ""
			job.cancel()
			look()
		case record.Lost:
			if done, err := root.Job(job.id).RecordLost(time.Now()); !done || err != nil {
				t.Errorf("RecordLost: %v, %v", done, err)
			}
			look()
			// The request of one that comes too late changes nothing.
			job.ask()
			look()
		}
		if _, left, err := StopLeft(t.Context(), job.dir); err != nil || len(left) != 0 {
			t.Errorf("StopLeft: %v, %v", left, err)
		}
		if left := r.processes(); slices.ContainsFunc(left, notRunner(job)) {
			t.Errorf("after StopLeft: %v", left)
		}
		job.gone()
		look()
	}
	wantSound(t, root)

	// What cannot be seen is swept, and its key is free.
	if _, err := root.Prune(time.Hour*24*365, time.Now().Add(2*time.Hour), nil); err != nil {
		t.Error(err)
	}
	for _, name := range r.names() {
		if _, ok := record.ParseID(name); !ok {
			t.Errorf("left in jobs after a prune: %s", name)
		}
	}
	wantKey(t, root, o.Key, job)
	if job == nil {
		o.Crash = ""
		job = crashStart(t, r, o)
		job.wantExit(7)
		wantKey(t, root, o.Key, job)
	}
	wantSound(t, root)
}

func openRoot(t testing.TB, r *testRoot) *jobdir.Root {
	t.Helper()
	root, err := jobdir.OpenRoot(r.path)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// helperWith is a run of a helper whose argument is JSON.
func helperWith(t *testing.T, role string, arg any) func() error {
	t.Helper()
	b, err := json.Marshal(arg)
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		out, err := runCommand(t, helper(role, string(b)))
		if out != "" {
			t.Logf("%s says: %s", role, out)
		}
		return err
	}
}

// wantKilled runs a helper that kills itself.
func wantKilled(t *testing.T, run func() error) {
	t.Helper()
	err := run()
	var exit interface{ Sys() any }
	if !errors.As(err, &exit) {
		t.Fatalf("the helper did not come to its point: %v", err)
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		t.Fatalf("the helper did not come to its point: %v", err)
	}
}

// crashStart starts a job by a process that goes away.
func crashStart(t *testing.T, r *testRoot, o crashOrder) *testJob {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return r.started(helper("crash-start", string(b)))
}

// wantSound fails the test for anything that check finds wrong.
func wantSound(t testing.TB, root *jobdir.Root) {
	t.Helper()
	problems, err := root.Check()
	if err != nil {
		t.Errorf("check: %v", err)
	}
	for _, p := range problems {
		t.Errorf("check: %s", p)
	}
}

// wantOwned fails the test for a process of the root that belongs to no job
// that can be seen: one that no cancel would reach.
func wantOwned(t testing.TB, r *testRoot, root *jobdir.Root) {
	t.Helper()
	var stray []process
	ok := eventually(5*time.Second, func() bool {
		stray = stray[:0]
		for id, procs := range ownersOf(r) {
			job := &testJob{t, id, root.Job(id).Dir()}
			left, err := Left(job.dir)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if err == nil && id != "" && job.held() { // "": it is between two programs, or names no job
				continue // its runner lives, and owns them
			}
			for _, p := range procs {
				if alive(p.pid) && !slices.ContainsFunc(left, func(l Process) bool { return l.PID == p.pid }) {
					stray = append(stray, p)
				}
			}
		}
		return len(stray) == 0
	})
	if !ok {
		t.Errorf("processes that no job owns: %v", stray)
	}
}

// ownersOf are the processes of the root by the job that they say they are of.
func ownersOf(r *testRoot) map[record.ID][]process {
	owners := map[record.ID][]process{}
	for _, p := range r.processes() {
		id, _ := jobOf(firstEnvironment(p.pid))
		owners[record.ID(id)] = append(owners[record.ID(id)], p)
	}
	return owners
}

// notRunner tells the processes of a job from its runner, which may stay while
// something can write to the log.
func notRunner(j *testJob) func(process) bool {
	var rec record.ProcessRecord
	if b, err := os.ReadFile(j.file(record.Pid)); err == nil {
		rec, _ = record.ParseProcess(b)
	}
	return func(p process) bool { return p.pid != rec.RunnerPID && alive(p.pid) }
}

// wantBeginning reads a whole log as a reader does. It must be a beginning of
// the output without a gap, apart from what dropped says, or all of it.
func wantBeginning(t testing.TB, j *jobdir.Job, output string, all bool) {
	t.Helper()
	next := int64(0)
	for {
		got, err := j.ReadLog(next, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got.Dropped == nil && got.Offset != next {
			t.Fatalf("a read at %d is of %d", next, got.Offset)
		}
		end := got.Next
		if end > int64(len(output)) || !bytes.Equal(got.Bytes, []byte(output[end-int64(len(got.Bytes)):end])) {
			t.Fatalf("the log is not what was written, near %d: %.80q", got.Offset, got.Bytes)
		}
		if next = end; !got.More {
			break
		}
	}
	if all && next != int64(len(output)) {
		t.Fatalf("the log has %d bytes of %d", next, len(output))
	}
}

// wantKey fails the test unless a key is free, and names just this job.
func wantKey(t testing.TB, root *jobdir.Root, key string, want *testJob) {
	t.Helper()
	got := make(chan record.ID, 1)
	go func() {
		k, err := root.LockKey(key)
		if err != nil {
			t.Error(err)
			got <- "?"
			return
		}
		id, _ := k.Job()
		k.Unlock()
		got <- id
	}()
	var id record.ID
	select {
	case id = <-got:
	case <-time.After(patience):
		t.Fatal("the key is locked for good")
	}
	switch {
	case want == nil && id != "":
		t.Errorf("the key names %s, which nobody can see", id)
	case want != nil && id != want.id:
		t.Errorf("the key names %q, want %s", id, want.id)
	}
}

// numbers is what seq N prints.
func numbers(n int) string {
	b := make([]byte, 0, 8*n)
	for i := 1; i <= n; i++ {
		b = append(strconv.AppendInt(b, int64(i), 10), '\n')
	}
	return string(b)
}

// crashScripts are the jobs of the random crash test, all of which exit with 7
// and print a run of numbers.
var crashScripts = []struct {
	script string
	n      int
}{
	{"seq 10; exit 7", 10},
	{"seq 100000; exit 7", 100000},
	{"seq 1000000; exit 7", 1000000},
	{"sleep 600 & seq 1000; exit 7", 1000},
	{"(setsid sleep 600 &) ; (exec >/dev/null 2>&1; setsid sh -c 'sleep 600; :' &) ; seq 1000; sleep 0.01; exit 7", 1000},
	{"trap '' TERM; seq 3000; sleep 0.02; exit 7", 3000},
}

// TestCrashAtRandom kills runners and starters at any moment. No code is made
// up, no log has a gap, and no process is left that no job owns.
func TestCrashAtRandom(t *testing.T) {
	n := *crashN
	if n == 0 {
		n = 120 // scripts/crash takes thousands
		if testing.Short() || raceDetector {
			n = 40
		}
	}
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("again with: -run TestCrashAtRandom -crash.n %d -crash.seed %d", n, seed)

	r := newRoot(t)
	root := openRoot(t, r)
	outputs := map[string]string{}
	for _, s := range crashScripts {
		outputs[s.script] = numbers(s.n)
	}
	type plan struct {
		script string
		runner bool // is killed, else the starter
		after  time.Duration
	}
	plans := make(chan plan)
	go func() {
		defer close(plans)
		random := rand.New(rand.NewPCG(seed, 0))
		for range n {
			p := plan{script: crashScripts[random.IntN(len(crashScripts))].script, runner: random.IntN(3) > 0}
			p.after = time.Duration(random.Int64N(int64(30 * time.Millisecond)))
			if random.IntN(2) == 0 { // most of a start takes less
				p.after /= 10
			}
			plans <- p
		}
	}()
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			for p := range plans {
				o := crashOrder{startOrder: r.order("/bin/sh", "-c", p.script)}
				if p.runner {
					crashRunner(t, r, o, p.after)
				} else {
					crashStarter(t, o, p.after)
				}
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		return
	}

	// Every job comes to an end, the true one or none.
	ids, err := root.IDs()
	if err != nil {
		t.Fatal(err)
	}
	count := map[record.State]int{}
	for _, id := range ids {
		j := root.Job(id)
		var state record.State
		waitFor(t, "the end of "+string(id), func() bool {
			if state, err = j.State(); err != nil {
				t.Fatal(err)
			}
			return state != record.Running
		})
		count[state]++
		info, err := j.Read()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case state == record.Lost && info.Exit == nil:
		case state == record.Exited && *info.Exit.ExitCode == 7:
		default:
			t.Errorf("%s: state %s, exit %+v", id, state, info.Exit)
		}
		wantBeginning(t, j, outputs[info.Cmd.Argv[2]], state == record.Exited)
	}
	t.Logf("%d jobs can be seen: %v", len(ids), count)
	wantSound(t, root)
	wantOwned(t, r, root)

	// A lost job's processes are found, and none is left after that.
	for id := range ownersOf(r) {
		workers.Go(func() {
			if _, left, err := StopLeft(t.Context(), root.Job(id).Dir()); len(left) > 0 || err != nil {
				t.Errorf("StopLeft of %s: %v, %v", id, left, err)
			}
		})
	}
	workers.Wait()
	waitFor(t, "the processes of all jobs to be gone", func() bool { return len(r.processes()) == 0 })

	report, err := root.Prune(time.Hour*24*365, time.Now().Add(2*time.Hour), nil)
	if err != nil || len(report.Errors) > 0 {
		t.Errorf("prune: %v, %v", err, report.Errors)
	}
	if len(report.Recorded) != count[record.Lost] {
		t.Errorf("prune wrote down %d lost jobs of %d", len(report.Recorded), count[record.Lost])
	}
	for _, name := range r.names() {
		if _, ok := record.ParseID(name); !ok {
			t.Errorf("left in jobs after a prune: %s", name)
		}
	}
	wantSound(t, root)
}

// crashRunner starts a job here and kills its runner after a while.
func crashRunner(t *testing.T, r *testRoot, o crashOrder, after time.Duration) {
	id, err := lockedStart(r.spec(o.Argv...))
	if err != nil {
		t.Error(err)
		return
	}
	runner, ok := runnerOf(id)
	time.Sleep(after) // the moment is what is tested
	if ok {
		_ = runner.signal(unix.SIGKILL)
	}
	reapStrangers()
}

// runnerOf finds the runner that this process has just started, if it has not
// ended.
func runnerOf(id record.ID) (process, bool) {
	for _, pid := range ownKids() {
		if p, ok := readProcess(pid); ok && p.sid == p.pid {
			if job, _ := jobOf(firstEnvironment(p.pid)); job == string(id) {
				return p, true
			}
		}
	}
	return process{}, false
}

// crashStarter has a job started by another process, and kills that after a
// while.
func crashStarter(t *testing.T, o crashOrder, after time.Duration) {
	o.Ready = true
	b, err := json.Marshal(o)
	if err != nil {
		t.Error(err)
		return
	}
	c := helper("crash-start", string(b))
	out, w, err := os.Pipe()
	if err != nil {
		t.Error(err)
		return
	}
	c.Stdout = w
	wait := startCommand(t, c)
	w.Close()
	defer out.Close()
	var ready [6]byte
	if _, err := io.ReadFull(out, ready[:]); err != nil {
		t.Errorf("starter: %v", err)
	}
	time.Sleep(after) // the moment is what is tested
	if err := c.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	_ = wait() // killed, or through before that
}
