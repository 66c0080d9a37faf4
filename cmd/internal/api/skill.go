package api

import (
	_ "embed"

	"space-job/notify/thread"
)

// KindAgent is the kind of a member that is told the Skill.
const KindAgent = thread.Agent

// Skill is how an agent works with jobs and in the thread: what the MCP server
// says of itself, and what an agent is told when it becomes a member.
//
//go:embed skill.md
var Skill string
