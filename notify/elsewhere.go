package notify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// elsewhereDir is the directory of the outbox for jobs of other Spaces.
const elsewhereDir = "elsewhere"

// Wait is a job of another Space that members of this one are to be told of when it
// ends: a file of the outbox. Its message is in the thread over there.
type Wait struct {
	ID        jobdir.ID `json:"id"` // of the wait: the name of the file
	Space     string    `json:"space"`
	Job       jobdir.ID `json:"job"`    // "": it is about to be started, or may have been
	Key       string    `json:"key"`    // under which it is started
	Member    string    `json:"member"` // who started it, "" where that is not known
	Kind      string    `json:"kind"`   // of the member: agent or person
	Wake      []string  `json:"wake"`   // who is to be woken besides
	Hops      int       `json:"hops"`   // those of the starter
	After     int64     `json:"after"`  // the newest entry of the parent's thread then, where one is joined
	CreatedAt time.Time `json:"created_at"`
	Error     string    `json:"error"` // why it is not known how the job is, "" while it is
}

func parseWait(b []byte, id jobdir.ID) (*Wait, error) {
	if record.IsBlank(b) {
		return nil, errors.New("is empty")
	}
	var w Wait
	if err := json.Unmarshal(b, &w); err != nil {
		return nil, err
	}
	if w.ID != id {
		return nil, fmt.Errorf("belongs to %q", w.ID)
	}
	if _, ok := record.ParseID(string(w.Job)); w.Space == "" || !ok && (w.Job != "" || w.Key == "") {
		return nil, errors.New("does not say which job")
	}
	return &w, nil
}

func waitPath(root *jobdir.Root, id jobdir.ID) string {
	return filepath.Join(outboxDir(root), elsewhereDir, string(id))
}

// WaitClaim is a wait for a job that is about to be started. It is locked: a daemon
// that looks meanwhile does not ask for a job that is not there yet.
type WaitClaim struct {
	root *jobdir.Root
	wait Wait
	file *os.File // nil: it is over
}

// ClaimWait writes down, for good, that w is to be waited for, before anything of
// it is asked for elsewhere.
func ClaimWait(root *jobdir.Root, w Wait, now time.Time) (*WaitClaim, error) {
	dir, err := root.MakeDurableDir(record.Outbox, elsewhereDir)
	if err != nil {
		return nil, err
	}
	c := &WaitClaim{root: root, wait: w}
	c.wait.CreatedAt = now.UTC().Truncate(time.Millisecond)
	for c.wait.ID = record.NewID(now); ; c.wait.ID = c.wait.ID.Next() {
		if err := c.create(dir); !errors.Is(err, fs.ErrExist) {
			return c, err
		}
	}
}

