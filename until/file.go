package until

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

func (w *watcher) file(ctx context.Context) (End, error) {
	l := lookout{path: w.File}
	defer l.close()
	isThere := askPath(w.File)
	hint := make(chan struct{}, 1)
	stop := keepAsking(w.filePoll, []*question{isThere}, func(int, syscall.Errno) bool {
		select {
		case hint <- struct{}{}:
		default:
		}
		return true
	})
	defer stop()
	for {
		l.aim() // before the look: what appears after it is reported
		isThere.usual.Store(uint32(isThere.do()))
		info, err := os.Stat(w.File)
		switch {
		case err == nil:
			return End{CodeHolds, w.String() + " is there: " + describe(info)}, nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			w.log.see("it is not there yet")
		case errors.Is(err, syscall.ENAMETOOLONG):
			return never("%s: %v", w.String(), syscall.ENAMETOOLONG)
		default: // it may become possible to look
			w.log.see("it cannot be looked at yet: " + innermost(err))
		}
		if err := l.wait(ctx, hint); err != nil {
			return End{}, err
		}
	}
}

func describe(info fs.FileInfo) string {
	switch {
	case info.IsDir():
		return "a directory"
	case info.Mode().IsRegular():
		return fmt.Sprintf("%d bytes", info.Size())
	}
	return "no regular file"
}

func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// lookout watches the nearest directory above a path that there is, for what
// may bring the path into being.
type lookout struct {
	path string

	tried  bool
	events *fsnotify.Watcher // nil: the kernel has no more to give
	dir    string            // what is watched, "" if nothing is
	next   string            // the name in it that leads to the path
	id     fileID
	stale  bool // the directory was moved or removed
}

// fileID tells a directory from another one of the same name.
type fileID struct{ dev, ino uint64 }

func idOf(dir string) (fileID, bool) {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return fileID{}, false
	}
	return fileID{uint64(st.Dev), st.Ino}, true
}

// aim watches the directory that is the nearest by now.
func (l *lookout) aim() {
	if !l.tried {
		l.tried = true
		l.events, _ = fsnotify.NewWatcher()
	}
	// A directory can be made while the one above it is being watched.
	for range 100 {
		if l.events == nil {
			return
		}
		dir, id := nearest(l.path)
		if dir == l.dir && id == l.id && !l.stale {
			return
		}
		if l.dir != "" {
			_ = l.events.Remove(l.dir)
		}
		l.dir, l.id, l.stale = dir, id, false
		l.next = nextName(l.path, dir)
		if err := l.events.Add(dir); err != nil {
			if l.stale = errors.Is(err, fs.ErrNotExist); !l.stale {
				return // no right to read it, or no watch left: the poll has to do
			}
			// It was there a moment ago: another one is the nearest by now.
		}
	}
}

func nearest(path string) (string, fileID) {
	dir := strings.TrimRight(path, "/")
	for {
		dir = strings.TrimRight(dir[:max(strings.LastIndexByte(dir, '/'), 0)], "/")
		if dir == "" {
			dir = "/"
		}
		if id, ok := idOf(dir); ok || dir == "/" {
			return dir, id
		}
	}
}

// nextName is the first name of path below dir.
func nextName(path, dir string) string {
	rest := strings.TrimLeft(strings.TrimPrefix(path, dir), "/")
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// wait returns when something may have happened to the path.
func (l *lookout) wait(ctx context.Context, hint <-chan struct{}) error {
	var events chan fsnotify.Event
	var failures chan error
	if l.events != nil {
		events, failures = l.events.Events, l.events.Errors
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-hint:
			return nil
		case <-failures: // the queue overflowed: anything may have happened
			return nil
		case e := <-events:
			if name := filepath.Clean(e.Name); name == filepath.Clean(l.dir) {
				l.stale = l.stale || e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
				return nil
			} else if filepath.Base(name) == l.next {
				return nil
			}
		}
	}
}

func (l *lookout) close() {
	if l.events != nil {
		_ = l.events.Close()
	}
}
