package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"space-job/cmd/internal/link"
	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify"
	"space-job/notify/thread"
)

// Answer does what a member of another Space asks for, by its token, and says what
// came of it. It is made as that member, and nothing in it is decided over there.
func (a *Actions) Answer(ctx context.Context, token string, c link.Call) link.Answer {
	res, _ := a.answerTo(ctx, token, &c)
	return res
}

// AnswerAll is Answer of a call that may be for a stream, which has several.
// It ends with the error of send.
func (a *Actions) AnswerAll(ctx context.Context, token string, c link.Call, send func(res link.Answer, stream bool) error) error {
	var args link.ReadArgs
	if c.Op != link.Read || json.Unmarshal(c.Args, &args) != nil || !args.Stream || args.After == nil || args.FollowMS <= 0 {
		return send(a.Answer(ctx, token, c), false)
	}
	until := time.Now().Add(time.Duration(args.FollowMS) * time.Millisecond)
	for {
		res, cursor := a.answerTo(ctx, token, &c)
		if err := send(res, true); err != nil {
			return err
		}
		left := time.Until(until).Milliseconds()
		if res.Error != nil || cursor <= *args.After || left <= 0 {
			return nil
		}
		args.After, args.FollowMS = &cursor, left
		var err error
		if c.Args, err = json.Marshal(args); err != nil {
			return err
		}
	}
}

// answerTo returns also what comes next after what was read, if anything was.
func (a *Actions) answerTo(ctx context.Context, token string, c *link.Call) (res link.Answer, cursor int64) {
	local := *a
	local.local, local.bound = true, nil
	result, warnings, err := local.answer(ctx, token, c)
	res.Warnings = warnings
	switch r := result.(type) {
	case PostResult:
		res.End = r.Seq
	case followed:
		if err == nil {
			return link.Answer{Result: r.body, End: r.end}, r.cursor
		}
	case ThreadResult:
		cursor = r.Cursor
		res.End, _ = local.thread().End()
	default:
		res.End, _ = local.thread().End()
	}
	if err == nil {
		if result == nil {
			result = struct{}{}
		}
		res.Result, err = json.Marshal(result)
	}
	if err != nil {
		e := AsError(err)
		res = link.Answer{Error: &link.Fault{Code: string(e.Code), Message: e.Message, Hint: e.Hint, Token: e.token}}
		if e.token {
			res.Parent, _ = local.parentID()
		}
	}
	return res, cursor
}

// followed is a ThreadResult in JSON.
type followed struct {
	body   json.RawMessage
	end    int64
	cursor int64
}

