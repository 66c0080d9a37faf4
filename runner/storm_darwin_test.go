package runner

import "os"

const rlimitNPROC = 7 // RLIMIT_NPROC, which package unix does not name here

// armed reports whether a runner has begun to ignore TERM: this is a guess.
func armed(p process) bool { return p.ppid == os.Getpid() && alive(p.pid) }
