//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const patience = 3 * time.Minute

// inTurn runs f for every tool, round after round, each round beginning with
// another tool. A tool that fails takes no further part.
func inTurn(rounds int, ts []tool, f func(t tool) error) map[string]error {
	failed := map[string]error{}
	for round := range rounds {
		for i := range ts {
			t := ts[(i+round)%len(ts)]
			if failed[t.Name()] != nil {
				continue
			}
			if err := f(t); err != nil {
				failed[t.Name()] = err
			}
			reapOrphans()
		}
	}
	return failed
}

func (b *bench) start() {
	ts := b.setup(b.tools())
	defer closeAll(ts)
	started, recorded := map[string]sample{}, map[string]sample{}
	warm := map[string]int{}
	failed := inTurn(b.starts+2, ts, func(t tool) error {
		begun := time.Now()
		id, err := t.Start("true")
		up := time.Since(begun)
		if err != nil {
			return err
		}
		end, err := t.Wait(id, 20*time.Second)
		done := time.Since(begun)
		if err == nil && end != "0" && end != "dead" {
			err = fmt.Errorf("true ended with %s", end)
		}
		if warm[t.Name()]++; err == nil && warm[t.Name()] > 2 {
			started[t.Name()] = append(started[t.Name()], up)
			recorded[t.Name()] = append(recorded[t.Name()], done)
		}
		return err
	})
	b.ratios("start", times(3), times(2.4), started, failed)
	b.ratios("start to recorded end", times(2), times(1.7), recorded, failed)
}

func (b *bench) manyStarts() {
	ts := b.setup(b.tools())
	defer closeAll(ts)
	took := map[string]sample{}
	failed := inTurn(b.rounds, ts, func(t tool) error {
		begun := time.Now()
		ids := make([]string, b.burst)
		for i := range ids {
			var err error
			if ids[i], err = t.Start("true"); err != nil {
				return err
			}
		}
		for _, id := range ids {
			if _, err := t.Wait(id, patience); err != nil {
				return err
			}
		}
		took[t.Name()] = append(took[t.Name()], time.Since(begun))
		return nil
	})
	b.ratios(fmt.Sprintf("%d starts one after another", b.burst), times(2), times(1.6), took, failed)
}

func (b *bench) logs() {
	self, err := os.Executable()
	fail(err)
	for _, m := range []struct {
		what      string
		must, aim limit
		argv      []string
	}{
		{fmt.Sprintf("log: %d MiB of zeros", b.zeros>>20), times(1.5), times(1.15),
			[]string{"head", "-c", strconv.FormatInt(b.zeros, 10), "/dev/zero"}},
		{fmt.Sprintf("log: %g million lines", float64(b.lines)/1e6), times(1.15), times(1),
			[]string{"seq", "1", strconv.FormatInt(b.lines, 10)}},
		{fmt.Sprintf("log: %g million writes of 100 bytes", float64(b.writes)/1e6), times(1.05), times(0.95),
			[]string{self, writeWord, strconv.FormatInt(b.writes, 10), "100"}},
	} {
		ts := b.setup(b.tools())
		took := map[string]sample{}
		var size int64
		failed := inTurn(b.rounds, ts, func(t tool) error {
			begun := time.Now()
			id, err := t.Start(m.argv...)
			if err != nil {
				return err
			}
			_, err = t.Wait(id, patience)
			done := time.Since(begun)
			name := t.Log(id)
			if err != nil || name == "" {
				return err
			}
			st, err := os.Stat(name)
			if err != nil {
				return err
			}
			_ = os.Remove(name)
			if t.Name() == floorName {
				size = st.Size()
			} else if st.Size() < size {
				return fmt.Errorf("%d bytes of the output are not in the log", size-st.Size())
			}
			took[t.Name()] = append(took[t.Name()], done)
			return nil
		})
		b.ratios(m.what, m.must, m.aim, took, failed)
		closeAll(ts)
	}
}

