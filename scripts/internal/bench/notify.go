//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// notify measures the daemon: how soon after the end of a job its message is in
// the thread, how long a thousand of them take, and what it costs while all of
// them run.
func (b *bench) notify() {
	b.waiters()
	t := b.one()
	if t == nil {
		return
	}
	home := filepath.Join(t.dir, "home")
	_, err := call(t.env, t.path, "daemon", "--detach")
	fail(err)
	defer func() { _, _ = call(t.env, t.path, "daemon", "stop") }()
	entries := func() int {
		log, _ := os.ReadFile(filepath.Join(home, "thread", "log"))
		return bytes.Count(log, []byte{'\n'})
	}
	start := func(argv ...string) string {
		id, err := call(t.env, append([]string{t.path, "start", "--notify", "--"}, argv...)...)
		fail(err)
		return id
	}

	var took sample
	for i := range b.starts {
		id := start("sleep", "0.2")
		if !poll(patience, 100*time.Microsecond, func() bool { _, err := os.Stat(t.file(id, "exit")); return err == nil }) {
			fail(errTooLong)
		}
		ended := time.Now()
		if !poll(patience, 100*time.Microsecond, func() bool { return entries() > i }) {
			fail(errTooLong)
		}
		took = append(took, time.Since(ended))
		reapOrphans()
	}
	b.add(row{measure: "end of a job to its entry in the thread", must: within(50 * time.Millisecond), aim: within(10 * time.Millisecond),
		got: took.median().Seconds(), cells: map[string]string{ours: short(took.median())}})

	var daemon struct{ PID int }
	lock, err := os.ReadFile(filepath.Join(home, "daemon.lock"))
	fail(err)
	fail(json.Unmarshal(lock, &daemon))
	idle := func() (ticks int64) {
		time.Sleep(b.idle) // what the last starts have left to be done is done within a sweep
		p0, ok := readProcess(daemon.PID)
		time.Sleep(b.idle)
		p1, still := readProcess(daemon.PID)
		if !ok || !still {
			fail(fmt.Errorf("the daemon, process %d, is gone", daemon.PID))
		}
		return p1.ticks - p0.ticks
	}
	ticks := idle()
	b.add(row{measure: fmt.Sprintf("idle: ticks of the daemon in %s", b.idle), must: limit{"0", 0},
		got: float64(ticks), cells: map[string]string{ours: strconv.FormatInt(ticks, 10)}})

	// All of them wait for one FIFO that nobody writes to, and end when it closes.
	fifo := filepath.Join(t.dir, "fifo")
	fail(syscall.Mkfifo(fifo, 0o600))
	gate, err := os.OpenFile(fifo, os.O_RDWR, 0)
	fail(err)
	before := entries()
	for range b.followed {
		start("cat", fifo)
		reapOrphans()
	}
	ticks = idle()
	size := float64(pss(daemon.PID))
	b.add(row{measure: fmt.Sprintf("memory of the daemon, %d followed jobs", b.followed), must: limit{"40 MB", 40e3}, aim: limit{"20 MB", 20e3},
		got: size, cells: map[string]string{ours: fmt.Sprintf("%.1f MB", size/1e3)}})
	b.add(row{measure: fmt.Sprintf("idle: ticks of the daemon in %s, %d followed jobs", b.idle, b.followed),
		cells: map[string]string{ours: strconv.FormatInt(ticks, 10)}})

	began := time.Now()
	fail(gate.Close())
	defer reapMeanwhile()()
	if !poll(patience, 10*time.Millisecond, func() bool { return entries() >= before+b.followed }) {
		fail(errTooLong)
	}
	all := time.Since(began)
	b.add(row{measure: fmt.Sprintf("%d jobs ending together: all entries", b.followed), must: within(10 * time.Second), aim: within(2 * time.Second),
		got: all.Seconds(), cells: map[string]string{ours: short(all)}})
}

// waiters: from the end of a job's command to the return of the one who waits for
// the job.
func (b *bench) waiters() {
	ts := b.setup(b.tools(&floor{}, &spaceJob{path: b.spaceJob}, &gob{}))
	defer closeAll(ts)
	took := map[string]sample{}
	failed := inTurn(2*b.rounds+3, ts, func(t tool) error {
		fifo := filepath.Join(t.folder(), "gate"+strconv.Itoa(len(took[t.Name()])))
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			return err
		}
		gate, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer gate.Close()
		id, err := t.Start("cat", fifo)
		if err != nil {
			return err
		}
		wait := []string{"sh", "-c", `until test -e "$0"; do sleep 1; done`, id + ".exit"}
		var env []string
		switch t := t.(type) {
		case *spaceJob:
			env, wait = t.env, []string{t.path, "wait", id}
		case *gob:
			env, wait = t.env, []string{"gob", "await", id}
		}
		returned := make(chan error, 1)
		go func() {
			_, err := call(env, wait...)
			returned <- err
		}()
		// Both have begun to wait, out of step with any poll.
		time.Sleep(500*time.Millisecond + time.Duration(len(took[t.Name()])*137%1000)*time.Millisecond)
		begun := time.Now()
		if err := gate.Close(); err != nil {
			return err
		}
		select {
		case err = <-returned:
		case <-time.After(20 * time.Second):
			err = errTooLong
		}
		took[t.Name()] = append(took[t.Name()], time.Since(begun))
		return err
	})
	r := row{measure: "end of a job to its waiter's return", cells: map[string]string{}}
	for _, t := range ts {
		r.cells[t.Name()] = short(took[t.Name()].median())
		if err := failed[t.Name()]; err != nil {
			say("  %s: %v", t.Name(), err)
			r.cells[t.Name()] = "failed"
		}
	}
	b.add(r)
}
