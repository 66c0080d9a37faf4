package runner

// process is one process as the kernel shows it.
type process struct {
	pid, ppid, sid int
	start          uint64 // tells it from a later one of the same number: record.ProcessRecord has the unit
	comm           string
	zombie         bool
	group          bool // all of the process group pid, where they cannot be told apart
}
