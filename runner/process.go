package runner

import "golang.org/x/sys/unix"

// process is one process as the kernel shows it.
type process struct {
	pid, ppid, sid int
	start          uint64 // tells it from a later one of the same number: record.ProcessRecord has the unit
	comm           string
	zombie         bool
	group          bool // all of the process group pid, where they cannot be told apart
}

// Signal sends a signal to exactly the process that started then, as
// record.ProcessStart has it: never to a later one that has its number. It is
// ESRCH where that process is gone.
func Signal(pid int, start uint64, sig unix.Signal) error {
	return process{pid: pid, start: start}.signal(sig)
}
