package notify

import "space-job/jobdir"

// Message is what is said of a job that has ended.
type Message struct {
	Key        string       `json:"key"` // "job/<id>": the same, however often it is delivered
	Job        jobdir.ID    `json:"job"`
	State      jobdir.State `json:"state"`
	ExitCode   *int         `json:"exit_code"`   // nil unless exited
	DurationMS *int64       `json:"duration_ms"` // nil: not known
	LogBytes   int64        `json:"log_bytes"`
	Name       string       `json:"name"`
	Text       string       `json:"text"` // as it stands in the thread
	Offset     int64        `json:"-"`    // where the end of the log in Text begins
}
