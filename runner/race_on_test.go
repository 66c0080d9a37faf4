//go:build race

package runner

// raceDetector: processes are several times slower to start and larger.
const raceDetector = true
