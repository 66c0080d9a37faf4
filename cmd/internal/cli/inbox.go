package cli

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type inboxOptions struct{ req api.InboxRequest }

func inboxCommand() *command {
	return &command{
		name:    "inbox",
		usage:   []string{"inbox [--take] [--follow-ms MS]"},
		summary: "see what waits for you: mentions, and jobs that ended",
		about: []string{
			"Lists what you have not answered, oldest first. --take takes the oldest item that is unread, and prints that alone: do what it asks, then answer it. What you took and did not answer within an hour is unread again.",
			"--follow-ms shows the first unread item, and waits for one. What a limit stopped from waking you is passed over then, and shown without --follow-ms.",
			"With --json it is one document for each item on a line of its own: item (its name), kind (mention or job_end), to, from {member, kind}, seq (the entry in the thread), text, hops, at_ms, state (unread or taken), lease, job, job_state, exit_code, offset (where the end of the log in text begins), wake {state, attempts, error, limit, retry_after_ms}.",
		},
		examples: []example{
			{"space-job inbox", ""},
			{"space-job inbox --take --follow-ms 25000 --json", "the loop of an agent that nobody wakes"},
			{"space-job inbox answer e412 '@bob done'", ""},
		},
		exits:    append(plainExits[:len(plainExits):len(plainExits)], exit{"130", "you stopped --follow-ms with Ctrl-C"}),
		asMember: true,
		new:      func() options { return new(inboxOptions) },
		sub:      []*command{inboxAnswerCommand()},
	}
}

func (o *inboxOptions) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.req.Take, "take", false, "take the oldest unread item")
	fs.Var(number(&o.req.FollowMS, "follow_ms", api.ParseInt), "follow-ms", "wait for an unread item, up to 25000 milliseconds")
}

func (o *inboxOptions) Run(s *session, _ []string) (int, error) {
	o.req.Member = s.member
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	ctx, stop := following(o.req.FollowMS)
	defer stop()
	res, err := a.Inbox(ctx, o.req)
	if errors.Is(err, context.Canceled) {
		return exitDetached, nil
	}
	if err != nil {
		return 0, err
	}
	s.warnings(res.Warnings)
	now := time.Now()
	for i := range res.Items {
		if s.json {
			s.document(&res.Items[i])
		} else {
			s.print(itemText(&res.Items[i], now))
		}
	}
	switch {
	case s.json:
	case len(res.Items) == 0 && (o.req.Take || o.req.FollowMS > 0):
		s.say("hint", "nothing is unread")
	case len(res.Items) == 0:
		s.say("hint", "nothing waits for you")
	case o.req.Take:
		s.say("hint", "answer it: space-job inbox answer "+res.Items[0].ID+" TEXT")
	}
	return exitOK, nil
}

// itemText is an item for people. Its text is indented, so that no line of it
// can look like an item.
func itemText(it *api.InboxItem, now time.Time) string {
	head := it.ID + " " + it.State + " " + clock(it.At(), now)
	switch {
	case it.Kind == "job_end":
		head += " a job ended"
	default:
		head += " @" + oneLine(it.From.Member)
	}
	if it.Seq > 0 {
		head += " (entry #" + strconv.FormatInt(it.Seq, 10) + ")"
	}
	switch w := it.Wake; {
	case w.Limit != "":
		head += " [nobody was woken: the limit on " + w.Limit + "]"
	case w.State == "pending" && w.Error != "":
		head += " [not woken after " + strconv.Itoa(w.Attempts) + " attempts: " + oneLine(w.Error) + "]"
	}
	return head + "\n    " + indented(it.Text) + "\n"
}

type inboxAnswerOptions struct{}

func inboxAnswerCommand() *command {
	return &command{
		name:    "inbox answer",
		usage:   []string{"inbox answer ITEM TEXT"},
		summary: "answer an item: post a reply, and be done with it",
		about: []string{
			"Posts TEXT to the thread as a reply to the entry of the item, marks the item as answered, and prints the number of the new entry. It wakes who asked only if TEXT mentions them.",
		},
		examples: []example{{"space-job inbox answer e412 '@bob the schema is in docs/schema.md'", ""}},
		exits:    []exit{{"0", "fine"}, {"1", "it failed, or it is answered already"}, {"2", "a wrong flag or value"}, {"3", "no such item"}},
		asMember: true,
		most:     2,
		new:      func() options { return new(inboxAnswerOptions) },
	}
}

func (o *inboxAnswerOptions) AddFlags(*pflag.FlagSet) {}

func (o *inboxAnswerOptions) Run(s *session, args []string) (int, error) {
	if len(args) < 2 {
		return 0, usage("ITEM and TEXT are needed", "inbox answer")
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	return s.posted(a.InboxAnswer(s.member, args[0], args[1]))
}
