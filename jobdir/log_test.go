package jobdir

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unicode/utf8"

	"space-job/jobdir/record"
)

func hole(from, to int64) string {
	return string(record.DroppedRecord{Hole: &record.Hole{From: from, To: to}}.Append(nil))
}

// join reads a log from an offset to its end, piece by piece.
func join(t testing.TB, j *Job, offset, max int64) (text []byte, skipped []record.Hole) {
	t.Helper()
	for range 1_000_000 {
		r, err := j.ReadLog(offset, max)
		if err != nil {
			t.Fatal(err)
		}
		if r.Next < offset && !r.Truncated || int64(len(r.Bytes)) > max || r.Next != r.Offset+int64(len(r.Bytes)) || r.More != (r.Next < r.Size) {
			t.Fatalf("ReadLog(%d, %d) = %+v", offset, max, r)
		}
		if r.Dropped != nil {
			skipped = append(skipped, *r.Dropped)
		} else if r.Offset != offset && !r.Truncated {
			t.Fatalf("ReadLog(%d, %d) skips to %d without a word", offset, max, r.Offset)
		}
		text = append(text, r.Bytes...)
		if !r.More {
			return text, skipped
		}
		if r.Next == offset {
			t.Fatalf("ReadLog(%d, %d) stalls: %+v", offset, max, r)
		}
		offset = r.Next
	}
	t.Fatal("no end")
	return nil, nil
}

