package record

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// BootID names this boot of the kernel, "" where it cannot be told.
func BootID() string { return firstLine("/proc/sys/kernel/random/boot_id") }

// MachineID names this machine or container, "" where it cannot be told. A
// host name is not enough: machines made from one image share it.
func MachineID() string { return firstLine("/etc/machine-id") }

func firstLine(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // it may be a link
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var buf [128]byte
	b, _ := readInto(buf[:], fd)
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	return string(line)
}
