package api

import (
	"os"
	"os/exec"
	"path/filepath"
)

// Program is the path of this program.
func Program() (string, error) {
	self, err := os.Executable()
	if err != nil { // no /proc: as the shell found it
		self, err = exec.LookPath(os.Args[0])
	}
	if err != nil {
		return "", &Error{Code: Unavailable, Message: "this program cannot be found: " + err.Error(), cause: err}
	}
	return self, nil
}

// runnerProgram is the path of space-runner, which is installed beside this
// program.
func runnerProgram() (string, error) {
	self, err := Program()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), "space-runner")
	if _, err := os.Stat(path); err != nil { // that it may be executed is seen when it is
		return "", &Error{Code: Unavailable, Message: err.Error(),
			Hint: "space-runner belongs beside space-job: install both into one folder (space-job doctor looks at it)", cause: err}
	}
	return path, nil
}
