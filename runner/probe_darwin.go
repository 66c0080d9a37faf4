package runner

// Probe names what macOS does not have; nothing of it can be switched on.
func Probe() []Help {
	return []Help{
		{"subreaper", false, "orphans of a job are found by session and environment only"},
		{"open-file-description locks", false, "flock is used instead"},
		{"pidfds", false, "processes are told apart by start time only"},
	}
}
