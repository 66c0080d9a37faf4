package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"space-job/cmd/internal/api"
	"space-job/notify"
)

// TestRoundOfOthersJobs: a Space that says at once that some other job has ended is a
// fault, after which there is a pause, and no reason to ask again at once.
func TestRoundOfOthersJobs(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	const spaces = `{"box": {"exec": ["sh", "-c", "echo '{\"space_job\":\"v1\",\"format\":1}'; read l; echo '{\"result\":{\"jobs\":[{\"job\":\"j000000000000\",\"state\":\"done\"}],\"code\":0}}'"]}}`
	err := os.Chmod(root, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "spaces.json"), []byte(spaces), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := api.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	e := &elsewhere{actions: a}
	left, err := e.round(t.Context(), "box", []notify.Wait{{Space: "box", Job: "j6c1f0a2b9d3e"}})
	if len(left) != 1 || err == nil || !strings.Contains(err.Error(), "none of its jobs has ended") {
		t.Errorf("%v, %v", left, err)
	}
}
