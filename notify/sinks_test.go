package notify

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
)

func testRoot(t *testing.T) *jobdir.Root {
	t.Helper()
	root, err := jobdir.OpenRoot(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestSinkRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sink         SinkConfig
		field, value string
	}{
		{SinkConfig{Name: "", Command: "cat"}, "name", ""},
		{SinkConfig{Name: "a/b", Command: "cat"}, "name", "a/b"},
		{SinkConfig{Name: "..", Command: "cat"}, "name", ".."},
		{SinkConfig{Name: ".new", Command: "cat"}, "name", ".new"},
		{SinkConfig{Name: "-x", Command: "cat"}, "name", "-x"},
		{SinkConfig{Name: "a b", Command: "cat"}, "name", "a b"},
		{SinkConfig{Name: "ä", Command: "cat"}, "name", "ä"},
		{SinkConfig{Name: "a\n", Command: "cat"}, "name", "a\n"},
		{SinkConfig{Name: strings.Repeat("a", 65), Command: "cat"}, "name", strings.Repeat("a", 65)},
		{SinkConfig{Name: "a"}, "command", ""},
		{SinkConfig{Name: "a", Command: " \n"}, "command", " \n"},
		{SinkConfig{Name: "a", Command: "a\x00b"}, "command", "a\x00b"},
		{SinkConfig{Name: "a", Command: "/etc/passwd"}, "command", "/etc/passwd"},
		{SinkConfig{Name: "a", Command: "no-such-program-at-all x"}, "command", "no-such-program-at-all x"},
		{SinkConfig{Name: "a", Command: "./x"}, "command", "./x"},
		{SinkConfig{Name: "a", Command: "echo 'x"}, "command", "echo 'x"},
		{SinkConfig{Name: "a", Command: "cat", Format: "slack"}, "format", "slack"},
		{SinkConfig{Name: "a", Command: "cat", Webhook: "http://h"}, "webhook", "http://h"},
		{SinkConfig{Name: "a", Webhook: "ftp://h/x"}, "webhook", "ftp://h/x"},
		{SinkConfig{Name: "a", Webhook: "file:///etc/passwd"}, "webhook", "file:///etc/passwd"},
		{SinkConfig{Name: "a", Webhook: "h/x"}, "webhook", "h/x"},
		{SinkConfig{Name: "a", Webhook: "http:h"}, "webhook", "http:h"},
		{SinkConfig{Name: "a", Webhook: "http://"}, "webhook", "http://"},
		{SinkConfig{Name: "a", Webhook: "https:///x"}, "webhook", "https:///x"},
		{SinkConfig{Name: "a", Webhook: "http://:80/"}, "webhook", "http://:80/"},
		{SinkConfig{Name: "a", Webhook: "http://h:0"}, "webhook", "http://h:0"},
		{SinkConfig{Name: "a", Webhook: "http://h:65536"}, "webhook", "http://h:65536"},
		{SinkConfig{Name: "a", Webhook: "http://h:http"}, "webhook", "http://h:http"},
		{SinkConfig{Name: "a", Webhook: "http://h/ x"}, "webhook", "http://h/ x"},
		{SinkConfig{Name: "a", Webhook: "http://h/\r\nX: y"}, "webhook", "http://h/\r\nX: y"},
		{SinkConfig{Name: "a", Webhook: "http://[::1"}, "webhook", "http://[::1"},
		{SinkConfig{Name: "a", Webhook: "http://h", Format: "xml"}, "format", "xml"},
	} {
		root := testRoot(t)
		_, err := AddSink(root, c.sink)
		var f *thread.InvalidError
		if !errors.As(err, &f) || f.Field != c.field || f.Value != c.value {
			t.Errorf("%+v: %v, want field %s with %q", c.sink, err, c.field, c.value)
		}
		if _, err := os.Lstat(root.Path()); err == nil {
			t.Errorf("%+v: something was created", c.sink)
		}
	}
}

