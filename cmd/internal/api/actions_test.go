package api

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// madeJob writes the directory of a job that ended at a time.
func madeJob(t *testing.T, root string, created, ended time.Time, outer jobdir.ID) jobdir.ID {
	t.Helper()
	id := record.NewID(created)
	dir := filepath.Join(root, record.Jobs, string(id))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(root, record.Keys), 0o700); err != nil {
		t.Fatal(err)
	}
	zero := 0
	cmd := jobdir.Cmd{Format: 1, ID: id, Argv: []string{"true"}, Cwd: "/", CreatedAt: created}
	cmd.StartedBy.Job = string(outer)
	for name, content := range map[string][]byte{
		record.Cmd:    cmd.Marshal(),
		record.Pid:    record.ProcessRecord{StartedAt: created}.Append(nil),
		record.Log:    []byte("word\n"),
		record.Cancel: nil,
		record.Timing: record.TimingRecord{StartedAt: created, EndedAt: ended, DurationMS: ended.Sub(created).Milliseconds()}.Append(nil),
		record.Exit:   record.ExitRecord{State: record.Exited, ExitCode: &zero, LogBytes: 5, At: ended}.Append(nil),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func actions(t *testing.T) *Actions {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestOverdue: a list says when nobody prunes, and not before.
func TestOverdue(t *testing.T) {
	a := actions(t)
	now := time.Now()
	for i := range 30 {
		at := now.Add(-time.Duration(i) * time.Minute)
		madeJob(t, a.root.Path(), at, at, "")
	}
	week := now.Add(-7*24*time.Hour - time.Hour)
	madeJob(t, a.root.Path(), week, week, "")
	long := now.Add(-20 * 24 * time.Hour)
	madeJob(t, a.root.Path(), long, now.Add(-time.Hour), "") // it ran for long
	res, err := a.List(ListRequest{})
	if err != nil || len(res.Jobs) != 20 || res.More != 12 || len(res.Warnings) != 0 {
		t.Errorf("%d jobs, %d more, %q, %v", len(res.Jobs), res.More, res.Warnings, err)
	}
	old := now.Add(-9 * 24 * time.Hour)
	madeJob(t, a.root.Path(), old, old, "")
	res, err = a.List(ListRequest{})
	if err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "prune") {
		t.Errorf("%q, %v", res.Warnings, err)
	}
	pruned, err := a.Prune(PruneRequest{})
	if err != nil || len(pruned.Removed) != 2 || pruned.Kept != 31 {
		t.Errorf("%+v, %v", pruned, err)
	}
}

// TestListOrder: however many jobs are read at once, the newest comes first.
func TestListOrder(t *testing.T) {
	a := actions(t)
	now := time.Now()
	var all, whole []jobdir.ID
	for i := range 100 {
		at := now.Add(-time.Duration(i) * time.Minute)
		id := madeJob(t, a.root.Path(), at, at, "")
		all = append(all, id)
		if i%3 != 0 {
			whole = append(whole, id)
		} else if err := os.Remove(filepath.Join(a.root.Job(id).Dir(), record.Cmd)); err != nil {
			t.Fatal(err)
		}
	}
	exited := []string{string(jobdir.Exited)}
	for _, c := range []struct {
		req  ListRequest
		want []jobdir.ID
		more int
	}{
		{ListRequest{All: true}, all, 0},
		{ListRequest{N: 30}, all[:30], 70},
		{ListRequest{All: true, States: exited}, whole, 0},
		{ListRequest{N: 30, States: exited}, whole[:30], 36},
		{ListRequest{States: []string{string(jobdir.Lost)}}, nil, 0},
	} {
		res, err := a.List(c.req)
		var got []jobdir.ID
		for i := range res.Jobs {
			got = append(got, res.Jobs[i].Job)
		}
		if err != nil || !slices.Equal(got, c.want) || res.More != c.more {
			t.Errorf("%+v: %v and %d more, %v; want %v and %d more", c.req, got, res.More, err, c.want, c.more)
		}
	}
}

// TestBefore: how long the same command took, in the same place.
func TestBefore(t *testing.T) {
	a := actions(t)
	now := time.Now()
	madeJob(t, a.root.Path(), now.Add(-time.Hour), now.Add(-50*time.Minute), "")
	madeJob(t, a.root.Path(), now.Add(-30*time.Minute), now.Add(-25*time.Minute), "")
	this := madeJob(t, a.root.Path(), now, now, "")
	if d, ok := a.Before(string(this)); !ok || d != 5*time.Minute {
		t.Errorf("%v, %v", d, ok)
	}
	first := madeJob(t, a.root.Path(), now.Add(-2*time.Hour), now, "")
	if d, ok := a.Before(string(first)); ok {
		t.Errorf("nothing came before, and it took %v", d)
	}
}

// TestInner: jobs from within are found through jobs that have ended, and a
// circle in damaged records ends.
func TestInner(t *testing.T) {
	a := actions(t)
	now := time.Now()
	outer := madeJob(t, a.root.Path(), now, now, "")
	middle := madeJob(t, a.root.Path(), now.Add(time.Second), now, outer)
	madeJob(t, a.root.Path(), now.Add(2*time.Second), now, record.NewID(now.Add(2*time.Second)))
	inner := madeJob(t, a.root.Path(), now.Add(3*time.Second), now, middle)
	other := madeJob(t, a.root.Path(), now.Add(4*time.Second), now, "")
	for _, id := range []jobdir.ID{inner, other} {
		running(t, a.root.Job(id).Dir())
	}
	got, err := a.inner(outer)
	if err != nil || len(got) != 1 || got[0].ID() != inner {
		t.Errorf("%v, %v, want %s", got, err, inner)
	}
	if got, err := a.inner(inner); err != nil || len(got) != 0 {
		t.Errorf("%v, %v, want none", got, err)
	}
}

// running makes a job look like one that runs: no end, and the lock held.
func running(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{record.Exit, record.Timing} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, record.Pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := record.Lock(int(f.Fd())); err != nil {
		t.Fatal(err)
	}
}

// TestEntryOfLost: of a lost job nothing is made up, whatever files it has.
func TestEntryOfLost(t *testing.T) {
	now := time.Now()
	e := entry(&jobdir.Info{State: jobdir.Lost, Timing: &record.TimingRecord{StartedAt: now, EndedAt: now}, Exit: &record.ExitRecord{State: jobdir.Lost, At: now}})
	if e.ExitCode != nil || e.EndedAt != nil || e.DurationMS != nil || e.Left != nil || e.LogBytesAtEnd != nil || e.RecordedAt == nil {
		t.Errorf("%+v", e)
	}
	if _, ok := e.Elapsed(now); ok {
		t.Error("a duration")
	}
}
