package runner

import (
	"io"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

// Sizes of the pump. Bytes are read and written: a splice holds the pipe locked
// while the file takes them, and the job waits for that. Measured, it was 10 to
// 25 % slower, in a flood and in small writes, on two cores and on one.
const (
	biteSize    = 128 << 10 // what one read takes
	bitesPerRun = 32        // before the loop looks at anything else

	pipeSmall = 64 << 10 // the kernel's own size, which an idle job must keep: a user has 64 MiB of them
	pipeLarge = 1 << 20
	growAfter = 8 // full bites without a quiet second between them
	growAgain = 10 * time.Second
	quiet     = time.Second

	// A job that writes a little at a time, time and again, would wake the runner
	// for each: that costs the job more than its write does. So the runner rests
	// after a small turn that followed another, for as long as brings it a good
	// part of a pipe but does not fill it.
	smallTurn = 8 << 10
	recent    = 2 * time.Millisecond
	restLeast = 75 * time.Microsecond
	restFirst = 300 * time.Microsecond
	restMost  = 600 * time.Microsecond

	headKept = 1 << 20 // of a log kept short, its beginning
	holeStep = 1 << 20 // and how much is cut at a time
)

// How a log that takes no bytes is handled: the job waits once, then runs on
// without its log, which is tried again.
const (
	holdBack   = 2 * time.Second
	holdProbe  = 100 * time.Millisecond
	retryEvery = time.Second
)

// pump moves the job's output from its pipe into the log. It is used by the
// loop alone.
type pump struct {
	maxLog int64 // 0: keep all
	off    int64 // where the next byte goes
	hungUp bool  // nobody can write any more, and everything has been read

	buf   []byte // made with the first output
	carry []byte // what of it is read from the pipe and not yet written; nothing unless there is a fault

	large   bool      // the pipe has been grown
	full    int       // full bites since the last quiet second
	growAt  time.Time // when growing it may be tried again
	lastRun time.Time // when bytes were last moved

	dropped record.DroppedRecord
	stale   bool // dropped has changed since it was written

	fault   error         // why the log takes no bytes at present
	held    bool          // the job has been held back once
	until   time.Time     // until when it is held back, zero: it is not
	retryAt time.Time     // when the log is tried again
	resting bool          // the pipe is left alone for a moment
	rest    time.Duration // how long
	turned  time.Time     // when the last turn moved something
}

func (p *pump) init(maxLog int64) {
	p.maxLog = maxLog
	p.rest = restFirst
	p.look()
}

// size is where the log ends. It may have been cut since the last bytes came.
func (p *pump) size() int64 {
	p.look()
	return p.off
}

// pollFD is the pipe if there is a reason to wait for it.
func (p *pump) pollFD() int {
	if p.hungUp || !p.until.IsZero() || p.resting {
		return -1
	}
	return fdPipe
}

// timeout is how long the loop may sleep on the pump's account.
func (p *pump) timeout(now time.Time) time.Duration {
	switch {
	case p.hungUp:
		return -1
	case p.resting:
		return p.rest
	case p.fault != nil:
		return max(p.retryAt.Sub(now), 0)
	case p.large:
		return max(quiet-now.Sub(p.lastRun), 0)
	}
	return -1
}

// tick does what is due by the clock: a log tried again, a pipe and the memory
// of a flood given back.
func (p *pump) tick(now time.Time) {
	if p.fault != nil && !now.Before(p.retryAt) {
		p.again(now)
	}
	if p.large && now.Sub(p.lastRun) >= quiet {
		if _, err := unix.FcntlInt(fdPipe, fSetPipeSize, pipeSmall); err == nil {
			p.large = false
			if len(p.carry) == 0 {
				_ = unix.Madvise(p.buf, unix.MADV_DONTNEED)
			}
		} else {
			p.lastRun = now // still fuller than that
		}
	}
}

// turn moves what the pipe holds, up to a bound.
func (p *pump) turn() {
	if p.hungUp || !p.until.IsZero() {
		return
	}
	rested, moved := p.resting, 0
	p.resting = false
	for range bitesPerRun {
		n, err := p.bite(biteSize)
		moved += n
		if err != nil || n == 0 {
			break
		}
	}
	if moved > 0 {
		now := time.Now()
		p.resting = p.rests(moved, rested, now.Sub(p.turned)) && !p.hungUp && p.until.IsZero()
		p.turned = now
	}
}

// rests decides whether the runner rests after a turn, and how long: moved
// bytes came, after a rest or on their own, and so long after the turn before.
func (p *pump) rests(moved int, rested bool, since time.Duration) bool {
	switch {
	case !rested:
		return moved < smallTurn && since < recent
	case moved >= pipeSmall*3/4: // the job may have been held up
		p.rest = max(p.rest/2, restLeast)
		return false
	case moved < pipeSmall/4:
		p.rest = min(2*p.rest, restMost)
	}
	return true
}

// drain moves what the pipe holds now, and no more: whoever still writes is
// served later. A log that takes no bytes holds nothing up here.
func (p *pump) drain() {
	p.until, p.held = time.Time{}, true
	if p.fault != nil {
		p.again(time.Now()) // perhaps there is room by now
	}
	left := pending(fdPipe)
	for left > 0 && !p.hungUp {
		n, err := p.bite(min(left, biteSize))
		if err != nil || n == 0 {
			break
		}
		left -= n
	}
	p.settle()
}

// bite moves up to max bytes into the log, or to nowhere while the log takes
// none. It returns 0 and no error at the end of the pipe, and EAGAIN when the
// pipe is empty for now.
func (p *pump) bite(max int) (int, error) {
	if p.fault != nil {
		if !p.until.IsZero() {
			return 0, unix.EAGAIN
		}
		return p.discard(max)
	}
	n, err := p.log(max)
	if err != nil && err != unix.EAGAIN {
		p.fail(err, time.Now())
		dropped, err := p.bite(max)
		return n + dropped, err
	}
	return n, err
}

// log moves up to max bytes to the end of the log, and what a fault has left
// before. It returns how many it moved, also with an error.
func (p *pump) log(max int) (int, error) {
	p.look()
	if len(p.carry) == 0 {
		n, err := p.read(max)
		if n <= 0 {
			p.hungUp = err == nil
			return 0, err
		}
		p.carry = p.buf[:n]
	}
	crash("log.read")
	moved := 0
	for len(p.carry) > 0 {
		n, err := unix.Write(fdLog, p.carry)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return moved, err
		}
		p.carry = p.carry[n:]
		moved += n
		p.wrote(n)
	}
	return moved, nil
}