func (b *bench) memory() {
	memory := row{measure: fmt.Sprintf("memory per running job, %d running", b.running),
		must: limit{"700 kB", 700}, aim: limit{"560 kB", 560}, cells: map[string]string{}}
	processes := row{measure: "processes per running job", must: limit{"1", 1}, cells: map[string]string{}}
	ticks := row{measure: fmt.Sprintf("idle: ticks in %s, all together", b.idle), must: limit{"0", 0}, cells: map[string]string{}}
	switches := row{measure: "idle: voluntary switches per runner and minute", must: limit{"3", 3}, cells: map[string]string{}}
	for _, t := range b.tools() {
		ts := b.setup([]tool{t})
		if len(ts) == 0 {
			continue
		}
		if err := b.fill(t); err != nil {
			say("  %s: %v", t.Name(), err)
			memory.cells[t.Name()] = "failed"
			closeAll(ts)
			continue
		}
		time.Sleep(2 * time.Second) // what a start leaves to be done
		reapOrphans()
		runners := func() (n, kB int, ticks int64, voluntarily int) {
			for _, p := range descendants() {
				if p.name != "sleep" {
					n, kB, ticks, voluntarily = n+1, kB+pss(p.pid), ticks+p.ticks, voluntarily+voluntary(p.pid)
				}
			}
			return
		}
		n, kB, ticks0, voluntary0 := runners()
		per := func(x float64) float64 { return x / float64(b.running) }
		memory.cells[t.Name()] = fmt.Sprintf("%.0f kB", per(float64(kB)))
		processes.cells[t.Name()] = fmt.Sprintf("%.3g", per(float64(n)))
		if t.Name() == ours {
			time.Sleep(b.idle)
			_, _, ticks1, voluntary1 := runners()
			memory.got, processes.got, ticks.got = per(float64(kB)), per(float64(n)), float64(ticks1-ticks0)
			switches.got = per(float64(voluntary1-voluntary0)) / b.idle.Minutes()
			ticks.cells[ours] = fmt.Sprint(ticks1 - ticks0)
			switches.cells[ours] = fmt.Sprintf("%.2f", switches.got)
		}
		closeAll(ts)
	}
	b.rows = append(b.rows, memory, processes, ticks, switches)
}

// fill starts the jobs of memory and waits until each has its process.
func (b *bench) fill(t tool) error {
	for range b.running {
		if _, err := t.Start("sleep", "600"); err != nil {
			return err
		}
	}
	reapOrphans()
	if !poll(30*time.Second, 50*time.Millisecond, func() bool { return named("sleep") >= b.running }) {
		return fmt.Errorf("only %d of %d jobs run", named("sleep"), b.running)
	}
	return nil
}

// one sets space-job up alone; nil if it is not there.
func (b *bench) one() *spaceJob {
	t := &spaceJob{path: b.spaceJob}
	if len(b.setup(b.tools(t))) == 0 {
		say("  there is no space-job here")
		return nil
	}
	return t
}

// endedJob runs a job to its end and returns its id and its files.
func (t *spaceJob) endedJob() (id string, files map[string][]byte) {
	id, err := t.Start("seq", "1000")
	fail(err)
	_, err = t.Wait(id, 20*time.Second)
	fail(err)
	dir := t.file(id, "")
	poll(5*time.Second, time.Millisecond, func() bool { // the runner tidies up after the end
		_, err := os.Lstat(filepath.Join(dir, "pipe"))
		return err != nil
	})
	time.Sleep(20 * time.Millisecond)
	entries, err := os.ReadDir(dir)
	fail(err)
	files = map[string][]byte{}
	for _, e := range entries {
		if e.Type().IsRegular() {
			files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
			fail(err)
		}
	}
	return id, files
}

// copyJob makes another ended job, n units of 1/65536 s older.
func (t *spaceJob) copyJob(id string, files map[string][]byte, n int64) (newID string) {
	ticks, err := strconv.ParseInt(id[1:], 16, 64)
	fail(err)
	newID = fmt.Sprintf("j%012x", ticks-n)
	fail(os.Mkdir(t.file(newID, ""), 0o700))
	for name, b := range files {
		if name == "cmd" {
			b = bytes.ReplaceAll(b, []byte(id), []byte(newID))
		}
		fail(os.WriteFile(t.file(newID, name), b, 0o600))
	}
	return newID
}

// timed runs a program and throws its output away.
func timed(env []string, argv ...string) (time.Duration, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	begun := time.Now()
	if err := begin(cmd); err != nil {
		return 0, err
	}
	err := finish(cmd)
	return time.Since(begun), err
}

