package cli

import (
	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

func memberCommand() *command {
	return &command{
		name:    "member",
		summary: "say who is in this Space, and how to wake them",
		about: []string{
			"A member is who can post, be mentioned and have an inbox: a person or an agent. Your login name is a person without being added. Who you are is said by --member, else by $SPACE_MEMBER, else on a terminal it is your login name.",
			"Members keep honest programs apart. They are no protection: every program of one user can write the files of that user.",
		},
		examples: []example{
			{"space-job member add bob --kind agent --wake-pane %3", ""},
			{"space-job member list", ""},
		},
		exits: standardExits,
		sub:   []*command{memberAddCommand(), memberListCommand(), memberRemoveCommand(), memberRevokeCommand()},
	}
}

type memberAddOptions struct{ req api.MemberRequest }

func memberAddCommand() *command {
	return &command{
		name:    "member add",
		usage:   []string{"member add NAME --kind agent|person [--wake-command CMD | --wake-pane PANE]"},
		summary: "add a member, or change one",
		about: []string{
			"NAME has up to 64 letters, digits, dots, underscores and dashes. A member that is there is replaced.",
			"--wake-command is a shell command that gets the item as JSON on its standard input, under a time limit of 60 s; it runs in /, with the environment of the daemon. --wake-pane is a tmux pane: one fixed line is typed into it, if a program other than a shell is in front. Without either, the member is woken by nobody and reads its inbox: space-job inbox --take --follow-ms 25000.",
		},
		examples: []example{
			{"space-job member add bob --kind agent --wake-command '/usr/local/bin/wake-bob'", ""},
			{"space-job member add carol --kind agent --wake-pane work:0.1", ""},
			{"space-job member add dave --kind person", ""},
		},
		exits: plainExits,
		most:  1,
		new:   func() options { return new(memberAddOptions) },
	}
}

func (o *memberAddOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(given(&o.req.Kind, "kind", "KIND"), "kind", "agent or person")
	fs.Var(given(&o.req.WakeCommand, "wake_command", "CMD"), "wake-command", "run this to wake it")
	fs.Var(given(&o.req.WakePane, "wake_pane", "PANE"), "wake-pane", "type a line into this tmux pane to wake it")
}

func (o *memberAddOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("member: no name is given", "member add")
	}
	o.req.Name = args[0]
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.MemberAdd(o.req)
	if err != nil {
		return 0, err
	}
	s.warnings(res.Warnings)
	if s.json {
		s.document(res)
	} else if res.Replaced {
		s.print("changed " + res.Name + "\n")
	} else {
		s.print("added " + res.Name + "\n")
	}
	if !s.json && res.Kind == api.KindAgent {
		s.print("What it should know (space-job skill):\n\n" + api.Skill)
	}
	return exitOK, nil
}

type memberListOptions struct{}

func memberListCommand() *command {
	return &command{
		name:    "member list",
		usage:   []string{"member list"},
		summary: "list the members",
		about: []string{
			"Lists all members by name, with --json one document for each on a line of its own: name, kind, wake_command, wake_pane, wake_socket (of the tmux server that has the pane), added_at, login (it is your login name), space (from which it has joined this thread, if from another).",
		},
		examples: []example{{"space-job member list", ""}},
		exits:    plainExits,
		new:      func() options { return new(memberListOptions) },
	}
}

func (o *memberListOptions) AddFlags(*pflag.FlagSet) {}

func (o *memberListOptions) Run(s *session, _ []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res, err := a.MemberList()
	if err != nil {
		return 0, err
	}
	s.warnings(res.Warnings)
	rows := [][]string{{"NAME", "KIND", "WOKEN BY"}}
	for i := range res.Members {
		m := &res.Members[i]
		if s.json {
			s.document(m)
			continue
		}
		by := "its inbox"
		switch {
		case m.WakeCommand != "":
			by = "the command " + oneLine(m.WakeCommand)
		case m.WakePane != "":
			by = "the tmux pane " + oneLine(m.WakePane)
		case m.Space != "":
			by = "the daemon of its Space, " + m.Space
		}
		name := m.Name
		if m.Login {
			by += " (your login name)"
		}
		rows = append(rows, []string{name, m.Kind, by})
	}
	if !s.json {
		s.print(columns(rows))
	}
	return exitOK, nil
}

type memberRemoveOptions struct{}

func memberRemoveCommand() *command {
	return &command{
		name:     "member remove",
		usage:    []string{"member remove NAME"},
		summary:  "remove a member",
		about:    []string{"A name that is removed can no longer post or be mentioned. What it has posted and claimed stays, and so does its inbox. One that has joined from another Space takes part no longer."},
		examples: []example{{"space-job member remove bob", ""}},
		exits:    []exit{{"0", "fine"}, {"1", "it failed"}, {"2", "a wrong flag or value"}, {"3", "no such member"}},
		operand:  operandMember,
		most:     1,
		new:      func() options { return new(memberRemoveOptions) },
	}
}

func (o *memberRemoveOptions) AddFlags(*pflag.FlagSet) {}

func (o *memberRemoveOptions) Run(s *session, args []string) (int, error) {
	if len(args) == 0 {
		return 0, usage("member: no name is given", "member remove")
	}
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	if err := a.MemberRemove(args[0]); err != nil {
		return 0, err
	}
	if s.json {
		s.document(struct {
			Removed string `json:"removed"`
		}{args[0]})
	} else {
		s.print("removed " + args[0] + "\n")
	}
	return exitOK, nil
}
