package api

import (
	"os"
	"path/filepath"
)

// runnerProgram is the path of space-runner, which is installed beside this
// program.
func runnerProgram() (string, error) {
	self, err := os.Executable()
	if err == nil {
		path := filepath.Join(filepath.Dir(self), "space-runner")
		if _, err = os.Stat(path); err == nil { // that it may be executed is seen when it is
			return path, nil
		}
	}
	return "", &Error{Code: Unavailable, Message: err.Error(),
		Hint: "space-runner belongs beside space-job: install both into one folder (space-job doctor looks at it)", cause: err}
}
