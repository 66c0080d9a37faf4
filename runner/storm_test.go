package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

func init() { roles["storm-start"] = stormStartRole }

// A stormOrder is what a starter of many jobs is told.
type stormOrder struct {
	startOrder
	Jobs      int
	Processes uint64 // a limit on the processes of the user, 0: none
}

// stormStartRole starts jobs one after another, and prints their ids.
func stormStartRole(args []string) int {
	var o stormOrder
	if err := json.Unmarshal([]byte(args[0]), &o); err != nil {
		fmt.Println(err)
		return 2
	}
	if o.Processes > 0 {
		lim := unix.Rlimit{Cur: o.Processes, Max: o.Processes}
		if err := unix.Setrlimit(rlimitNPROC, &lim); err != nil {
			fmt.Println(err)
			return 1
		}
	}
	for range o.Jobs {
		id, err := Start(o.spec())
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(id)
	}
	return 0
}

// letGo waits until each job has written "begin" and waits at the gate, a FIFO,
// and opens that for all of them at once.
func letGo(t *testing.T, jobs []*testJob, gate string) {
	t.Helper()
	for _, j := range jobs {
		waitFor(t, "the beginning of "+string(j.id), func() bool { return j.log() == "begin\n" })
	}
	f, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
}

// storm starts jobs by a process that goes away, as another user if uid is not 0.
func (r *testRoot) storm(uid uint32, o stormOrder) []*testJob {
	r.t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		r.t.Fatal(err)
	}
	c := helper("storm-start", string(b))
	if uid != 0 {
		unprivileged(r.t, uid, c)
	}
	out, err := runCommand(r.t, c)
	if err != nil {
		r.t.Fatalf("starter: %v, %s", err, out)
	}
	var jobs []*testJob
	for line := range strings.Lines(out) {
		id, ok := record.ParseID(strings.TrimSpace(line))
		if !ok {
			r.t.Fatalf("starter says %q", line)
		}
		jobs = append(jobs, &testJob{r.t, id, filepath.Join(r.path, record.Jobs, string(id))})
	}
	return jobs
}

func (r *testRoot) stormOrder(jobs int, script string) stormOrder {
	return stormOrder{startOrder: r.order("/bin/sh", "-c", script), Jobs: jobs}
}

