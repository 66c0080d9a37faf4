package daemon

import (
	"encoding/xml"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestR8ServiceKillsNoJobs: a double fork does not leave a control group, so a
// stop of the service must end the daemon alone. The files say so, and start what
// this program understands.
func TestR8ServiceKillsNoJobs(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../../scripts/space-jobd.service")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(unit)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	for _, want := range []string{"[Service]", "KillMode=process", "OOMPolicy=continue", "Restart=on-failure"} {
		if !slices.Contains(lines, want) {
			t.Errorf("the unit has no line %q", want)
		}
	}
	for _, line := range lines {
		if command, ok := strings.CutPrefix(line, "ExecStart="); ok {
			if o, code := parse(strings.Fields(command)[1:]); code >= 0 || o.service != "systemd" {
				t.Errorf("%s: %+v, %d", line, o, code)
			}
		}
	}

	plist, err := os.Open("../../../scripts/space-jobd.plist")
	if err != nil {
		t.Fatal(err)
	}
	defer plist.Close()
	var text []string
	for d := xml.NewDecoder(plist); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.CharData:
			if s := strings.TrimSpace(string(token)); s != "" {
				text = append(text, s)
			}
		case xml.StartElement:
			text = append(text, "<"+token.Name.Local+">")
		}
	}
	if i := slices.Index(text, "AbandonProcessGroup"); i < 0 || text[i+1] != "<true>" {
		t.Error("the agent kills what the daemon has started")
	}
	if !slices.Contains(text, "launchd") {
		t.Error("the agent does not say who it belongs to")
	}
}

// TestFlags: what is refused.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--service"}, {"--service="}, {"--service", "A"}, {"--service", "a b"}, {"x"}, {"--nope"}, {"-x"}} {
		if _, code := parse(args); code != 2 {
			t.Errorf("%q: code %d", args, code)
		}
	}
	if o, code := parse([]string{"--service=systemd", "--inherited"}); code != -1 || o.service != "systemd" || !o.inherited {
		t.Errorf("%+v, %d", o, code)
	}
}
