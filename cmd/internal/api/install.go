package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"

	"space-job/cmd/internal/space"
	"space-job/jobdir"
)

// installedDir has a file for each Space that space-job was brought to, by its name:
// an [installedProgram]. It may be removed: then it is looked for again.
const installedDir = "installed"

// programsDir has, in folders such as linux-arm64, the programs for Spaces of another
// kind of system than this one.
const programsDir = "programs"

const maxInstalled = 64 << 10

type installedProgram struct {
	Program string   `json:"program"` // its path over there
	Version string   `json:"version"` // of the program here that brought it
	Exec    []string `json:"exec"`    // the prefix
}

// installed is the space-job that was brought to a Space by this version. After an
// upgrade here it is brought anew, beside the old one.
func (a *Actions) installed(s *space.Space) (string, bool) {
	if !s.Install {
		return "", false
	}
	b, err := jobdir.ReadOwn(a.path(installedDir+"/"+s.Name), maxInstalled, private)
	var p installedProgram
	if err != nil || json.Unmarshal(b, &p) != nil || p.Program == "" || jobdir.ShellLine(p.Exec) != jobdir.ShellLine(s.Exec) {
		return "", false
	}
	return p.Program, true
}

// install brings space-job to the Space, and has it used from now on. The program
// space-jobd does so: it knows checksums, which this one does not link.
func (a *Actions) install(ctx context.Context) error {
	w := a.away
	program, err := daemonProgram()
	if err != nil {
		return err
	}
	dir, err := a.root.MakeDir(installedDir)
	if err != nil {
		return fault(err)
	}
	w.Tell("hint", "there is no space-job in the Space "+w.space.Name+" that can be asked: one is brought there")
	line, err := json.Marshal(space.InstallRequest{Exec: w.space.Exec, Version: w.Version, Programs: a.path(programsDir)})
	if err != nil {
		return fault(err)
	}
	c := exec.CommandContext(ctx, program, "install")
	var out, said bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(append(line, '\n')), &out, &said
	err = c.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var res space.InstallResult
	if bad := json.Unmarshal(out.Bytes(), &res); bad != nil {
		if err == nil {
			err = bad
		}
		return &Error{Code: IO, Message: program + " install: " + err.Error() + " " + strings.TrimSpace(said.String()), cause: err}
	}
	if res.Error != "" {
		return &Error{Code: Unavailable, Message: "space " + w.space.Name + ": space-job cannot be brought there: " + OneLine(res.Error), Hint: res.Hint, cause: errors.New(res.Error)}
	}
	w.Tell("hint", "space-job is now in the Space "+w.space.Name+", in "+OneLine(res.Program))
	w.space.Program = res.Program
	return fault(jobdir.ReplaceFile(dir+"/"+w.space.Name, jobdir.Line(installedProgram{res.Program, w.Version, w.space.Exec}), false))
}
