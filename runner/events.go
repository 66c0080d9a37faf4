package runner

// ready is what a runner woke up for.
type ready struct {
	pipe, hungUp bool // bytes to read; nobody left who could write
	look, stop   bool // sigLook, sigStop
	reaped       bool
}
