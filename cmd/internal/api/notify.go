package api

import (
	"errors"
	"slices"

	"space-job/jobdir"
	"space-job/notify"
	"space-job/notify/thread"
)

// unknownStarter is said to somebody who starts a job with notify and is nobody
// that is known.
const unknownStarter = "nobody will be woken when the job ends, as it is not known who you are; the thread will have the message. " +
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
	t := a.thread()
	for _, name := range req.Wake {
		if err := thread.CheckName(name); err != nil {
			return none, fault(err)
		}
		if _, err := t.Member(name); errors.Is(err, thread.ErrNoMember) {
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
