package api

import "syscall"

// totalLimit is what the kernel takes as argv and environment of one execve: a
// quarter of the stack, at most 6 MiB, at least 128 KiB.
func totalLimit() int {
	const most = 6 << 20
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_STACK, &r); err != nil || r.Cur/4 > most {
		return most
	}
	return max(int(r.Cur/4), 128<<10)
}
