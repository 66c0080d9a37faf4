package notify

import (
	"strings"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// passed are the variables that a daemon has, and LC_* and XDG_*, and no others:
// it outlives whoever starts it, so what it does must not depend on who that was.
var passed = map[string]bool{
	"HOME": true, "USER": true, "LOGNAME": true, "SHELL": true, "PATH": true, "LANG": true, "TZ": true,
	"DBUS_SESSION_BUS_ADDRESS": true, "DISPLAY": true, "WAYLAND_DISPLAY": true,
}

// Environ is the environment of the daemon of a root, out of that of its starter.
func Environ(root *jobdir.Root, env []string) []string {
	own := record.EnvHome + "=" + root.Path()
	out := make([]string, 0, 16)
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if ok && (passed[name] || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_")) {
			out = append(out, kv)
		}
	}
	return append(out, own)
}
