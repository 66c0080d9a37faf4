package runner

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stopper ends a set of processes: TERM and CONT to each, up to grace for all
// of them to go, then STOP until a look finds nobody new, and KILL, until one
// finds nothing that may be signalled. KILL alone would only make room for the
// forks of those who have yet to get theirs. Between turns its user does
// something else; next says when to come back.
type stopper struct {
	find   func() (live []process, sure bool) // not sure: somebody may have been missed
	next   time.Time
	killAt time.Time
	giveUp time.Time
	pause  time.Duration

	told    map[int]told   // who has had its TERM, by pid
	frozen  map[int]uint64 // who has had its STOP: start times by pid
	immune  map[int]bool   // may not be signalled
	stopped map[int]bool   // were signalled: how many this stopper ended

	rest []process // after the last turn: who is still there
	sure bool      // and nobody else
}

// told is what a process was when it had its TERM. One that a shell has just
// forked loses a signal to the shell's trap; once it executes its program, under
// another name, it is told again.
type told struct {
	start uint64
	comm  string
}

func newStopper(now time.Time, find func() (live []process, sure bool)) *stopper {
	return &stopper{
		find: find, next: now, killAt: now.Add(grace), giveUp: now.Add(grace + lastChance), pause: time.Millisecond,
		told: map[int]told{}, frozen: map[int]uint64{}, immune: map[int]bool{}, stopped: map[int]bool{},
	}
}

// turn looks and signals once. It reports true when nothing is left to do:
// rest is then empty, or holds those that could not be ended.
func (s *stopper) turn(now time.Time) bool {
	kill, last := !now.Before(s.killAt), !now.Before(s.giveUp)
	var signalled int
	for pass := 0; ; pass++ {
		s.rest, s.sure = s.find()
		if len(s.rest) == 0 && s.sure {
			return true
		}
		signalled = 0
		fresh := false
		for _, p := range s.rest {
			switch {
			case kill:
				if s.frozen[p.pid] != p.start {
					s.frozen[p.pid] = p.start
					fresh = true
					if s.signal(p, unix.SIGSTOP) {
						signalled++
					}
				}
			case s.told[p.pid] != told{p.start, p.comm}:
				s.told[p.pid] = told{p.start, p.comm}
				fresh = true
				if s.signal(p, unix.SIGTERM) {
					s.signal(p, unix.SIGCONT)
				}
			}
		}
		if kill && (!fresh || last) {
			for _, p := range s.rest {
				if s.signal(p, unix.SIGKILL) {
					signalled++
				}
			}
		}
		// Whoever forks while it is being looked at is met in the next pass. A
		// storm is not given time to breathe, but the log and the clock are.
		if pass >= 3 || !kill && !fresh {
			break
		}
	}
	if kill && signalled == 0 && s.sure || last {
		return true
	}
	s.pause = min(2*s.pause, 50*time.Millisecond)
	if kill {
		s.pause = min(s.pause, 5*time.Millisecond)
	}
	s.next = now.Add(s.pause)
	if !kill && s.next.After(s.killAt) {
		s.next = s.killAt
	}
	return false
}

// signal reports whether p took the signal. One that has gone took it too.
func (s *stopper) signal(p process, sig unix.Signal) bool {
	switch err := p.signal(sig); err {
	case nil, unix.ESRCH:
		s.stopped[p.pid] = true
		delete(s.immune, p.pid)
		return true
	default:
		s.immune[p.pid] = true
		return false
	}
}

// complaint names the processes that could not be ended, "" when there are none.
func (s *stopper) complaint() string {
	if len(s.rest) == 0 {
		if s.sure {
			return ""
		}
		return "what still runs could not be told"
	}
	var b strings.Builder
	b.WriteString("still running:")
	for i, p := range s.rest {
		if i == 10 {
			b.WriteString(" and more")
			break
		}
		b.WriteString(" " + strconv.Itoa(p.pid) + " (" + p.comm)
		if s.immune[p.pid] {
			b.WriteString(", not permitted")
		}
		b.WriteByte(')')
	}
	return b.String()
}
