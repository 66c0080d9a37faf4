package thread

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
)

// Kinds of an Item.
const (
	KindMention = "mention"
	KindJobEnd  = "job_end"
)

// States of an Item.
const (
	Unread   = "unread"
	Taken    = "taken"
	Answered = "answered"
)

// States of a Wake.
const (
	WakeNone    = "none"    // there is nothing to run: the member reads its inbox
	WakePending = "pending" // the waker is to be run, at NextAt or later
	WakeDone    = "done"
	WakeFailed  = "failed"  // given up
	WakeLimited = "limited" // see Limit
)

// Item is something that a member has to take up.
type Item struct {
	ID       string `json:"item"` // "e412": entry 412 mentions it or, of KindJobEnd, came over a link; "box/j6c1f0a2b9d3e": a job of the Space box; else the id of a job
	Kind     string `json:"kind"` // KindMention or KindJobEnd
	To       string `json:"to"`
	From     Author `json:"from"`
	Seq      int64  `json:"seq"` // of the entry
	Text     string `json:"text"`
	Hops     int    `json:"hops"`
	AtMS     int64  `json:"at_ms"`
	State    string `json:"state"` // Unread, Taken or Answered
	Lease    *Lease `json:"lease"` // of an item that was taken
	Reply    int64  `json:"reply"` // the entry that answered it, else 0
	Job      string `json:"job"`
	JobState string `json:"job_state"`
	ExitCode *int   `json:"exit_code"`
	Offset   int64  `json:"offset"`
	Space    string `json:"space,omitempty"` // where the job ran, if in another Space than this
	Wake     Wake   `json:"wake"`
}

// At is when it came.
func (it *Item) At() time.Time { return time.UnixMilli(it.AtMS) }

// Wake is what has become of waking the member for an item.
type Wake struct {
	State        string    `json:"state"`
	Attempts     int       `json:"attempts"`
	Error        string    `json:"error"` // of the last attempt
	NextAt       time.Time `json:"next_at,omitzero"`
	Limit        string    `json:"limit"` // LimitHops or LimitRate
	RetryAfterMS int64     `json:"retry_after_ms"`
}

// Lease is how long an item stays taken: to a time or, where there is a
// process, as long as that lives. Then the item is unread again.
type Lease struct {
	TakenAt time.Time `json:"taken_at"`
	Until   time.Time `json:"until,omitzero"`
	PID     int       `json:"pid,omitzero"`
	Start   uint64    `json:"start,omitzero"` // the kernel's start time of the process
	BootID  string    `json:"boot_id,omitzero"`
}

func (l *Lease) over(now time.Time) bool {
	if l.PID == 0 {
		return !now.Before(l.Until)
	}
	return !record.IsProcess(l.PID, l.Start) || l.BootID != record.BootID()
}

// The directories below that of a member. An item only ever moves on: where two
// have it, the later one counts. What is unread is in the member's own.
const (
	takenDir    = "taken"
	answeredDir = "answered"
	wakesDir    = ".wakes" // beside the members: a file for each item with a pending wake, written to when the item is there
)

// keepAnswered is how long an answered item is kept; redeliver is how far back
// mentions are looked for when it is not known which have been delivered.
const (
	keepAnswered = 8 * 24 * time.Hour
	redeliver    = 7 * 24 * time.Hour
)

func validItem(id string) bool {
	if space, job, ok := strings.Cut(id, "/"); ok {
		_, isJob := record.ParseID(job)
		return isJob && validSpace(space)
	}
	if _, ok := record.ParseID(id); ok {
		return true
	}
	digits, ok := strings.CutPrefix(id, "e")
	return ok && digits != "" && len(digits) < 20 && digits[0] != '0' && strings.Trim(digits, "0123456789") == ""
}

// validSpace reports whether a Space can be called that: it has at most 64 letters,
// digits and . _ : -, and begins with a letter or a digit.
func validSpace(name string) bool {
	const first = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return name != "" && len(name) <= 64 && strings.Trim(name[:1], first) == "" && strings.Trim(name, first+"._:-") == ""
}

// ItemOf is the id of the item that tells of the end of a job in another Space.
func ItemOf(space, job string) string { return space + "/" + job }

// A file is called as its item is, and a directory of its own for each Space would
// be one more to be looked into. No Space has a comma in its name.
func fileOf(id string) string { return strings.Replace(id, "/", ",", 1) }

