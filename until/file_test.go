package until

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Tests of events have a poll that is too slow to help, and tests of the poll
// have no events.
const slow = time.Hour

func eventsOnly(w *watcher) { w.filePoll = slow }

// needEvents skips where the user's other programs have taken all there are.
func needEvents(t *testing.T) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		t.Skipf("no inotify instance is left for this user: %v", err)
	}
	w.Close()
}

func TestU2ThereAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x"), "12345")
	w := begin(t, newRoot(t), Condition{File: filepath.Join(dir, "x")}, eventsOnly)
	w.ends(0, "is there: 5 bytes")
	few(t, w, 2)
	begin(t, newRoot(t), Condition{File: dir}, eventsOnly).ends(0, "a directory")
}

func TestU2ByRename(t *testing.T) {
	t.Parallel()
	needEvents(t)
	dir := t.TempDir()
	w := begin(t, newRoot(t), Condition{File: filepath.Join(dir, "x")}, eventsOnly)
	w.says("not there yet")
	write(t, filepath.Join(dir, "y"), "1")
	w.goesOn()
	if err := os.Rename(filepath.Join(dir, "y"), filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	w.ends(0, "1 bytes")
	few(t, w, 3)
}

// A dangling link is no file; what appears behind it is found by the poll.
func TestU2DanglingLink(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	w := begin(t, newRoot(t), Condition{File: filepath.Join(dir, "x")}, func(w *watcher) { w.filePoll = 20 * time.Millisecond })
	w.says("not there yet")
	if err := os.Symlink(filepath.Join(other, "y"), filepath.Join(dir, "x")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(60 * time.Millisecond) // that nothing happens can only be waited for
	w.goesOn()
	write(t, filepath.Join(other, "y"), "")
	w.ends(0, "0 bytes")
	few(t, w, 3)
}

func TestU2DirectoryMadeLater(t *testing.T) {
	t.Parallel()
	needEvents(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "a", "b", "c", "x")
	w := begin(t, newRoot(t), Condition{File: path}, eventsOnly)
	w.says("not there yet")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, path, "")
	w.ends(0, "is there")
}

func TestU2DirectoryReplaced(t *testing.T) {
	t.Parallel()
	needEvents(t)
	for _, how := range []string{"removed", "renamed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "out")
			again := func() {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			again()
			w := begin(t, newRoot(t), Condition{File: filepath.Join(dir, "x")}, eventsOnly)
			w.says("not there yet")
			for i := range 5 {
				var err error
				if how == "removed" {
					err = os.Remove(dir)
				} else {
					err = os.Rename(dir, dir+fmt.Sprint(i))
				}
				if err != nil {
					t.Fatal(err)
				}
				again()
			}
			w.goesOn()
			write(t, filepath.Join(dir, "x"), "")
			w.ends(0, "is there")
		})
	}
}

// A directory above that is moved away and another put in its place reports
// nothing below: the poll finds it.
func TestU2AncestorReplaced(t *testing.T) {
	t.Parallel()
	top := filepath.Join(t.TempDir(), "top")
	inner := filepath.Join(top, "inner")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	w := begin(t, newRoot(t), Condition{File: filepath.Join(inner, "x")}, func(w *watcher) { w.filePoll = 20 * time.Millisecond })
	w.says("not there yet")
	if err := os.Rename(top, top+"-old"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(inner, "x"), "")
	w.ends(0, "is there")
}

// TestU2BusyDirectory: what happens beside the path is not looked at.
func TestU2BusyDirectory(t *testing.T) {
	t.Parallel()
	needEvents(t)
	dir := t.TempDir()
	w := begin(t, newRoot(t), Condition{File: filepath.Join(dir, "x")}, eventsOnly)
	w.says("not there yet")
	for i := range 2000 {
		write(t, filepath.Join(dir, fmt.Sprint("y", i)), "")
	}
	w.goesOn()
	write(t, filepath.Join(dir, "x"), "")
	w.ends(0, "is there")
	few(t, w, 3)
}

// TestU2NotPermitted: said once, and kept waiting.
func TestU2NotPermitted(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		asNobody(t, "TestU2NotPermitted")
		return
	}
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	w := begin(t, newRoot(t), Condition{File: filepath.Join(dir, "x")}, func(w *watcher) { w.filePoll = 5 * time.Millisecond })
	w.says("cannot be looked at yet: permission denied")
	time.Sleep(50 * time.Millisecond) // several looks
	w.goesOn()
	few(t, w, 2)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "x"), "")
	w.ends(0, "is there")
}

func TestU2NameTooLong(t *testing.T) {
	t.Parallel()
	begin(t, newRoot(t), Condition{File: "/" + strings.Repeat("x", 300)}, nil).ends(2, "file name too long")
}

// TestU2TwoHundredWatchers: where the kernel gives no more than 128 instances
// of inotify, the others poll, and nobody complains.
func TestU2TwoHundredWatchers(t *testing.T) {
	if os.Geteuid() == 0 { // the limit is each user's: let nobody's be used up
		t.Parallel()
		asNobody(t, "TestU2TwoHundredWatchers")
		return
	}
	dir := t.TempDir()
	root := newRoot(t)
	var all []*watch
	for i := range 200 {
		all = append(all, begin(t, root, Condition{File: filepath.Join(dir, fmt.Sprint(i))}, nil))
	}
	for _, w := range all {
		w.says("not there yet")
	}
	t.Logf("inotify: %d instances are left", instancesLeft())
	for i := range all {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "")
	}
	for _, w := range all {
		w.ends(0, "is there")
		few(t, w, 3)
	}
}

func instancesLeft() int {
	var l []*fsnotify.Watcher
	defer func() {
		for _, w := range l {
			w.Close()
		}
	}()
	for len(l) < 200 {
		w, err := fsnotify.NewWatcher()
		if err != nil {
			break
		}
		l = append(l, w)
	}
	return len(l)
}
