package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestServerReaps: a server that lives on keeps no zombie of a job's runner.
func TestServerReaps(t *testing.T) {
	t.Parallel()
	f := &fronts{root: filepath.Join(t.TempDir(), "root"), updated: make(map[string]chan string)}
	f.env = append(os.Environ(), "SPACE_JOB_HOME="+f.root, "SPACE_JOB=", "SPACE_MEMBER=")
	t.Cleanup(func() { stopAll(f.root) })
	server := exec.Command("space-job", "mcp")
	server.Env = f.env
	f.stdio = f.connect(t, "stdio", &sdk.CommandTransport{Command: server})
	for range 5 {
		job := call(t, f.stdio, "space_job", map[string]any{"action": "start", "command": "true"}).(map[string]any)["job"].(string)
		call(t, f.stdio, "space_job", map[string]any{"action": "logs", "job": job, "offset": 0, "follow_ms": 20000})
	}
	var left string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if left = children(server.Process.Pid); left == "" {
			return
		}
	}
	t.Errorf("children of the server: %s", left)
}

func children(pid int) string {
	var all strings.Builder
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, l := range lists {
		b, _ := os.ReadFile(l)
		all.Write(b)
	}
	return strings.TrimSpace(all.String())
}
