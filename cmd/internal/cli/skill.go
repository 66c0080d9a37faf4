package cli

import (
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type skillOptions struct{ install string }

func skillCommand() *command {
	return &command{
		name:    "skill",
		usage:   []string{"skill [--install DIR]"},
		summary: "print how an agent works with jobs and in the thread",
		about: []string{
			"The instructions for an agent: the same text that the MCP server gives its clients. With --install it is written to DIR/space-job/SKILL.md, where agents look for skills.",
		},
		examples: []example{
			{"space-job skill", ""},
			{"space-job skill --install ~/.claude/skills", "for Claude Code"},
		},
		exits: []exit{
			{"0", "it was printed, or written"},
			{"1", "it could not be written"},
			{"2", "a wrong flag"},
		},
		new: func() options { return new(skillOptions) },
	}
}

func (o *skillOptions) AddFlags(fs *pflag.FlagSet) {
	fs.Var(text(&o.install, "DIR"), "install", "write it to DIR/space-job/SKILL.md instead")
}

// skillHead is what a skill's file begins with.
const skillHead = `---
name: space-job
description: Run commands that take longer than a call may last as jobs that go on without you, be woken when they end, and share a Space with other agents by claims in its thread.
---

`

func (o *skillOptions) Run(s *session, _ []string) (int, error) {
	if o.install == "" {
		if s.json {
			s.document(map[string]string{"text": api.Skill})
		} else {
			s.print(api.Skill)
		}
		return exitOK, nil
	}
	dir := filepath.Join(o.install, "space-job")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	file := filepath.Join(dir, "SKILL.md")
	if err := os.WriteFile(file, []byte(skillHead+api.Skill), 0o644); err != nil {
		return 0, err
	}
	if s.json {
		s.document(map[string]string{"file": file})
	} else {
		s.print(file + "\n")
	}
	return exitOK, nil
}
