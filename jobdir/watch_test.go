package jobdir

import (
	"context"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"space-job/jobdir/record"
)

// eachWatch runs a test with what the kernel reports, and without.
func eachWatch(t *testing.T, f func(t *testing.T, j *Job, watch func() *Watch)) {
	t.Run("reported", func(t *testing.T) {
		j := makeJob(t, newRoot(t), testID, map[string]string{record.ReservedExit: ""})
		f(t, j, func() *Watch {
			w := j.Watch()
			if w.hints == nil {
				t.Skip("the kernel has no more watches to give")
			}
			return w
		})
	})
	t.Run("polled", func(t *testing.T) {
		j := makeJob(t, newRoot(t), testID, map[string]string{record.ReservedExit: ""})
		f(t, j, func() *Watch {
			w := j.watch("/nowhere")
			if w.hints != nil {
				t.Fatal("watches nothing")
			}
			return w
		})
	})
}

// TestWatchFollows: a byte that is written comes back soon.
func TestWatchFollows(t *testing.T) {
	eachWatch(t, func(t *testing.T, j *Job, watch func() *Watch) {
		w := watch()
		defer w.Close()
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		written := make(chan time.Time)
		go func() {
			log, err := os.OpenFile(j.path(record.Log), os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
			}
			defer log.Close()
			for range 20 {
				at := time.Now()
				if _, err := log.WriteString("x"); err != nil {
					t.Error(err)
				}
				written <- at
			}
			close(written)
		}()
		var offset, want int64
		var worst time.Duration
		for at := range written {
			for want++; offset < want; {
				r, err := j.ReadLog(offset, 100)
				if err != nil {
					t.Fatal(err)
				}
				if offset = r.Next; offset >= want {
					break
				}
				if err := w.Wait(ctx); err != nil {
					t.Fatal(err)
				}
			}
			worst = max(worst, time.Since(at))
		}
		if t.Log("slowest", worst); worst > 2*time.Second {
			t.Errorf("a byte came back after %v", worst)
		}
	})
}

func TestWaitEnd(t *testing.T) {
	now := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	t.Run("ended", func(t *testing.T) {
		j := makeJob(t, newRoot(t), testID, map[string]string{record.Exit: exitJSON(Exited, 0, now)})
		if s, err := j.WaitEnd(ctx); s != Exited || err != nil {
			t.Errorf("%s, %v", s, err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		if _, err := newRoot(t).Job(testID).WaitEnd(ctx); err != ErrNotFound {
			t.Error(err)
		}
	})
	t.Run("caller gone", func(t *testing.T) {
		j := makeJob(t, newRoot(t), testID, nil)
		hold(t, j.path(record.Pid))
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		if s, err := j.WaitEnd(short); s != Running || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, %v", s, err)
		}
	})
	// The end comes while somebody waits. Nothing tells when the waiter has
	// begun, and it must not matter.
	for _, reserved := range []string{"", missing} {
		t.Run("ends"+reserved, func(t *testing.T) {
			j := makeJob(t, newRoot(t), testID, map[string]string{record.ReservedExit: reserved})
			hold(t, j.path(record.Pid))
			go func() {
				_ = os.WriteFile(j.path("x"), []byte(exitJSON(TimedOut, "null", now)), 0o600)
				_ = os.Rename(j.path("x"), j.path(record.ReservedExit))
				_ = os.Rename(j.path(record.ReservedExit), j.path(record.Exit))
			}()
			if s, err := j.WaitEnd(ctx); s != TimedOut || err != nil {
				t.Errorf("%s, %v", s, err)
			}
		})
	}
	t.Run("killed", func(t *testing.T) {
		j := makeJob(t, newRoot(t), testID, map[string]string{record.ReservedExit: ""})
		release := hold(t, j.path(record.Pid))
		killed := make(chan time.Time, 1)
		time.AfterFunc(20*time.Millisecond, func() {
			killed <- time.Now()
			release()
		})
		s, err := j.WaitEnd(ctx)
		took := time.Since(<-killed)
		if s != Lost || err != nil || took > within/2 {
			t.Errorf("%s, %v, after %v", s, err, took)
		}
		t.Log("noticed after", took)
	})
}

// TestL8WatchIsFreed: what a watch holds goes with it, and a
// caller who goes takes its watch along.
func TestL8WatchIsFreed(t *testing.T) {
	before := runtime.NumGoroutine()
	eachWatch(t, func(t *testing.T, j *Job, watch func() *Watch) {
		for range 20 {
			w := watch()
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() {
				for {
					if err := w.Wait(ctx); err != nil {
						done <- err
						return
					}
				}
			}()
			cancel()
			start := time.Now()
			if err := <-done; err != context.Canceled || time.Since(start) > within/2 {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	// Others may still be on their way out.
	for start := time.Now(); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Since(start) > within {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
	}
}
