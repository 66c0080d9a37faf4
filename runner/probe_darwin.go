package runner

// Help is something of the kernel that a runner uses where it is there; each
// has a plain fallback.
type Help struct {
	Name string
	OK   bool
	Note string // what is done without it
}

// Probe names what macOS does not have; nothing of it can be switched on.
func Probe() []Help {
	return []Help{
		{"subreaper", false, "orphans of a job are found by session and environment only"},
		{"open-file-description locks", false, "flock is used instead"},
		{"pidfds", false, "processes are told apart by start time only"},
		{"splice", false, "output passes through the runner's memory"},
	}
}
