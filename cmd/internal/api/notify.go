package api

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"space-job/jobdir"
	"space-job/notify"
	"space-job/notify/thread"
)

// unknownStarter is said to somebody who starts a job with notify and is nobody
// that is known.
const unknownStarter = "you will not be woken when the job ends, as it is not known who you are; the thread will have the message. " +
	"To be told, say who you are: --member NAME or SPACE_MEMBER (space-job member list)"

// notifier checks all that a start with notify needs, and makes nothing. It fills
// in who starts the job and who is to be woken.
func (a *Actions) notifier(req *StartRequest, cmd *jobdir.Cmd) (notify.Entry, error) {
	none := notify.Entry{}
	if !req.Notify && len(req.Wake) == 0 {
		if req.Member == "" {
			return none, nil
		}
		who, err := a.Identity(req.Member)
		cmd.StartedBy.Member, cmd.StartedBy.Kind = who.Member, who.Kind
		return none, err
	}
	who, err := a.Identity(req.Member)
	if err != nil {
		return none, err
	}
	above, err := a.parent()
	if err != nil {
		return none, err
	}
	t := a.thread()
	for _, name := range req.Wake {
		if err := thread.CheckName("wake", name); err != nil {
			return none, fault(err)
		}
		if _, err := t.Member(name); errors.Is(err, thread.ErrNoMember) && above != nil {
			if err := above.checkMember("wake", name); err != nil {
				return none, err
			}
		} else if errors.Is(err, thread.ErrNoMember) {
			e := invalid("wake", name, "is no member here")
			e.Hint = "see who is: space-job member list"
			return none, e
		} else if err != nil {
			return none, fault(err)
		}
		if name != who.Member && !slices.Contains(cmd.Wake, name) {
			cmd.Wake = append(cmd.Wake, name)
		}
	}
	if _, err := daemonProgram(); err != nil {
		return none, err
	}
	cmd.Notify = true
	cmd.StartedBy.Member, cmd.StartedBy.Kind = who.Member, who.Kind
	hops := 0
	if who.Kind == thread.Agent {
		if hops, err = t.HopsOf(who.Member); err != nil {
			return none, fault(err)
		}
	}
	if above != nil {
		if took, ok := a.takenBy(who.Member); ok && above.token(who.Member) != "" {
			hops = took.Hops
		}
		return notify.NewEntry(who.Member, who.Kind, cmd.Wake, hops, a.lastHeard(), a.now()), nil
	}
	after, err := t.End()
	if err != nil {
		return none, fault(err)
	}
	return notify.NewEntry(who.Member, who.Kind, cmd.Wake, hops, after, a.now()), nil
}

// notified is how far the message of a job has come.
func (a *Actions) notified(info *jobdir.Info) notify.Status {
	if info.Cmd == nil || !info.Cmd.Notify {
		return notify.Status{State: notify.None}
	}
	return notify.StatusOf(a.root, info.ID)
}

// NotifyLine is how far the message of a job has come, in words; "" where there
// is to be none.
func (e *Entry) NotifyLine() string {
	n := e.Notify
	if n.State == notify.None || n.State == "" {
		return ""
	}
	line := string(n.State)
	if n.Error != "" {
		line += ": " + n.Error
	}
	if n.Targets == nil {
		return line
	}
	var parts []string
	if n.Seq > 0 {
		parts = append(parts, "entry "+strconv.FormatInt(n.Seq, 10)+" of the thread")
	}
	for _, name := range slices.Sorted(maps.Keys(n.Wakes)) {
		parts = append(parts, targetLine("wake of "+name, n.Wakes[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(n.Sinks)) {
		parts = append(parts, targetLine("sink "+name, n.Sinks[name]))
	}
	if len(parts) > 0 {
		line += " (" + strings.Join(parts, "; ") + ")"
	}
	return line
}

func targetLine(what string, t notify.Target) string {
	line := what + " "
	switch t.State {
	case notify.None:
		return what + ": it waits in the inbox"
	case notify.Limited:
		line += "stopped by the limit on " + t.Limit + ": it is in the inbox"
		if t.RetryAfterMS > 0 {
			line += "; there is room again after " + FormatDuration(time.Duration(t.RetryAfterMS)*time.Millisecond)
		}
		return line
	}
	line += string(t.State)
	if t.State == notify.Delivered {
		return line
	}
	if t.Attempts > 0 {
		line += " after " + strconv.Itoa(t.Attempts) + " attempt"
		if t.Attempts > 1 {
			line += "s"
		}
	}
	if t.Error != "" {
		line += ": " + t.Error
	}
	return line
}
