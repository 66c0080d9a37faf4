package cli

import (
	"os"

	"space-job/cmd/internal/api"
)

func isTerminal(f *os.File) bool { return api.Columns(f) > 0 }

// colourful reports whether f takes colours: a terminal, unless NO_COLOR or
// TERM says otherwise.
func colourful(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && redrawable(f)
}

// redrawable reports whether what was written to f can be written over: on a
// terminal, unless it shows control sequences as they are.
func redrawable(f *os.File) bool { return os.Getenv("TERM") != "dumb" && isTerminal(f) }

// stateColour paints the name of a state.
func stateColour(state string, code int) string {
	switch {
	case state == "running":
		return "\x1b[36m" + state + "\x1b[0m"
	case state == "exited" && code == 0:
		return "\x1b[32m" + state + "\x1b[0m"
	case state == "cancelled":
		return "\x1b[33m" + state + "\x1b[0m"
	}
	return "\x1b[31m" + state + "\x1b[0m"
}

// cut shortens text to n columns.
func cut(text string, n int) string {
	used := 0
	for i, r := range text {
		w := columnsOfRune(r)
		if used+w > n {
			return text[:i]
		}
		used += w
	}
	return text
}

// columnsOf is how many columns text takes at most.
func columnsOf(text string) int {
	n := 0
	for _, r := range text {
		n += columnsOfRune(r)
	}
	return n
}

func columnsOfRune(r rune) int {
	if r >= 0x1100 { // perhaps wide: rather too short than two lines
		return 2
	}
	return 1
}
