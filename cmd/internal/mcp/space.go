package mcp

import (
	"os"
	"strings"

	"space-job/cmd/internal/api"
)

// place is the Space that one call is about.
type place struct {
	actions *api.Actions
	notes   []string // what is to be told besides
}

// in is the Space of a name: this one for "", local and the name of this host, unless
// spaces.json has that.
func (s *Server) in(name string) (*place, error) {
	p := &place{actions: s.actions}
	there, err := s.actions.In(name, api.Elsewhere{Version: s.version, Tell: func(kind, text string) {
		p.notes = append(p.notes, kind+": "+text)
	}})
	if err != nil {
		if host, _ := os.Hostname(); name == host && api.AsError(err).Code == api.InvalidArgument {
			return p, nil
		}
		return nil, err
	}
	p.actions = there
	return p, nil
}

// words name the Space in the arguments of a call.
func (p *place) words() string {
	if p.actions.Space() == "" {
		return ""
	}
	return "space " + api.Quote(p.actions.Space()) + ", "
}

// tell puts what is to be told behind an answer.
func (p *place) tell(a answer) answer {
	for _, n := range p.notes {
		a.text += "\n" + p.speak(n)
	}
	return a
}

// fault is an error whose hint is for somebody who names the Space in the call.
func (p *place) fault(err error) error {
	e, ok := err.(*api.Error)
	if !ok || p.actions.Space() == "" {
		return err
	}
	out := *e
	out.Hint = p.speak(e.Hint)
	return &out
}

// speak is speak for what has the name of the Space in a command line.
func (p *place) speak(text string) string {
	if name := p.actions.Space(); name != "" {
		text = strings.ReplaceAll(text, "space-job --space "+name+" ", "space-job ")
	}
	return speak(text)
}