func TestReadLog(t *testing.T) {
	t.Parallel()
	const log = "0123456789abcdefghij"
	for _, c := range []struct {
		name        string
		dropped     string
		offset, max int64
		want        LogRange
	}{
		{"start", "", 0, 5, LogRange{0, 5, 20, []byte("01234"), nil, false, true, nil}},
		{"all", "", 0, 100, LogRange{0, 20, 20, []byte(log), nil, false, false, nil}},
		{"middle", "", 18, 5, LogRange{18, 20, 20, []byte("ij"), nil, false, false, nil}},
		{"end", "", 20, 5, LogRange{20, 20, 20, nil, nil, false, false, nil}},
		{"past the end", "", 21, 5, LogRange{20, 20, 20, nil, nil, true, false, nil}},
		{"far past the end", "", 1 << 40, 5, LogRange{20, 20, 20, nil, nil, true, false, nil}},
		{"nothing", "", 3, 0, LogRange{3, 3, 20, nil, nil, false, true, nil}},
		{"up to the hole", hole(4, 8), 2, 10, LogRange{2, 4, 20, []byte("23"), nil, false, true, nil}},
		{"at the hole", hole(4, 8), 4, 3, LogRange{8, 11, 20, []byte("89a"), &record.Hole{From: 4, To: 8}, false, true, nil}},
		{"in the hole", hole(4, 8), 6, 3, LogRange{8, 11, 20, []byte("89a"), &record.Hole{From: 6, To: 8}, false, true, nil}},
		{"nothing in the hole", hole(4, 8), 6, 0, LogRange{8, 8, 20, nil, &record.Hole{From: 6, To: 8}, false, true, nil}},
		{"after the hole", hole(4, 8), 8, 3, LogRange{8, 11, 20, []byte("89a"), nil, false, true, nil}},
		{"a hole up to the end", hole(4, 20), 4, 3, LogRange{20, 20, 20, nil, &record.Hole{From: 4, To: 20}, false, false, nil}},
		{"a hole beyond the end", hole(4, 99), 4, 3, LogRange{20, 20, 20, nil, &record.Hole{From: 4, To: 20}, false, false, nil}},
		{"past the end of a cut log", hole(30, 99), 50, 3, LogRange{20, 20, 20, nil, nil, true, false, nil}},
		{"the end under a hole beyond it", hole(10, 99), 20, 3, LogRange{20, 20, 20, nil, nil, false, false, nil}},
		{"no record", "{}", 4, 3, LogRange{4, 7, 20, []byte("456"), nil, false, true, nil}},
		{"half a record", hole(4, 8)[:20], 4, 3, LogRange{4, 7, 20, []byte("456"), nil, false, true, nil}},
		{"a hole of nothing", hole(4, 4), 4, 3, LogRange{4, 7, 20, []byte("456"), nil, false, true, nil}},
		{"a negative hole", hole(-4, 4), 0, 3, LogRange{0, 3, 20, []byte("012"), nil, false, true, nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := makeJob(t, newRoot(t), testID, map[string]string{record.Log: log, record.Dropped: c.dropped})
			got, err := j.ReadLog(c.offset, c.max)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) || (got.Dropped != nil && *got.Dropped != *c.want.Dropped) {
				if got.Dropped != nil && c.want.Dropped != nil && *got.Dropped == *c.want.Dropped {
					got.Dropped, c.want.Dropped = nil, nil
					if err == nil && fmt.Sprint(got) == fmt.Sprint(c.want) {
						return
					}
				}
				t.Errorf("got  %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

func TestReadLogRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		content string
		want    error
	}{{isFIFO, ErrNotRegular}, {isDir, ErrNotRegular}, {isSymlink, ErrNotRegular}, {missing, fs.ErrNotExist}} {
		j := makeJob(t, newRoot(t), testID, map[string]string{record.Log: c.content})
		if _, err := j.ReadLog(0, 10); !errors.Is(err, c.want) {
			t.Errorf("log %q: ReadLog: %v", c.content, err)
		}
		if _, err := j.ReadText(0, 10, true); !errors.Is(err, c.want) {
			t.Errorf("log %q: ReadText: %v", c.content, err)
		}
		if _, err := j.TailOffset(10); !errors.Is(err, c.want) {
			t.Errorf("log %q: TailOffset: %v", c.content, err)
		}
	}
	j := makeJob(t, newRoot(t), testID, nil)
	for _, c := range [][2]int64{{-1, 1}, {0, -1}} {
		if _, err := j.ReadLog(c[0], c[1]); err == nil {
			t.Errorf("ReadLog(%d, %d) is accepted", c[0], c[1])
		}
	}
}

// TestR5HoleUnderReaders: a log grows and its middle is freed; all the while readers see bytes of the output and nothing else.
func TestR5HoleUnderReaders(t *testing.T) {
	t.Parallel()
	const from, keep, block, total = 64 << 10, 128 << 10, 4096, 8 << 20
	j := makeJob(t, newRoot(t), testID, nil)
	log := must[*os.File](t)(os.OpenFile(j.path(record.Log), os.O_RDWR, 0))
	defer log.Close()
	dropped := must[*os.File](t)(os.OpenFile(j.path(record.Dropped), os.O_RDWR, 0))
	defer dropped.Close()
	// No byte is zero, and each tells where it belongs.
	at := func(i int64) byte { return byte(i%251) + 1 }

	var done atomic.Bool
	failed := make(chan error, 3)
	for range 2 {
		go func() {
			offset := int64(0)
			var seen int64
			for end := false; ; {
				r, err := j.ReadLog(offset, 1+rand.Int64N(20_000))
				if err != nil {
					failed <- err
					return
				}
				for i, c := range r.Bytes {
					if c != at(r.Offset+int64(i)) {
						failed <- fmt.Errorf("byte %d is %d, want %d; read %d to %d, dropped %v", r.Offset+int64(i), c, at(r.Offset+int64(i)), r.Offset, r.Next, r.Dropped)
						return
					}
				}
				seen += int64(len(r.Bytes))
				offset = r.Next
				if end && !r.More {
					if seen < from+keep {
						failed <- fmt.Errorf("%d bytes seen", seen)
					}
					failed <- nil
					return
				}
				end = done.Load()
			}
		}()
	}
	buf := make([]byte, 12<<10)
	var to int64
	for size := int64(0); size < total; size += int64(len(buf)) {
		for i := range buf {
			buf[i] = at(size + int64(i))
		}
		if _, err := log.WriteAt(buf, size); err != nil {
			t.Fatal(err)
		}
		if next := (size - keep) / block * block; next > from && next > to {
			to = next
			h := record.DroppedRecord{Hole: &record.Hole{From: from, To: to}}
			if err := record.Write(int(dropped.Fd()), h.Append(nil)); err != nil {
				t.Fatal(err)
			}
			if err := record.Punch(int(log.Fd()), from, to-from); errors.Is(err, syscall.ENOTSUP) {
				t.Skip("no holes here")
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	done.Store(true)
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// TestR5HoleCutUnderReaders: a log is cut, in its hole or before it, as soon as it
// has one: a reader that was at it then is served none of its zeros.
func TestR5HoleCutUnderReaders(t *testing.T) {
	t.Parallel()
	const from, to, size = 16 << 10, 48 << 10, 64 << 10
	j := makeJob(t, newRoot(t), testID, nil)
	log := must[*os.File](t)(os.OpenFile(j.path(record.Log), os.O_RDWR|os.O_APPEND, 0))
	defer log.Close()
	dropped := must[*os.File](t)(os.OpenFile(j.path(record.Dropped), os.O_RDWR, 0))
	defer dropped.Close()

	var done atomic.Bool
	failed := make(chan error, 2)
	for range 2 {
		go func() {
			for !done.Load() {
				r, err := j.ReadLog(rand.Int64N(size), 1+rand.Int64N(size))
				if err != nil {
					failed <- err
					return
				}
				if i := bytes.IndexByte(r.Bytes, 0); i >= 0 {
					failed <- fmt.Errorf("a zero at %d; read %d to %d, dropped %v", r.Offset+int64(i), r.Offset, r.Next, r.Dropped)
					return
				}
			}
			failed <- nil
		}()
	}
	output := bytes.Repeat([]byte("x"), size)
	seq := uint64(0)
	missing := func(h *record.Hole) {
		seq++
		if err := record.Write(int(dropped.Fd()), record.DroppedRecord{Seq: seq, Hole: h}.Append(nil)); err != nil {
			t.Error(err)
		}
	}
	for i := range 5000 {
		if len(failed) > 0 {
			break
		}
		st := must[os.FileInfo](t)(log.Stat())
		if _, err := log.Write(output[st.Size():]); err != nil {
			t.Fatal(err)
		}
		missing(&record.Hole{From: from, To: to})
		if err := record.Punch(int(log.Fd()), from, to-from); errors.Is(err, syscall.ENOTSUP) {
			t.Skip("no holes here")
		} else if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := log.Truncate(0); err != nil {
				t.Fatal(err)
			}
			missing(nil)
		} else {
			if err := log.Truncate(from + 4096); err != nil {
				t.Fatal(err)
			}
			missing(&record.Hole{From: from, To: from + 4096})
		}
	}
	done.Store(true)
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if problems, err := j.check(); err != nil || len(problems) != 0 {
		t.Errorf("%v, %v", problems, err)
	}
	missing(nil)
	if problems, err := j.check(); err != nil || len(problems) != 0 {
		t.Errorf("with nothing missing any more: %v, %v", problems, err)
	}
}

// TestTornDropped: a record that stays half of each of two writes is not
// believed. Who had a whole one before goes by that.
func TestTornDropped(t *testing.T) {
	t.Parallel()
	whole := string(record.DroppedRecord{Seq: 3, Hole: &record.Hole{From: 2, To: 5}}.Append(nil))
	torn := strings.Replace(whole, `"seq":3`, `"seq":4`, 1)
	j := makeJob(t, newRoot(t), testID, map[string]string{record.Log: "0123456789", record.Dropped: torn})
	if r, err := j.ReadLog(0, 100); !errors.Is(err, errTorn) {
		t.Errorf("%+v, %v", r, err)
	}
	if problems, err := j.check(); err != nil || len(problems) != 1 || problems[0].File != record.Dropped {
		t.Errorf("%v, %v", problems, err)
	}
	write := func(content string) {
		if err := os.WriteFile(j.path(record.Dropped), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(whole)
	l := must[*logFile](t)(j.openLog())
	defer l.close()
	for range 2 {
		if h, err := l.hole(); err != nil || h == nil || *h != (record.Hole{From: 2, To: 5}) {
			t.Errorf("%v, %v", h, err)
		}
		write(torn)
	}
}

// TestL2CutCharacters: a character that is cut by the end of a read comes whole
// with the next.
func TestL2CutCharacters(t *testing.T) {
	t.Parallel()
	const text = "aé日本語🎉 naïve\n\ufffd Ω≈ç√ 👩‍👩‍👧 end"
	r := newRoot(t)
	for max := int64(1); max <= 5; max++ {
		j := makeJob(t, r, record.NewID(testID.Time()).Next(), nil)
		log := must[*os.File](t)(os.OpenFile(j.path(record.Log), os.O_WRONLY, 0))
		var got strings.Builder
		offset := int64(0)
		read := func(running bool) {
			for {
				r, err := j.ReadText(offset, max, running)
				if err != nil {
					t.Fatal(err)
				}
				if r.More && r.Next == offset {
					t.Fatalf("max %d: stalls: %+v", max, r)
				}
				got.WriteString(r.Text)
				offset = r.Next
				if !r.More {
					return
				}
			}
		}
		for i := range len(text) { // written one byte at a time
			if _, err := log.WriteString(text[i : i+1]); err != nil {
				t.Fatal(err)
			}
			read(true)
		}
		read(false)
		if got.String() != text || offset != int64(len(text)) {
			t.Errorf("max %d: %q, next %d", max, got.String(), offset)
		}
		log.Close()
		os.RemoveAll(j.Dir())
	}
}

// TestL2TextEnds: what is left of a character counts when nothing more can
// come: at the end of the job, and where the hole begins.
func TestL2TextEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, log, dropped string
		offset, max        int64
		running            bool
		text               string
		next               int64
		more               bool
	}{
		{"running", "a\xf0\x9f", "", 0, 10, true, "a", 1, false},
		{"running, nothing else", "a\xf0\x9f", "", 1, 10, true, "", 1, false},
		{"ended", "a\xf0\x9f", "", 0, 10, false, "a\ufffd\ufffd", 3, false},
		{"ended, one", "a\xf0\x9f", "", 1, 1, false, "\ufffd\ufffd", 3, false},
		{"less than a character", "\xf0\x9f\x8e\x89b", "", 0, 1, true, "🎉", 4, true},
		{"two characters of less", "éé", "", 0, 1, true, "é", 2, true},
		{"invalid", "\xffb", "", 0, 1, true, "\ufffd", 1, true},
		{"cut by the hole", "a\xf0\x9f\x8e\x89b", hole(3, 4), 0, 10, true, "a\ufffd\ufffd", 3, true},
		{"cut by the hole, one", "a\xf0\x9f\x8e\x89b", hole(3, 4), 1, 1, true, "\ufffd\ufffd", 3, true},
		{"after the hole", "a\xf0\x9f\x8e\x89b", hole(3, 4), 3, 10, true, "\ufffdb", 6, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := makeJob(t, newRoot(t), testID, map[string]string{record.Log: c.log, record.Dropped: c.dropped})
			r, err := j.ReadText(c.offset, c.max, c.running)
			if err != nil || r.Text != c.text || r.Next != c.next || r.More != c.more {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestL3Binary: a log of random bytes is read exactly, and as valid text.
func TestL3Binary(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	log := make([]byte, 300_000)
	for i := range log {
		log[i] = byte(rnd.Uint32())
	}
	j := makeJob(t, newRoot(t), testID, map[string]string{record.Log: string(log)})
	for _, max := range []int64{777, 64 << 10, MaxRead} {
		if got, _ := join(t, j, 0, max); !bytes.Equal(got, log) {
			t.Errorf("max %d: %d bytes differ from the log", max, len(got))
		}
		var text strings.Builder
		for offset := int64(0); ; {
			r, err := j.ReadText(offset, max, false)
			if err != nil {
				t.Fatal(err)
			}
			text.WriteString(r.Text)
			if offset = r.Next; !r.More {
				break
			}
		}
		if want, _ := Text(log, false); text.String() != want || !utf8.ValidString(want) {
			t.Errorf("max %d: the pieces are not the text of the whole", max)
		}
	}
}

// TestL5Cut: a log that somebody empties is read on at its new end.
func TestL5Cut(t *testing.T) {
	t.Parallel()
	j := makeJob(t, newRoot(t), testID, map[string]string{record.Log: "0123456789"})
	if err := os.Truncate(j.path(record.Log), 0); err != nil {
		t.Fatal(err)
	}
	r, err := j.ReadLog(10, 5)
	if err != nil || !r.Truncated || r.Next != 0 || r.More {
		t.Errorf("%+v, %v", r, err)
	}
	if err := os.WriteFile(j.path(record.Log), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	x, err := j.ReadText(10, 5, true)
	if err != nil || !x.Truncated || x.Next != 3 || x.More || x.Text != "" {
		t.Errorf("%+v, %v", x, err)
	}
}

// TestL6Huge: a log of 5 GiB costs what a small one does.
func TestL6Huge(t *testing.T) {
	// Not parallel: it measures memory.
	const size = 5 << 30
	j := makeJob(t, newRoot(t), testID, nil)
	log := must[*os.File](t)(os.OpenFile(j.path(record.Log), os.O_WRONLY, 0))
	defer log.Close()
	if _, err := log.WriteAt([]byte("line\nlast line\n"), size-15); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	at, err := j.TailOffset(12)
	if err != nil || at != size-10 {
		t.Errorf("TailOffset: %d, %v, want %d", at, err, size-10)
	}
	r, err := j.ReadLog(at, 4)
	if err != nil || string(r.Bytes) != "last" || r.Next != size-6 || r.Size != size {
		t.Errorf("ReadLog: %+v, %v", r, err)
	}
	info, err := j.Read()
	if err != nil || info.LogBytes != size {
		t.Errorf("Read: %+v, %v", info, err)
	}
	// One line of 100 MB: a whole tail without a newline.
	at, err = j.TailOffset(100 << 20)
	if err != nil || at != size-100<<20 {
		t.Errorf("TailOffset in a long line: %d, %v", at, err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes allocated", used)
	}
}

func TestTailOffset(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		log, dropped string
		n, want      int64
	}{
		{"", "", 10, 0},
		{"one\ntwo\n", "", 100, 0},
		{"one\ntwo\n", "", 8, 0},
		{"one\ntwo\n", "", 7, 4},
		{"one\ntwo\n", "", 5, 4},
		{"one\ntwo\n", "", 4, 4}, // begins a line as it is
		{"one\ntwo\n", "", 3, 5}, // no line begins after it
		{"one\ntwo\nthr", "", 6, 8},
		{"one\ntwo\nthr", "", 2, 9},
		{"one\ntwo\n", "", 0, 8},
		{"one\ntwo\n", "", -1, 8},
		{"aé日本", "", 4, 6}, // not inside a character
		{"aé日本", "", 3, 6},
		{"\x80\x80\x80\x80\x80\x80\x80\x80", "", 6, 5}, // no character at all
		{"one\ntwo\nthree\nfour", hole(4, 8), 14, 8},
		{"one\ntwo\nthree\nfour", hole(4, 9), 12, 14},
		{"one\ntwo\nthreefour", hole(4, 9), 12, 9},
		{"one\ntwo\nthree\nfour", hole(4, 18), 12, 18},
	} {
		j := makeJob(t, newRoot(t), testID, map[string]string{record.Log: c.log, record.Dropped: c.dropped})
		if got, err := j.TailOffset(c.n); err != nil || got != c.want {
			t.Errorf("TailOffset(%d) of %q = %d, %v, want %d", c.n, c.log, got, err, c.want)
		}
	}
}

// FuzzReadLog: the pieces of a log, joined, are the log without its hole.
func FuzzReadLog(f *testing.F) {
	f.Add([]byte("0123456789"), int64(2), int64(5), int64(0), int64(3))
	f.Add([]byte("0123456789"), int64(0), int64(10), int64(7), int64(1))
	f.Add([]byte("0123456789"), int64(3), int64(1<<40), int64(11), int64(1<<50))
	f.Add([]byte{}, int64(-1), int64(0), int64(0), int64(0))
	j := makeJob(f, newRoot(f), testID, nil)
	f.Fuzz(func(t *testing.T, log []byte, from, to, offset, max int64) {
		if offset < 0 || max <= 0 {
			if _, err := j.ReadLog(offset, max); (offset < 0 || max < 0) && err == nil {
				t.Fatalf("ReadLog(%d, %d) is accepted", offset, max)
			}
			return
		}
		// What is in the hole must not come out.
		holed := bytes.Clone(log)
		inHole := func(i int64) bool { return from >= 0 && i >= from && i < to }
		var want []byte
		for i, c := range holed {
			if inHole(int64(i)) {
				holed[i] = 0
			} else if int64(i) >= offset {
				want = append(want, c)
			}
		}
		if err := os.WriteFile(j.path(record.Log), holed, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(j.path(record.Dropped), []byte(hole(from, to)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _ := join(t, j, offset, max); !bytes.Equal(got, want) {
			t.Fatalf("hole %d to %d, from %d in pieces of %d: %q, want %q", from, to, offset, max, got, want)
		}
	})
}

func FuzzDropped(f *testing.F) {
	f.Add([]byte(hole(4096, 1<<33)))
	f.Add([]byte(`{"hole":null,"unwritten":{"bytes":7,"error":"no space","first_at":"2026-01-02T03:04:05.000Z"}}`))
	f.Add([]byte(`{"seq":3,"hole":{"from":1,"to":9},"unwritten":null,"seq_end":3}`))
	f.Add([]byte(`{"hole":{"from":9,"to":1},"unwritten":{"bytes":-1}}`))
	f.Add([]byte(" "))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := parseDropped(b)
		if r == nil {
			return
		}
		if r.Hole == nil && r.Unwritten == nil || r.Hole != nil && (r.Hole.From < 0 || r.Hole.To <= r.Hole.From) {
			t.Fatalf("%q: %+v", b, r)
		}
		r2 := parseDropped(r.Append(nil))
		if r2 == nil || (r2.Hole == nil) != (r.Hole == nil) || r.Hole != nil && *r.Hole != *r2.Hole {
			t.Fatalf("%q comes back as %+v", b, r2)
		}
	})
}
