// Package jobdir reads the job directory: its files, who writes each, and how
// the state of a job is derived from them.
package jobdir
