package runner

// Roomy calls f on a stack that has room for all that a runner calls. A
// goroutine's stack begins with 2 KiB and doubles, and the Go runtime writes to
// every page of a 32 KiB span for each small size on the way: going past them in
// one step spares a runner that memory.
//
//go:noinline
func Roomy(f func()) {
	if unused {
		var room [16 << 10]byte // in the frame, and never touched
		touch(&room)
	}
	f()
}

var unused bool

//go:noinline
func touch(room *[16 << 10]byte) { room[0] = 1 }
