//go:build !linux && !darwin

// The space-job command, where there can be none.
package main

import "os"

func main() {
	_, _ = os.Stderr.WriteString("space-job: error: jobs need Linux or macOS\n")
	os.Exit(1)
}
