package api

import (
	"os"
	"syscall"

	"space-job/jobdir/record"
)

// BecomeMCP makes this process the MCP server of one client, on its stdin and
// stdout, for member, else for $SPACE_MEMBER, else for nobody known. It returns
// only when it fails.
func (a *Actions) BecomeMCP(member string) error {
	field := "member"
	if member == "" {
		member, field = os.Getenv(record.EnvMember), record.EnvMember
	}
	args := []string{"space-jobd", "mcp"}
	if member != "" {
		if _, err := a.member(field, member); err != nil {
			e := AsError(err)
			if e.Code == InvalidArgument && e.Hint != "" {
				e.Hint += "; this root is " + a.root.Path() // a client may not pass SPACE_JOB_HOME on
			}
			return e
		}
		args = append(args, "--member", member)
	}
	program, err := daemonProgram()
	if err != nil {
		return err
	}
	err = syscall.Exec(program, args, os.Environ())
	return &Error{Code: Unavailable, Message: "execute " + program + ": " + err.Error(), cause: err}
}
