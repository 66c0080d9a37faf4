package record

import (
	"strconv"
	"time"
)

// ID names a job: "j" and 12 lowercase hex digits, the time of its creation in
// units of 1/65536 s since 1970. IDs therefore sort by age.
type ID string

const idLen = 13

// NewID is the id of a job created at t.
func NewID(t time.Time) ID {
	return fromTicks(uint64(t.Unix())<<16 | uint64(t.Nanosecond())<<16/1e9)
}

func fromTicks(n uint64) ID {
	const digits = "0123456789abcdef"
	var b [idLen]byte
	b[0] = 'j'
	for i := idLen - 1; i > 0; i-- {
		b[i] = digits[n&15]
		n >>= 4
	}
	return ID(b[:])
}

// ParseID reports whether s is an id in full.
func ParseID(s string) (ID, bool) {
	if len(s) != idLen || s[0] != 'j' || !IsHex(s[1:]) {
		return "", false
	}
	return ID(s), true
}

// IsHex reports whether s has only lowercase hex digits.
func IsHex(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

func (id ID) ticks() uint64 {
	n, _ := strconv.ParseUint(string(id[1:]), 16, 64)
	return n
}

// Next is the id to try when id is taken.
func (id ID) Next() ID { return fromTicks(id.ticks() + 1) }

// Time is when a job with this id was created, to 1/65536 s.
func (id ID) Time() time.Time {
	n := id.ticks()
	return time.Unix(int64(n>>16), int64(n&0xffff)*1e9>>16)
}
