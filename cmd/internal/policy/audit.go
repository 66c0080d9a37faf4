package policy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// AuditLog is the name of the log in the root.
const AuditLog = "audit.log"

const (
	largeAudit = 16 << 20
	maxAudited = 4 << 10 // bytes of a command in a line
)

// Line is a line of the audit log.
type Line struct {
	At       time.Time `json:"at"`
	Decision string    `json:"decision"` // allow, ask, deny; approve, refuse (by a person); consume; put back (its start failed); check (no start)
	Verdict  Verdict   `json:"verdict,omitempty"`
	Rule     int       `json:"rule"` // 0: the default
	Why      string    `json:"why,omitempty"`
	Request  string    `json:"request,omitempty"`
	Start    Start     `json:"start"`
	Bytes    int       `json:"bytes,omitempty"` // of the command, where not all of it is in the line
	By       Who       `json:"decided_by,omitzero"`
	Via      string    `json:"via,omitempty"`
	Added    int       `json:"rule_added,omitempty"`
}

// Audit adds a line to the audit log.
func (s *Store) Audit(l Line) (err error) {
	path := filepath.Join(s.Root.Path(), AuditLog)
	defer func() {
		if err != nil {
			err = fmt.Errorf("audit log: %w", err)
		}
	}()
	l.At = s.Now().UTC().Truncate(time.Millisecond)
	l.Start.shorten(&l.Bytes)
	if err := s.Root.Create(); err != nil {
		return err
	}
	for {
		fd, err := record.Open(-1, path, syscall.O_RDWR|syscall.O_CREAT|syscall.O_APPEND|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return err
		}
		f := os.NewFile(uintptr(fd), path)
		again, err := add(f, jobdir.Line(l))
		if e := f.Close(); err == nil {
			err = e
		}
		if !again || err != nil {
			return err
		}
	}
}

// add appends a line under the file's lock, behind a whole line.
func add(f *os.File, line []byte) (again bool, err error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "write", Path: f.Name(), Err: jobdir.ErrNotRegular}
	}
	if err == nil {
		err = record.LockWait(int(f.Fd()))
	}
	if err != nil {
		return false, err
	}
	if info, err = f.Stat(); err != nil {
		return false, err
	}
	if named, err := os.Lstat(f.Name()); err != nil || !os.SameFile(info, named) {
		return true, nil // taken out of the way while it was waited for
	}
	if info.Size() > largeAudit {
		return true, os.Rename(f.Name(), f.Name()+".old")
	}
	if info.Mode().Perm() != 0o600 {
		if err := f.Chmod(0o600); err != nil {
			return false, err
		}
	}
	if n := info.Size(); n > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], n-1); err == nil && last[0] != '\n' {
			line = append([]byte("\n"), line...) // somebody died, or the disk was full
		}
	}
	crash("audit.write")
	_, err = f.Write(line)
	crash("audit.written")
	return false, err
}

// shorten cuts what is too long for a line.
func (s *Start) shorten(total *int) {
	n := len(s.Command)
	for _, a := range s.Argv {
		n += len(a)
	}
	if n <= maxAudited {
		return
	}
	*total = n
	left := maxAudited
	cut := func(t string) string {
		t = t[:min(len(t), left)]
		left -= len(t)
		return t
	}
	s.Command, s.Until = cut(s.Command), nil
	var argv []string
	for _, a := range s.Argv {
		if left == 0 {
			break
		}
		argv = append(argv, cut(a))
	}
	s.Argv = argv
}
