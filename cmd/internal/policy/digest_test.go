package policy

import (
	"bytes"
	std "crypto/sha256"
	"encoding/hex"
	"testing"
)

func TestDigest(t *testing.T) {
	for n := range 300 {
		b := bytes.Repeat([]byte{byte(n), 'x', 0xff}, n)
		if want := std.Sum256(b); sha256(b) != hex.EncodeToString(want[:]) {
			t.Fatalf("%d bytes: %s, want %x", len(b), sha256(b), want)
		}
	}
	if Digest("s", []string{"a", "b"}) == Digest("s", []string{"ab", ""}) || Digest("s", []string{"a"}) == Digest("t", []string{"a"}) {
		t.Error("two are the same")
	}
}
