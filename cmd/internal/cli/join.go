package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/link"
)

type threadInviteOptions struct{ req api.InviteRequest }

func threadInviteCommand() *command {
	return &command{
		name:    "thread invite",
		usage:   []string{"thread invite [--name N] [--expires D] [--address ADDRESS]"},
		summary: "make a link by which an agent of another Space joins this thread",
		about: []string{
			"Prints a link, one line. It works once, within an hour unless said otherwise, for one agent: over there, space-job thread join LINK --member NAME. From then on thread, claims, inbox and the messages of ended jobs of that Space are those of this one, and this Space decides about order, claims, hops and the limit of wakes. The link is a secret until it is used; here only a digest of it is kept.",
			"A child calls the daemon's port, which must be served: space-job daemon --detach --http 0. --address says how else it gets here: https://HOST through a proxy of yours that leads to that port; or an exec prefix as a JSON list, behind which space-job is run: 'exec:[\"ssh\",\"box\"]'. Plain http is for this machine only, and refused to any other.",
			"--name is what the Space that joins is called here, in messages and lists; without it, its host name, with a number where that is taken.",
			"With --json it is one document: link, invite (its id), name, address, expires_at.",
		},
		examples: []example{
			{"space-job thread invite --name gpu-box", ""},
			{"space-job thread invite --expires 10m --address 'exec:[\"ssh\",\"laptop\"]'", "the child reaches this Space by ssh laptop space-job"},
		},
		exits: plainExits,
		new:   func() options { return new(threadInviteOptions) },
	}
}

func (o *threadInviteOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(given(&o.req.Name, "name", "NAME"), "name", "what the Space that joins is called here")
	fs.Var(named(&o.req.Expires, "expires", "D", api.ParseDuration), "expires", "how long the link is good for, 1h unless said, up to 24h")
	fs.Var(given(&o.req.Address, "address", "ADDRESS"), "address", "how a child gets here, if not at the daemon's port")
}

func (o *threadInviteOptions) Run(s *session, _ []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.Invite(o.req)
	if err != nil {
		return 0, err
	}
	if s.json {
		s.document(res)
		return exitOK, nil
	}
	s.print(res.Link + "\n")
	s.say("hint", "it works once, until "+clock(res.ExpiresAt, time.Now())+": in the other Space, space-job thread join 'LINK' --member NAME")
	return exitOK, nil
}

type threadInvitesOptions struct{}

func threadInvitesCommand() *command {
	return &command{
		name:    "thread invites",
		usage:   []string{"thread invites"},
		summary: "list the links that were made, and who has joined by them",
		about: []string{
			"Lists the links, oldest first, with --json one document for each on a line of its own: invite (its id), name, state (open, used, expired, revoked, or left: who joined has left), address, created_at, expires_at, member, space (from where it joined), used_at. Those that are of no use are kept for eight days.",
		},
		examples: []example{{"space-job thread invites", ""}},
		exits:    plainExits,
		new:      func() options { return new(threadInvitesOptions) },
	}
}

func (o *threadInvitesOptions) AddFlags(*pflag.FlagSet) {}

func (o *threadInvitesOptions) Run(s *session, _ []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	all, err := a.Invites()
	if err != nil {
		return 0, err
	}
	now := time.Now()
	rows := [][]string{{"INVITE", "NAME", "STATE", "UNTIL", "WHO JOINED"}}
	for i := range all {
		v := &all[i]
		if s.json {
			s.document(v)
			continue
		}
		who := ""
		if v.Member != "" {
			who = "@" + v.Member + " from " + oneLine(v.Space)
		}
		rows = append(rows, []string{v.Invite, oneLine(v.Name), v.State, clock(v.ExpiresAt, now), who})
	}
	switch {
	case s.json:
	case len(all) == 0:
		s.say("hint", "there are none: space-job thread invite")
	default:
		s.print(columns(rows))
	}
	return exitOK, nil
}

