//go:build linux || darwin

// Command space-jobd is the daemon of a root: it follows the jobs that were
// started with notify and brings their messages to whoever is to have them. See
// package notify for what it promises, and space-job help daemon for how it is
// started and stopped; nobody has to.
package main

import "space-job/cmd/internal/daemon"

func main() { daemon.Main() }
