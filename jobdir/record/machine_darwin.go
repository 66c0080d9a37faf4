package record

import "golang.org/x/sys/unix"

// BootID names this boot of the kernel, "" where it cannot be told.
func BootID() string {
	s, _ := unix.Sysctl("kern.bootsessionuuid")
	return s
}

// MachineID would name this machine; macOS tells it by no call that is made here.
func MachineID() string { return "" }
