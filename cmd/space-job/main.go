//go:build linux || darwin

// The space-job command starts jobs that outlive their caller, and reads, waits
// for and stops them. See space-job help.
//
// It runs for a few milliseconds: what the Go runtime would look up to choose a
// number of processors is not asked for.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0
package main

import "space-job/cmd/internal/cli"

func main() { cli.Main() }