// itemOf is the item whose file, or whose marker behind the member, has that name.
func itemOf(file string) (id string, ok bool) {
	id = strings.Replace(file, ",", "/", 1)
	return id, validItem(id)
}

func checkItem(id string) error {
	if validItem(id) {
		return nil
	}
	return &InvalidError{"item", id, "is no item: they are called e412, or as a job is, or SPACE/JOB"}
}

func (t *Thread) itemPath(member, state, id string) string {
	switch state {
	case Taken:
		return t.path(inboxDir, member, takenDir, fileOf(id)+".json")
	case Answered:
		return t.path(inboxDir, member, answeredDir, fileOf(id)+".json")
	}
	return t.path(inboxDir, member, fileOf(id)+".json")
}

func (t *Thread) marker(member, id string) string {
	return t.path(inboxDir, wakesDir, member+","+fileOf(id))
}

// Item is one item of a member, ErrNoItem where it has none of that id.
func (t *Thread) Item(member, id string) (Item, error) {
	if err := CheckName("member", member); err != nil {
		return Item{}, err
	}
	if err := checkItem(id); err != nil {
		return Item{}, err
	}
	// The later counts. They are looked at in the order in which an item moves,
	// so that one that moves meanwhile is not missed.
	item, err := Item{}, ErrNoItem
	for _, state := range [...]string{Unread, Taken, Answered} {
		if it, e := t.readItem(member, state, id); !missing(e) {
			item, err = it, e
		}
	}
	return item, err
}

// damagedItem is an item that cannot be read.
type damagedItem struct {
	path string
	why  error
}

func (e *damagedItem) Error() string { return e.path + " is damaged: " + e.why.Error() }

func (t *Thread) readItem(member, state, id string) (Item, error) {
	path := t.itemPath(member, state, id)
	b, err := readSmall(path)
	var it Item
	switch {
	case missing(err), err != nil && !errors.Is(err, errNotRegular) && !errors.Is(err, errTooLong):
		return it, err
	case err == nil:
		err = json.Unmarshal(b, &it)
	}
	if err == nil && (it.ID != id || it.To != member) {
		err = fmt.Errorf("it does not describe the item %s of %s", id, member)
	}
	if err != nil {
		return Item{}, &damagedItem{path, err}
	}
	it.State = state
	if state == Taken && (it.Lease == nil || it.Lease.over(t.now())) {
		it.State = Unread
	}
	return it, nil
}

// item is Item under the lock: what is damaged is set aside and counts as not
// there.
func (w *writer) item(member, id string) (Item, error) {
	for {
		it, err := w.t.Item(member, id)
		var damaged *damagedItem
		if !errors.As(err, &damaged) {
			return it, err
		}
		aside := filepath.Join(filepath.Dir(damaged.path), ".damaged-"+filepath.Base(damaged.path))
		if err := w.t.setAside(damaged.path, aside, damaged.Error()); err != nil {
			return Item{}, err
		}
	}
}

// store writes an item where its state belongs, removes it from where it was,
// and keeps the marker of its wake.
func (w *writer) store(it *Item, sync bool) error {
	elem := []string{inboxDir, it.To}
	switch it.State {
	case Taken:
		elem = append(elem, takenDir)
	case Answered:
		elem = append(elem, answeredDir)
	}
	if _, err := w.t.root.MakeDurableDir(elem...); err != nil {
		return err
	}
	marker := w.t.marker(it.To, it.ID)
	if it.Wake.State == WakePending {
		if _, err := w.t.root.MakeDurableDir(inboxDir, wakesDir); err != nil {
			return err
		}
		f, err := openRegular(marker, os.O_WRONLY|os.O_CREATE)
		if err != nil {
			return err
		}
		defer f.Close()
		if sync { // nobody would look for a waker to run without it
			if err := jobdir.SyncDir(filepath.Dir(marker)); err != nil {
				return err
			}
		}
		// Who was told of the marker may have looked before there was an item: they
		// are told again.
		defer func() { _, _ = f.WriteAt([]byte{'\n'}, 0) }()
		crash("item.marked")
	}
	if err := jobdir.ReplaceFile(w.t.itemPath(it.To, it.State, it.ID), jobdir.Line(it), sync); err != nil {
		return err
	}
	crash("item.written")
	before := map[string][]string{Taken: {Unread}, Answered: {Taken, Unread}}
	for _, state := range before[it.State] {
		if err := remove(w.t.itemPath(it.To, state, it.ID)); err != nil {
			return err
		}
	}
	if it.Wake.State != WakePending {
		return remove(marker)
	}
	return nil
}