func (c *WaitClaim) create(dir string) error {
	temp := jobdir.TempPrefix + string(c.wait.ID) + "-" + strconv.Itoa(os.Getpid())
	f, err := os.OpenFile(filepath.Join(dir, temp), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = record.Lock(int(f.Fd())); err == nil {
		err = f.Chmod(0o600) // whatever the umask
	}
	if err == nil {
		_, err = f.Write(jobdir.Line(&c.wait))
	}
	if err == nil {
		err = record.Sync(int(f.Fd()))
	}
	crash("wait.written")
	if err == nil {
		err = inDir(dir, func(d int) error { return record.RenameNoReplace(d, temp, string(c.wait.ID)) })
	}
	if err == nil {
		err = jobdir.SyncDir(dir)
	}
	crash("wait.named")
	if err != nil {
		_ = os.Remove(f.Name())
		f.Close()
		return &fs.PathError{Op: "write", Path: filepath.Join(dir, string(c.wait.ID)), Err: jobdir.Pathless(err)}
	}
	c.file = f
	return nil
}

// Started notes which job it is, and lets go.
func (c *WaitClaim) Started(job jobdir.ID) error {
	defer c.Release()
	return c.wait.Found(c.root, job)
}

// Drop takes the wait back: nothing was started. It may be called at any time, and
// twice.
func (c *WaitClaim) Drop() {
	if c.file != nil {
		_ = os.Remove(waitPath(c.root, c.wait.ID))
		c.Release()
	}
}

// Release lets go of a wait whose job may have been started: the daemon asks which
// job has its key.
func (c *WaitClaim) Release() {
	if c.file != nil {
		c.file.Close()
		c.file = nil
	}
}

// Waits are the jobs elsewhere that are waited for, oldest first, without those that
// are being started. What cannot be read is set aside, and aside is told of it.
func Waits(root *jobdir.Root, aside func(line string)) ([]Wait, error) {
	ids, err := waitIDs(root)
	all := make([]Wait, 0, len(ids))
	for _, id := range ids {
		path := waitPath(root, id)
		b, err := readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		w, bad := parseWait(b, id)
		switch {
		case err != nil && !irregular(path):
			return all, err
		case err != nil || bad != nil:
			if err != nil {
				bad = jobdir.ErrNotRegular
			}
			damaged := &damagedEntry{path, bad}
			to, err := damaged.setAside()
			if err != nil {
				return all, err
			}
			aside(damaged.Error() + ": set aside as " + to)
		case w.Job != "" || !lockedNow(path):
			all = append(all, *w)
		}
	}
	return all, err
}

func waitIDs(root *jobdir.Root) ([]jobdir.ID, error) {
	return idsIn(filepath.Join(outboxDir(root), elsewhereDir))
}

// lockedNow reports whether somebody holds what has the path, or has replaced it
// meanwhile.
func lockedNow(path string) bool {
	fd, err := record.Open(-1, path, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return true
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	held, err := record.Held(fd)
	return held || err != nil || !named(f, path)
}

// Found notes which job it is.
func (w *Wait) Found(root *jobdir.Root, job jobdir.ID) error {
	w.Job = job
	return w.save(root)
}

// Note writes down why it is not known how the job is, or that it is known again.
func (w *Wait) Note(root *jobdir.Root, why string) error {
	if w.Error == why {
		return nil
	}
	w.Error = why
	return w.save(root)
}

// save writes down what is known of a wait, unless it is over.
func (w *Wait) save(root *jobdir.Root) error {
	if !exists(waitPath(root, w.ID)) {
		return nil
	}
	return jobdir.ReplaceFile(waitPath(root, w.ID), jobdir.Line(w), true)
}

// Over takes the wait away: everybody has been told, or there is nothing to tell.
func (w *Wait) Over(root *jobdir.Root) error {
	err := os.Remove(waitPath(root, w.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Unknown is the state of a job elsewhere of which nothing can be known any more. No
// job of a root has it.
const Unknown jobdir.State = "unknown"

// Unknown is the message about such a job, and why that is so.
func (w *Wait) Unknown(why string) Message {
	id := string(w.Job)
	return Message{
		Key: KeyOf(w.Job), Job: w.Job, State: Unknown, Name: oneLine(why),
		Text: "JOB " + id + " unknown exit=- - log=-B | " + oneLine(why) + "\nEnd of the log:\n" + indent + "(how it ended is not known)" +
			readMore + `with space_job {action: "logs", job: "` + id + `", offset: 0} or: space-job logs ` + id + " --offset 0",
	}
}

// Tell puts the message of the job's end into the inboxes of those who are to have
// it, once however often it is called, and returns the item of the starter, if any.
// Who is no member any more is passed over, and so is who was told otherwise. The
// daemon then runs the wakers.
func (w *Wait) Tell(t *thread.Thread, m Message, told func(member string) bool) (starter *thread.Item, err error) {
	item := thread.Item{
		ID: thread.ItemOf(w.Space, string(w.Job)), Kind: thread.KindJobEnd, From: thread.Author{Member: "daemon", Kind: thread.Daemon},
		Text: m.from(w.Space), Job: string(w.Job), JobState: string(m.State), ExitCode: m.ExitCode, Offset: m.Offset, Space: w.Space,
	}
	if w.Member != "" && !told(w.Member) {
		it := item
		it.To, it.Hops = w.Member, w.Hops
		member, err := t.Member(w.Member)
		if err == nil && member.Wakeable() {
			it.Wake.State = thread.WakePending
		} else if err != nil && !errors.Is(err, thread.ErrNoMember) {
			return nil, err
		}
		if it, err = t.PutItem(it); err != nil {
			return nil, err
		}
		starter = &it
		crash("wait.put")
	}
	for _, name := range w.Wake {
		if name == w.Member || told(name) {
			continue
		}
		it := item
		it.To = name
		if _, err := t.WakeOther(thread.Author{Member: w.Member, Kind: w.Kind}, w.Hops, it); err != nil && !errors.Is(err, thread.ErrNoMember) {
			return starter, err
		}
	}
	return starter, nil
}

// from is the text of a message of a job of another Space, which can be reached
// from here.
func (m *Message) from(space string) string {
	at := strings.LastIndex(m.Text, readMore)
	if at < 0 {
		return m.Text
	}
	end := strings.Replace(m.Text[at:], `{action: "logs", `, `{action: "logs", space: "`+space+`", `, 1)
	return m.Text[:at] + strings.Replace(end, "space-job logs ", "space-job --space "+space+" logs ", 1)
}

// readMore begins the last line of a message.
const readMore = "\nRead more "

// In is the text of a message that is read in another Space than that of the job,
// which is called space there.
func (m *Message) In(space string) string {
	at := strings.LastIndex(m.Text, readMore)
	if at < 0 || space == "" {
		return m.Text
	}
	at += len(readMore)
	return m.Text[:at] + "in the Space " + space + " " + m.Text[at:]
}