// wrote follows a write of n bytes. They are at the end that the log had at
// that moment, since it is open for appending, and that may have been cut since
// the look: where they went, the open file tells.
func (p *pump) wrote(n int) {
	end, err := unix.Seek(fdLog, 0, io.SeekCurrent)
	if err != nil {
		end = p.off + int64(n)
	}
	p.shorter(end - int64(n))
	p.off = end
	p.flow(n)
}

// read takes up to max bytes out of the pipe, into buf.
func (p *pump) read(max int) (int, error) {
	if p.buf == nil {
		p.buf = make([]byte, biteSize)
	}
	for {
		n, err := unix.Read(fdPipe, p.buf[:min(max, len(p.buf))])
		if err != unix.EINTR {
			return n, err
		}
	}
}

// flow follows a bite of n bytes: a flood gets a larger pipe, a log with a
// bound loses its middle.
func (p *pump) flow(n int) {
	now := time.Now()
	if now.Sub(p.lastRun) >= quiet {
		p.full = 0
	}
	p.lastRun = now
	if n >= pipeSmall {
		p.full++
	}
	if p.full >= growAfter && !p.large && now.After(p.growAt) {
		_, err := unix.FcntlInt(fdPipe, fSetPipeSize, pipeLarge)
		p.large = err == nil
		p.full = 0
		p.growAt = now.Add(growAgain) // for when the user's pipes are used up
	}
	if p.maxLog > 0 {
		p.cut()
	}
}

