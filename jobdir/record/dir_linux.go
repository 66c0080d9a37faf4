package record

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// EachName calls f for every entry of an open directory, from its beginning.
// The name is valid during the call only: a string made of each would cost more
// than the reading.
func EachName(dir int, f func(name []byte)) error {
	if _, err := unix.Seek(dir, 0, 0); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := IgnoringEINTR(func() (int, error) { return unix.Getdents(dir, buf) })
		if err != nil || n <= 0 {
			return err
		}
		// struct linux_dirent64: ino, off, reclen at 16, type, name at 19.
		for b := buf[:n]; len(b) >= 19; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size < 19 || size > len(b) {
				break
			}
			name, _, _ := bytes.Cut(b[19:size], []byte{0})
			if s := string(name); s != "." && s != ".." {
				f(name)
			}
			b = b[size:]
		}
	}
}
