// Command space-runner is the supervisor process, one for each job. It is
// started by space-job and does nothing by itself.
//
// A runner is one thread's work: what the Go runtime would look up to choose a
// number of processors, and keep open, is not asked for.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import (
	"runtime"

	"space-job/runner"
)

// The main goroutine stays on the main thread: it forks the command and waits
// for it there, which saves a thread in every runner.
func init() { runtime.LockOSThread() }

func main() { runner.Main() }
