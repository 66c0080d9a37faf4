//go:build !linux && !darwin

// The daemon, where there can be none.
package main

import "os"

func main() {
	_, _ = os.Stderr.WriteString("space-jobd: error: jobs need Linux or macOS\n")
	os.Exit(1)
}
