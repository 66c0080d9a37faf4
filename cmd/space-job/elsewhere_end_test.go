package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	way "space-job/cmd/internal/space"
	"space-job/jobdir"
)

// behind is the way to a space of this machine, which is shut while the file of that
// name is there.
func behind(t testing.TB, there *space, shut string) way.Space {
	return way.Space{
		Exec: []string{"sh", "-c", `if test -e "$0"; then echo "no route to host" >&2; exit 255; fi; exec "$@"`, shut,
			"env", "SPACE_JOB_HOME=" + there.root},
		Program: pathOf(t, "space-job"),
	}
}

// twoSpaces are one with a member that notes what it is woken for, and one behind a
// file that shuts it.
func twoSpaces(t *testing.T) (here, there *space, shut string) {
	t.Helper()
	return twoSpacesOf(t, newSpace(t), newSpace(t))
}

func twoSpacesOf(t *testing.T, here, there *space) (*space, *space, string) {
	t.Helper()
	shut := filepath.Join(t.TempDir(), "shut")
	here.spaces(map[string]way.Space{"cloud:box": behind(t, there, shut)})
	here.run("member", "add", "ann", "--kind", "agent", "--wake-command", "cat >>"+here.wokenFile())
	return here, there, shut
}

func (s *space) waits() string {
	all, _ := filepath.Glob(filepath.Join(s.root, "outbox", "elsewhere", "j*"))
	return fmt.Sprint(len(all))
}

// startThere starts a job in the other Space that waits until the file of the name
// is there.
func (s *space) startThere(gate string, flags ...string) string {
	s.t.Helper()
	return s.run(append(append([]string{"--space", "cloud:box", "start", "--notify"}, flags...), "until test -e "+gate+"; do sleep 0.02; done; echo done; exit 3")...)
}

