package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify"
	"space-job/notify/thread"
)

var (
	stormN    = flag.Int("storm.n", 0, "steps of the storm over the daemon (0: a number that takes a few seconds)")
	stormSeed = flag.Uint64("storm.seed", 0, "seed of that storm (0: another one each time)")
)

// storm is a root in which everything is killed.
type storm struct {
	t    *testing.T
	dir  string
	root *jobdir.Root
}

// command is a run of space-job as somebody.
func (s *storm) command(member string, args ...string) *exec.Cmd {
	c := exec.Command("space-job", args...)
	c.Dir = s.dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, record.EnvJob+"=") && !strings.HasPrefix(kv, record.EnvMember+"=") {
			c.Env = append(c.Env, kv)
		}
	}
	c.Env = append(c.Env, record.EnvHome+"="+s.root.Path())
	if member != "" {
		c.Env = append(c.Env, record.EnvMember+"="+member)
	}
	return c
}

// must runs a command that may not fail.
func (s *storm) must(args ...string) string {
	s.t.Helper()
	var talk strings.Builder
	c := s.command("", args...)
	c.Stderr = &talk
	out, err := c.Output()
	if err != nil {
		s.t.Fatalf("space-job %q: %v\n%s", args, err, talk.String())
	}
	return string(out)
}

// cut runs a command and kills it after a while, unless it is through before.
func (s *storm) cut(after time.Duration, c *exec.Cmd) {
	if err := c.Start(); err != nil {
		s.t.Error(err)
		return
	}
	timer := time.AfterFunc(after, func() { _ = c.Process.Kill() }) // the moment is what is tested
	_ = c.Wait()
	timer.Stop()
}

