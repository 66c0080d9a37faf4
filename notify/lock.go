package notify

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// HeldError is the error of a second daemon: who has the lock.
type HeldError struct {
	Root   string
	Holder record.DaemonRecord // PID is 0 where it has not said who it is
}

func (e *HeldError) Error() string {
	who := "another process, which has not said yet who it is"
	if e.Holder.PID != 0 {
		who = fmt.Sprintf("process %d", e.Holder.PID)
		if !e.Holder.At.IsZero() {
			who += " since " + e.Holder.At.Local().Format("2006-01-02 15:04:05")
		}
	}
	return "a daemon runs for " + e.Root + " already: " + who
}

// Lock is the hold of the one daemon on a root.
type Lock struct {
	root *jobdir.Root
	file *os.File
}

func lockPath(root *jobdir.Root) string { return filepath.Join(root.Path(), record.DaemonLock) }

// TakeLock takes the lock of the daemon of a root, which must be there. The
// error is a *HeldError where another has it.
func TakeLock(root *jobdir.Root) (*Lock, error) {
	fd, err := record.Open(-1, lockPath(root), syscall.O_RDWR|syscall.O_CREAT|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	l := &Lock{root, os.NewFile(uintptr(fd), lockPath(root))}
	if err := l.take(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// InheritLock is TakeLock with an open file that the starter of this process has
// locked.
func InheritLock(root *jobdir.Root, fd uintptr) (*Lock, error) {
	syscall.CloseOnExec(int(fd))
	l := &Lock{root, os.NewFile(fd, lockPath(root))}
	if l.file == nil || !named(l.file, lockPath(root)) {
		return nil, fmt.Errorf("descriptor %d is not %s", fd, lockPath(root))
	}
	if err := l.take(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Lock) take() error {
	// Where looking at a lock is taking it for an instant, a look can be in the way.
	const tries = 20
	for i := 1; ; i++ {
		err := record.Lock(int(l.file.Fd()))
		if err == nil {
			break
		}
		if err != record.ErrLocked {
			return &fs.PathError{Op: "lock", Path: l.file.Name(), Err: err}
		}
		holder, held := DaemonOf(l.root)
		if held && holder.PID != 0 || i == tries {
			return &HeldError{l.root.Path(), holder}
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := l.file.Chmod(0o600); err != nil {
		return err
	}
	return nil
}

// Sign says who holds the lock: this process, which belongs to a service manager or
// to none, and may be sent a SIGHUP from now on.
func (l *Lock) Sign(service string, now time.Time) error {
	return l.sign(record.DaemonRecord{PID: os.Getpid(), Service: service, At: now, Ready: true})
}

// SignFor says that a process has the lock that has just been started with it, and
// has not said so itself.
func (l *Lock) SignFor(pid int, now time.Time) error {
	if r, _ := DaemonOf(l.root); r.PID == pid && r.Ready {
		return nil // it has: it did not wait any longer
	}
	return l.sign(record.DaemonRecord{PID: pid, At: now})
}

func (l *Lock) sign(r record.DaemonRecord) error {
	var ok bool
	if r.Start, ok = record.ProcessStart(r.PID); !ok {
		return fmt.Errorf("look at process %d: it is not there", r.PID)
	}
	r.BootID = record.BootID()
	if err := record.Write(int(l.file.Fd()), r.Append(nil)); err != nil {
		return &fs.PathError{Op: "write", Path: l.file.Name(), Err: jobdir.Pathless(err)}
	}
	return nil
}

// File is the locked file, to be handed to the process that is to have the lock.
func (l *Lock) File() *os.File { return l.file }

// Close lets go of the lock, unless another process has the open file by now.
func (l *Lock) Close() { l.file.Close() }

// DaemonOf reports whether a daemon runs for a root, and who it says it is. Of
// one that is gone it returns what the last one said.
func DaemonOf(root *jobdir.Root) (r record.DaemonRecord, held bool) {
	fd, err := record.Open(-1, lockPath(root), syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return r, false
	}
	defer syscall.Close(fd)
	held, _ = record.Held(fd)
	var buf [record.ReservedSize]byte
	if b, err := record.ReadFile(-1, lockPath(root), buf[:]); err == nil {
		if parsed, ok := record.ParseDaemon(b); ok {
			r = parsed
		}
	}
	if held && r.PID != 0 && !record.IsProcess(r.PID, r.Start) {
		r = record.DaemonRecord{} // that was the one before
	}
	return r, held
}

// Stopped reports whether somebody has stopped the daemon on purpose: then only
// they start it again.
func Stopped(root *jobdir.Root) bool {
	_, err := os.Lstat(filepath.Join(root.Path(), record.DaemonStopped))
	return err == nil
}

// SetStopped says so, or takes it back.
func SetStopped(root *jobdir.Root, stopped bool) error {
	path := filepath.Join(root.Path(), record.DaemonStopped)
	if !stopped {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	fd, err := record.Open(-1, path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	return syscall.Close(fd)
}
