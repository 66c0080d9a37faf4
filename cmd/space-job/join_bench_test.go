package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link/carrier"
	"space-job/jobdir"
	"space-job/notify"
)

// joinedActions are children of s, each with one member, whose calls are made by
// this process.
func joinedActions(t testing.TB, s *space, n int) []*api.Actions {
	t.Helper()
	parent, err := api.OpenRoot(s.root)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*api.Actions, n)
	for i := range all {
		v, err := parent.Invite(api.InviteRequest{})
		if err != nil {
			t.Fatal(err)
		}
		root := filepath.Join(t.TempDir(), "root")
		a, err := api.OpenRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		a.Carry(carrier.Do)
		// No daemon: this process is one.
		r, err := jobdir.OpenRoot(root)
		if err == nil {
			err = r.Create()
		}
		if err == nil {
			err = notify.SetStopped(r, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("a%d", i)
		if _, err := a.Join(context.Background(), api.JoinRequest{Link: v.Link, Member: name}); err != nil {
			t.Fatal(err)
		}
		if all[i], err = a.As(name); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// cpuOf is the CPU time of a process so far.
func cpuOf(t testing.TB, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Skip(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	sys, _ := strconv.Atoi(f[12])
	return time.Duration(user+sys) * 10 * time.Millisecond
}

// BenchmarkLink: 50 children each wait for what their member is to be woken for,
// as their daemons do; and then each post once a second and follow the thread, too,
// for ten seconds. It reports what that costs the parent's daemon, and how long a
// post takes to a follower: of a child alone, and of all at once.
func BenchmarkLink(b *testing.B) {
	const (
		children = 50
		seconds  = 10
	)
	s := newSpace(b)
	s.run("daemon", "--detach", "--http", "0")
	root, err := jobdir.OpenRoot(s.root)
	if err != nil {
		b.Fatal(err)
	}
	daemon, _ := notify.DaemonOf(root)
	all := joinedActions(b, s, children)

	for range b.N {
		ctx, stop := context.WithCancel(context.Background())
		var mu sync.Mutex
		var took []time.Duration
		follow := func(a *api.Actions, wg *sync.WaitGroup) {
			read, err := a.ThreadRead(ctx, api.ThreadRequest{N: 1})
			after := read.Cursor
			wg.Done()
			for ctx.Err() == nil && err == nil {
				read, err = a.ThreadRead(ctx, api.ThreadRequest{After: &after, N: 1000, FollowMS: api.MaxFollowMS})
				now := time.Now().UnixNano()
				after = read.Cursor
				mu.Lock()
				for _, e := range read.Entries {
					if sent, err := strconv.ParseInt(e.Text, 10, 64); err == nil {
						took = append(took, time.Duration(now-sent))
					}
				}
				mu.Unlock()
			}
			if ctx.Err() == nil {
				b.Error(err)
			}
		}
		report := func(name string) {
			mu.Lock()
			defer mu.Unlock()
			slices.Sort(took)
			if len(took) > 0 {
				b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, name+"-ms-median")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, name+"-ms-p99")
			}
			took = nil
		}
		post := func(a *api.Actions) {
			if _, err := a.ThreadPost(api.PostRequest{Text: strconv.FormatInt(time.Now().UnixNano(), 10)}); err != nil {
				b.Error(err)
			}
		}
		var ready, done sync.WaitGroup
		for i, a := range all {
			done.Go(func() {
				for ctx.Err() == nil {
					if _, _, err := a.ArrivalsAbove(ctx, fmt.Sprintf("a%d", i), []string{}); err != nil && ctx.Err() == nil {
						b.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		before, began := cpuOf(b, daemon.PID), time.Now()
		time.Sleep(3 * time.Second)
		b.ReportMetric(100*float64(cpuOf(b, daemon.PID)-before)/float64(time.Since(began)), "idle-%-of-a-core")
		ready.Add(1)
		done.Go(func() { follow(all[1], &ready) })
		ready.Wait()
		for range 20 {
			post(all[0])
			time.Sleep(200 * time.Millisecond)
		}
		report("one")
		ready.Add(children - 1)
		for i, a := range all {
			if i != 1 {
				done.Go(func() { follow(a, &ready) })
			}
		}
		ready.Wait()
		before, began = cpuOf(b, daemon.PID), time.Now()
		var posting sync.WaitGroup
		for i, a := range all {
			posting.Go(func() {
				time.Sleep(time.Duration(i) * time.Second / children)
				for tick := time.Now(); time.Since(began) < seconds*time.Second; {
					post(a)
					tick = tick.Add(time.Second)
					time.Sleep(time.Until(tick))
				}
			})
		}
		posting.Wait()
		cpu := cpuOf(b, daemon.PID) - before
		b.ReportMetric(100*float64(cpu)/float64(time.Since(began)), "%-of-a-core")
		report("all")
		stop()
		done.Wait()
	}
}