// processes are those that bear the root in their first environment, and whose
// child each is.
func (s *storm) processes() map[int]int {
	all := map[int]int{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		env, err := os.ReadFile(d + "/environ")
		if err != nil || !strings.Contains("\x00"+string(env), "\x00"+record.EnvHome+"="+s.root.Path()+"\x00") {
			continue
		}
		stat, err := os.ReadFile(d + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if f[0] == "Z" {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		all[pid], _ = strconv.Atoi(f[1])
	}
	return all
}

func kill(pid int) {
	if pid > 1 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// TestNotifyStorm starts jobs and posts at random, and kills starters, posters,
// runners, wakers and daemons at random. In the end nothing is lost, nothing is
// repeated where it must not be, and no process is left.
func TestNotifyStorm(t *testing.T) {
	n := *stormN
	if n == 0 {
		n = 50
		if testing.Short() {
			n = 30
		}
	}
	seed := *stormSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("again with: -run TestNotifyStorm -storm.n %d -storm.seed %d", n, seed)
	dir, err := os.MkdirTemp("/dev/shm", "storm-") // in memory, for more of it
	if err != nil {
		dir, err = os.MkdirTemp("", "storm-")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	root, err := jobdir.OpenRoot(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	s := &storm{t, dir, root}
	t.Cleanup(func() { stopAll(root.Path()) })
	for _, name := range []string{"ann", "bob"} {
		s.must("member", "add", name, "--kind", "agent", "--wake-command", "cat >>"+dir+"/woken-"+name+"; sleep 0.02")
	}
	s.must("sink", "add", "file", "--command", "cat >>"+dir+"/sunk; echo >>"+dir+"/sunk")

	random := rand.New(rand.NewPCG(seed, 0))
	type step struct {
		what, who, script string
		after             time.Duration
	}
	steps := make(chan step)
	go func() {
		defer close(steps)
		scripts := []string{"exit 7", "seq 1000; exit 7", "sleep 0.05; exit 7", "sleep 30 & seq 10; exit 7", "sleep 600"}
		for range n {
			st := step{
				what:   []string{"start", "start", "start", "start and kill", "kill runner", "kill runner", "kill daemon", "post", "post and kill", "kill waker", "list"}[random.IntN(11)],
				who:    []string{"ann", "bob", ""}[random.IntN(3)],
				script: scripts[random.IntN(len(scripts))],
				after:  time.Duration(random.Int64N(int64(40 * time.Millisecond))),
			}
			if random.IntN(2) == 0 {
				st.after /= 8
			}
			steps <- st
		}
	}()
	var mu sync.Mutex
	var started []jobdir.ID
	var workers sync.WaitGroup
	for range 3 {
		workers.Go(func() {
			for st := range steps {
				start := s.command(st.who, "start", "--wake", "bob", st.script)
				post := s.command("ann", "thread", "post", "@bob look at this")
				switch st.what {
				case "start":
					out, err := start.Output()
					id, ok := record.ParseID(strings.TrimSpace(string(out)))
					if err != nil || !ok {
						t.Errorf("start: %q, %v", out, err)
						continue
					}
					mu.Lock()
					started = append(started, id)
					mu.Unlock()
				case "start and kill":
					s.cut(st.after, start)
				case "post":
					if err := post.Run(); err != nil {
						t.Errorf("post: %v", err)
					}
				case "post and kill":
					s.cut(st.after, post)
				case "kill runner":
					mu.Lock()
					var id jobdir.ID
					if len(started) > 0 {
						id = started[int(st.after)%len(started)]
					}
					mu.Unlock()
					if b, err := os.ReadFile(filepath.Join(root.Job(id).Dir(), record.Pid)); err == nil {
						if p, ok := record.ParseProcess(b); ok {
							if now, alive := record.ProcessStart(p.RunnerPID); alive && now == p.RunnerStart {
								kill(p.RunnerPID)
							}
						}
					}
				case "kill daemon", "kill waker":
					time.Sleep(st.after)
					r, held := notify.DaemonOf(root)
					if !held {
						continue
					}
					if st.what == "kill daemon" {
						kill(r.PID)
						continue
					}
					for pid, parent := range s.processes() {
						if parent == r.PID {
							kill(pid)
						}
					}
				case "list":
					if err := s.command("", "list").Run(); err != nil {
						t.Errorf("list: %v", err)
					}
				}
			}
		})
	}
	workers.Wait()

	// Everything comes to its end: jobs that would run on are cancelled, what is
	// lost is seen by the next daemon, and commands start that.
	ids, err := root.IDs()
	if err != nil {
		t.Fatal(err)
	}
	for batch := range slices.Chunk(ids, 20) {
		args := []string{"cancel"}
		for _, id := range batch {
			args = append(args, string(id))
		}
		s.must(args...)
	}
	th := thread.Open(root)
	quiet := func() bool {
		wakes, err := th.PendingWakes()
		if err != nil {
			t.Fatal(err)
		}
		return len(wakes) == 0 && !notify.Waiting(root)
	}
	for end := time.Now().Add(time.Minute); !quiet(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			log, _ := os.ReadFile(filepath.Join(root.Path(), record.DaemonLog))
			entries, _ := notify.Entries(root)
			b, _ := json.Marshal(entries)
			t.Fatalf("it does not come to rest: %s\n%s", b, log)
		}
		s.must("list", "--all") // restarts the daemon where there is something to do
	}
	s.checkThread(ids)

	s.must("daemon", "stop")
	var left map[int]int
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if left = s.processes(); len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			for pid := range left {
				cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				t.Errorf("process %d is left: %q", pid, cmd)
			}
			break
		}
	}
}

// checkThread looks at everything that was told.
func (s *storm) checkThread(ids []jobdir.ID) {
	t := s.t
	th := thread.Open(s.root)
	f, err := os.Open(filepath.Join(s.root.Path(), "thread", "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	told := map[jobdir.ID]thread.Entry{}
	mentions := 0
	seq := int64(0)
	for d := json.NewDecoder(f); ; {
		var e thread.Entry
		if err := d.Decode(&e); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if seq++; e.Seq != seq {
			t.Fatalf("entry %d has seq %d", seq, e.Seq)
		}
		if e.Job == "" {
			mentions++
			if it, err := th.Item("bob", "e"+strconv.FormatInt(e.Seq, 10)); err != nil || it.Wake.State == thread.WakePending {
				t.Errorf("mention %d: %+v, %v", e.Seq, it, err)
			}
			continue
		}
		if _, ok := told[jobdir.ID(e.Job)]; ok {
			t.Errorf("job %s is told of twice", e.Job)
		}
		told[jobdir.ID(e.Job)] = e
	}
	sunk, _ := os.ReadFile(filepath.Join(s.dir, "sunk"))
	woken := map[string]string{}
	for _, name := range []string{"ann", "bob"} {
		b, _ := os.ReadFile(filepath.Join(s.dir, "woken-"+name))
		woken[name] = string(b)
	}
	head := regexp.MustCompile(`^JOB (\S+) (\S+) exit=(\S+) `)
	count := map[jobdir.State]int{}
	for _, id := range ids {
		info, err := s.root.Job(id).Read()
		if err != nil || info.Cmd == nil || info.Exit == nil {
			t.Errorf("job %s: %+v, %v", id, info, err)
			continue
		}
		count[info.State]++
		code := "-"
		if info.Exit.ExitCode != nil {
			code = strconv.Itoa(*info.Exit.ExitCode)
		}
		m := head.FindStringSubmatch(told[id].Text)
		if m == nil || m[1] != string(id) || m[2] != string(info.State) || m[3] != code {
			t.Errorf("job %s ended as %s with %s, and this was told: %q", id, info.State, code, told[id].Text)
		}
		if st := notify.StatusOf(s.root, id); st.State != notify.Delivered {
			t.Errorf("job %s: %+v", id, st)
		}
		if !strings.Contains(string(sunk), "JOB "+string(id)+" ") {
			t.Errorf("job %s is not in the sink", id)
		}
		who := []string{"bob"}
		if m := info.Cmd.StartedBy.Member; m == "ann" {
			who = append(who, m)
		}
		for _, name := range who {
			it, err := th.Item(name, string(id))
			if err != nil || it.Seq != told[id].Seq || it.Wake.State == thread.WakePending || it.Wake.State == thread.WakeFailed {
				t.Errorf("item %s of %s: %+v, %v", id, name, it, err)
			}
			if it.Wake.State == thread.WakeDone && !strings.Contains(woken[name], `"item":"`+string(id)+`"`) {
				t.Errorf("%s was never woken for %s", name, id)
			}
		}
		delete(told, id)
	}
	for id := range told {
		t.Errorf("job %s is told of, and is none", id)
	}
	t.Logf("%d jobs: %v; %d posts", len(ids), count, mentions)
}
