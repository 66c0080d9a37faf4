package jobdir

import (
	"syscall"
	"testing"
)

// TestBlockSize: what statfs counts in is not what it likes to be read in.
func TestBlockSize(t *testing.T) {
	for _, c := range []struct{ bsize, frsize, want int64 }{{1 << 20, 4096, 4096}, {4096, 4096, 4096}, {4096, 0, 4096}} {
		if got := blockSize(&syscall.Statfs_t{Bsize: c.bsize, Frsize: c.frsize}); got != uint64(c.want) {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
