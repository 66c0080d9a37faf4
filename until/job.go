package until

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strconv"
	"time"

	"space-job/jobdir"
)

func (w *watcher) job(ctx context.Context) (End, error) {
	j := w.root.Job(jobdir.ID(w.Job))
	if _, err := j.WaitEnd(ctx); err != nil {
		return jobGone(ctx, w.Job, err)
	}
	info, err := j.Read()
	if err != nil {
		return jobGone(ctx, w.Job, err)
	}
	if info.Damaged != "" {
		return never("job %s is damaged: %s", w.Job, oneLine(info.Damaged, 200))
	}
	var code *int
	if info.Exit != nil {
		code = info.Exit.ExitCode
	}
	end := End{Code: jobdir.EndCode(info.State, code), What: "job " + w.Job + " has ended: " + string(info.State)}
	if code != nil {
		end.What += " exit=" + strconv.Itoa(*code)
	}
	return end, nil
}

// jobGone is the end of a watch of a job that cannot be read.
func jobGone(ctx context.Context, id string, err error) (End, error) {
	switch {
	case ctx.Err() != nil:
		return End{}, ctx.Err()
	case errors.Is(err, jobdir.ErrNotFound):
		return never("job %s is gone: it was removed", id)
	}
	return never("job %s cannot be read: %s", id, oneLine(err.Error(), 200))
}

// line waits for a line of a job's log.
func (w *watcher) line(ctx context.Context) (End, error) {
	re, err := compile(w.Match, w.Match)
	if err != nil {
		return never("%v", err)
	}
	j := w.root.Job(jobdir.ID(w.Log))
	watch := j.Watch()
	defer watch.Close()
	s := scanner{re: re}
	var offset int64
	var moved time.Time // when the last byte was seen
	for {
		state, err := j.State() // before the bytes, so that none is missed
		if err != nil {
			return jobGone(ctx, w.Log, err)
		}
		r, err := j.ReadLog(offset, jobdir.MaxRead)
		if err != nil {
			return jobGone(ctx, w.Log, err)
		}
		if r.Truncated {
			w.log.see("the log was cut: reading on at its new end")
		}
		if r.Truncated || r.Dropped != nil {
			s.skip() // what comes next is another line
		}
		offset = r.Next
		found, ok := s.next(r.Bytes)
		if len(r.Bytes) > 0 {
			moved = time.Now()
		}
		ended := state != jobdir.Running && !r.More
		// A line without an end, such as a prompt, counts when nothing more
		// comes to it.
		if !ok && (ended || !r.More && time.Since(moved) >= w.quiet) {
			found, ok = s.unfinished()
		}
		switch {
		case ok:
			return End{CodeHolds, "a line of the log of " + w.Log + " matches: " + oneLine(found, 300)}, nil
		case ended:
			return End{CodeNot, "job " + w.Log + " has ended (" + string(state) + ") and no line of its log matched"}, nil
		case ctx.Err() != nil:
			return End{}, ctx.Err()
		case r.More:
			continue
		}
		if err := watch.Wait(ctx); err != nil {
			return End{}, err
		}
	}
}

// maxScanned is the longest line that is looked at whole. Of a longer one each
// piece is.
const maxScanned = 64 << 10

// scanner looks for a line, as a terminal would show it, in what comes in
// pieces.
type scanner struct {
	re    *regexp.Regexp
	plain jobdir.Plainer
	held  []byte // of a line under way that was longer than the Plainer holds
	tried bool   // the line under way was looked at, in vain
}

func (s *scanner) next(piece []byte) (string, bool) {
	if len(piece) == 0 {
		return "", false
	}
	s.tried = false
	text := append(s.held, s.plain.Next(piece)...)
	for len(text) > 0 {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole && len(line) < maxScanned {
			break
		}
		if s.re.Match(line) {
			return string(line), true
		}
		text = rest
	}
	s.held = append(s.held[:0], text...)
	return "", false
}

// unfinished looks at the line under way.
func (s *scanner) unfinished() (string, bool) {
	if s.tried {
		return "", false // nothing has come since
	}
	s.tried = true
	ahead := s.plain // what it returns is a copy, and the scanner's own goes on
	line := append(bytes.Clone(s.held), ahead.Flush()...)
	if len(line) == 0 || !s.re.Match(line) {
		return "", false
	}
	return string(line), true
}

func (s *scanner) skip() {
	s.plain.Flush()
	s.held = s.held[:0]
}
