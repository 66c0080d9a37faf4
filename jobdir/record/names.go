package record

// Files of a job directory. Package jobdir says who writes each.
const (
	Cmd     = "cmd"
	Pid     = "pid"
	Pipe    = "pipe"
	Log     = "log"
	Dropped = "dropped"
	Cancel  = "cancel"
	Timing  = "timing"
	Exit    = "exit"

	// Notified is the receipt of a message that everybody has.
	Notified = "notified"

	// Blocks set aside at the start for the records written at the end.
	ReservedTiming = ".timing"
	ReservedExit   = ".exit"
)

// Directories of a root, and its daemon's files.
const (
	Jobs   = "jobs"
	Keys   = "keys"
	Outbox = "outbox" // messages that not everybody has

	DaemonLock    = "daemon.lock"
	DaemonLog     = "daemon.log"
	DaemonStopped = "daemon.stopped" // somebody stopped it: no command starts it again
)

// Hidden names in Jobs: a job being built, and one being removed.
const (
	BuildPrefix = ".new-"
	GonePrefix  = ".gone-"
)

// Environment variables that the product reads and sets.
const (
	EnvHome = "SPACE_JOB_HOME" // the root
	EnvJob  = "SPACE_JOB"      // the id of the job a process belongs to
	// EnvMember is who a process speaks for.
	EnvMember = "SPACE_MEMBER"
)

// ReservedSize is how many bytes are set aside for one record; none is longer.
const ReservedSize = 4096

// MaxText is the longest error or reason that a record holds, in bytes of JSON:
// what is longer is cut.
const MaxText = 1536
