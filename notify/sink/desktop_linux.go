package sink

// desktopArgs is the program that shows a notification. Neither text begins with
// a dash.
func desktopArgs(title, body string) []string {
	return []string{"notify-send", "--app-name=space-job", "--", title, body}
}
