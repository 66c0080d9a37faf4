package cli

import (
	"github.com/spf13/pflag"

	"space-job/cmd/internal/api"
)

type mcpOptions struct{}

func mcpCommand() *command {
	return &command{
		name:    "mcp",
		usage:   []string{"mcp [--member NAME]", "mcp token [--member NAME]"},
		summary: "serve the tools space_job and space_thread to an agent",
		about: []string{
			"An MCP server on stdin and stdout, for one client, which starts it. It offers space_job (start, logs, status, cancel, list), space_thread (the thread, the inbox and claims), and resources that change when a job ends or something arrives in the inbox. It ends when the client hangs up; jobs go on.",
			"With --member, or SPACE_MEMBER, the client acts as that member: it is woken when its jobs end, and posts under that name. Nothing that it says changes who it is. Without, nobody knows who it is: it can run jobs, and is not woken.",
			"Jobs have the environment and the directory of the server, so those of the client.",
		},
		examples: []example{
			{"space-job member add alice --kind agent", "once, so that there is somebody to wake"},
			{"space-job mcp --member alice", "what the client runs"},
		},
		exits: []exit{
			{"0", "the client has hung up"},
			{"1", "it cannot begin"},
			{"2", "a wrong flag, or no such member"},
		},
		new: func() options { return new(mcpOptions) },
		sub: []*command{mcpTokenCommand()},
	}
}

func (o *mcpOptions) AddFlags(*pflag.FlagSet) {}

func (o *mcpOptions) Run(s *session, _ []string) (int, error) {
	if s.json {
		return 0, usage("--json: what the server says is the protocol", "mcp")
	}
	a, err := api.Open()
	if err != nil {
		return 0, err
	}
	return 0, a.BecomeMCP(s.member)
}

type mcpTokenOptions struct{}

func mcpTokenCommand() *command {
	return &command{
		name:    "mcp token",
		usage:   []string{"mcp token [--member NAME]"},
		summary: "print the token of a client over HTTP",
		about: []string{
			"Prints the bearer token by which the daemon's HTTP endpoint (see space-job help daemon) knows a member, and makes it where there is none; without --member, that of a client that nobody knows. The tokens are in the file token in the root, which only you can read: to take one back, remove its line.",
		},
		examples: []example{
			{"space-job mcp token --member alice", ""},
			{"space-job mcp token --json", "with the URL and the socket"},
		},
		exits: []exit{
			{"0", "it was printed"},
			{"1", "the file cannot be read or written"},
			{"2", "a wrong flag, or no such member"},
		},
		new: func() options { return new(mcpTokenOptions) },
	}
}

func (o *mcpTokenOptions) AddFlags(*pflag.FlagSet) {}

func (o *mcpTokenOptions) Run(s *session, _ []string) (int, error) {
	a, err := api.Open()
	if err != nil {
		return 0, err
	}
	res, err := a.HTTP(s.member)
	if err != nil {
		return 0, err
	}
	if s.json {
		s.document(res)
	} else {
		s.print(res.Token + "\n")
	}
	return exitOK, nil
}
