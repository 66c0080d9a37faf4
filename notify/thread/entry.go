package thread

import (
	"bytes"
	"encoding/json"
	"time"

	"space-job/jobdir"
)

// Kinds of an Author and of a Member.
const (
	Person = "person"
	Agent  = "agent"
	Daemon = "daemon" // of an Author only
)

// daemonName is the member that an entry of the daemon names.
const daemonName = "daemon"

// Author is who wrote an entry. The zero Author is somebody unknown.
type Author struct {
	Member string `json:"member"`
	Kind   string `json:"kind"` // Person, Agent or Daemon
}

// Known reports whether it is anybody.
func (a Author) Known() bool { return a.Member != "" }

// Entry is one entry of the thread.
type Entry struct {
	Seq      int64    `json:"seq"` // 1, 2, 3, ...
	AtMS     int64    `json:"at_ms"`
	Author   Author   `json:"author"`
	Text     string   `json:"text"`
	Mentions []string `json:"mentions"` // the members that got an item for it
	ReplyTo  int64    `json:"-"`        // reply_to: null where it replies to none, which is 0 here
	Job      string   `json:"job"`      // of an entry about the end of a job
	Hops     int      `json:"hops"`     // agent to agent hops that led to it, its own mention included
	Key      string   `json:"key"`      // what it is posted once for
}

// At is when it was posted.
func (e *Entry) At() time.Time { return time.UnixMilli(e.AtMS) }

// entryJSON is the shape of an entry in the file and in outputs.
type entryJSON struct {
	Seq      int64    `json:"seq"`
	AtMS     int64    `json:"at_ms"`
	Author   Author   `json:"author"`
	Text     string   `json:"text"`
	Mentions []string `json:"mentions"`
	ReplyTo  *int64   `json:"reply_to"`
	Job      string   `json:"job"`
	Hops     int      `json:"hops"`
	Key      string   `json:"key"`
}

// MarshalJSON writes the entry as it stands in the file.
func (e Entry) MarshalJSON() ([]byte, error) {
	j := entryJSON{e.Seq, e.AtMS, e.Author, e.Text, e.Mentions, nil, e.Job, e.Hops, e.Key}
	if e.ReplyTo != 0 {
		j.ReplyTo = &e.ReplyTo
	}
	if j.Mentions == nil {
		j.Mentions = []string{}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(j); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Entry) UnmarshalJSON(b []byte) error {
	var j entryJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*e = Entry{j.Seq, j.AtMS, j.Author, j.Text, j.Mentions, 0, j.Job, j.Hops, j.Key}
	if j.ReplyTo != nil {
		e.ReplyTo = *j.ReplyTo
	}
	return nil
}

// JobEnd is the end of a job, to be posted.
type JobEnd struct {
	Job   jobdir.ID
	Space string // where it ran, "": in this one
	Text  string
	Hops  int   // those that the starter had
	After int64 // the newest entry when the job began: its own comes later, if it is there
}

func (j *JobEnd) key() string {
	if j.Space == "" {
		return string(j.Job)
	}
	return j.Space + "/" + string(j.Job)
}
