package record

import "golang.org/x/sys/unix"

// EachName calls f for every entry of an open directory, from its beginning.
// The name is valid during the call only.
func EachName(dir int, f func(name []byte)) error {
	if _, err := unix.Seek(dir, 0, 0); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := IgnoringEINTR(func() (int, error) { return unix.ReadDirent(dir, buf) })
		if err != nil || n <= 0 {
			return err
		}
		for b := buf[:n]; len(b) > 0; {
			used, _, names := unix.ParseDirent(b, 1, nil)
			if used <= 0 {
				break
			}
			b = b[used:]
			for _, name := range names {
				f([]byte(name))
			}
		}
	}
}
