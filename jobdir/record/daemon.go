package record

import (
	"strings"
	"time"
)

// DaemonRecord is the daemon.lock file of a root: who follows its jobs. The
// daemon holds the lock on that file for its whole life; the record stays when
// it goes. Start is as in ProcessRecord.
type DaemonRecord struct {
	PID     int       `json:"pid"`
	Start   uint64    `json:"start"`
	BootID  string    `json:"boot_id"`
	Service string    `json:"service"` // the service manager that owns it, "" for none
	At      time.Time `json:"at"`      // since when
	Ready   bool      `json:"ready"`   // it has said so itself: until then a SIGHUP would end it
}

// Append adds the record's JSON and a newline to b.
func (r DaemonRecord) Append(b []byte) []byte {
	o := open(b)
	o.int("pid", int64(r.PID))
	o.uint("start", r.Start)
	o.text("boot_id", r.BootID)
	o.text("service", r.Service)
	o.time("at", r.At)
	o.bool("ready", r.Ready)
	return o.close()
}

// ParseDaemon reads a daemon.lock file, for those who link no JSON library. It
// reports false unless it names a process of some boot.
func ParseDaemon(b []byte) (DaemonRecord, bool) {
	s := string(b)
	r := DaemonRecord{
		PID:     pid(field(s, "pid")),
		Start:   number(field(s, "start")),
		BootID:  strings.Trim(field(s, "boot_id"), `"`),
		Service: strings.Trim(field(s, "service"), `"`),
		Ready:   field(s, "ready") != "false", // older ones do not say, and are
	}
	r.At, _ = time.Parse(time.RFC3339Nano, strings.Trim(field(s, "at"), `"`))
	return r, r.PID != 0 && r.Start != 0 && r.BootID != ""
}

// IsDaemon reports whether a process is the one that the daemon.lock file of a
// root names.
func IsDaemon(root string, pid int, start uint64) bool {
	var buf [ReservedSize]byte
	b, err := ReadFile(-1, root+"/"+DaemonLock, buf[:])
	if err != nil {
		return false
	}
	r, ok := ParseDaemon(b)
	return ok && r.PID == pid && r.Start == start && r.BootID == BootID()
}
