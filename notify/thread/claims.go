package thread

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"space-job/jobdir"
)

// Claim is ground that a member has claimed.
type Claim struct {
	What    string    `json:"what"`
	Owner   Author    `json:"owner"`
	Files   []string  `json:"files"` // paths and globs; a branch is "branch NAME"
	Until   time.Time `json:"until"`
	Seq     int64     `json:"seq"` // of its entry
	At      time.Time `json:"at"`
	Blocked *Blocked  `json:"blocked"` // null: it is not
}

// Blocked is what the owner of a claim waits for.
type Blocked struct {
	Needs string `json:"needs"`
	From  string `json:"from"`
	Seq   int64  `json:"seq"`
}

// Live reports whether it holds.
func (c *Claim) Live(now time.Time) bool { return now.Before(c.Until) }

// Overlap is where a claim would meet one of somebody else.
type Overlap struct {
	Claim Claim    `json:"claim"` // of the other
	Files []string `json:"files"` // what was asked for and meets it
	With  []string `json:"with"`  // what it meets, one for one
}

func (o *Overlap) String() string {
	pairs := make([]string, len(o.Files))
	for i, f := range o.Files {
		if pairs[i] = f; f != o.With[i] {
			pairs[i] += " with " + o.With[i]
		}
	}
	return fmt.Sprintf("@%s has claimed %q until %s (entry %d): %s", o.Claim.Owner.Member, o.Claim.What, Clock(o.Claim.Until, o.Claim.At), o.Claim.Seq, strings.Join(pairs, ", "))
}

// Clock shows a time as the Space's clocks do, with the day where it is not that
// of near.
func Clock(t, near time.Time) string {
	t, near = t.Local(), near.Local()
	layout := "15:04 MST"
	if t.Format(time.DateOnly) != near.Format(time.DateOnly) {
		layout = "2006-01-02 15:04 MST"
	}
	return t.Format(layout)
}

// OverlapError is a claim that was refused.
type OverlapError struct {
	What     string
	Overlaps []Overlap
}

func (e *OverlapError) Error() string {
	all := make([]string, len(e.Overlaps))
	for i := range e.Overlaps {
		all[i] = e.Overlaps[i].String()
	}
	return fmt.Sprintf("claim %q overlaps: %s", e.What, strings.Join(all, "; "))
}

// Outcome is what became of a line about a claim.
type Outcome struct {
	Verb     string    `json:"verb"`  // CLAIM, DONE, RELEASE or BLOCKED
	What     string    `json:"what"`  // as it was written
	Live     bool      `json:"live"`  // of CLAIM: it holds
	Ended    bool      `json:"ended"` // of DONE and RELEASE: a claim of that what ended
	Until    time.Time `json:"until,omitzero"`
	Files    []string  `json:"files"`
	Overlaps []Overlap `json:"overlaps"` // why it does not hold
	Over     []Claim   `json:"takes_over"`
	Owner    string    `json:"owner"` // of DONE, RELEASE and BLOCKED: who has a live claim of that what, "" if nobody
}

// ledger is the file of claims: what follows from the entries up to a seq. It
// has those that have expired too, for a while: somebody may take over from
// them.
type ledger struct {
	Seq    int64   `json:"seq"`
	Claims []Claim `json:"claims"`
}

// keepExpired is how long an expired claim is kept.
const keepExpired = 7 * 24 * time.Hour

// apply does what a line says.
func (l *ledger) apply(s *statement, by Author, seq int64, at time.Time) Outcome {
	o := Outcome{Verb: s.verb, What: s.what, Files: []string{}, Overlaps: []Overlap{}, Over: []Claim{}}
	same := func(c *Claim) bool { return foldWhat(c.What) == foldWhat(s.what) }
	if s.verb != verbClaim {
		for i := 0; i < len(l.Claims); i++ {
			c := &l.Claims[i]
			if !same(c) {
				continue
			}
			if c.Live(at) && (o.Owner == "" || c.Owner.Member == by.Member) {
				o.Owner = c.Owner.Member
			}
			switch {
			case c.Owner.Member != by.Member:
			case s.verb == verbBlocked:
				c.Blocked = &Blocked{s.needs, s.from, seq}
			default:
				o.Ended = o.Ended || c.Live(at)
				l.Claims = slices.Delete(l.Claims, i, i+1)
				i--
			}
		}
		return o
	}
	o.Files, o.Until = s.files, s.until
	if o.Overlaps = l.against(s.files, by, at); len(o.Overlaps) > 0 {
		return o
	}
	o.Live = true
	l.Claims = slices.DeleteFunc(l.Claims, func(c Claim) bool {
		switch {
		case c.Owner.Member == by.Member && same(&c): // renewed
			return true
		case c.Live(at):
			return false
		case at.Sub(c.Until) > keepExpired:
			return true
		case len(overlaps(s.files, c.Files)) == 0:
			return false
		}
		if c.Owner.Member != by.Member {
			o.Over = append(o.Over, c)
		}
		return true
	})
	l.Claims = append(l.Claims, Claim{What: s.what, Owner: by, Files: s.files, Until: s.until.UTC(), Seq: seq, At: at.UTC()})
	return o
}

