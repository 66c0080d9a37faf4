//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
)

// space asks for a job in another Space over ssh with a connection that is shared,
// and has ssh run the same command, in turns. The server is a process of this
// measure, behind a pipe.
func (b *bench) space() {
	t := b.one()
	if t == nil {
		return
	}
	sshd, err := exec.LookPath("/usr/sbin/sshd")
	if err != nil {
		say("  there is no sshd here")
		return
	}
	if os.Geteuid() == 0 {
		_ = os.MkdirAll("/run/sshd", 0o755)
	}
	who, err := user.Current()
	fail(err)
	dir, err := os.MkdirTemp("", "ssh") // the path of a socket has a hundred bytes
	fail(err)
	defer os.RemoveAll(dir)
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		fail(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, key := range []string{"host", "user"} {
		_, err := call(nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key))
		fail(err)
	}
	// The home is an empty one, so that the shell over there reads no file of this user.
	server := put("sshd_config", fmt.Sprintf("HostKey %[1]s/host\nAuthorizedKeysFile %[1]s/user.pub\nStrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\nSetEnv HOME=%[1]s\n", dir))
	key, err := os.ReadFile(filepath.Join(dir, "host.pub"))
	fail(err)
	put("known", "box "+string(key))
	client := put("ssh_config", fmt.Sprintf("Host box\n User %[2]s\n ProxyCommand %[3]s -i -f %[4]s\n UserKnownHostsFile %[1]s/known\n IdentityFile %[1]s/user\n IdentitiesOnly yes\n LogLevel ERROR\n ControlMaster auto\n ControlPath %[1]s/shared\n ControlPersist 600\n",
		dir, who.Username, sshd, server))
	there, here := filepath.Join(t.dir, "there"), filepath.Join(t.dir, "here")
	fail(os.MkdirAll(here, 0o700))
	prefix := []string{"ssh", "-F", client, "box", "env", "SPACE_JOB_HOME=" + there}
	program, err := filepath.Abs(t.path)
	fail(err)
	list, err := json.Marshal(map[string]any{"box": map[string]any{"exec": prefix, "program": program}})
	fail(err)
	fail(os.WriteFile(filepath.Join(here, "spaces.json"), list, 0o600))
	env := append(os.Environ(), "SPACE_JOB_HOME="+here, "SPACE_JOB=")
	_, err = call(env, program, "--space", "box", "start", "seq 1000")
	fail(err)
	defer func() { _, _ = call(nil, "ssh", "-F", client, "-O", "exit", "box") }()
	for _, words := range []string{"status --json", "logs --offset 0 --json", "start --json true"} {
		args := strings.Fields(words)
		var far, near sample
		for round := range 43 {
			for turn := range 2 {
				argv, into := append(append(prefix[:len(prefix):len(prefix)], program), args...), &near
				if (round+turn)%2 == 0 {
					argv, into = append([]string{program, "--space", "box"}, args...), &far
				}
				d, err := timed(env, argv...)
				fail(err)
				if round > 1 {
					*into = append(*into, d)
				}
			}
		}
		x := far.median().Seconds() / near.median().Seconds()
		b.add(row{measure: "--space over a shared ssh, against ssh: " + words, must: times(1.15), aim: times(1.05), got: x,
			cells: map[string]string{ours: fmt.Sprintf("x%.2f %s", x, short(far.median()))}})
	}
}
