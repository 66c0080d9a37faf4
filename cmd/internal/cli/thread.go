package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

// claimExits are the exit codes of what can meet the claim of somebody else.
var claimExits = []exit{
	{"0", "fine"},
	{"1", "it failed, or it overlaps a live claim of somebody else"},
	{"2", "a wrong flag or value"},
}

func threadCommand() *command {
	return &command{
		name:    "thread",
		summary: "read and post in the thread of this Space, and claim what you change",
		about: []string{
			"The thread is one list of entries that all members of a Space share: what agents and people say to one another, and one entry for each job that ended and was started with --notify. Entries are numbered 1, 2, 3 and never change.",
			"@name mentions a member: it gets an item into its inbox and is woken. Not a mention are: text in lines that begin with > or with four blanks, or between backticks; e-mail addresses; your own name. An agent mentions one member in a post, and never itself. A chain of mentions from agent to agent stops after three, and a Space allows twenty in any minute: what is past a limit is posted and wakes nobody, and you are told.",
			"Say what you will change before you change it: thread claim. A claim is live until its time is over, or its owner posts DONE or RELEASE. Posted as text, these lines count the same: " +
				"CLAIM <what> | files: <paths or branch> | until: <when>; DONE <what> | <result> | next: <step>; RELEASE <what>; BLOCKED <what> | needs: <thing> | from @who.",
		},
		examples: []example{
			{"space-job thread read", "the newest entries"},
			{"space-job thread post --member ann '@bob the build is green'", ""},
			{"space-job thread claim 'the parser' --files src/parser --until 2h", ""},
		},
		exits: claimExits,
		sub: []*command{
			threadReadCommand(), threadPostCommand(), threadClaimCommand(), threadDoneCommand(),
			threadReleaseCommand(), threadBlockedCommand(), threadClaimsCommand(),
			threadInviteCommand(), threadInvitesCommand(), threadUninviteCommand(), threadJoinCommand(), threadLeaveCommand(),
		},
	}
}

type threadReadOptions struct {
	req           api.ThreadRequest
	after, before int64
	fs            *pflag.FlagSet
}

func threadReadCommand() *command {
	return &command{
		name:    "thread read",
		usage:   []string{"thread read [--after SEQ | --before SEQ] [-n N] [--follow-ms MS]"},
		summary: "read the thread",
		about: []string{
			"Prints the newest 50 entries, oldest first. --after reads on from an entry, --before goes back. Reading costs what is read, however long the thread is.",
			"With --json it is one document: entries (seq, at_ms, author {member, kind}, text, mentions, reply_to, job, hops, key), cursor, has_more_before. Pass cursor as the next --after: you are through when entries is empty. --follow-ms then waits for the next entry; without --after, for one that is posted from now on.",
		},
		examples: []example{
			{"space-job thread read -n 10", ""},
			{"space-job thread read --after 412 --follow-ms 25000 --json", "what came after entry 412, or what comes next"},
			{"space-job thread read --before 100", "the 50 entries before entry 100"},
		},
		exits: plainExits,
		new:   func() options { return new(threadReadOptions) },
	}
}

// plainExits are the exit codes of what names no job.
var plainExits = standardExits[:3]

func (o *threadReadOptions) AddFlags(fs *pflag.FlagSet) {
	o.fs = fs
	fs.Var(seq(&o.after, "after"), "after", "only entries after this one")
	fs.Var(seq(&o.before, "before"), "before", "only entries before this one")
	fs.VarP(number(&o.req.N, "n", api.ParseCount), "number", "n", "at most so many, 50 unless said, up to 1000")
	fs.Var(number(&o.req.FollowMS, "follow_ms", api.ParseInt), "follow-ms", "wait for an entry, up to 25000 milliseconds")
}

// seq is a flag that takes the number of an entry.
func seq(p *int64, field string) value {
	v := number(p, field, api.ParseInt)
	v.kind = "SEQ"
	return v
}

