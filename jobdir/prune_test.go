package jobdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"space-job/jobdir/record"
)

func TestRecordLost(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	torn := exitJSON(Exited, 0, now)[:20]
	for _, c := range []struct {
		name     string
		files    map[string]string
		lock     string
		recorded bool
		err      error
		state    State
	}{
		{name: "lost", files: map[string]string{record.ReservedExit: "", record.Log: "12345"}, recorded: true, state: Lost},
		{name: "reserved by blanks", files: map[string]string{record.ReservedExit: strings.Repeat(" ", 4096)}, recorded: true, state: Lost},
		{name: "a recorder was killed before its rename", files: map[string]string{record.ReservedExit: exitJSON(Lost, "null", now.Add(-time.Hour))}, recorded: true, state: Lost},
		{name: "nothing reserved", recorded: true, state: Lost},
		{name: "torn", files: map[string]string{record.Exit: torn}, recorded: true, state: Lost},
		{name: "empty", files: map[string]string{record.Exit: "", record.ReservedExit: ""}, recorded: true, state: Lost},
		{name: "a link for exit", files: map[string]string{record.Exit: isSymlink}, recorded: true, state: Lost},
		{name: "a link for .exit", files: map[string]string{record.ReservedExit: isSymlink}, recorded: true, state: Lost},
		{name: "a FIFO for .exit", files: map[string]string{record.ReservedExit: isFIFO}, recorded: true, state: Lost},
		{name: "no pid", files: map[string]string{record.Pid: missing}, recorded: true, state: Lost},
		{name: "another recorder", lock: record.Cmd, state: Lost},
		{name: "running", lock: record.Pid, state: Running},
		{name: "ended", files: map[string]string{record.Exit: exitJSON(Exited, 7, now)}, state: Exited},
		{name: "newer", files: map[string]string{record.Cmd: `{"format":2}`}, err: ErrNewerFormat, state: Lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoot(t)
			j := makeJob(t, r, testID, c.files)
			release := func() {}
			if c.lock != "" {
				release = hold(t, j.path(c.lock))
			}
			recorded, err := j.RecordLost(now)
			if recorded != c.recorded || !errors.Is(err, c.err) {
				t.Errorf("recorded %v, %v", recorded, err)
			}
			info, err := j.Read()
			if err != nil || info.State != c.state {
				t.Errorf("then: %+v, %v", info, err)
			}
			release()
			if !c.recorded {
				return
			}
			if e := info.Exit; e == nil || e.ExitCode != nil || !e.At.Equal(now) || e.LogBytes != info.LogBytes {
				t.Errorf("the record: %+v", info.Exit)
			}
			if st, err := os.Lstat(j.path(record.Exit)); err != nil || st.Mode() != 0o600 {
				t.Errorf("exit: %v, %v", st, err)
			}
			if _, err := os.Lstat(j.path(record.ReservedExit)); !os.IsNotExist(err) {
				t.Errorf(".exit is still there: %v", err)
			}
			if again, err := j.RecordLost(now.Add(time.Hour)); again || err != nil {
				t.Errorf("recorded twice: %v, %v", again, err)
			}
			if problems, err := r.Check(); err != nil || len(problems) != 0 && c.name != "no pid" {
				t.Errorf("Check: %v, %v", problems, err)
			}
		})
	}
}