func (b *bench) list() {
	t := b.one()
	if t == nil {
		return
	}
	id, files := t.endedJob()
	for i := range b.ended - 1 {
		t.copyJob(id, files, int64(i+1)*65536)
	}
	var bare, newest, all sample
	for i := range 23 {
		d, err := timed(nil, "ls", "-f", filepath.Join(t.dir, "home", "jobs"))
		fail(err)
		e, err := timed(t.env, t.path, "list", "-n", "20")
		fail(err)
		if i < 2 {
			continue
		}
		bare, newest = append(bare, d), append(newest, e)
		if i < 7 {
			d, err = timed(t.env, t.path, "list", "--all")
			fail(err)
			all = append(all, d)
		}
	}
	x := newest.median().Seconds() / bare.median().Seconds()
	b.add(row{measure: fmt.Sprintf("newest 20 of %d jobs, against ls -f", b.ended), must: times(4), aim: times(2), got: x,
		cells: map[string]string{ours: fmt.Sprintf("x%.2f %s", x, short(newest.median())), floorName: short(bare.median())}})
	b.add(row{measure: fmt.Sprintf("all of %d jobs", b.ended), cells: map[string]string{ours: short(all.median())}})
}

var logBytes = regexp.MustCompile(`"log_bytes": ?[0-9]+`)

// withLog makes a job whose log has this size: a hole, and lines at its end.
func (t *spaceJob) withLog(id string, files map[string][]byte, age, size int64) string {
	with := map[string][]byte{}
	for name, b := range files {
		with[name] = b
	}
	with["exit"] = logBytes.ReplaceAll(files["exit"], fmt.Appendf(nil, `"log_bytes":%d`, size))
	with["log"] = nil
	id = t.copyJob(id, with, age)
	f, err := os.OpenFile(t.file(id, "log"), os.O_WRONLY, 0)
	fail(err)
	tail := bytes.Repeat([]byte("a line of the log, neither short nor long\n"), 119)
	_, err = f.WriteAt(tail, size-int64(len(tail)))
	fail(errors.Join(err, f.Close()))
	return id
}

func (b *bench) read() {
	t := b.one()
	if t == nil {
		return
	}
	const small = 5000
	id, files := t.endedJob()
	little := t.withLog(id, files, 65536, small)
	large := t.withLog(id, files, 2*65536, b.big)
	for _, m := range []struct {
		what string
		argv func(id string, size int64) []string
	}{
		{"read at the end of", func(id string, size int64) []string {
			return []string{"logs", id, "--offset", strconv.FormatInt(size-4000, 10)}
		}},
		{"status at the end of", func(id string, _ int64) []string { return []string{"status", id} }},
	} {
		var littles, larges sample
		var littleKB, largeKB int64
		for range 21 {
			d, kB, err := peakMemory(t.env, append([]string{t.path}, m.argv(little, small)...)...)
			fail(err)
			littles, littleKB = append(littles, d), max(littleKB, kB)
			d, kB, err = peakMemory(t.env, append([]string{t.path}, m.argv(large, b.big)...)...)
			fail(err)
			larges, largeKB = append(larges, d), max(largeKB, kB)
		}
		x := larges.median().Seconds() / littles.median().Seconds()
		what := fmt.Sprintf("%s %.3g GiB, against 5 kB", m.what, float64(b.big)/(1<<30))
		// The same, but for what one median differs from the next.
		b.add(row{measure: what + ": time", must: limit{"same", 1.2}, aim: limit{"same", 1.1}, got: x,
			cells: map[string]string{ours: fmt.Sprintf("x%.2f %s", x, short(larges.median()))}})
		y := float64(largeKB) / float64(littleKB)
		b.add(row{measure: what + ": memory", must: limit{"same", 1.2}, aim: limit{"same", 1.1}, got: y,
			cells: map[string]string{ours: fmt.Sprintf("x%.2f %d kB", y, largeKB)}})
	}
}