// PutItem puts an item into an inbox. One that is there, in whatever state, is
// left as it is, and returned.
func (t *Thread) PutItem(it Item) (Item, error) {
	w, err := t.openFor(&it)
	if err != nil {
		return Item{}, err
	}
	defer w.close()
	return w.put(it)
}

// openFor checks an item and takes the lock.
func (t *Thread) openFor(it *Item) (*writer, error) {
	if err := CheckName("member", it.To); err != nil {
		return nil, err
	}
	if err := checkItem(it.ID); err != nil {
		return nil, err
	}
	return t.open()
}

func (w *writer) put(it Item) (Item, error) {
	there, err := w.item(it.To, it.ID)
	if !errors.Is(err, ErrNoItem) {
		return there, err
	}
	it.State, it.Lease = Unread, nil
	if it.AtMS == 0 {
		it.AtMS = w.t.now().UnixMilli()
	}
	if it.Wake.State == "" {
		it.Wake.State = WakeNone
	}
	return it, w.store(&it, true)
}

// WakeOther puts an item about the end of a job into the inbox of somebody who
// did not start it: from mentions them, with the hops that the starter had. The
// rule decides whether that may wake. An item that is there is left as it is.
func (t *Thread) WakeOther(from Author, hops int, it Item) (Item, error) {
	w, err := t.openFor(&it)
	if err != nil {
		return Item{}, err
	}
	defer w.close()
	if there, err := w.item(it.To, it.ID); !errors.Is(err, ErrNoItem) {
		return there, err
	}
	to, err := t.Member(it.To)
	if err != nil {
		return Item{}, err
	}
	if err := w.judge(&it, from.Kind, to, hops); err != nil {
		return Item{}, err
	}
	return w.put(it)
}

// judge fills in what the rule says of an item.
func (w *writer) judge(it *Item, from string, to Member, hops int) error {
	v, err := w.decide(from, to.Kind, hops, it.To+"/"+it.ID)
	if err != nil {
		return err
	}
	it.Hops = v.hops
	switch {
	case !v.wake:
		it.Wake = Wake{State: WakeLimited, Limit: v.limit, RetryAfterMS: v.retryAfter.Milliseconds()}
	case to.Wakeable():
		it.Wake = Wake{State: WakePending}
	default:
		it.Wake = Wake{State: WakeNone}
	}
	return nil
}

// PendingWakes are the items whose waker is to be run, now or later: see
// Wake.NextAt. It costs nothing for those that are not.
func (t *Thread) PendingWakes() ([]Item, error) {
	markers, err := names(t.path(inboxDir, wakesDir))
	if err != nil {
		return nil, err
	}
	var all []Item
	for _, m := range markers {
		member, file, _ := strings.Cut(m, ",")
		id, _ := itemOf(file)
		it, err := t.Item(member, id)
		if err != nil || it.Wake.State != WakePending {
			continue // being written, or left by one that was killed
		}
		all = append(all, it)
	}
	slices.SortStableFunc(all, func(a, b Item) int { return cmp.Compare(a.AtMS, b.AtMS) })
	return all, nil
}

// WakesWaiting reports whether there may be a wake to be run. It is cheap, most
// of all where there never was one.
func (t *Thread) WakesWaiting() bool {
	d, err := os.Open(t.path(inboxDir, wakesDir))
	if err != nil {
		return false
	}
	defer d.Close()
	first, _ := d.Readdirnames(1)
	return len(first) > 0
}

// WakeResult notes an attempt to wake: it is done, or failed with err and is to
// be tried again at next, or not at all where next is zero.
func (t *Thread) WakeResult(it Item, failed error, next time.Time) error {
	w, err := t.openFor(&it)
	if err != nil {
		return err
	}
	defer w.close()
	now, err := w.item(it.To, it.ID)
	if err != nil {
		return err
	}
	now.Wake.Attempts++
	switch {
	case failed == nil:
		now.Wake.State, now.Wake.Error, now.Wake.NextAt = WakeDone, "", time.Time{}
	case now.Wake.State != WakePending: // taken meanwhile
		now.Wake.Error = failed.Error()
	case next.IsZero():
		now.Wake.State, now.Wake.Error, now.Wake.NextAt = WakeFailed, failed.Error(), next
	default:
		now.Wake.Error, now.Wake.NextAt = failed.Error(), next
	}
	return w.store(&now, false)
}