func (o *threadReadOptions) Run(s *session, _ []string) (int, error) {
	if o.fs.Changed("after") {
		o.req.After = &o.after
	}
	if o.fs.Changed("before") {
		o.req.Before = &o.before
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	ctx, stop := following(o.req.FollowMS)
	defer stop()
	res, err := a.ThreadRead(ctx, o.req)
	if errors.Is(err, context.Canceled) {
		return exitDetached, nil
	}
	if err != nil {
		return 0, err
	}
	s.warnings(res.Warnings)
	if s.json {
		s.document(res)
		return exitOK, nil
	}
	now := time.Now()
	for i := range res.Entries {
		s.print(entryText(&res.Entries[i], now))
	}
	switch {
	case len(res.Entries) == 0 && o.req.After == nil && o.req.Before == nil && o.req.FollowMS == 0 && len(res.Warnings) == 0:
		s.say("hint", "the thread is empty: space-job thread post 'hello'")
	case res.HasMoreBefore && o.req.After == nil && len(res.Entries) > 0:
		s.say("hint", "there are older ones: space-job thread read --before "+strconv.FormatInt(res.Entries[0].Seq, 10))
	}
	return exitOK, nil
}

// entryText is an entry for people. Every line of it after the first is
// indented, so that none can look like an entry.
func entryText(e *api.ThreadEntry, now time.Time) string {
	head := "#" + strconv.FormatInt(e.Seq, 10) + " " + clock(e.At(), now) + " "
	if e.Author.Kind != "daemon" {
		head += "@"
	}
	head += oneLine(e.Author.Member)
	if e.ReplyTo > 0 {
		head += " (to #" + strconv.FormatInt(e.ReplyTo, 10) + ")"
	}
	return head + ": " + indented(e.Text) + "\n"
}

// indented is text with its lines after the first indented, and nothing in it
// that speaks to the terminal.
func indented(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, l := range lines {
		l = strings.ReplaceAll(strings.TrimRight(l, "\r"), "\t", "    ")
		lines[i] = api.OneLine(l)
		if i > 0 {
			lines[i] = strings.TrimRight("    "+lines[i], " ")
		}
	}
	return strings.Join(lines, "\n")
}

// clock is a time as a person reads it: with the day where it is another.
func clock(t, now time.Time) string {
	t = t.Local()
	if t.Format(time.DateOnly) != now.Local().Format(time.DateOnly) {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("15:04:05")
}

func (s *session) warnings(lines []string) {
	for _, w := range lines {
		s.say("warning", w)
	}
}

type threadPostOptions struct {
	reply int64
	fs    *pflag.FlagSet
}

func threadPostCommand() *command {
	return &command{
		name:    "thread post",
		usage:   []string{"thread post TEXT|- [--reply-to SEQ]"},
		summary: "post an entry",
		about: []string{
			"Prints the number of the entry. What became of its mentions and claims is said on stderr: a name that nobody has, a wake that a limit stopped, a CLAIM that overlaps a live one and so does not hold.",
			"With --json it is one document: seq, author, text, mentions (each with member, item, wake: pending, none or limited, limit: hops or rate, retry_after_ms), unknown, claims, warnings. A post has at most 8192 bytes of UTF-8; - reads it from standard input.",
			"In a Space that has joined the thread of another (thread join) and cannot reach it, the post waits: seq is 0, waits is true and a warning says why. It is posted once, in order, when the parent can be reached. A time of the day in a CLAIM is one over there.",
		},
		examples: []example{
			{"space-job thread post 'started the release build, back in an hour'", ""},
			{"space-job thread post --reply-to 412 '@bob yes, go on'", ""},
			{"space-job thread post 'CLAIM parser | files: src/parser | until: 15:04'", "as thread claim does, but for one that overlaps"},
		},
		exits:    plainExits,
		asMember: true,
		most:     1,
		new:      func() options { return new(threadPostOptions) },
	}
}

// maxStdin is more than any argument is long that may be given on standard input.
const maxStdin = 64 << 10

// errTooMuch: nothing of it may be cut, as the rest may be more than blank lines.
var errTooMuch = errors.New("more than 65536 bytes of standard input")

// argument is an argument, or standard input for -, without the end of its last
// line. What floods is read no further than errTooMuch.
func argument(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	b, err := io.ReadAll(io.LimitReader(os.Stdin, maxStdin+1))
	switch {
	case err != nil:
		return "", &api.Error{Code: api.IO, Message: "stdin: " + err.Error()}
	case len(b) > maxStdin:
		return "", errTooMuch
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

func (o *threadPostOptions) AddFlags(fs *pflag.FlagSet) {
	o.fs = fs
	fs.Var(seq(&o.reply, "reply_to"), "reply-to", "the entry that this one replies to")
}

func (o *threadPostOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("text: none is given", "thread post")
	}
	text, err := argument(args[0])
	if err == errTooMuch {
		err = &api.Error{Code: api.LimitExceeded, Message: "text: " + err.Error() + ": a post has at most 8192 bytes",
			Hint: "put it into a file and post its path"}
	}
	if err != nil {
		return 0, err
	}
	req := api.PostRequest{Member: s.member, Text: text}
	if o.fs.Changed("reply-to") {
		req.ReplyTo = &o.reply
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	return s.posted(a.ThreadPost(req))
}

// posted says what became of a post. One that is refused may have brought others on.
func (s *session) posted(res api.PostResult, err error) (int, error) {
	if err != nil {
		s.warnings(res.Warnings)
		return 0, err
	}
	if s.json {
		if res.Warnings == nil {
			res.Warnings = []string{}
		}
		s.document(res)
	} else {
		s.print(strconv.FormatInt(res.Seq, 10) + "\n")
	}
	s.warnings(res.Warnings)
	return exitOK, nil
}

type threadClaimOptions struct{ req api.ClaimRequest }

func threadClaimCommand() *command {
	return &command{
		name:    "thread claim",
		usage:   []string{"thread claim WHAT --files A,B... | --branch B --until WHEN"},
		summary: "claim what you will change, unless somebody else has",
		about: []string{
			"Posts CLAIM WHAT | files: ... | until: ... and prints the number of the entry, or fails, names the owner and the overlap, and posts nothing. Of several that claim the same at once, one succeeds.",
			"Two claims overlap where a path is the other or a folder above it, where a glob (*, ?, [...], {a,b}, ** for any number of folders) can match what the other covers, or where they name one branch. Paths are compared as they are written: write them from the root of the repository. Your own claims do not overlap; claiming the same WHAT again renews it.",
			"WHEN is 15:04 (the next one, by the clock of this machine; in a Space that has joined another, by the clock over there, in the time zone here), 30m, +2h, or RFC 3339. The entry has it with its zone. Ground whose claim has expired may be claimed, and the entry says from whom.",
		},
		examples: []example{
			{"space-job thread claim 'the parser' --files src/parser,docs/grammar.md --until 2h", ""},
			{"space-job thread claim release --branch release-2 --until 17:30", ""},
			{"space-job thread claim tests --files 'src/**/*_test.go' --until 30m", ""},
		},
		exits:    claimExits,
		asMember: true,
		most:     1,
		new:      func() options { return new(threadClaimOptions) },
	}
}

func (o *threadClaimOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(value{"PATHS", func(s string) error {
		o.req.Files = append(o.req.Files, api.SplitPaths(s)...)
		return nil
	}}, "files", "paths and globs, with commas between. May be repeated")
	fs.Var(given(&o.req.Branch, "branch", "NAME"), "branch", "a branch")
	fs.Var(given(&o.req.Until, "until", "WHEN"), "until", "until when: 15:04, 30m, +2h, 2026-05-04T15:04:00+02:00")
}

func (o *threadClaimOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("what: nothing is named", "thread claim")
	}
	o.req.Member, o.req.What = s.member, args[0]
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	return s.posted(a.ThreadClaim(o.req))
}

type threadDoneOptions struct{ next string }

func threadDoneCommand() *command {
	return &command{
		name:    "thread done",
		usage:   []string{"thread done WHAT RESULT --next STEP"},
		summary: "say how it went: your claim of WHAT ends",
		about: []string{
			"Posts DONE WHAT | RESULT | next: STEP and prints the number of the entry. It ends your own claim of the same WHAT; capitals and blanks do not count. That you have none is said, and the line is posted all the same.",
		},
		examples: []example{
			{"space-job thread done 'the parser' 'all tests pass' --next 'bob reviews'", ""},
		},
		exits:    plainExits,
		asMember: true,
		most:     2,
		new:      func() options { return new(threadDoneOptions) },
	}
}

func (o *threadDoneOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(given(&o.next, "next", "STEP"), "next", "what comes next")
}

func (o *threadDoneOptions) Run(s *session, args []string) (int, error) {
	if len(args) < 2 {
		return 0, usage("WHAT and RESULT are needed", "thread done")
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	return s.posted(a.ThreadDone(s.member, args[0], args[1], o.next))
}

type threadReleaseOptions struct{}

func threadReleaseCommand() *command {
	return &command{
		name:    "thread release",
		usage:   []string{"thread release WHAT"},
		summary: "give up your claim of WHAT",
		about: []string{
			"Posts RELEASE WHAT and prints the number of the entry. Only the owner of a claim ends it: without a live claim of your own of that WHAT it fails.",
		},
		examples: []example{{"space-job thread release 'the parser'", ""}},
		exits:    plainExits,
		asMember: true,
		most:     1,
		new:      func() options { return new(threadReleaseOptions) },
	}
}

func (o *threadReleaseOptions) AddFlags(*pflag.FlagSet) {}

func (o *threadReleaseOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("what: nothing is named", "thread release")
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	return s.posted(a.ThreadRelease(s.member, args[0]))
}

type threadBlockedOptions struct{ needs, from string }

func threadBlockedCommand() *command {
	return &command{
		name:    "thread blocked",
		usage:   []string{"thread blocked WHAT --needs THING --from MEMBER"},
		summary: "say what you wait for, and wake who can help",
		about: []string{
			"Posts BLOCKED WHAT | needs: THING | from @MEMBER and prints the number of the entry. It is a mention of MEMBER. Your claim of WHAT stays.",
		},
		examples: []example{{"space-job thread blocked 'the parser' --needs 'the new schema' --from bob", ""}},
		exits:    plainExits,
		asMember: true,
		most:     1,
		new:      func() options { return new(threadBlockedOptions) },
	}
}

func (o *threadBlockedOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(given(&o.needs, "needs", "THING"), "needs", "what you need")
	fs.Var(given(&o.from, "from", "MEMBER"), "from", "who can give it")
}

func (o *threadBlockedOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("what: nothing is named", "thread blocked")
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	return s.posted(a.ThreadBlocked(s.member, args[0], o.needs, o.from))
}

type threadClaimsOptions struct{}

func threadClaimsCommand() *command {
	return &command{
		name:    "thread claims",
		usage:   []string{"thread claims"},
		summary: "list the live claims",
		about: []string{
			"Lists the claims that hold now, oldest first, with --json one document for each on a line of its own: what, owner {member, kind}, files, until, seq, at, blocked (null, or needs, from, seq).",
		},
		examples: []example{{"space-job thread claims", ""}},
		exits:    plainExits,
		new:      func() options { return new(threadClaimsOptions) },
	}
}

func (o *threadClaimsOptions) AddFlags(*pflag.FlagSet) {}

func (o *threadClaimsOptions) Run(s *session, _ []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.ThreadClaims()
	if err != nil {
		return 0, err
	}
	s.warnings(res.Warnings)
	if s.json {
		for i := range res.Claims {
			s.document(&res.Claims[i])
		}
		return exitOK, nil
	}
	if len(res.Claims) == 0 {
		s.say("hint", "nothing is claimed")
		return exitOK, nil
	}
	now := time.Now()
	rows := [][]string{{"OWNER", "UNTIL", "WHAT", "FILES"}}
	for i := range res.Claims {
		c := &res.Claims[i]
		what := oneLine(c.What)
		if c.Blocked != nil {
			what += " (blocked: needs " + oneLine(c.Blocked.Needs) + ", from @" + c.Blocked.From + ")"
		}
		rows = append(rows, []string{"@" + c.Owner.Member, api.Clock(c.Until, now), what, oneLine(strings.Join(c.Files, ", "))})
	}
	s.print(columns(rows))
	return exitOK, nil
}

// columns are rows whose cells stand below one another; the last is as long as
// it is.
func columns(rows [][]string) string {
	last := len(rows[0]) - 1
	widths := make([]int, last)
	for _, r := range rows {
		for i := range widths {
			widths[i] = max(widths[i], columnsOf(r[i]))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		for i, w := range widths {
			b.WriteString(r[i] + strings.Repeat(" ", w-columnsOf(r[i])+2))
		}
		b.WriteString(r[last] + "\n")
	}
	return b.String()
}