func open(t testing.TB, gate string) {
	t.Helper()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestEndElsewhere: the message is in the thread of the Space that the job ran in,
// and whoever started it is woken here, and so is who else is to be; each once.
func TestEndElsewhere(t *testing.T) {
	t.Parallel()
	here, there, _ := twoSpaces(t)
	here.run("member", "add", "bob", "--kind", "person")
	gate, other := filepath.Join(t.TempDir(), "gate"), filepath.Join(t.TempDir(), "other")
	first := here.startThere(gate, "--member", "ann", "--wake", "bob")
	second := here.startThere(other, "--member", "ann") // while the first is waited for
	open(t, other)
	here.await("the wake for the second", here.woken, "cloud:box/"+second)
	open(t, gate)
	here.await("the wake for the first", here.woken, "cloud:box/"+second+" cloud:box/"+first)
	here.await("an empty outbox", here.waits, "0")
	for name, n := range map[string]int{"ann": 1, "bob": 1} {
		if got := here.told(name, first); got != n {
			t.Errorf("%s has %d items of the first", name, got)
		}
	}
	if got := here.told("bob", second); got != 0 {
		t.Errorf("bob has %d items of the second", got)
	}
	inbox := here.run("inbox", "--member", "ann")
	for _, want := range []string{
		"cloud:box/" + first + " unread", "JOB " + first + " exited exit=3 ", "        done\n",
		`Read more with space_job {action: "logs", space: "cloud:box", job: "` + first + `", offset: 0} or: space-job --space cloud:box logs ` + first + " --offset 0",
	} {
		if !strings.Contains(inbox, want) {
			t.Errorf("%q is not in\n%s", want, inbox)
		}
	}
	if got := there.texts(); strings.Count(got, "JOB ") != 2 {
		t.Errorf("the thread over there: %s", got)
	}
	if got := here.texts(); got != "" {
		t.Errorf("the thread here: %s", got)
	}
	// It is taken and answered as any other.
	if got := here.run("inbox", "--member", "ann", "--take", "--json"); !strings.Contains(got, `"item":"cloud:box/`) {
		t.Error(got)
	}
	here.run("inbox", "answer", "cloud:box/"+second, "thanks", "--member", "ann")
	if got := here.told("ann", second); got != 0 {
		t.Errorf("%d items after the answer", got)
	}
}

// TestEndElsewhereOfNobody: who starts it is not known, so nobody waits for it.
func TestEndElsewhereOfNobody(t *testing.T) {
	t.Parallel()
	here, there, _ := twoSpaces(t)
	c := here.command("--space", "cloud:box", "start", "--notify", "true")
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil || strings.Count(said.String(), "it is not known who you are") != 1 {
		t.Errorf("%v: %s", err, said.String())
	}
	if n := here.waits(); n != "0" {
		t.Errorf("%s waits", n)
	}
	there.await("the entry over there", there.texts, "JOB "+strings.TrimSpace(string(out)))
	if got := here.fails(2, "--space", "cloud:box", "start", "--wake", "nobody-here", "true"); !strings.Contains(got, "is no member here") {
		t.Error(got)
	}
}

// TestEndElsewhereOutOfReach: the job ends while its Space cannot be reached, and the
// daemon here is killed meanwhile.
func TestEndElsewhereOutOfReach(t *testing.T) {
	t.Parallel()
	here, there, shut := twoSpaces(t)
	gate := filepath.Join(t.TempDir(), "gate")
	job := here.startThere(gate, "--member", "ann")
	here.killDaemon()
	open(t, shut)
	open(t, gate)
	there.await("the entry over there", there.texts, "JOB "+job)
	here.hasDaemon()
	here.await("what is wrong", func() string {
		all, _ := filepath.Glob(filepath.Join(here.root, "outbox", "elsewhere", "j*"))
		if len(all) != 1 {
			return fmt.Sprint(all)
		}
		b, _ := os.ReadFile(all[0])
		_, why, _ := strings.Cut(string(b), `"error":"`)
		return why
	}, "space cloud:box: it cannot be reached: ")
	here.killDaemon()
	if err := os.Remove(shut); err != nil {
		t.Fatal(err)
	}
	here.await("the wake", func() string {
		here.run("list") // which starts a daemon
		return here.woken()
	}, "cloud:box/"+job)
	here.await("an empty outbox", here.waits, "0")
	if n := here.told("ann", job); n != 1 {
		t.Errorf("%d items", n)
	}
}

// TestEndElsewhereUnknown: a job that is not there any more is told of as that.
func TestEndElsewhereUnknown(t *testing.T) {
	t.Parallel()
	here, there, _ := twoSpaces(t)
	gate := filepath.Join(t.TempDir(), "gate")
	job := here.startThere(gate, "--member", "ann")
	here.run("daemon", "stop")
	open(t, gate)
	there.await("the end", func() string { return string(there.notified(job).State) }, "delivered")
	if err := os.RemoveAll(filepath.Join(there.root, "jobs", job)); err != nil {
		t.Fatal(err)
	}
	here.hasDaemon()
	here.await("the wake", here.woken, "cloud:box/"+job)
	if got := here.run("inbox", "--member", "ann"); !strings.Contains(got, "JOB "+job+" unknown exit=- - log=-B | the Space cloud:box has no such job any more") {
		t.Error(got)
	}
}

// elsewhereCrashes are the steps of a start in another Space and of what the daemon
// here does about it, and whether there is a job then.
var elsewhereCrashes = []struct {
	point   string
	started bool
}{
	{"wait.written", false}, {"wait.named", false}, {"elsewhere.claimed", false},
	{"elsewhere.started", true}, {"wait.put", true}, {"elsewhere.told", true},
}

// TestEndElsewhereCrash: killed at any step, who started the job is told of it once,
// or nothing was started and nothing is left.
func TestEndElsewhereCrash(t *testing.T) {
	t.Parallel()
	here, there, _ := twoSpacesOf(t, newArmedSpace(t), newArmedSpace(t))
	for _, c := range elsewhereCrashes {
		before := there.run("list", "--all", "--json")
		command := "stop" // the next one looks at once; one that runs may take half a minute
		if inDaemon := c.point == "wait.put" || c.point == "elsewhere.told"; inDaemon {
			command = "--detach"
		}
		_, _ = here.try("daemon", command)
		here.arm(c.point)
		out, err := here.try("--space", "cloud:box", "start", "--notify", "--member", "ann", "true")
		here.died()
		if err != nil != (c.point != "wait.put" && c.point != "elsewhere.told") {
			t.Errorf("%s: %q, %v", c.point, out, err)
		}
		here.hasDaemon()
		if !c.started {
			here.await(c.point, here.waits, "0")
			if after := there.run("list", "--all", "--json"); after != before {
				t.Errorf("%s: started: %s", c.point, after)
			}
			continue
		}
		job := there.run("list", "--json", "-n", "1")
		_, job, _ = strings.Cut(job, `"job":"`)
		job = job[:len(jobdir.ID("j000000000000"))]
		here.await(c.point, func() string { return fmt.Sprint(here.waits(), " ", here.told("ann", job)) }, "0 1")
		here.await(c.point, func() string { return fmt.Sprint(strings.Count(here.woken(), "cloud:box/"+job) > 0) }, "true")
		if n := strings.Count(there.texts(), "JOB "+job); n > 1 {
			t.Errorf("%s: %d entries over there", c.point, n)
		}
	}
}

// TestEndElsewhereAbove: who takes part in the thread of a parent is told there.
func TestEndElsewhereAbove(t *testing.T) {
	t.Parallel()
	p, there := newParent(t), newSpace(t)
	here := p.childOf(t, "ann")
	here.spaces(map[string]way.Space{"cloud:box": behind(t, there, "/nonesuch")})
	here.run("member", "add", "bob", "--kind", "person") // who does not
	gate := filepath.Join(t.TempDir(), "gate")
	job := here.startThere(gate, "--member", "ann", "--wake", "bob")
	open(t, gate)
	here.await("an empty outbox", here.waits, "0")
	here.await("the wake", func() string { return fmt.Sprint(len(strings.Fields(here.woken()))) }, "1")
	if n := p.told("ann", job); n != 1 {
		t.Errorf("ann has %d items", n)
	}
	if n := here.told("bob", job); n != 1 {
		t.Errorf("bob has %d items", n)
	}
	if got := p.run("inbox", "--member", "ann"); !strings.Contains(got, "/cloud:box with space_job") {
		t.Error(got)
	}
	if got := p.texts(); strings.Count(got, "JOB "+job) != 1 {
		t.Errorf("the parent's thread: %s", got)
	}
}

// TestSurvivesElsewhere: what a job elsewhere and the news of its end come through.
func TestSurvivesElsewhere(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		fault func(t *testing.T, here, there *space, job string)
		end   string
	}{
		{"the connection is cut", func(t *testing.T, _, there *space, _ string) { there.killCalls(t) }, "exited exit=3 "},
		{"the daemon here is killed", func(t *testing.T, here, _ *space, _ string) { here.killDaemon() }, "exited exit=3 "},
		{"the daemon there is killed", func(t *testing.T, _, there *space, _ string) { there.killDaemon() }, "exited exit=3 "},
		{"the Space is stopped and started", func(t *testing.T, _, there *space, job string) {
			there.killDaemon()
			there.killCalls(t)
			root, err := jobdir.OpenRoot(there.root)
			if err != nil {
				t.Fatal(err)
			}
			var info *jobdir.Info
			there.await("the command", func() string {
				info, err = root.Job(jobdir.ID(job)).Read()
				return fmt.Sprint(err == nil && info.Process != nil)
			}, "true")
			if err != nil || info.Process == nil || info.Process.RunnerPID <= 1 || info.Process.ChildPID <= 1 {
				t.Fatalf("%+v, %v", info, err)
			}
			for _, pid := range []int{info.Process.RunnerPID, -info.Process.ChildPID} {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(pid, err)
				}
			}
		}, "lost exit=- "},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			here, there, _ := twoSpaces(t)
			gate := filepath.Join(t.TempDir(), "gate")
			job := here.startThere(gate, "--member", "ann")
			there.await("a wait", func() string { return fmt.Sprint(len(there.calls(t)) > 0) }, "true")
			c.fault(t, here, there, job)
			open(t, gate)
			here.await("the wake", func() string {
				here.run("list") // which starts a daemon
				return here.woken()
			}, "cloud:box/"+job)
			here.await("an empty outbox", here.waits, "0")
			if n := here.told("ann", job); n != 1 {
				t.Errorf("%d items", n)
			}
			there.await("the entry over there", func() string {
				there.run("list")
				return there.texts()
			}, "JOB "+job+" "+c.end)
			if got := there.texts(); strings.Count(got, "JOB ") != 1 {
				t.Error(got)
			}
		})
	}
}