func (b *bench) follow() {
	self, err := os.Executable()
	fail(err)
	const lines = 60
	ts := b.setup(b.tools(&floor{}, &spaceJob{path: b.spaceJob}))
	defer closeAll(ts)
	stream := row{measure: "follow: byte written to byte returned", must: within(20 * time.Millisecond),
		aim: within(5 * time.Millisecond), cells: map[string]string{}}
	asked := row{measure: "the same, one call with --follow-ms", must: stream.must, aim: stream.aim, cells: map[string]string{}}
	for _, t := range ts {
		id, err := t.Start(self, stampWord, strconv.Itoa(lines))
		fail(err)
		argv := []string{"tail", "-n", "+1", "-f", t.Log(id)}
		env := os.Environ()
		if s, ok := t.(*spaceJob); ok {
			argv, env = []string{s.path, "logs", id, "-f"}, s.env
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = env
		out, err := cmd.StdoutPipe()
		fail(err)
		fail(begin(cmd))
		var s sample
		in := bufio.NewReader(out)
		for i := range lines {
			line, err := in.ReadString('\n')
			late := since(line)
			fail(err)
			if i > 2 {
				s = append(s, late)
			}
		}
		_ = cmd.Process.Kill()
		_ = finish(cmd)
		stream.cells[t.Name()] = short(s.median())
		if t.Name() == ours {
			stream.got = s.median().Seconds()
		}
	}
	if t, ok := ts[len(ts)-1].(*spaceJob); ok {
		id, err := t.Start(self, stampWord, strconv.Itoa(lines/2))
		fail(err)
		var s sample
		offset := 0
		for range lines / 4 {
			out, err := call(t.env, t.path, "logs", id, "--offset", strconv.Itoa(offset), "--follow-ms", "5000")
			fail(err)
			offset += len(out) + 1
			s = append(s, since(out[strings.LastIndexByte(out, '\n')+1:]))
		}
		asked.cells[ours], asked.got = short(s.median()), s.median().Seconds()
	}
	b.rows = append(b.rows, stream, asked)
}

// A job of ours is this program again: writing, or saying what time it is.
const (
	writeWord = "write-as-told"
	stampWord = "say-the-time"
)

func writeAsTold() bool {
	if len(os.Args) < 3 {
		return false
	}
	n, _ := strconv.Atoi(os.Args[2])
	switch os.Args[1] {
	case writeWord:
		size, _ := strconv.Atoi(os.Args[3])
		line := append(bytes.Repeat([]byte("x"), size-1), '\n')
		for range n {
			if _, err := os.Stdout.Write(line); err != nil {
				os.Exit(1)
			}
		}
	case stampWord:
		for i := range n {
			time.Sleep(80*time.Millisecond + time.Duration(i%7)*3*time.Millisecond) // out of step with any poll
			fmt.Println(time.Now().UnixNano())
		}
	default:
		return false
	}
	return true
}

func since(stamp string) time.Duration {
	n, err := strconv.ParseInt(strings.TrimSpace(stamp), 10, 64)
	fail(err)
	return time.Duration(time.Now().UnixNano() - n)
}

// tree is a job of four processes, two of them in sessions of their own.
const tree = `sleep 601 & setsid sleep 602 & setsid setsid sleep 603 & exec sleep 604`

func (b *bench) cancel() {
	ts := b.setup(b.tools())
	defer closeAll(ts)
	r := row{measure: "cancel of a tree that obeys TERM", must: within(100 * time.Millisecond),
		aim: within(20 * time.Millisecond), cells: map[string]string{}}
	took, left := map[string]sample{}, map[string]int{}
	failed := inTurn(b.rounds+2, ts, func(t tool) error {
		id, err := t.Start("sh", "-c", tree)
		if err != nil {
			return err
		}
		if !poll(10*time.Second, 5*time.Millisecond, func() bool { return named("sleep") == 4 }) {
			return errors.New("the job did not come up")
		}
		defer killSleeps()
		stop := reapMeanwhile()
		defer stop()
		begun := time.Now()
		if err := t.Stop(id); err != nil {
			return err
		}
		done := time.Since(begun)
		if t.Name() == ours { // it has promised to return when nothing is left
			left[ours] = max(left[ours], named("sleep"))
		} else if poll(2*time.Second, time.Millisecond, func() bool { done = time.Since(begun); return named("sleep") == 0 }) {
			left[t.Name()] = max(left[t.Name()], 0)
		} else {
			left[t.Name()] = max(left[t.Name()], named("sleep"))
		}
		took[t.Name()] = append(took[t.Name()], done)
		return nil
	})
	for _, t := range ts {
		name := t.Name()
		switch {
		case errors.Is(failed[name], errNoStop):
		case failed[name] != nil:
			say("  %s: %v", name, failed[name])
			r.cells[name] = "failed"
		case left[name] > 0:
			r.cells[name] = fmt.Sprintf("%d of 4 left", left[name])
			if name == ours {
				r.got = 1e9
			}
		default:
			r.cells[name] = short(took[name].median())
			if name == ours {
				r.got = took[name].median().Seconds()
			}
		}
	}
	b.add(r)
}