// Fifty jobs that end in the same moment: each has its own code, and its log.
func TestManyEndAtOnce(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	gate := filepath.Join(r.path, "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	var jobs []*testJob
	for code := range 50 {
		jobs = append(jobs, r.sh(fmt.Sprintf(`echo begin; : <%s; seq 2000; exit %d`, gate, code)))
	}
	letGo(t, jobs, gate)
	all := "begin\n" + numbers(2000)
	for code, j := range jobs {
		e := j.wantExit(code)
		if j.log() != all || e.LogBytes != int64(len(all)) {
			t.Errorf("%s: the log has %d bytes, exit says %d, want %d", j.id, len(j.log()), e.LogBytes, len(all))
		}
	}
	wantSound(t, openRoot(t, r))
}

// TestS4StatesGoOneWay ends many jobs by a cancel about when they end by
// themselves, under the eyes of four readers at full speed. None of them ever
// sees a state go back, a code change, or a record that is rewritten.
func TestS4StatesGoOneWay(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	root := openRoot(t, r)
	n := 64
	if testing.Short() || raceDetector {
		n = 40
	}

	// Each reader has a memory of its own.
	type seen struct {
		info   *jobdir.Info
		record []byte
	}
	var watched sync.Map // of record.ID
	var over atomic.Bool
	var readers, workers sync.WaitGroup
	var looks atomic.Int64
	for range 4 {
		readers.Go(func() {
			memory := map[record.ID]seen{}
			for !over.Load() {
				watched.Range(func(k, _ any) bool {
					looks.Add(1)
					id := k.(record.ID)
					j := root.Job(id)
					state, err := j.State()
					if err != nil {
						t.Errorf("%s: %v", id, err)
						return false
					}
					info, err := j.Read()
					if err != nil {
						t.Errorf("%s: %v", id, err)
						return false
					}
					was, before := memory[id]
					switch {
					case before && was.info.State != record.Running && state != was.info.State,
						state != record.Running && info.State != state,
						info.State == record.Lost:
						t.Errorf("%s: state was %v, then %s, then %s", id, was.info, state, info.State)
					case (info.State == record.Running) != (info.Exit == nil):
						t.Errorf("%s: %s with exit %+v", id, info.State, info.Exit)
					}
					now := seen{info: info}
					if info.Exit != nil {
						if now.record, err = os.ReadFile(filepath.Join(info.Dir, record.Exit)); err != nil {
							t.Error(err)
						}
						if was.record != nil && !bytes.Equal(was.record, now.record) {
							t.Errorf("%s: exit was %q, and is %q", id, was.record, now.record)
						}
					}
					memory[id] = now
					return true
				})
			}
		})
	}
	var states sync.Map
	kinds := func() (n int) {
		states.Range(func(_, _ any) bool { n++; return true })
		return n
	}
	jobs := make(chan int)
	for range 8 {
		workers.Go(func() {
			after := 40 * time.Millisecond
			for range jobs {
				id, err := lockedStart(r.spec("/bin/sh", "-c", "sleep 0.03; exit 3"))
				if err != nil {
					t.Error(err)
					continue
				}
				watched.Store(id, true)
				j := &testJob{t, id, root.Job(id).Dir()}
				time.Sleep(after) // the moment is what is tested
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				err = Cancel(ctx, j.dir, record.CancelRecord{At: time.Now(), By: "test"})
				cancel()
				if err != nil {
					t.Errorf("cancel: %v", err)
				}
				e, ok := j.exit()
				switch {
				case !ok:
					t.Errorf("%s: cancel returned before the end", id)
				case e.State == record.Exited && e.ExitCode != nil && *e.ExitCode == 3:
				case e.State == record.Cancelled && e.ExitCode == nil && e.Signal == "":
				default:
					t.Errorf("%s: exit is %+v", id, e)
				}
				after = aroundTheEnd(after, e.State)
				count, _ := states.LoadOrStore(e.State, new(atomic.Int64))
				count.(*atomic.Int64).Add(1)
				eventually(patience, func() bool { return !j.held() })
				watched.Delete(id)
			}
		})
	}
	// However slow the machine makes the jobs: on until the two have met.
	deadline := time.Now().Add(patience)
	for i := 0; i < n || kinds() < 2 && time.Now().Before(deadline); i++ {
		jobs <- i
	}
	close(jobs)
	workers.Wait()
	over.Store(true)
	readers.Wait()
	states.Range(func(k, v any) bool {
		t.Logf("%s: %d", k, v.(*atomic.Int64).Load())
		return true
	})
	if kinds() < 2 {
		t.Error("cancel and end never met")
	}
	t.Logf("%d looks", looks.Load())
	wantSound(t, root)
}

// Twenty cancels of one job: one request, and all return at its end.
func TestCancelsRace(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.sh(`trap 'echo term; exit 0' TERM; echo ready; sleep 600 & sleep 600 & wait`)
	j.logHas("ready\n")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			req := record.CancelRecord{At: time.Now(), By: fmt.Sprintf("canceller %d", i), Reason: strings.Repeat("x", 40*i)}
			if err := Cancel(ctx, j.dir, req); err != nil {
				t.Errorf("cancel: %v", err)
			}
			if e, ok := j.exit(); !ok || e.State != record.Cancelled || e.ExitCode != nil {
				t.Errorf("after a cancel: %v, %+v", ok, e)
			}
		})
	}
	wg.Wait()
	j.gone()
	var req record.CancelRecord
	if err := json.Unmarshal([]byte(j.read(record.Cancel)), &req); err != nil {
		t.Fatalf("cancel: %v", err)
	}
	var by int
	if _, err := fmt.Sscanf(req.By, "canceller %d", &by); err != nil || len(req.Reason) != 40*by {
		t.Errorf("the request is of two: %+v", req)
	}
	if got := j.log(); got != "ready\nterm\n" {
		t.Errorf("log is %q: TERM comes once", got)
	}
	if left := r.processes(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A storm of signals at a runner, until it is through, when nobody has asked to
// cancel anything: TERM is what a shutdown sends, USR1 what a canceller does.
func TestSignalStorm(t *testing.T) {
	t.Parallel()
	storms := map[string][]unix.Signal{
		"TERM":          {unix.SIGTERM},
		"USR1":          {unix.SIGUSR1},
		"STOP and CONT": {unix.SIGSTOP, unix.SIGCONT},
		"all": {
			unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGPIPE, unix.SIGALRM,
			unix.SIGCHLD, unix.SIGURG, unix.SIGPROF, unix.SIGWINCH, unix.SIGTSTP, unix.SIGCONT,
		},
	}
	const n = 50000
	want := numbers(n)
	storm := func(t *testing.T, signals []unix.Signal, fromTheFirst bool) {
		r := newRoot(t)
		j := r.sh(fmt.Sprintf("seq %d; sleep 0.05; seq %d %d; exit 7", n/2, n/2+1, n))
		runner, ok := runnerOf(j.id)
		if !fromTheFirst {
			waitFor(t, "the runner to be armed", func() bool { return armed(runner) })
		}
		var senders sync.WaitGroup
		for range 2 {
			senders.Go(func() {
				for ok && alive(runner.pid) {
					if _, ended := j.exit(); ended {
						break
					}
					for _, sig := range signals {
						_ = unix.Kill(runner.pid, sig) // this process's child, not yet waited for
					}
				}
				if ok {
					_ = runner.signal(unix.SIGCONT)
				}
			})
		}
		senders.Wait()
		j.gone()
		if _, ended := j.exit(); fromTheFirst && !ended {
			return // lost: in its first moment a runner is as mortal as any program
		}
		j.wantExit(7)
		if got := j.log(); got != want {
			t.Errorf("the log has %d bytes of %d", len(got), len(want))
		}
	}
	for name, signals := range storms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 3 {
				storm(t, signals, false)
			}
			storm(t, signals, true)
		})
	}
}

