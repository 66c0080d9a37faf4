//go:build linux || darwin

// The space-job command starts jobs that outlive their caller, and reads, waits
// for and stops them. See space-job help.
package main

import (
	"space-job/cmd/internal/cli"
	_ "space-job/cmd/internal/prefault" // most of a short start is pages
)

func main() { cli.Main() }
