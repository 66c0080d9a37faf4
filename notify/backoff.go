package notify

import "time"

// Bounds of the time between two attempts.
const (
	minBackoff = time.Second
	maxBackoff = 10 * time.Minute

	// jitter is added, at most this share: targets that failed together do not
	// come back together.
	jitter = 0.2
)

// MaxRetryAfter is the longest time that a sink may ask to be left alone.
const MaxRetryAfter = 24 * time.Hour

// notYet reports whether a time, which was set to be most away at most, has yet
// to come. One that is further away was set before the clock was set back: what
// waits for it would wait for as long.
func notYet(at, now time.Time, most time.Duration) bool {
	return at.After(now) && at.Sub(now) <= most
}

// Backoff is how long to wait after so many failed attempts: 1 s after the
// first, twice as long after each further one, and up to a fifth more, as rnd
// (0 to below 1) decides. It is never more than ten minutes.
func Backoff(attempts int, rnd func() float64) time.Duration {
	const most = time.Duration(float64(maxBackoff) / (1 + jitter))
	d := minBackoff
	for ; attempts > 1 && d < most; attempts-- {
		d *= 2
	}
	d = min(d, most)
	return min(d+time.Duration(rnd()*jitter*float64(d)), maxBackoff)
}