func (a *Actions) answer(ctx context.Context, token string, c *link.Call) (result any, warnings []string, err error) {
	decode := func(v any) error {
		if len(c.Args) == 0 {
			return nil
		}
		if err := json.Unmarshal(c.Args, v); err != nil {
			return &Error{Code: InvalidArgument, Message: "args of " + shown(c.Op) + ": " + err.Error()}
		}
		return nil
	}
	if c.Op == link.Join {
		var args link.JoinArgs
		if err := decode(&args); err != nil {
			return nil, nil, err
		}
		res, err := a.admit(token, &args)
		return res, nil, err
	}
	v, err := a.holder(token)
	if err != nil {
		return nil, nil, err
	}
	if c.Op == link.Leave {
		return nil, nil, a.leave(v.ID)
	}
	if _, err := os.Lstat(a.path("members/" + v.Member + ".json")); err != nil {
		return nil, nil, &Error{Code: Conflict, Message: v.Member + " is no member of the parent any more", Hint: "over there: space-job member add " + v.Member + " --kind agent"}
	}
	bound := *a
	bound.bound = &thread.Author{Member: v.Member, Kind: thread.Agent} // as it is now is seen where that counts
	as := &bound
	switch c.Op {
	case link.Read:
		var args link.ReadArgs
		if err := decode(&args); err != nil {
			return nil, nil, err
		}
		if args.FollowMS > 0 && args.After != nil && args.Before == nil && *args.After >= 0 && args.N >= 0 && args.N <= thread.MaxRead && checkFollow(args.FollowMS) == nil {
			wait, cancel := context.WithTimeout(ctx, time.Duration(args.FollowMS)*time.Millisecond)
			res, ok := a.served.hub.follow(wait, a.thread(), *args.After, cmp.Or(int(args.N), DefaultEntries))
			cancel()
			if ok {
				_, err := a.holder(token) // it may have been revoked meanwhile
				return res, nil, err
			}
		}
		res, err := as.ThreadRead(ctx, ThreadRequest{After: args.After, Before: args.Before, N: args.N, FollowMS: args.FollowMS})
		if err == nil && args.FollowMS > 0 {
			_, err = a.holder(token) // it may have been revoked meanwhile
		}
		res.fit(args.After != nil)
		return res, res.Warnings, err
	case link.Claims:
		res, err := as.ThreadClaims()
		return res, res.Warnings, err
	case link.Members:
		res, err := as.MemberList()
		for i := range res.Members {
			m := &res.Members[i]
			m.WakeCommand, m.WakePane, m.WakeSocket = "", "", ""
		}
		return res.Members, res.Warnings, err
	case link.Inbox:
		var args link.InboxArgs
		if err := decode(&args); err != nil {
			return nil, nil, err
		}
		still := func() error { // it may have been revoked meanwhile
			_, err := a.holder(token)
			return err
		}
		res, err := as.Inbox(ctx, InboxRequest{Take: args.Take, FollowMS: args.FollowMS, may: still})
		if err == nil && args.FollowMS > 0 && !args.Take {
			err = still()
		}
		if n := fitting(res.Items, itemBytes); n < len(res.Items) {
			res.Warnings = append(res.Warnings, "the inbox has "+strconv.Itoa(len(res.Items)-n)+" items more, which are newer than these")
			res.Items = res.Items[:n]
		}
		if res.Items == nil {
			res.Items = []thread.Item{}
		}
		return res.Items, res.Warnings, err
	case link.Arrivals:
		var args link.ArrivalsArgs
		if err := decode(&args); err != nil {
			return nil, nil, err
		}
		res, err := as.arrivals(ctx, v.Member, args.Known, args.FollowMS)
		if err == nil {
			_, err = a.holder(token)
		}
		return res, nil, err
	case link.JobEnd:
		var args link.JobEndArgs
		if err := decode(&args); err != nil {
			return nil, nil, err
		}
		res, err := as.jobEnd(v, &args)
		return res, nil, err
	case link.Post, link.Claim, link.Done, link.Release, link.Blocked, link.AnswerItem:
		var args link.SayArgs
		if err := decode(&args); err != nil {
			return nil, nil, err
		}
		if !validKey(args.Key) {
			return nil, nil, invalid("key", args.Key, "is none")
		}
		as.key, as.keyAfter = "link/"+v.ID+"/"+args.Key, args.After
		res, err := as.say(c.Op, &args)
		warnings := res.Warnings
		res.Warnings = nil
		return res, warnings, err
	}
	return nil, nil, invalid("op", c.Op, "is no call")
}

