package record

import "golang.org/x/sys/unix"

// BootID names this boot of the kernel, "" where it cannot be told.
func BootID() string { return firstLine("/proc/sys/kernel/random/boot_id") }

// MachineID names this machine or container, "" where it cannot be told.
func MachineID() string {
	if id := firstLine("/etc/machine-id"); id != "" {
		return id
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Nodename[:])
}

func firstLine(path string) string {
	fd, err := Open(unix.AT_FDCWD, path, unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var b [128]byte
	n, _ := ignoringEINTR(func() (int, error) { return unix.Read(fd, b[:]) })
	for i := range max(n, 0) {
		if b[i] == '\n' {
			return string(b[:i])
		}
	}
	return string(b[:max(n, 0)])
}