type threadUninviteOptions struct{}

func threadUninviteCommand() *command {
	return &command{
		name:    "thread uninvite",
		usage:   []string{"thread uninvite INVITE"},
		summary: "revoke a link that nobody has used",
		about: []string{
			"INVITE is its id, the beginning of that, the name that it was made with, or the link itself. Who tries it from then on is told that it was revoked. A link that was used stays what it is: space-job member revoke takes back what it gave.",
		},
		examples: []example{{"space-job thread uninvite gpu-box", ""}},
		exits:    []exit{{"0", "it works no more"}, {"1", "it is used, or it failed"}, {"2", "a wrong flag or value, or several are meant"}, {"3", "no such link"}},
		most:     1,
		new:      func() options { return new(threadUninviteOptions) },
	}
}

func (o *threadUninviteOptions) AddFlags(*pflag.FlagSet) {}

func (o *threadUninviteOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("invite: none is named", "thread uninvite")
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	v, err := a.Uninvite(args[0])
	if err != nil {
		return 0, err
	}
	if s.json {
		s.document(v)
	} else {
		s.print(v.Invite + " " + v.State + "\n")
	}
	return exitOK, nil
}

type threadJoinOptions struct{ space string }

func threadJoinCommand() *command {
	return &command{
		name:    "thread join",
		usage:   []string{"thread join LINK --member NAME [--name SPACE]", "thread join - --member NAME"},
		summary: "take part in the thread that a link leads to",
		about: []string{
			"NAME, an agent, takes part in the thread of the Space that made the link, the parent; it is added here where it is no member yet. From then on thread, claims, inbox and the messages of ended jobs of this Space are the parent's; jobs, sinks and what wakes NAME stay here. With - the link is read from standard input.",
			"Where the parent cannot be reached, posts wait in the outbox and are posted once, in order, when it can; reads and claims fail and say so. Address and token are in join.json in the root, which only you can read.",
			"A link that leads over an exec prefix has that program run here, now and for each call: take links from those only whom you would let do that. A link that was used, has expired, was revoked, is of another Space or is damaged is refused, and nothing changes. A join that was interrupted is gone on with by the same command. More members of this Space join by links of their own.",
		},
		examples: []example{
			{"space-job thread join 'space-job:http://127.0.0.1:7411#...' --member bob", ""},
			{"space-job thread join - --member bob <link.txt", ""},
		},
		exits: []exit{{"0", "it has joined"}, {"1", "it is refused, or the parent cannot be reached"}, {"2", "a wrong flag or value, or a damaged link"}, {"3", "a link that the Space does not know"}},
		most:  1,
		new:   func() options { return new(threadJoinOptions) },
	}
}

func (o *threadJoinOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(given(&o.space, "name", "SPACE"), "name", "what this Space would like to be called there, its host name unless said")
}

func (o *threadJoinOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("link: none is given", "thread join")
	}
	text, err := argument(args[0])
	if err == errTooMuch {
		err = usage("link: "+err.Error()+": that is no link", "thread join")
	}
	if err != nil {
		return 0, err
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	ctx, stop := interruptible()
	defer stop()
	res, err := a.Join(ctx, api.JoinRequest{Link: text, Member: s.member, Space: o.space})
	if ctx.Err() != nil {
		return exitDetached, nil
	}
	if err != nil {
		return 0, err
	}
	if s.json {
		s.document(res)
	} else {
		s.print("@" + res.Member + " takes part in the thread of " + res.Address + ", which calls this Space " + res.Space + "\n")
	}
	s.warnings(res.Warnings)
	return exitOK, nil
}

type threadLeaveOptions struct{ drop bool }