// say says something as the member that a is bound to.
func (a *Actions) say(op string, args *link.SayArgs) (PostResult, error) {
	switch op {
	case link.Claim:
		req := ClaimRequest{What: args.What, Files: args.Files, Branch: args.Branch, Until: args.Until}
		if z := args.Zone; z != nil {
			// Where it is the one here, that is asked: it knows of summer and winter.
			if _, east := a.now().Local().Zone(); east != z.East {
				req.in = time.FixedZone(z.Name, z.East)
			}
		}
		return a.ThreadClaim(req)
	case link.Done:
		return a.ThreadDone("", args.What, args.Result, args.Next)
	case link.Release:
		return a.ThreadRelease("", args.What)
	case link.Blocked:
		return a.ThreadBlocked("", args.What, args.Needs, args.From)
	case link.AnswerItem:
		res, err := a.InboxAnswer("", args.Item, args.Text)
		var answered *thread.AnsweredError
		if errors.As(err, &answered) { // perhaps by this very call, whose answer was lost
			before := answered.Reply + 1
			if read, e := a.thread().Read(thread.Range{Before: &before, N: 1}); e == nil && len(read.Entries) == 1 && read.Entries[0].Text == args.Text {
				res.fill(&thread.Posted{Entry: read.Entries[0]})
				return res, nil
			}
		}
		return res, err
	}
	return a.ThreadPost(PostRequest{Text: args.Text, ReplyTo: args.ReplyTo})
}

// arrivals waits for items of a member that are unread and not known.
func (a *Actions) arrivals(ctx context.Context, member string, known []string, followMS int64) (link.ArrivalsResult, error) {
	res := link.ArrivalsResult{Items: []thread.Item{}, Open: []string{}}
	if err := checkFollow(followMS); err != nil {
		return res, err
	}
	before := make(map[string]bool, len(known))
	seen := make(map[string]bool, len(known))
	for _, id := range known {
		before[id], seen[id] = true, true
	}
	t := a.thread()
	wait, cancel := context.WithTimeout(ctx, time.Duration(followMS)*time.Millisecond)
	defer cancel()
	if _, err := t.WaitInbox(wait, member, seen); err != nil {
		return res, fault(err)
	}
	all, err := t.Inbox(member)
	for _, it := range all {
		res.Open = append(res.Open, it.ID)
		if it.State == thread.Unread && !before[it.ID] {
			res.Items = append(res.Items, it)
		}
	}
	res.Items = res.Items[:fitting(res.Items, itemBytes)] // the others come when these are known
	return res, fault(err)
}

// maxAnswer is about how long an answer may be in JSON, which package carrier
// reads at once.
const maxAnswer = 8 << 20

// fitting is how many of a list fit into an answer: one at least.
func fitting[T any](list []T, size func(*T) int) int {
	room := maxAnswer
	for i := range list {
		if room -= size(&list[i]); room < 0 && i > 0 {
			return i
		}
	}
	return len(list)
}

func textBytes(s string) int         { return 6*len(s) + 1<<10 } // at most, with what stands around it
func itemBytes(it *thread.Item) int  { return textBytes(it.Text) }
func entryBytes(e *thread.Entry) int { return textBytes(e.Text) }

// fit leaves out what does not fit into an answer: what comes after the rest, or
// before it.
func (r *ThreadResult) fit(after bool) {
	if after {
		if n := fitting(r.Entries, entryBytes); n < len(r.Entries) {
			r.Entries = r.Entries[:n]
			r.Cursor = r.Entries[n-1].Seq
		}
		return
	}
	slices.Reverse(r.Entries)
	if n := fitting(r.Entries, entryBytes); n < len(r.Entries) {
		r.Entries, r.HasMoreBefore = r.Entries[:n], true
	}
	slices.Reverse(r.Entries)
}

// maxHops is more than any chain has.
const maxHops = 1000

// jobEndOf reports whether a text is one that notify makes of a job of that Space:
// all that the job itself has written is set off from the edge, so that no line of
// it can be taken for an entry of somebody else, or for a job of another Space.
func jobEndOf(text, space string) bool {
	if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
		return false
	}
	_, rest, _ := strings.Cut(text, "\n")
	lines := strings.Split(rest, "\n")
	last := len(lines) - 1
	for _, line := range lines[:last] {
		if line != "" && line != "End of the log:" && !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "Missing in the log: ") {
			return false
		}
	}
	return strings.HasPrefix(lines[last], "Read more in the Space "+space+" with ")
}

