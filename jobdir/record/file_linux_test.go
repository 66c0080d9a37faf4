package record

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestR4FullDisk: R4. On a full disk a reserved record can still
// be written, synced and renamed.
func TestR4FullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can mount a small file system")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no mount here: %v: %s", err, out)
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	d := openDir(t, dir)
	fd := openFile(t, filepath.Join(dir, ReservedExit))
	if err := Reserve(fd); err != nil {
		t.Fatal(err)
	}
	unreserved := openFile(t, filepath.Join(dir, "unreserved"))
	if err := os.WriteFile(filepath.Join(dir, Log), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if err := Write(unreserved, []byte("x")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("what was not reserved: %v", err)
	}
	if err := Reserve(unreserved); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("reserving on a full disk: %v", err)
	}
	// The longest record there can be.
	e := strings.Repeat("\x01", MaxText)
	b := ExitRecord{State: Exited, Signal: "KILL", Error: e, LogBytes: 1 << 62, At: time.Now()}.Append(nil)
	if len(b) > ReservedSize {
		t.Fatalf("%d bytes", len(b))
	}
	if err := Write(fd, b); err != nil {
		t.Fatal(err)
	}
	if err := Sync(fd); err != nil {
		t.Error(err)
	}
	if err := RenameNoReplace(d, ReservedExit, Exit); err != nil {
		t.Error(err)
	}
	if err := Sync(d); err != nil {
		t.Error(err)
	}
	if got := read(t, filepath.Join(dir, Exit)); got != string(b) {
		t.Errorf("%q", got)
	}
}
