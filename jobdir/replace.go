package jobdir

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"space-job/jobdir/record"
)

// TempPrefix is how the name of a file begins until it is whole. One that is
// older than an hour was left by a process that was killed.
const TempPrefix = record.BuildPrefix

// ReplaceFile writes a file with mode 0600, whatever the umask, and puts it in
// the place of what has its name: a reader sees the one or the other. With sync
// it is durable before ReplaceFile returns. Any number of processes may replace
// a file at once: one of them is the last.
func ReplaceFile(path string, b []byte, sync bool) (err error) {
	dir, name := filepath.Split(path)
	f, err := os.CreateTemp(dir, TempPrefix+name+"-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	if err = f.Chmod(0o600); err == nil {
		_, err = f.Write(b)
	}
	if err == nil && sync {
		if e := record.Sync(int(f.Fd())); e != nil {
			err = &fs.PathError{Op: "sync", Path: f.Name(), Err: e}
		}
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil && sync {
		err = SyncDir(dir)
	}
	return err
}

// SyncDir makes the entries of a directory durable. A path that is a symbolic
// link is refused, unless it ends with a slash.
func SyncDir(path string) error {
	fd, err := record.Open(-1, path, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if err := record.Sync(fd); err != nil {
		return &fs.PathError{Op: "sync", Path: path, Err: Pathless(err)}
	}
	return nil
}

// Line is a value as one line of JSON, without HTML escapes. It is for types of
// this project, all of which JSON has a form for.
func Line(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return []byte(b.String())
}
