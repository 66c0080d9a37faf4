package api

import "syscall"

// changeTime is when a file, or what is known of it, last changed.
func changeTime(st *syscall.Stat_t) syscall.Timespec { return st.Ctimespec }
