package runner

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestHandoverRoundTrip(t *testing.T) {
	t.Parallel()
	for _, h := range []handover{
		{argv: []string{"x"}},
		{argv: []string{""}, env: []string{""}, denied: true},
		{path: "/bin/sh", found: true, argv: []string{"sh", "-c", "a\nb", "", "\xff"}, env: []string{"A=", "B=x=y", "C=\n"}, timeout: time.Hour, maxLog: 1 << 40},
		{path: strings.Repeat("p", 5000), found: true, argv: make([]string, 3000), env: make([]string, 3000)},
	} {
		got, ok := decode(h.encode())
		if h.env == nil {
			h.env = []string{}
		}
		if !ok || !reflect.DeepEqual(got, h) {
			t.Errorf("got %+v, %v, want %+v", got, ok, h)
		}
	}
	b := (&handover{argv: []string{"x", "y"}, env: []string{"A=1"}}).encode()
	for n := range b {
		if _, ok := decode(b[:n]); ok {
			t.Errorf("%d of %d bytes are taken for the whole", n, len(b))
		}
	}
	if _, ok := decode(append(b, 0)); ok {
		t.Error("a byte too many is taken")
	}
	if _, ok := decode(append([]byte{specVersion + 1}, b[1:]...)); ok {
		t.Error("another version is taken")
	}
	if _, ok := decode((&handover{}).encode()); ok {
		t.Error("no argv is taken")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&handover{argv: []string{"x"}}).encode())
	f.Add((&handover{path: "/bin/sh", found: true, argv: []string{"sh", "-c", "x"}, env: []string{"A=1"}, timeout: 1, maxLog: 2}).encode())
	f.Add([]byte{})
	f.Add([]byte("\x01\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := decode(b)
		if !ok {
			return
		}
		again := h.encode()
		b = bytes.Clone(b)
		b[4] &= 3 // the flags that there are
		b[5], b[6], b[7] = 0, 0, 0
		if !bytes.Equal(b, again) {
			t.Errorf("%q comes back as %q", b, again)
		}
	})
}
