//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// watch starts a watcher and waits until it says that it waits.
func (t *spaceJob) watch(flags ...string) (id string, err error) {
	id, err = call(t.env, append([]string{t.path, "start"}, flags...)...)
	if err == nil && !poll(20*time.Second, time.Millisecond, func() bool {
		b, _ := os.ReadFile(t.file(id, "log"))
		return bytes.Count(b, []byte("\n")) >= 2
	}) {
		err = errors.New("the watcher says nothing")
	}
	return id, err
}

// until measures what waiting costs, and how soon it is over.
func (b *bench) until() {
	b.untilFile()
	b.idleWatchers()
}

// untilFile: from a file's appearance to the recorded end of the job that waits
// for it, beside the loop that people write.
func (b *bench) untilFile() {
	ts := b.setup(b.tools(&floor{}, &spaceJob{path: b.spaceJob}, &gob{}))
	defer closeAll(ts)
	r := row{measure: "file appears to the watcher's end", must: within(50 * time.Millisecond),
		aim: within(10 * time.Millisecond), cells: map[string]string{}}
	took := map[string]sample{}
	failed := inTurn(4*b.rounds+3, ts, func(t tool) error {
		file := filepath.Join(t.folder(), "appears")
		_ = os.Remove(file)
		var id string
		var err error
		if s, ok := t.(*spaceJob); ok {
			id, err = s.watch("--timeout", "60", "--until-file", file)
		} else {
			id, err = t.Start("sh", "-c", `until test -e "$1"; do sleep 1; done`, "sh", file)
		}
		if err != nil {
			return err
		}
		// Out of step with any poll.
		time.Sleep(100*time.Millisecond + time.Duration(len(took[t.Name()])*137%1000)*time.Millisecond)
		begun := time.Now()
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return err
		}
		end, err := t.Wait(id, 20*time.Second)
		if err == nil && end != "0" {
			err = fmt.Errorf("it ended with %s", end)
		}
		took[t.Name()] = append(took[t.Name()], time.Since(begun))
		return err
	})
	for _, t := range ts {
		name := t.Name()
		r.cells[name] = short(took[name].median())
		if err := failed[name]; err != nil {
			say("  %s: %v", name, err)
			r.cells[name] = "failed"
		}
	}
	r.got = took[ours].median().Seconds()
	b.add(r)
}

// idleWatchers: what a hundred of them take while nothing happens, half of them
// for files and half for ports; with as many shell loops.
func (b *bench) idleWatchers() {
	ts := b.setup(b.tools(&floor{}, &spaceJob{path: b.spaceJob}))
	part := b.idle.Seconds() / 30
	r := row{measure: fmt.Sprintf("idle: CPU of %d file and port watchers in %s", b.running, b.idle),
		must: limit{short(time.Duration(0.6 * part * 1e9)), 0.6 * part}, aim: limit{short(time.Duration(0.2 * part * 1e9)), 0.2 * part}, cells: map[string]string{}}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	port := free.Addr().(*net.TCPAddr).Port // nobody listens there once it is closed
	fail(free.Close())
	for _, t := range ts {
		err := func() error {
			for i := range b.running {
				file := filepath.Join(t.folder(), "never"+strconv.Itoa(i))
				s, ok := t.(*spaceJob)
				var err error
				switch {
				case ok && i%2 == 0:
					_, err = s.watch("--timeout", "1h", "--until-file", file)
				case ok:
					_, err = s.watch("--timeout", "1h", "--until-port", strconv.Itoa(port))
				default:
					_, err = t.Start("sh", "-c", `until test -e "$1"; do sleep 1; done`, "sh", file)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			say("  %s: %v", t.Name(), err)
			r.cells[t.Name()] = "failed"
			continue
		}
		time.Sleep(3 * time.Second) // what a start leaves to be done
		reapOrphans()
		before := usedByWaiting(t)
		time.Sleep(b.idle)
		used := usedByWaiting(t) - before
		r.cells[t.Name()] = short(used)
		if t.Name() == ours {
			r.got = used.Seconds()
		}
		t.Close()
		killDescendants()
	}
	b.add(r)
}

// usedByWaiting is the CPU time of watchers and their runners; of a shell loop
// that of its shells, and what their ended children took.
func usedByWaiting(t tool) (used time.Duration) {
	for _, p := range descendants() {
		if t.Name() == ours {
			used += onCPU(p.pid)
		} else {
			used += time.Duration(p.ticks+childTicks(p.pid)) * 10 * time.Millisecond
		}
	}
	return used
}

// onCPU is how long the threads of a process have run, to the nanosecond: in
// ticks of 10 ms a watcher's share is too small to be seen.
func onCPU(pid int) (d time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, t := range threads {
		b, _ := os.ReadFile(t)
		if f := strings.Fields(string(b)); len(f) > 0 {
			n, _ := strconv.ParseInt(f[0], 10, 64)
			d += time.Duration(n)
		}
	}
	return d
}

// childTicks are those of the children that a process has waited for.
func childTicks(pid int) int64 {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	s := string(stat)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 15 {
		return 0
	}
	user, _ := strconv.ParseInt(f[13], 10, 64)
	system, _ := strconv.ParseInt(f[14], 10, 64)
	return user + system
}