// cut punches out of the log what max_log no longer covers. What is to go is
// written down first, so that no reader takes the hole's zeros for output.
func (p *pump) cut() {
	from := int64(headKept)
	to := (p.off - (p.maxLog - headKept)) &^ (blockSize - 1)
	if h := p.dropped.Hole; h != nil {
		if to < h.To+holeStep {
			return
		}
	} else if to < from+holeStep {
		return
	}
	start, before := from, p.dropped.Hole
	if before != nil {
		start = before.To
	}
	p.dropped.Hole = &record.Hole{From: from, To: to}
	if !p.writeDropped() { // then nothing is punched: the log grows until it can be said
		p.dropped.Hole = before
		return
	}
	crash("log.dropped")
	_ = record.Punch(fdLog, start, to-start)
	crash("log.punched")
}

// look finds the log's end anew: somebody may have cut it, to free a disk.
func (p *pump) look() {
	var st unix.Stat_t
	if unix.Fstat(fdLog, &st) == nil {
		p.shorter(st.Size)
		p.off = st.Size
	}
}

// shorter takes it that the log was cut to size, unless it ends there: its hole
// goes with the bytes behind it.
func (p *pump) shorter(size int64) {
	h := p.dropped.Hole
	if size >= p.off || h == nil || h.To <= size {
		return
	}
	p.dropped.Hole = nil
	if size > h.From {
		p.dropped.Hole = &record.Hole{From: h.From, To: size}
	}
	p.writeDropped()
}

// fail notes that the log takes no bytes. The first time the job is held back
// for a while, in case somebody makes room.
func (p *pump) fail(err error, now time.Time) {
	p.fault = err
	if !p.held {
		p.held = true
		p.until = now.Add(holdBack)
		p.retryAt = now.Add(holdProbe)
		return
	}
	p.retryAt = now.Add(retryEvery)
}

// again tries a log that took no bytes.
func (p *pump) again(now time.Time) {
	p.fault = nil
	// With nothing to write (EAGAIN) nothing is known, and the next bytes will tell.
	if _, err := p.log(biteSize); err != nil && err != unix.EAGAIN {
		p.fault = err
		p.retryAt = now.Add(retryEvery)
		if !p.until.IsZero() {
			p.retryAt = now.Add(holdProbe)
		}
	}
	if p.fault == nil || !now.Before(p.until) {
		p.until = time.Time{}
	}
	if p.fault != nil && p.until.IsZero() && len(p.carry) > 0 {
		_, _ = p.discard(biteSize) // nothing in the pipe will ask for it
	}
	p.settle()
}

// discard throws output away and counts it. The first time, that is written
// down before it is done.
func (p *pump) discard(max int) (int, error) {
	if p.dropped.Unwritten == nil {
		p.dropped.Unwritten = &record.Unwritten{Error: p.fault.Error(), FirstAt: time.Now()}
		p.writeDropped()
		crash("log.discarding")
	}
	n, err := len(p.carry), error(nil)
	if n > 0 {
		p.carry = nil
	} else if n, err = p.read(max); n <= 0 {
		p.hungUp = err == nil
		return 0, err
	}
	p.dropped.Unwritten.Bytes += int64(n)
	p.dropped.Unwritten.Error = p.fault.Error()
	p.stale = true
	return n, nil
}

// settle writes down what was dropped since it was last written.
func (p *pump) settle() {
	if p.stale {
		p.writeDropped()
	}
}

// writeDropped writes the record, and reports whether it is there.
func (p *pump) writeDropped() bool {
	p.stale = true
	fd, err := record.Open(fdDir, record.Dropped, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CREAT, 0o600)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	p.dropped.Seq++
	p.stale = record.Write(fd, p.dropped.Append(nil)) != nil
	return !p.stale
}
