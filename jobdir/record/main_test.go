package record

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The test binary is also the other process of the tests of locks: it takes
// the lock that it is told to, says so, and stays until it is killed.
func TestMain(m *testing.M) {
	how, path, ok := strings.Cut(os.Getenv("RECORD_TEST_LOCK"), ":")
	if !ok {
		os.Exit(m.Run())
	}
	fd, err := Open(unix.AT_FDCWD, path, unix.O_RDWR, 0)
	if err == nil {
		switch how {
		case "exclusive":
			err = Lock(fd)
		case "shared":
			err = LockShared(fd)
		case "wait":
			fmt.Println("waiting")
			err = LockWait(fd)
		}
	}
	fmt.Println(err)
	_, _ = io.Copy(io.Discard, os.Stdin) // it ends with its parent at the latest
}
