package sink

// desktopArgs is the program that shows a notification. The texts are arguments
// of the script and no part of it, so nothing in them is run. Neither begins
// with a dash.
func desktopArgs(title, body string) []string {
	return []string{"osascript",
		"-e", "on run argv",
		"-e", "display notification (item 2 of argv) with title (item 1 of argv)",
		"-e", "end run",
		title, body}
}
