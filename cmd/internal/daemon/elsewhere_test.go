package daemon

import (
	"encoding/json"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"space-job/cmd/internal/api"
	"space-job/cmd/internal/space"
	"space-job/jobdir"
	"space-job/notify"
)

// TestRoundOfNothing: a Space that says at once that some other job has ended, or
// that there is none and then that it runs, is a fault, after which there is a pause,
// and no reason to ask again at once.
func TestRoundOfNothing(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		`{"result":{"jobs":[{"job":"j000000000000","state":"exited"}],"code":0}}`: "makes no sense",
		`{"error":{"code":"not_found","message":"no such job"}}`:                  "none of its jobs has ended",
	} {
		roundOf(t, answer, want)
	}
}

// roundOf is a round with a Space that answers so to a wait, and to all else that
// the job runs.
func roundOf(t *testing.T, answer, want string) {
	t.Helper()
	root := t.TempDir()
	spaces, err := json.Marshal(map[string]space.Space{"box": {Exec: []string{"sh", "-c",
		`echo '{"space_job":"v1","format":1}'; read l; case $2 in wait) echo '` + answer + `';; *) echo '{"result":{"job":"j6c1f0a2b9d3e","state":"running"}}';; esac`, "sh"}}})
	if err != nil {
		t.Fatal(err)
	}
	err = os.Chmod(root, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "spaces.json"), spaces, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := api.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	r, err := jobdir.OpenRoot(root)
	if err != nil {
		t.Fatal(err)
	}
	e := &elsewhere{actions: a, root: r, log: log.New(io.Discard, "", 0)}
	left, err := e.round(t.Context(), "box", []notify.Wait{{ID: "j6c1f0a2b9d3f", Space: "box", Job: "j6c1f0a2b9d3e", CreatedAt: time.Now()}})
	if len(left) != 1 || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v, %v", answer, left, err)
	}
}