// TestEndElsewhereDamaged: a job that cannot be read over there is in the way of no
// other, and is neither told of nor forgotten.
func TestEndElsewhereDamaged(t *testing.T) {
	t.Parallel()
	here, there, _ := twoSpaces(t)
	gate := filepath.Join(t.TempDir(), "gate")
	damaged := here.startThere(gate, "--member", "ann")
	if err := os.WriteFile(filepath.Join(there.root, "jobs", damaged, "cmd"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	job := here.startThere(gate, "--member", "ann")
	open(t, gate)
	here.await("the wake", here.woken, "cloud:box/"+job)
	here.await("one that is left", here.waits, "1")
	if n := here.told("ann", damaged); n != 0 {
		t.Errorf("%d items of the damaged one", n)
	}
}

// TestNoCallOutlivesDaemon: a call that does not end when it is told to, such as an
// ssh whose connection is dead, is gone when its daemon has ended.
func TestNoCallOutlivesDaemon(t *testing.T) {
	t.Parallel()
	here := newSpace(t)
	gone := func(what string, s *space, stuck string) {
		pid := ""
		s.await("a call", func() string {
			b, _ := os.ReadFile(stuck)
			pid = strings.TrimSpace(string(b))
			return fmt.Sprint(pid != "")
		}, "true")
		s.run("daemon", "stop")
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		s.await("the end of the "+what, func() string { return fmt.Sprint(syscall.Kill(n, 0)) }, syscall.ESRCH.Error())
	}
	for _, what := range []string{"arrivals", "job_end"} { // calls of a link
		child, member := newSpace(t), "bob-"+what
		child.run("member", "add", member, "--kind", "agent", "--wake-command", "true")
		over := filepath.Join(t.TempDir(), "stuck")
		script := `echo >>"$0.calls"
			if test -e "$0.on"; then trap "" TERM; echo $$ >"$0.new"; mv "$0.new" "$0"; while :; do sleep 100; done; fi
			exec env SPACE_JOB_HOME=` + here.root + ` "$@"`
		prefix, err := json.Marshal([]string{"sh", "-c", script, over})
		if err != nil {
			t.Fatal(err)
		}
		child.run("thread", "join", here.run("thread", "invite", "--address", "exec:"+string(prefix)), "--member", member)
		if what == "job_end" { // when the daemon waits for arrivals already
			child.await("what the daemon waits for", func() string {
				b, _ := os.ReadFile(over + ".calls")
				return fmt.Sprint(len(b) >= 2)
			}, "true")
		} else {
			child.run("daemon", "stop")
		}
		if err := os.WriteFile(over+".on", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if what == "job_end" {
			child.run("start", "--notify", "--member", member, "true")
		} else {
			child.hasDaemon()
		}
		gone(what, child, over)
	}
	for _, what := range []string{"wait", "status"} {
		stuck := filepath.Join(t.TempDir(), "stuck")
		script := `hello='{"space_job":"v1","format":1}'; job='"job":"j6c1f0a2b9d3e"'
			if test $2 = ` + what + `; then trap "" TERM; echo $$ >"$0.new"; mv "$0.new" "$0"; while :; do sleep 100; done; fi
			echo "$hello"; read l; case $2 in
			start) echo "{\"result\":{$job,\"state\":\"running\"}}";;
			wait) echo "{\"result\":{\"jobs\":[{$job,\"state\":\"exited\"}]}}";;
			esac`
		here.spaces(map[string]way.Space{"cloud:box": {Exec: []string{"sh", "-c", script, stuck}}})
		if what == "wait" {
			here.run("member", "add", "ann", "--kind", "agent")
		} else {
			here.hasDaemon()
		}
		here.run("--space", "cloud:box", "start", "--notify", "--member", "ann", "true")
		gone(what, here, stuck)
	}
}

// calls are the processes that answer calls from another Space.
func (s *space) calls(t *testing.T) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(all) == 0 {
		t.Skip("there is no /proc")
	}
	for _, dir := range all {
		argv, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if strings.Contains(string(argv), "\x00wait\x00--request\x00") && strings.Contains("\x00"+string(env), "\x00SPACE_JOB_HOME="+s.root+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *space) killCalls(t *testing.T) {
	t.Helper()
	for _, pid := range s.calls(t) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}