// HopsOf are the hops of the newest item that the member has taken and not
// answered, else 0: what it starts and posts carries them.
func (t *Thread) HopsOf(member string) (int, error) {
	hops, err := t.takenHops(member)
	return max(hops, 0), err
}

// takenHops is HopsOf, or -1 where nothing is taken.
func (t *Thread) takenHops(member string) (int, error) {
	if err := CheckName("member", member); err != nil {
		return 0, err
	}
	files, err := names(t.path(inboxDir, member, takenDir))
	if err != nil {
		return 0, err
	}
	hops, newest := -1, int64(-1)
	for _, f := range files {
		id, _ := itemOf(strings.TrimSuffix(f, ".json"))
		it, err := t.Item(member, id)
		if err == nil && it.State == Taken && it.AtMS > newest {
			hops, newest = it.Hops, it.AtMS
		}
	}
	return hops, nil
}

// Inbox are the items of a member that are not answered, oldest first.
func (t *Thread) Inbox(member string) ([]Item, error) {
	if err := CheckName("member", member); err != nil {
		return nil, err
	}
	var ids []string
	for _, dir := range [...]string{"", takenDir} { // in the order in which items move
		files, err := names(t.path(inboxDir, member, dir))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if name, ok := strings.CutSuffix(f, ".json"); ok {
				if id, ok := itemOf(name); ok {
					ids = append(ids, id)
				}
			}
		}
	}
	slices.Sort(ids)
	all := []Item{}
	for _, id := range slices.Compact(ids) {
		it, err := t.Item(member, id)
		var damaged *damagedItem
		switch {
		case errors.As(err, &damaged):
			t.warn("%v", err)
		case errors.Is(err, ErrNoItem):
		case err != nil:
			return nil, err
		case it.State != Answered:
			all = append(all, it)
		}
	}
	slices.SortStableFunc(all, func(a, b Item) int { return cmp.Or(cmp.Compare(a.AtMS, b.AtMS), cmp.Compare(a.Seq, b.Seq)) })
	return all, nil
}

// Taker is who takes an item: for a time or, where there is a process, as long
// as that lives.
type Taker struct {
	For time.Duration // 0: DefaultLease
	PID int
	May func() error // of WaitItem: is asked before each look; its error is that of the wait
}

// DefaultLease is how long an item stays taken.
const DefaultLease = time.Hour

// Take takes the oldest unread item of a member. With Awake, it passes over
// those whose wake was stopped by a limit. ErrNoItem: there is none.
func (t *Thread) Take(member string, by Taker, awake bool) (Item, error) {
	if err := CheckName("member", member); err != nil {
		return Item{}, err
	}
	if !t.anyUnread(member, awake) { // without the lock, and without making anything
		return Item{}, ErrNoItem
	}
	w, err := t.open()
	if err != nil {
		return Item{}, err
	}
	defer w.close()
	all, err := w.inbox(member)
	if err != nil {
		return Item{}, err
	}
	i := slices.IndexFunc(all, func(it Item) bool { return takeable(&it, awake) })
	if i < 0 {
		return Item{}, ErrNoItem
	}
	it := all[i]
	if it.Lease, err = newLease(by, t.now()); err != nil {
		return Item{}, err
	}
	it.State = Taken
	if it.Wake.State == WakePending { // it is awake
		it.Wake.State = WakeNone
	}
	return it, w.store(&it, true)
}

func newLease(by Taker, now time.Time) (*Lease, error) {
	l := &Lease{TakenAt: now.UTC().Truncate(time.Millisecond)}
	if by.PID == 0 {
		l.Until = l.TakenAt.Add(cmp.Or(by.For, DefaultLease))
		return l, nil
	}
	start, ok := record.ProcessStart(by.PID)
	if !ok {
		return nil, &InvalidError{"pid", strconv.Itoa(by.PID), "is no process"}
	}
	l.PID, l.Start, l.BootID = by.PID, start, record.BootID()
	return l, nil
}

func takeable(it *Item, awake bool) bool {
	return it.State == Unread && (!awake || it.Wake.State != WakeLimited)
}

