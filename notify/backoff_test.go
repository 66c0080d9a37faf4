package notify

import (
	"math"
	"testing"
	"time"
)

func TestN1Backoff(t *testing.T) {
	t.Parallel()
	const least, most, half = 0, 1, 0.5 // rnd is below 1; the bound holds there, too
	for _, c := range []struct {
		attempts int
		rnd      float64
		want     time.Duration
	}{
		{-1, least, time.Second},
		{0, least, time.Second},
		{1, least, time.Second},
		{1, half, 1100 * time.Millisecond},
		{1, most, 1200 * time.Millisecond},
		{2, least, 2 * time.Second},
		{2, most, 2400 * time.Millisecond},
		{3, least, 4 * time.Second},
		{4, least, 8 * time.Second},
		{5, half, 17600 * time.Millisecond},
		{9, least, 256 * time.Second},
		{10, least, 500 * time.Second},
		{10, most, 10 * time.Minute},
		{11, most, 10 * time.Minute},
		{11, half, 550 * time.Second},
		{1000, least, 500 * time.Second},
		{math.MaxInt, most, 10 * time.Minute},
	} {
		if got := Backoff(c.attempts, func() float64 { return c.rnd }); got != c.want {
			t.Errorf("after %d attempts, with %v: %v, want %v", c.attempts, c.rnd, got, c.want)
		}
	}
}