// TestRecordLostOnce: many recorders, one record, and no reader that takes
// one of them for a runner.
func TestRecordLostOnce(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	id := record.NewID(time.Now())
	for range 20 {
		id = id.Next()
		makeJob(t, r, id, map[string]string{record.ReservedExit: ""})
		var wg sync.WaitGroup
		var recorded [4]bool
		for i := range recorded {
			wg.Go(func() {
				var err error
				if recorded[i], err = r.Job(id).RecordLost(time.Now()); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				for range 20 {
					if s, err := r.Job(id).State(); s != Lost || err != nil {
						t.Errorf("state %q, %v", s, err)
					}
				}
			})
		}
		wg.Wait()
		n := 0
		for _, ok := range recorded {
			if ok {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("recorded %d times", n)
		}
	}
}

// TestR10Retention: what is kept, and what goes a week after its end.
func TestR10Retention(t *testing.T) {
	t.Parallel()
	now := time.Now()
	day := 24 * time.Hour
	ended := func(ago time.Duration) map[string]string {
		return map[string]string{record.Exit: exitJSON(Exited, 0, now.Add(-ago))}
	}
	lostAt := func(ago time.Duration) map[string]string {
		return map[string]string{record.Exit: exitJSON(Lost, "null", now.Add(-ago))}
	}
	with := func(files map[string]string, name, content string) map[string]string {
		files[name] = content
		return files
	}
	const gone, kept, recorded = "gone", "kept", "recorded"
	cases := []struct {
		name  string
		files map[string]string
		held  bool
		want  string
	}{
		{"ended 8 days ago", ended(8 * day), false, gone},
		{"ended 6 days ago", ended(6 * day), false, kept},
		{"ended 8 days ago, still writing", ended(8 * day), true, kept},
		{"ended tomorrow", ended(-day), false, kept},
		{"ended at no time", map[string]string{record.Exit: `{"state":"exited","exit_code":0}`}, false, kept},
		{"started long ago and running", nil, true, kept},
		{"lost 8 days ago, not written down", nil, false, recorded},
		{"lost, written down 6 days ago", lostAt(6 * day), false, kept},
		{"lost, written down 8 days ago", lostAt(8 * day), false, gone},
		{"torn end", map[string]string{record.Exit: "{"}, false, recorded},
		{"no cmd", with(ended(8*day), record.Cmd, missing), false, kept},
		{"newer", with(ended(8*day), record.Cmd, `{"format":2}`), false, kept},
		{"newer and lost", map[string]string{record.Cmd: `{"format":2}`}, false, kept},
		{"vetoed", ended(8 * day), false, kept},
		{"with a FIFO and a directory", with(ended(8*day), record.Pipe, isFIFO), false, gone},
	}
	r := newRoot(t)
	id := record.NewID(now.Add(-9 * day))
	ids := make([]ID, len(cases))
	var vetoed ID
	for i, c := range cases {
		id = id.Next()
		ids[i] = id
		j := makeJob(t, r, id, c.files)
		if c.held {
			hold(t, j.path(record.Pid))
		}
		if c.name == "vetoed" {
			vetoed = id
		}
	}
	// Things that are not ours, and must not be followed or removed.
	elsewhere := makeJob(t, newRoot(t), testID, ended(8*day))
	foreign := []string{"notes", "j6c1f0a2b9d3", "jffffffffffff", "jfffffffffffe"}
	for _, name := range foreign[:2] {
		putFile(t, filepath.Join(r.jobs(), name), isDir)
	}
	if err := os.Symlink(elsewhere.Dir(), filepath.Join(r.jobs(), foreign[2])); err != nil {
		t.Fatal(err)
	}
	putFile(t, filepath.Join(r.jobs(), foreign[3]), isDir)
	putFile(t, filepath.Join(r.jobs(), foreign[3], "precious"), "x")

	report, err := r.Prune(Retention, now, func(id ID) bool { return id == vetoed })
	if err != nil || len(report.Errors) != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	for i, c := range cases {
		want := []bool{c.want == gone, c.want == recorded}
		got := []bool{slices.Contains(report.Removed, ids[i]), slices.Contains(report.Recorded, ids[i])}
		if _, err := r.Job(ids[i]).State(); !slices.Equal(got, want) || (err == ErrNotFound) != want[0] {
			t.Errorf("%s: removed, recorded %v, then %v; want %s", c.name, got, err, c.want)
		}
	}
	for _, path := range []string{elsewhere.path(record.Cmd), filepath.Join(r.jobs(), foreign[3], "precious")} {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	for _, name := range foreign {
		if _, err := os.Lstat(filepath.Join(r.jobs(), name)); err != nil {
			t.Error(err)
		}
	}
	if want := len(cases) - len(report.Removed) + 2; report.Kept != want {
		t.Errorf("kept %d, want %d", report.Kept, want)
	}
	left, _ := filepath.Glob(filepath.Join(r.jobs(), ".gone-*"))
	if len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// TestR10Readers: a reader of a job being removed gets its bytes, or is told
// that there is no such job.
func TestR10Readers(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	now := time.Now()
	id := record.NewID(now)
	for range 50 {
		id = id.Next()
		makeJob(t, r, id, map[string]string{record.Log: "bytes", record.Exit: exitJSON(Exited, 3, now.Add(-time.Hour))})
		done := make(chan error)
		for range 3 {
			go func() {
				j := r.Job(id)
				for {
					info, err := j.Read()
					if err == nil && (info.State != Exited || *info.Exit.ExitCode != 3) {
						err = fmt.Errorf("read %+v", info)
					}
					if err == nil {
						var l LogRange
						if l, err = j.ReadLog(0, 10); err == nil && string(l.Bytes) != "bytes" {
							err = fmt.Errorf("log %q", l.Bytes)
						}
					}
					if err != nil {
						done <- err
						return
					}
				}
			}()
		}
		if report, err := r.Prune(time.Minute, now, nil); err != nil || len(report.Removed) != 1 || report.Errors != nil {
			t.Errorf("%+v, %v", report, err)
		}
		for range 3 {
			if err := <-done; err != ErrNotFound {
				t.Errorf("a reader: %v", err)
			}
		}
	}
}

func TestPruneSweeps(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	now := time.Now()
	for _, c := range []struct {
		name      string
		age       time.Duration
		held      bool
		wantSwept bool
	}{
		{".new-j000000000001", 2 * time.Hour, false, true},
		{".new-j000000000002", 2 * time.Hour, true, false},
		{".new-j000000000003", time.Minute, false, false},
		{".new-j000000000004", -2 * time.Hour, false, false},
		{".gone-j000000000005", 2 * time.Hour, false, true},
		{".gone-j000000000006", time.Minute, false, false},
		{".other", 2 * time.Hour, false, false},
		{"../" + TrialPrefix + "1", 2 * time.Hour, false, true},
		{"../" + TrialPrefix + "2", time.Minute, false, false},
		{"../.other", 2 * time.Hour, false, false},
	} {
		path := filepath.Join(r.jobs(), c.name)
		putFile(t, path, isDir)
		putFile(t, filepath.Join(path, record.Pid), "")
		if c.held {
			hold(t, filepath.Join(path, record.Pid))
		}
		if err := os.Chtimes(path, now.Add(-c.age), now.Add(-c.age)); err != nil {
			t.Fatal(err)
		}
		report, err := r.Prune(Retention, now, nil)
		if _, exists := os.Lstat(path); err != nil || report.Errors != nil || (len(report.Swept) == 1) != c.wantSwept || (exists != nil) != c.wantSwept {
			t.Errorf("%s: %+v, %v", c.name, report, err)
		}
	}
	elsewhere := t.TempDir()
	if err := os.Symlink(elsewhere, filepath.Join(r.jobs(), ".gone-link")); err != nil {
		t.Fatal(err)
	}
	if report, err := r.Prune(Retention, now.Add(9*time.Hour), nil); err != nil || slices.Contains(report.Swept, "jobs/.gone-link") {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestPruneOverALeftover(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	now := time.Now()
	j := makeJob(t, r, testID, map[string]string{record.Exit: exitJSON(Exited, 0, now.Add(-time.Hour))})
	// Another prune was killed after its rename, and the id was used again.
	left := filepath.Join(r.jobs(), record.GonePrefix+string(testID))
	putFile(t, left, isDir)
	putFile(t, filepath.Join(left, "x"), "x")
	report, err := r.Prune(time.Minute, now, nil)
	if err != nil || report.Errors != nil || !slices.Equal(report.Removed, []ID{testID}) {
		t.Errorf("%+v, %v", report, err)
	}
	if _, err := j.State(); err != ErrNotFound {
		t.Error(err)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	lock := func(key string) *Key {
		t.Helper()
		return must[*Key](t)(r.LockKey(key))
	}
	expect := func(key string, want ID) {
		t.Helper()
		k := lock(key)
		defer k.Unlock()
		if id, ok := k.Job(); id != want || ok != (want != "") {
			t.Errorf("key %q has job %q, %v; want %q", key, id, ok, want)
		}
	}
	keyed := func(id ID, key string) map[string]string {
		c := Cmd{Format: 1, ID: id, Argv: []string{"true"}, Key: key}
		return map[string]string{record.Cmd: string(c.Marshal()), record.Exit: exitJSON(Exited, 0, time.Now().Add(-time.Hour))}
	}
	const key = "a key/with\x00everything"
	expect(key, "")

	k := lock(key)
	if err := k.Set("jffffffffffff"); err != nil {
		t.Fatal(err)
	}
	if err := k.Set(testID); err != nil {
		t.Fatal(err)
	}
	k.Unlock()
	k.Unlock()
	expect(key, "") // the starter was killed before the job appeared
	j := makeJob(t, r, testID, keyed(testID, key))
	expect(key, testID)
	expect("another", "")
	os.RemoveAll(j.Dir())
	makeJob(t, r, testID, keyed(testID, "another"))
	expect(key, "")
	os.RemoveAll(j.Dir())
	makeJob(t, r, testID, map[string]string{record.Cmd: "{"})
	expect(key, "")
	os.RemoveAll(j.Dir())

	// A start under way keeps the key; else it goes with its job.
	makeJob(t, r, testID, keyed(testID, key))
	expect("empty", "")
	k = lock(key)
	report, err := r.Prune(time.Minute, time.Now(), nil)
	if err != nil || !slices.Equal(report.Removed, []ID{testID}) || len(report.Swept) != 2 {
		t.Errorf("%+v, %v", report, err) // the keys "empty" and "another" of no job
	}
	k.Unlock()
	expect(key, "")
	report, err = r.Prune(time.Minute, time.Now(), nil)
	if err != nil || len(report.Swept) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if names, _ := os.ReadDir(r.keys()); len(names) != 0 {
		t.Errorf("keys left: %v", names)
	}
}

// TestKeyRace: of many starts with one key one makes the job, while prune
// takes the key away under their hands.
func TestKeyRace(t *testing.T) {
	t.Parallel()
	r := newRoot(t)
	id := record.NewID(time.Now())
	for round := range 20 {
		key := fmt.Sprint("key ", round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := map[ID]int{}
		for range 10 {
			mu.Lock()
			id = id.Next()
			mine := id
			mu.Unlock()
			wg.Go(func() {
				k, err := r.LockKey(key)
				if err != nil {
					t.Error(err)
					return
				}
				defer k.Unlock()
				have, ok := k.Job()
				if !ok {
					have = mine
					if err := k.Set(mine); err != nil {
						t.Error(err)
					}
					c := Cmd{Format: 1, ID: mine, Argv: []string{"true"}, Key: key}
					makeJob(t, r, mine, map[string]string{record.Cmd: string(c.Marshal()), record.Exit: exitJSON(Exited, 0, time.Now())})
				}
				mu.Lock()
				got[have]++
				mu.Unlock()
			})
			wg.Go(func() {
				if report, err := r.Prune(time.Hour, time.Now(), nil); err != nil || len(report.Removed) != 0 {
					t.Errorf("%+v, %v", report, err)
				}
			})
		}
		wg.Wait()
		if len(got) != 1 {
			t.Fatalf("one key, several jobs: %v", got)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"running", nil, nil},
		{"ended", map[string]string{record.Exit: exitJSON(Exited, 0, at), record.ReservedTiming: "", record.Pipe: isFIFO}, nil},
		{"reserved by blanks", map[string]string{record.Timing: "   \n", record.Cancel: "  "}, nil},
		{"newer", map[string]string{record.Cmd: `{"format":2}`, record.Exit: "x"}, nil},
		{"no cmd", map[string]string{record.Cmd: missing}, []string{"cmd: is missing"}},
		{"garbled cmd", map[string]string{record.Cmd: "{"}, []string{"cmd: unexpected end of JSON input"}},
		{"another's cmd", map[string]string{record.Cmd: cmdJSON("j000000000001")}, []string{"cmd: belongs to job j000000000001"}},
		{"no argv", map[string]string{record.Cmd: `{"format":1}`}, []string{"cmd: has no argv"}},
		{"no pid, no log", map[string]string{record.Pid: missing, record.Log: missing}, []string{"pid: is missing", "log: is missing"}},
		{"not regular", map[string]string{record.Pid: isFIFO, record.Log: isDir, record.Dropped: isSymlink, record.Pipe: "x"},
			[]string{"pid: is not a regular file", "log: is not a regular file", "dropped: is not a regular file", "pipe: is not a FIFO"}},
		{"torn exit", map[string]string{record.Exit: "{"}, []string{"exit: holds no end: it counts as absent"}},
		{"no time", map[string]string{record.Exit: `{"state":"lost"}`}, []string{"exit: does not say when"}},
		{"short log", map[string]string{record.Log: "123", record.Exit: `{"state":"lost","log_bytes":5,"at":"2026-01-02T03:04:05.000Z"}`},
			[]string{"log: has 3 bytes, and had 5 at the end"}},
		{"garbled records", map[string]string{record.Pid: "[]", record.Timing: "x", record.Cancel: "{", record.Dropped: "x"},
			[]string{"pid: is no object, but an array", "timing: invalid character 'x' looking for beginning of value",
				"cancel: unexpected end of JSON input", "dropped: names nothing that is missing"}},
		{"not regular cmd", map[string]string{record.Cmd: isFIFO}, []string{"cmd: is not a regular file"}},
		{"runner is init", map[string]string{record.Pid: `{"runner_pid":1,"child_pid":7}`}, []string{"pid: names processes that cannot be: runner 1, command 7"}},
		{"command is below zero", map[string]string{record.Pid: `{"runner_pid":5,"child_pid":-1}`}, []string{"pid: names processes that cannot be: runner 5, command -1"}},
		{"no command was started", map[string]string{record.Pid: `{"runner_pid":5,"child_pid":0}`}, nil},
		{"negative duration", map[string]string{record.Timing: `{"duration_ms":-5}`}, []string{"timing: has a duration, a time or a size below zero"}},
		{"clock set back", map[string]string{record.Timing: `{"started_at":"2026-01-02T03:04:05Z","ended_at":"2026-01-02T03:04:04Z","duration_ms":5}`}, nil},
		{"hole too long", map[string]string{record.Log: "123", record.Dropped: hole(1, 5)}, []string{"dropped: has a hole up to 5 in a log of 3 bytes"}},
	} {
		r := newRoot(t)
		makeJob(t, r, testID, c.files)
		problems, err := r.Check()
		var got []string
		for _, p := range problems {
			got = append(got, strings.TrimPrefix(problemText(p), string(testID)+"/"))
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}

	r := newRoot(t)
	j := makeJob(t, r, testID, nil)
	if err := os.Chmod(j.path(record.Log), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(j.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	putFile(t, filepath.Join(r.jobs(), "notes"), "x")
	putFile(t, filepath.Join(r.jobs(), ".new-x"), isDir)
	problems, err := r.Check()
	want := []Problem{
		{testID, string(testID), "", "has mode 0755, not 0700"},
		{testID, string(testID), record.Log, "has mode 0644, not 0600"},
		{"", "notes", "", "is no job"},
	}
	if err != nil || !reflect.DeepEqual(problems, want) {
		t.Errorf("%v, %v", problems, err)
	}
}