func (t *Thread) anyUnread(member string, awake bool) bool {
	found := 0
	quiet := *t
	quiet.Warn = func(string) { found++ } // whoever sets it aside says so
	all, err := quiet.Inbox(member)
	return err != nil || found > 0 || slices.ContainsFunc(all, func(it Item) bool { return takeable(&it, awake) }) || t.behind()
}

// behind reports whether there are entries that nobody has worked through.
func (t *Thread) behind() bool {
	info, err := os.Lstat(t.path(threadDir, logName))
	if err != nil {
		return false
	}
	b, err := readSmall(t.path(threadDir, stateName))
	var s state
	return err != nil || json.Unmarshal(b, &s) != nil || s.Offset != info.Size()
}

// inbox is Inbox under the lock: what is damaged is set aside.
func (w *writer) inbox(member string) ([]Item, error) {
	for _, dir := range [...]string{"", takenDir} {
		files, err := names(w.t.path(inboxDir, member, dir))
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			name, ok := strings.CutSuffix(f, ".json")
			if !ok {
				continue
			}
			if id, ok := itemOf(name); ok {
				if _, err := w.item(member, id); err != nil && !errors.Is(err, ErrNoItem) {
					return nil, err
				}
			}
		}
	}
	return w.t.Inbox(member)
}

// WaitItem waits, until ctx is done, for an unread item of a member, and passes
// over those whose wake was stopped by a limit: who waits is woken by it. With
// take it takes the item. ErrNoItem: there was none.
func (t *Thread) WaitItem(ctx context.Context, member string, take *Taker) (it Item, err error) {
	found, err := t.waitInbox(ctx, member, time.Second, func() (bool, error) {
		if take != nil {
			if take.May != nil {
				if err = take.May(); err != nil {
					return false, err
				}
			}
			it, err = t.Take(member, *take, true)
		} else {
			it, err = t.firstUnread(member)
		}
		if errors.Is(err, ErrNoItem) {
			return false, nil
		}
		return true, err
	})
	if err == nil && !found {
		return Item{}, ErrNoItem
	}
	return it, err
}

// WaitInbox waits, until ctx is done, for an unread item of a member that is not
// among those that the caller knows of, and adds it to them. It reports whether
// there is one.
func (t *Thread) WaitInbox(ctx context.Context, member string, known map[string]bool) (bool, error) {
	return t.waitInbox(ctx, member, 2*time.Second, func() (news bool, err error) {
		all, err := t.Inbox(member)
		for _, it := range all {
			if it.State == Unread && !known[it.ID] {
				known[it.ID], news = true, true
			}
		}
		return news, err
	})
}

// waitInbox looks whenever something has changed in an inbox, and where something
// may have that is no change of its files, until look has found something or
// fails, or ctx is done. It reports whether it has. A parent waits for each member
// of its children at once: one that has nothing to look at costs next to nothing.
func (t *Thread) waitInbox(ctx context.Context, member string, every time.Duration, look func() (found bool, err error)) (bool, error) {
	dir := t.path(inboxDir, member)
	w := t.watchInbox(dir)
	defer func() { w.close() }()
	for {
		if w.dir != dir { // it may be there by now
			w.close()
			w = t.watchInbox(dir)
		}
		if found, err := look(); found || err != nil {
			return found, err
		}
		for again := false; !again; {
			wait, cancel := context.WithTimeout(ctx, untilLook(every))
			again = w.wait(wait) == nil
			cancel()
			if ctx.Err() != nil {
				return false, nil
			}
			again = again || t.leaseOver(member) || t.behind()
		}
	}
}

// watchInbox watches a directory or, where that is not there, the nearest one above
// it that is: a member has none before its first item.
func (t *Thread) watchInbox(dir string) *watch {
	w := newWatch(dir, dir)
	for root := t.path(); w.hints == nil && len(w.dir) > len(root); {
		above := filepath.Dir(w.dir)
		w = newWatch(above, dir)
	}
	return w
}

// leaseOver reports whether an item that is taken has come back: it is unread, and
// where it was.
func (t *Thread) leaseOver(member string) bool {
	files, _ := names(t.path(inboxDir, member, takenDir))
	return slices.ContainsFunc(files, func(f string) bool {
		it, err := t.Item(member, strings.TrimSuffix(f, ".json"))
		return err == nil && it.State == Unread
	})
}

func (t *Thread) firstUnread(member string) (Item, error) {
	all, err := t.Inbox(member)
	if err != nil {
		return Item{}, err
	}
	for _, it := range all {
		if takeable(&it, true) {
			return it, nil
		}
	}
	return Item{}, ErrNoItem
}

