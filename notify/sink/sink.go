package sink

import (
	"time"

	"space-job/notify"
)

// Limits of one attempt.
const (
	sinkLimit    = 10 * time.Second
	wakeLimit    = time.Minute
	tmuxLimit    = 5 * time.Second
	desktopLimit = 5 * time.Second
)

// New is the sink that a configuration describes, which has been checked.
func New(c notify.SinkConfig) notify.Sink {
	if c.Webhook != "" {
		return &webhook{address: c.Webhook, target: c.Target(), slack: c.Format == notify.FormatSlack, limit: sinkLimit, now: time.Now}
	}
	return &commandSink{shell: c.Command, limit: sinkLimit}
}
