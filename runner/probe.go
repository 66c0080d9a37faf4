package runner

// Help is something of the kernel that a runner uses where it is there; each
// has a plain fallback.
type Help struct {
	Name string
	OK   bool
	Note string // where it is not: what is done without it
}