// jobEnd posts the end of a job of the Space of v, once, and tells its starter and
// whoever is to be woken. What is there already is left as it is.
func (a *Actions) jobEnd(v *invite, args *link.JobEndArgs) (link.JobEndResult, error) {
	res := link.JobEndResult{Items: map[string]link.Told{}}
	in := v.Space
	if args.In != "" {
		if _, err := ParseSpace(args.In); err != nil {
			return res, err
		}
		in += "/" + args.In
	}
	ends := []jobdir.State{jobdir.Exited, jobdir.Cancelled, jobdir.TimedOut, jobdir.Lost}
	if args.In != "" {
		ends = append(ends, notify.Unknown)
	}
	id, ok := record.ParseID(args.Job)
	switch {
	case !ok:
		return res, invalid("job", args.Job, "is no id")
	case !strings.HasPrefix(args.Text, "JOB "+args.Job+" ") || len(args.Text) > thread.MaxPost:
		return res, invalid("text", args.Text, "is no message of the end of that job")
	case !jobEndOf(args.Text, in):
		return res, invalid("text", args.Text, "is no message of the end of a job of "+in)
	case !slices.Contains(ends, jobdir.State(args.State)):
		return res, invalid("state", args.State, "is none in which a job has ended")
	case args.Hops < 0 || args.Hops > maxHops:
		return res, invalid("hops", strconv.Itoa(args.Hops), "is not within 0.."+strconv.Itoa(maxHops))
	}
	from := thread.Author{Member: v.Member, Kind: thread.Agent}
	if args.Starter != "" { // only who has joined from there: a child wakes nobody else without a limit
		children, err := a.children()
		if err != nil {
			return res, err
		}
		if slices.ContainsFunc(children, func(o invite) bool { return o.Member == args.Starter && o.SpaceID == v.SpaceID }) {
			from.Member = args.Starter
		} else {
			res.Items[args.Starter] = link.Told{Error: "has not joined from " + v.Space}
			args.Starter = ""
		}
	}
	t := a.thread()
	seq, _, err := t.PostJob(thread.JobEnd{Job: id, Space: in, Text: args.Text, Hops: args.Hops, After: args.After})
	if err != nil {
		return res, fault(err)
	}
	crash("job_end.posted")
	res.Seq = seq
	item := thread.Item{
		ID: "e" + strconv.FormatInt(seq, 10), Kind: thread.KindJobEnd, From: thread.Author{Member: "daemon", Kind: thread.Daemon}, Seq: seq, Text: args.Text,
		Job: args.Job, JobState: args.State, ExitCode: args.ExitCode, Offset: args.Offset, Space: in,
	}
	tell := func(name string, put func(thread.Item) (thread.Item, error)) error {
		it := item
		it.To = name
		it, err := put(it)
		var refused *thread.InvalidError
		switch {
		case errors.Is(err, thread.ErrNoMember), errors.As(err, &refused):
			res.Items[name] = link.Told{Error: err.Error()}
			return nil
		case err != nil:
			return fault(err)
		}
		res.Items[name] = link.Told{Item: it.ID, Wake: it.Wake.State, Limit: it.Wake.Limit, RetryAfterMS: it.Wake.RetryAfterMS}
		return nil
	}
	if args.Starter != "" {
		err := tell(args.Starter, func(it thread.Item) (thread.Item, error) {
			it.Hops = args.Hops
			if m, err := t.Member(args.Starter); err != nil {
				return it, err
			} else if m.Wakeable() {
				it.Wake.State = thread.WakePending
			}
			return t.PutItem(it)
		})
		if err != nil {
			return res, err
		}
	}
	for _, name := range args.Wake {
		if name == args.Starter {
			continue
		}
		if err := tell(name, func(it thread.Item) (thread.Item, error) { return t.WakeOther(from, args.Hops, it) }); err != nil {
			return res, err
		}
	}
	crash("job_end.told")
	return res, nil
}