// A hundred starts at once after the clock was set back: each job is newer
// than all before it, and the newest is no exception.
func TestStartsAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	jobs := filepath.Join(r.path, record.Jobs)
	future := time.Now().Add(90 * time.Minute)
	newest := record.NewID(future)
	if err := os.Mkdir(filepath.Join(jobs, string(newest)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(jobs, future, future); err != nil {
		t.Fatal(err)
	}
	each := 20
	if testing.Short() || raceDetector {
		each = 6
	}
	var starters sync.WaitGroup
	for range 5 {
		starters.Go(func() {
			for _, j := range r.storm(0, r.stormOrder(each, "exit 0")) {
				if j.id <= newest {
					t.Errorf("%s is below %s", j.id, newest)
				}
			}
		})
	}
	starters.Wait()
	ids := r.ids()
	if len(ids) != 5*each+1 {
		t.Errorf("%d jobs", len(ids))
	}
	// One after another, they are in order.
	for range 3 {
		j := r.run("true")
		if newest := slices.Max(ids); j.id <= newest {
			t.Errorf("%s is below %s", j.id, newest)
		}
		ids = append(ids, j.id)
	}
	for _, id := range ids {
		if id != newest {
			(&testJob{t, id, filepath.Join(jobs, string(id))}).wantExit(0)
		}
	}
}

// TestS3Chain cancels a job whose main process obeys, and that has left a
// process which forks the next and goes, and so on, deaf to TERM: a look at the
// tree can pass between the two.
func TestS3Chain(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	j := r.sh(`export LINK='[ -e ` + r.path + `/stop ] || { sh -c "$LINK" & }'
		(trap "" TERM; sh -c "$LINK"); echo ready; exec sleep 600`)
	t.Cleanup(func() { _ = os.WriteFile(filepath.Join(r.path, "stop"), nil, 0o600) })
	j.logHas("ready\n")
	j.ask()
	if e := j.wantState(record.Cancelled); e.Left != 0 || e.Error != "" {
		t.Errorf("exit is %+v", e)
	}
	j.gone()
	for range 20 {
		if left := r.processes(); len(left) != 0 {
			t.Fatalf("left: %v", left)
		}
	}
}
