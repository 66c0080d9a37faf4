package jobdir

import (
	"encoding/json"
	"time"
)

// Format is the version of the format that this package writes.
const Format = 1

// Cmd is the cmd file: what was asked for. The starter writes it once.
type Cmd struct {
	Format    int
	ID        ID
	Name      string
	Argv      []string
	Command   string          // when it was given as a shell string
	Until     json.RawMessage // nil: null
	Cwd       string
	Env       []string // names only: no value ever reaches a file
	TimeoutS  float64  // 0: none
	Notify    bool
	Wake      []string
	Key       string
	StartedBy StartedBy
	CreatedAt time.Time
	MaxLog    int64 // 0: every byte is kept

	rest map[string]json.RawMessage // fields of a newer version, kept as they are
}

// StartedBy says who started a job. Unknown is "".
type StartedBy struct {
	Member string `json:"member"`
	Kind   string `json:"kind"`
	Job    string `json:"job"` // the job that the starter belongs to
}

// Marshal is the content of the file, unknown fields kept.
func (c *Cmd) Marshal() []byte { panic("TODO") }

// ParseCmd reads the content of a cmd file. Missing fields are left empty; a
// format above Format is read as far as it can be.
func ParseCmd(b []byte) (*Cmd, error) { panic("TODO") }

// ReadOnly reports whether the job belongs to a newer version, and so must not
// be written to.
func (c *Cmd) ReadOnly() bool { return c.Format > Format }

// Line is the job in one line of at most 120 characters: its name, else its
// command, else its argv quoted for a shell. Control characters are replaced.
func (c *Cmd) Line() string { panic("TODO") }
