package policy

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"math/bits"
	"os"
)

// Digest is the SHA-256 of a salt and texts, each behind its length.
//
// It is computed here, as the packages of the standard library that do so are a
// part of every start of the program that links them, and only a start that a
// person is asked about needs one.
func Digest(salt string, parts []string) string {
	var b []byte
	for _, p := range append([]string{salt}, parts...) {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	return sha256(b)
}

func sha256(b []byte) string {
	// The constants are the first 32 bits behind the point of the square roots of
	// the first 8 primes, and of the cube roots of the first 64.
	var h [8]uint32
	var k [64]uint32
	for n, p := 0, 2; n < len(k); p++ {
		prime := true
		for d := 2; d*d <= p; d++ {
			prime = prime && p%d != 0
		}
		if !prime {
			continue
		}
		if n < len(h) {
			h[n] = fraction(math.Sqrt(float64(p)))
		}
		k[n] = fraction(math.Cbrt(float64(p)))
		n++
	}
	size := uint64(len(b)) * 8
	b = append(b[:len(b):len(b)], 0x80)
	for len(b)%64 != 56 {
		b = append(b, 0)
	}
	b = binary.BigEndian.AppendUint64(b, size)
	var w [64]uint32
	for ; len(b) > 0; b = b[64:] {
		for i := range 16 {
			w[i] = binary.BigEndian.Uint32(b[4*i:])
		}
		for i := 16; i < len(w); i++ {
			x, y := w[i-15], w[i-2]
			w[i] = w[i-16] + w[i-7] + (right(x, 7) ^ right(x, 18) ^ x>>3) + (right(y, 17) ^ right(y, 19) ^ y>>10)
		}
		s := h
		for i := range w {
			a, e := s[0], s[4]
			t := s[7] + (right(e, 6) ^ right(e, 11) ^ right(e, 25)) + (e&s[5] ^ ^e&s[6]) + k[i] + w[i]
			u := (right(a, 2) ^ right(a, 13) ^ right(a, 22)) + (a&s[1] ^ a&s[2] ^ s[1]&s[2])
			s = [8]uint32{t + u, s[0], s[1], s[2], s[3] + t, s[4], s[5], s[6]}
		}
		for i := range h {
			h[i] += s[i]
		}
	}
	var out []byte
	for _, v := range h {
		out = binary.BigEndian.AppendUint32(out, v)
	}
	return hex.EncodeToString(out)
}

func fraction(f float64) uint32 { return uint32((f - math.Floor(f)) * (1 << 32)) }

func right(x uint32, n int) uint32 { return bits.RotateLeft32(x, -n) }

// Random is n bytes that nobody can guess, in hex. It reads them itself: package
// crypto/rand makes each start of space-job slower.
func Random(n int) (string, error) {
	f, err := os.Open("/dev/urandom")
	if err != nil {
		return "", err
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := io.ReadFull(f, b); err != nil {
		return "", fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return hex.EncodeToString(b), nil
}
