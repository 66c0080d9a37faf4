package jobdir

import (
	"encoding/hex"
	"hash/fnv"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"space-job/jobdir/record"
)

// Key is a start key, locked.
type Key struct {
	root *Root
	key  string
	file keyFile
}

// LockKey locks a start key, and waits for a start under way with the same
// one. The root must have been created.
func (r *Root) LockKey(key string) (*Key, error) {
	path := r.keyPath(key)
	for {
		f, err := openKey(path, syscall.O_CREAT)
		if err == nil {
			if err = record.LockWait(f.fd); err != nil {
				f.close()
			}
		}
		if err != nil {
			return nil, &fs.PathError{Op: "lock", Path: path, Err: Pathless(err)}
		}
		// Prune removes keys, under the lock. One that was removed while it
		// was waited for is no longer the one that others see.
		if f.current() {
			return &Key{r, key, f}, nil
		}
		f.close()
	}
}

// KeyJob is the job that was started with a key, if it is still there. It makes
// nothing and waits for nobody: a start under way may be about to set another.
func (r *Root) KeyJob(key string) (ID, bool) {
	f, err := openKey(r.keyPath(key), 0)
	if err != nil {
		return "", false
	}
	defer f.close()
	return (&Key{r, key, f}).Job()
}

func (r *Root) keyPath(key string) string {
	h := fnv.New128a() // not a secret, and the job says its key: see Job
	h.Write([]byte(key))
	return filepath.Join(r.keys(), hex.EncodeToString(h.Sum(nil)))
}

// Job is the job that was started with the key, if it is still there. A key
// that names a job of another key, or one that cannot be read, has none.
func (k *Key) Job() (ID, bool) {
	id, ok := k.file.id()
	if !ok {
		return "", false
	}
	j := k.root.Job(id)
	d, err := j.open()
	if err != nil {
		return "", false
	}
	defer d.close()
	c, err := j.readCmd(d)
	if err != nil || c.Key != k.key || !d.current() {
		return "", false
	}
	return id, true
}

// Set notes the job that is about to appear.
func (k *Key) Set(id ID) error {
	if err := record.Write(k.file.fd, []byte(id+"\n")); err != nil {
		return &fs.PathError{Op: "write", Path: k.file.path, Err: Pathless(err)}
	}
	return nil
}

// Unlock lets the next start go on. It may be called twice.
func (k *Key) Unlock() {
	if k.file.fd >= 0 {
		k.file.close()
		k.file.fd = -1
	}
}

// keyFile is an open file of the keys directory. Closing it unlocks it.
type keyFile struct {
	path string
	fd   int
}

func openKey(path string, flags int) (keyFile, error) {
	fd, err := record.Open(-1, path, syscall.O_RDWR|syscall.O_NONBLOCK|flags, 0o600)
	if Pathless(err) == syscall.EACCES && flags&syscall.O_CREAT != 0 {
		// Made an instant ago, under a umask that takes our own rights away.
		_ = syscall.Chmod(path, 0o600)
		fd, err = record.Open(-1, path, syscall.O_RDWR|syscall.O_NONBLOCK|flags, 0o600)
	}
	if err != nil {
		return keyFile{fd: -1}, err
	}
	f := keyFile{path, fd}
	var st syscall.Stat_t
	if err = syscall.Fstat(fd, &st); err == nil {
		switch {
		case st.Mode&syscall.S_IFMT != syscall.S_IFREG:
			err = ErrNotRegular
		case st.Mode&0o7777 != 0o600:
			err = syscall.Fchmod(fd, 0o600)
		}
	}
	if err != nil {
		f.close()
		return keyFile{fd: -1}, err
	}
	return f, nil
}

func (f keyFile) close() { _ = syscall.Close(f.fd) }

// current reports whether the file still has its name.
func (f keyFile) current() bool { return named(f.fd, f.path) }

// id is what the file names.
func (f keyFile) id() (ID, bool) {
	var b [64]byte
	n, err := pread(f.fd, b[:], 0)
	if err != nil {
		return "", false
	}
	return record.ParseID(strings.TrimSpace(string(b[:n])))
}
