package record

import "golang.org/x/sys/unix"

// BootID names this boot of the kernel, "" where it cannot be told.
func BootID() string {
	s, _ := unix.Sysctl("kern.bootsessionuuid")
	return s
}

// MachineID names this machine, "" where it cannot be told.
func MachineID() string {
	s, _ := unix.Sysctl("kern.hostname")
	return s
}
