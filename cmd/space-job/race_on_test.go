//go:build race

package main

// raceDetector: the programs are the test binary, which has it too.
const raceDetector = true
