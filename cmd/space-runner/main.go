// Command space-runner is the supervisor process, one for each job. It is
// started by space-job and does nothing by itself.
package main

import (
	"runtime"

	"space-job/runner"
)

// The main goroutine stays on the main thread: it forks the command and waits
// for it there, which saves a thread in every runner.
func init() { runtime.LockOSThread() }

func main() { runner.Roomy(runner.Main) }