// against are the live claims of others that files meet.
func (l *ledger) against(files []string, by Author, at time.Time) []Overlap {
	all := []Overlap{}
	for _, c := range l.Claims {
		if c.Owner.Member == by.Member || !c.Live(at) {
			continue
		}
		pairs := overlaps(files, c.Files)
		if len(pairs) == 0 {
			continue
		}
		o := Overlap{Claim: c}
		for _, p := range pairs {
			o.Files, o.With = append(o.Files, p[0]), append(o.With, p[1])
		}
		all = append(all, o)
	}
	return all
}

// expired is what is added to a CLAIM that takes over.
func expired(over []Claim, at time.Time) string {
	if len(over) == 0 {
		return ""
	}
	all := make([]string, len(over))
	for i, c := range over {
		t := c.Until.Local()
		layout := "15:04"
		if at.Sub(t) > 24*time.Hour {
			layout = "2006-01-02 15:04"
		}
		all[i] = fmt.Sprintf("@%s, expired %s", c.Owner.Member, t.Format(layout))
	}
	return takeover + strings.Join(all, "; ") + ")"
}

// readLedger is the file of claims. It reports false where it has to be made
// anew.
func (t *Thread) readLedger() (ledger, bool) {
	var l ledger
	path := t.path(threadDir, claimsName)
	b, err := readSmall(path)
	if missing(err) {
		return l, false
	}
	if err == nil {
		if err = json.Unmarshal(b, &l); err == nil && l.Seq < 0 {
			err = errors.New("its seq is below zero")
		}
	}
	if err != nil {
		t.warn("%s is damaged: %v: made anew from the thread", path, err)
		return ledger{}, false
	}
	return l, true
}

// ledger is the claims as of the entries that were worked through, or of a later
// one, up to most: somebody was killed who had got as far.
func (w *writer) ledger(most int64) (ledger, error) {
	l, ok := w.t.readLedger()
	if ok && l.Seq <= max(w.Seq, most) {
		return l, nil
	}
	l, err := ledgerOf(w.log, w.Offset)
	if err != nil {
		return l, err
	}
	return l, w.saveLedger(&l, w.Seq)
}

// ledgerOf is what follows from the entries of a file.
func ledgerOf(f *os.File, size int64) (ledger, error) {
	var l ledger
	r := newWalk(f, place{}, size, anySeq)
	for {
		line, seq, err := r.next()
		if err == io.EOF {
			return l, nil
		}
		if err != nil {
			return l, err
		}
		if e, ok := parseLine(line.b); ok && seq > 0 && e.Author.Kind != Daemon {
			l.applyEntry(&e)
		}
	}
}

// saveLedger writes the claims as they are after an entry.
func (w *writer) saveLedger(l *ledger, seq int64) error {
	l.Seq = seq
	path := w.t.path(threadDir, claimsName)
	if err := w.t.clear(path); err != nil {
		return err
	}
	return jobdir.ReplaceFile(path, jobdir.Line(l), true)
}

// applyEntry does what the lines of an entry say.
func (l *ledger) applyEntry(e *Entry) []Outcome {
	at := e.At().Local()
	list, err := statements(e.Text, at)
	if err != nil { // posted by something that knew other words
		return nil
	}
	var all []Outcome
	for i := range list {
		s := &list[i]
		o := l.apply(s, e.Author, e.Seq, at)
		if s.loose && s.verb == verbRelease && !o.Ended {
			continue // prose
		}
		all = append(all, o)
	}
	return all
}

// Claims are the live claims, oldest first.
func (t *Thread) Claims() ([]Claim, error) {
	l, err := t.currentLedger()
	now := t.now()
	live := slices.DeleteFunc(l.Claims, func(c Claim) bool { return !c.Live(now) })
	return live, err
}

// currentLedger reads the file of claims, and takes the lock only where it is
// not up to date.
func (t *Thread) currentLedger() (ledger, error) {
	f, size, err := t.openLog()
	if f == nil || err != nil {
		return ledger{}, err
	}
	defer f.Close()
	b, err := readSmall(t.path(threadDir, stateName))
	var s state
	if err == nil && json.Unmarshal(b, &s) == nil && s.Offset == size {
		if l, ok := t.readLedger(); ok {
			return l, nil
		}
	}
	w, err := t.open()
	if errors.Is(err, fs.ErrPermission) || shortage(err) {
		return ledgerOf(f, size) // a disk that takes nothing can be read
	}
	if err != nil {
		return ledger{}, err
	}
	defer w.close()
	return w.ledger(0)
}
