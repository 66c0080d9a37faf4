package cli

import (
	"strings"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

func policyCommand() *command {
	return &command{
		name:    "policy",
		summary: "see what may be started, and what a person is asked about first",
		about: []string{
			"policy.json in the root has the rules: {\"personal\": false, \"rules\": [{\"command\": \"git push *\", \"verdict\": \"ask\"}, ...]}. It is read at every start, and the first rule that matches decides: allow, ask or deny. With none, a start is allowed, and with \"personal\": true, for a person's own machine, it is asked for. A file that cannot be used (damaged, a symbolic link, somebody else's, open to the writing of others) makes everything asked for.",
			"A rule names any of member, space (\"local\"), cwd (a folder, with all below it), one of command (a pattern, in which * stands for any text), exact (a shell string) and argv (a list), and the verdict. A pattern allows a whole command that is one simple command: its * stands for none of ; & | < > ( ) $ ` # \\ and for no newline, and a start that sets variables is allowed if the rule lists their names in env. A pattern that asks or denies looks at each simple command of a shell string, also within sh -c and behind sudo and the like, and asks where it cannot tell what is run.",
			"Judged are commands, programs with arguments and --until-command. The other conditions run nothing of yours. Every decision is a line in audit.log in the root. All this keeps honest programs apart: it is no wall against a hostile program of the same user, which can write these files.",
		},
		examples: []example{
			{"space-job policy check -- 'git push origin main'", ""},
			{"space-job policy show", ""},
		},
		exits: plainExits,
		sub:   []*command{policyCheckCommand(), policyShowCommand()},
	}
}

type policyCheckOptions struct{ req api.PolicyRequest }

func policyCheckCommand() *command {
	return &command{
		name:    "policy check",
		usage:   []string{"policy check [flags] [--] COMMAND", "policy check [flags] [--] PROG ARG..."},
		summary: "say whether a command may be started, and start nothing",
		about: []string{
			"One operand is a shell string, several are a program and its arguments. What runs commands by other ways than space-job can call this first, so that both ask or neither does.",
			"With --json it says why: verdict, rule (its number in policy.json, null for the default), why, warnings.",
		},
		examples: []example{{"space-job policy check -- 'make deploy'", ""}, {"space-job policy check --member ann --json -- make -j4 test", ""}},
		exits:    []exit{{"0", "allow"}, {"1", "deny, or it failed"}, {"2", "a wrong flag or value"}, {"3", "ask"}},
		strict:   true,
		asMember: true,
		reach:    judgedBy,
		operand:  operandCommand,
		new:      func() options { return new(policyCheckOptions) },
	}
}

func (o *policyCheckOptions) AddFlags(fs *pflag.FlagSet) {
	fs.VarP(parsed(&o.req.Cwd, "DIR", api.ParseCwd), "cwd", "C", "as if it ran in this directory, instead of here")
	fs.VarP(value{"NAME=VALUE", func(s string) error {
		o.req.Env = append(o.req.Env, s)
		return api.CheckEnv(s)
	}}, "env", "e", "as if this variable were set for it. May be repeated")
}

func (o *policyCheckOptions) Run(s *session, args []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	if o.req.Member = s.member; len(args) == 1 {
		o.req.Command = args[0]
	} else {
		o.req.Argv = args
	}
	res, err := a.PolicyCheck(o.req)
	if err != nil {
		return 0, err
	}
	if s.json {
		s.document(res)
	} else {
		s.print(res.Verdict + ": " + oneLine(res.Why) + "\n")
	}
	s.warnings(res.Warnings)
	switch res.Verdict {
	case "allow":
		return exitOK, nil
	case "ask":
		return exitAsk, nil
	}
	return exitFailed, nil
}

type policyShowOptions struct{}

func policyShowCommand() *command {
	return &command{
		name:     "policy show",
		usage:    []string{"policy show"},
		summary:  "show the rules as they are read",
		about:    []string{"With --json it is one document: path, present, personal, rules, default (what is said where no rule matches), error (why the file cannot be used)."},
		examples: []example{{"space-job policy show", ""}},
		exits:    []exit{{"0", "fine"}, {"1", "it failed, or the file cannot be used"}, {"2", "a wrong flag or value"}},
		new:      func() options { return new(policyShowOptions) },
	}
}

func (o *policyShowOptions) AddFlags(*pflag.FlagSet) {}

func (o *policyShowOptions) Run(s *session, _ []string) (int, error) {
	a, err := s.open()
	if err != nil {
		return 0, err
	}
	res := a.PolicyShow()
	code := exitOK
	if res.Error != nil {
		code = exitFailed
	}
	switch {
	case s.json:
		s.document(res)
		return code, nil
	case res.Error != nil:
		s.say("error", *res.Error)
	case !res.Present:
		s.say("hint", "there is no "+res.Path)
	}
	rows := [][]string{{"RULE", "VERDICT", "MEMBER", "SPACE", "FOLDER", "COMMAND"}}
	rows = append(rows, res.Rows()...)
	for _, r := range rows {
		for i := range r {
			r[i] = oneLine(r[i])
		}
	}
	s.print(strings.TrimRight(columns(rows), "\n") + "\n")
	return code, nil
}