func TestSinkTarget(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://hooks.slack.com/services/T0/B0/secret": "https://hooks.slack.com/...",
		"https://h:8443/?token=secret":                  "https://h:8443/...",
		"https://user:secret@h":                         "https://h/...",
		"https://user:secret@h/#secret":                 "https://h/...",
		"http://h":                                      "http://h",
		"http://[::1]:80/":                              "http://[::1]:80",
	} {
		c := SinkConfig{Name: "a", Webhook: address}
		if err := c.Check(); err != nil {
			t.Error(err)
		}
		if got := c.Target(); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	if got := (SinkConfig{Name: "a", Command: "cat"}).Target(); got != "cat" {
		t.Errorf("%q", got)
	}
}

func TestSinks(t *testing.T) {
	root := testRoot(t)
	defer syscall.Umask(syscall.Umask(0o777)) // modes do not depend on it
	if sinks, damaged, err := Sinks(root); len(sinks)+len(damaged) != 0 || err != nil {
		t.Errorf("none: %v, %v, %v", sinks, damaged, err)
	}
	if _, err := RemoveSink(root, "a"); !errors.Is(err, ErrNoSink) {
		t.Errorf("remove before there is any: %v", err)
	}
	a := SinkConfig{Name: "a", Command: "cat >/dev/null"}
	b := SinkConfig{Name: "b.c", Webhook: "https://h/secret"}
	for _, c := range []SinkConfig{b, a} {
		if existed, err := AddSink(root, c); existed || err != nil {
			t.Fatal(existed, err)
		}
	}
	b.Format = FormatJSON
	dir := filepath.Join(root.Path(), "sinks")
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "a.json"): 0o600, filepath.Join(dir, "b.c.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	sinks, damaged, err := Sinks(root)
	if len(sinks) != 2 || sinks[0] != a || sinks[1] != b || len(damaged) != 0 || err != nil {
		t.Errorf("%v, %v, %v", sinks, damaged, err)
	}

	a.Command = "cat"
	if existed, err := AddSink(root, a); !existed || err != nil {
		t.Error(existed, err)
	}
	if sinks, _, _ := Sinks(root); len(sinks) != 2 || sinks[0] != a {
		t.Errorf("it was not replaced: %v", sinks)
	}

	// Damaged files are said, and stop nothing.
	for name, content := range map[string]string{
		"torn.json": `{"name": "to`, "empty.json": "", "other.json": `{"name": "a", "command": "x"}`,
		"bad.json": `{"name": "bad", "webhook": "ftp://h/secret"}`, "readme": "hello", "a b.json": `{"name": "a b", "command": "x"}`,
		".hidden.json": "", ".new-x.json": "half",
	} {
		write(t, filepath.Join(dir, name), content)
	}
	write(t, filepath.Join(dir, "long.json"), `{"name": "long", "command": "x", "x": "`+strings.Repeat("x", maxSinkFile)+`"}`)
	if err := errors.Join(
		os.Symlink("a.json", filepath.Join(dir, "link.json")),
		syscall.Mkfifo(filepath.Join(dir, "fifo.json"), 0o600),
		os.Mkdir(filepath.Join(dir, "dir.json"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	sinks, damaged, err = Sinks(root)
	if len(sinks) != 2 || err != nil {
		t.Errorf("beside damaged ones: %v, %v", sinks, err)
	}
	var names []string
	for _, d := range damaged {
		names = append(names, d.Name)
		if d.Err == nil || d.Path == "" || strings.Contains(d.Err.Error(), "secret") {
			t.Errorf("%+v", d)
		}
	}
	if got, want := strings.Join(names, ","), "a b,bad,dir,empty,fifo,link,long,other,readme,torn"; got != want {
		t.Errorf("damaged: %s, want %s", got, want)
	}

	for _, name := range []string{"a", "torn", "fifo"} {
		if _, err := RemoveSink(root, name); err != nil {
			t.Errorf("remove %s: %v", name, err)
		}
		if _, err := RemoveSink(root, name); !errors.Is(err, ErrNoSink) {
			t.Errorf("remove %s again: %v", name, err)
		}
	}
	var f *thread.InvalidError
	if _, err := RemoveSink(root, "../x"); !errors.As(err, &f) {
		t.Errorf("%v", err)
	}
	if _, err := AddSink(root, SinkConfig{Name: "torn", Command: "cat"}); err != nil {
		t.Error(err)
	}
	if sinks, _, _ = Sinks(root); len(sinks) != 2 || sinks[1].Name != "torn" {
		t.Errorf("%v", sinks)
	}
}

// TestSinksOfOthers: who could write there could say what is run.
func TestSinksOfOthers(t *testing.T) {
	t.Parallel()
	root := testRoot(t)
	if _, err := AddSink(root, SinkConfig{Name: "a", Command: "cat"}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(root.Path(), "sinks")
	if err := os.Chmod(dir, 0o770); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		_, _, listed := Sinks(root)
		_, added := AddSink(root, SinkConfig{Name: "b", Command: "cat"})
		_, removed := RemoveSink(root, "a")
		for _, err := range []error{listed, added, removed} {
			var r *jobdir.RootError
			if !errors.As(err, &r) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	refused("writable by the group")
	moved := filepath.Join(root.Path(), "moved")
	if err := errors.Join(os.Chmod(dir, 0o700), os.Rename(dir, moved), os.Symlink(moved, dir)); err != nil {
		t.Fatal(err)
	}
	refused("a symbolic link")
}

// TestSinksRace: whoever adds, replaces and removes at once, a reader sees whole
// files only.
func TestSinksRace(t *testing.T) {
	t.Parallel()
	root := testRoot(t)
	var writers sync.WaitGroup
	done := make(chan struct{})
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				c := SinkConfig{Name: "a", Command: fmt.Sprintf("echo %d %s", w, strings.Repeat("x", i*100))}
				if _, err := AddSink(root, c); err != nil {
					t.Error(err)
				}
				if _, err := RemoveSink(root, "a"); err != nil && !errors.Is(err, ErrNoSink) {
					t.Error(err)
				}
			}
		})
	}
	go func() { writers.Wait(); close(done) }()
	for {
		if _, damaged, err := Sinks(root); len(damaged) > 0 || err != nil {
			t.Fatalf("%v, %v", damaged, err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSinkRemoved: what waited for it goes, and nothing else.
func TestSinkRemoved(t *testing.T) {
	t.Parallel()
	root := testRoot(t)
	for _, name := range []string{"a", "b"} {
		if _, err := AddSink(root, SinkConfig{Name: name, Command: "cat"}); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := root.MakeDir(record.Outbox)
	if err != nil {
		t.Fatal(err)
	}
	put := func(id jobdir.ID, a, b State) {
		e := NewEntry("", "", nil, 0, 0, time.Now())
		e.Job, e.Sinks = id, map[string]Target{}
		for name, state := range map[string]State{"a": a, "b": b} {
			if state != None {
				e.Sinks[name] = Target{State: state, Attempts: 3}
			}
		}
		write(t, filepath.Join(dir, string(id)), string(jobdir.Line(&e)))
	}
	put("j6c1f0a2b9d31", Pending, Pending)
	put("j6c1f0a2b9d32", Failed, Failed)
	put("j6c1f0a2b9d33", Delivered, Failed)
	put("j6c1f0a2b9d34", None, Pending)
	write(t, filepath.Join(dir, "j6c1f0a2b9d35"), "torn")
	if n, err := RemoveSink(root, "a"); n != 2 || err != nil {
		t.Errorf("dropped %d, %v", n, err)
	}
	entries, err := Entries(root)
	if len(entries) != 4 || err != nil {
		t.Fatalf("%v, %v", entries, err)
	}
	for i, want := range []State{Pending, Failed, Failed, Pending} {
		if e := entries[i]; len(e.Sinks) != 1 || e.Sinks["b"] != (Target{State: want, Attempts: 3}) {
			t.Errorf("%s: %v", e.Job, e.Sinks)
		}
	}
}