func threadLeaveCommand() *command {
	return &command{
		name:    "thread leave",
		usage:   []string{"thread leave [--member NAME] [--drop-waiting]"},
		summary: "take part in the parent's thread no longer",
		about: []string{
			"Forgets where the parent is and the tokens, and has the parent revoke them, if it can be reached; with --member, those of one member. When nobody takes part any more, this Space has a thread of its own again: the one that it had before.",
			"While posts wait for the parent it is refused; --drop-waiting sets them aside, in outbox/posts/refused in the root.",
		},
		examples: []example{{"space-job thread leave", ""}},
		exits:    []exit{{"0", "it has left"}, {"1", "posts wait, or it failed"}, {"2", "a wrong flag or value"}, {"3", "it had not joined"}},
		new:      func() options { return new(threadLeaveOptions) },
	}
}

func (o *threadLeaveOptions) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.drop, "drop-waiting", false, "also where posts wait, which are set aside")
}

func (o *threadLeaveOptions) Run(s *session, _ []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	ctx, stop := interruptible()
	defer stop()
	res, err := a.Leave(ctx, s.member, o.drop)
	if ctx.Err() != nil {
		return exitDetached, nil
	}
	if err != nil {
		return 0, err
	}
	if s.json {
		s.document(res)
	} else {
		s.print("left " + res.Address + ": @" + strings.Join(res.Left, ", @") + "\n")
	}
	s.warnings(res.Warnings)
	return exitOK, nil
}

type memberRevokeOptions struct {
	req api.RevokeRequest
}

func memberRevokeCommand() *command {
	return &command{
		name:    "member revoke",
		usage:   []string{"member revoke NAME", "member revoke --machine SPACE", "member revoke --all"},
		summary: "take back the tokens of members of other Spaces",
		about: []string{
			"A token that is revoked opens nothing from then on, and who uses it is told so. With NAME, those of that member: by which it takes part from another Space (space-job thread invite), and that of its MCP over HTTP. With --machine, those of all who joined from a Space: it is lost. With --all, those of all who have joined. The members stay, and may be invited again.",
		},
		examples: []example{
			{"space-job member revoke bob", ""},
			{"space-job member revoke --machine gpu-box", "a machine is lost"},
		},
		exits:   []exit{{"0", "they open nothing any more"}, {"1", "it failed"}, {"2", "a wrong flag or value"}, {"3", "there is none"}},
		operand: operandMember,
		most:    1,
		new:     func() options { return new(memberRevokeOptions) },
	}
}

func (o *memberRevokeOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(given(&o.req.Machine, "machine", "SPACE"), "machine", "those of all who joined from this Space")
	fs.BoolVar(&o.req.All, "all", false, "those of all who joined from other Spaces")
}

func (o *memberRevokeOptions) Run(s *session, args []string) (int, error) {
	if len(args) > 0 {
		o.req.Member = args[0]
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.Revoke(o.req)
	if err != nil {
		return 0, err
	}
	switch {
	case s.json:
		s.document(res)
	case len(res.Members) == 0:
		s.say("hint", "nobody has joined")
	default:
		s.print("revoked " + strings.Join(res.Members, ", ") + "\n")
	}
	return exitOK, nil
}

// answerLink is "space-job link", which a child runs here behind its exec prefix:
// it answers the one call that is on its standard input, and stops waiting when
// that is closed. It is not for people, and in no list.
func answerLink() int {
	fail := func(err error) int {
		_, _ = os.Stderr.WriteString("space-job: error: link: " + err.Error() + "\n")
		return exitUsage
	}
	in := bufio.NewReaderSize(io.LimitReader(os.Stdin, 2<<20), 64<<10)
	line, err := in.ReadBytes('\n')
	if err != nil && err != io.EOF {
		return fail(err)
	}
	var r link.Request
	if err := json.Unmarshal(line, &r); err != nil {
		return fail(err)
	}
	a, err := api.Open()
	if err != nil {
		return fail(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	b, err := json.Marshal(a.Answer(ctx, r.Token, r.Call))
	if err != nil {
		return fail(err)
	}
	if _, err := os.Stdout.Write(append(b, '\n')); err != nil {
		return exitFailed
	}
	a.TendAll()
	return exitOK
}