// AnsweredError is an item that was answered already.
type AnsweredError struct {
	Item  string
	Reply int64
}

func (e *AnsweredError) Error() string {
	return fmt.Sprintf("item %s is answered already, by entry %d", e.Item, e.Reply)
}

// Answer posts the answer to an item of its author, and marks the item as
// answered. Called again after it was interrupted, it posts nothing twice. It
// fails as Post does; ErrNoItem: there is no such item.
func (t *Thread) Answer(by Author, id, text string) (Posted, error) {
	it, err := t.Item(by.Member, id)
	if err != nil && !errors.As(err, new(*damagedItem)) {
		return Posted{}, err
	}
	if it.State == Answered {
		return Posted{}, &AnsweredError{id, it.Reply}
	}
	d, err := t.check(Post{Author: by, Text: text, ReplyTo: it.Seq})
	if err != nil {
		return Posted{}, err
	}
	w, err := t.open()
	if err != nil {
		return Posted{}, err
	}
	defer w.close()
	if it, err = w.item(by.Member, id); err != nil {
		return Posted{}, err
	}
	if it.State == Answered {
		return Posted{}, &AnsweredError{id, it.Reply}
	}
	d.ReplyTo = it.Seq
	d.Key = "answer/" + by.Member + "/" + id
	var res Posted
	seq, err := w.findKey(d.Key, it.Seq)
	if err != nil {
		return res, err
	}
	if seq > 0 { // by one that was killed before it could say so here
		res.Entry, err = w.entry(seq)
	} else {
		res, err = w.post(d)
		if errors.Is(err, ErrNoEntry) { // the thread was cut
			d.ReplyTo = 0
			res, err = w.post(d)
		}
	}
	if err != nil {
		return res, err
	}
	crash("answer.posted")
	it.State, it.Reply, it.Lease = Answered, res.Entry.Seq, nil
	if it.Wake.State == WakePending {
		it.Wake.State = WakeNone
	}
	return res, w.store(&it, true)
}

// Prune removes what is kept for a time only: items that were answered more than
// eight days ago, and what a killed process has left half written. It returns
// how many items went.
func (t *Thread) Prune() (removed int, err error) {
	members, err := names(t.path(inboxDir))
	if err != nil {
		return 0, err
	}
	now := t.now()
	old := func(path string, age time.Duration) bool {
		info, err := os.Lstat(path)
		return err == nil && info.Mode().IsRegular() && now.Sub(info.ModTime()) > age
	}
	var failed []error
	for _, m := range members {
		dir := t.path(inboxDir, m, answeredDir)
		files, err := names(dir)
		failed = append(failed, err)
		for _, f := range files {
			if path := filepath.Join(dir, f); old(path, keepAnswered) {
				if err := os.Remove(path); err == nil {
					removed++
				} else if !missing(err) {
					failed = append(failed, err)
				}
			}
		}
		for _, d := range [...]string{t.path(inboxDir, m), t.path(inboxDir, m, takenDir), dir} {
			t.sweep(d, old)
		}
	}
	t.sweep(t.path(threadDir), old)
	t.sweep(t.path(membersDir), old)
	failed = append(failed, t.sweepWakes())
	return removed, errors.Join(failed...)
}

// sweepWakes removes the markers of wakes that are not pending: who was to remove
// one was killed, or never came to write the item.
func (t *Thread) sweepWakes() error {
	idle := func(m string) bool {
		member, file, _ := strings.Cut(m, ",")
		id, _ := itemOf(file)
		it, err := t.Item(member, id)
		return errors.Is(err, ErrNoItem) || err == nil && it.Wake.State != WakePending
	}
	markers, err := names(t.path(inboxDir, wakesDir))
	if err != nil || !slices.ContainsFunc(markers, idle) {
		return err
	}
	w, err := t.open() // who writes an item and its marker has the lock
	if err != nil {
		return err
	}
	defer w.close()
	for _, m := range markers {
		if idle(m) {
			if err := remove(t.path(inboxDir, wakesDir, m)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sweep removes what was never given its name.
func (t *Thread) sweep(dir string, old func(string, time.Duration) bool) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); strings.HasPrefix(e.Name(), jobdir.TempPrefix) && old(path, time.Hour) {
			_ = os.Remove(path)
		}
	}
}
