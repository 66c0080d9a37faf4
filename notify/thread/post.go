package thread

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// MaxPost is the longest post, in bytes.
const MaxPost = 8 << 10

// Post is something to say.
type Post struct {
	Author  Author
	Text    string
	ReplyTo int64 // an entry, 0 none
	Claims  bool  // a CLAIM that overlaps a live one of somebody else is refused, not posted

	// Key, where there is one, is what this is posted once for: where an entry
	// that comes after After has it, that one is what became of the post.
	Key   string
	After int64

	// Gather: where many post, it waits a moment for what others post, to be
	// written with that.
	Gather bool
}

// Posted is what became of a post.
type Posted struct {
	Entry   Entry
	Items   []Item    // of those who are mentioned, with what became of waking them
	Unknown []string  // names that are mentioned and nobody has
	Claims  []Outcome // of the lines about claims
}

// TooLongError is a post that is longer than MaxPost.
type TooLongError struct {
	Text string
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("text: %d bytes are too many: a post has at most %d", len(e.Text), MaxPost)
}

// draft is a post that was checked as far as that goes without the lock.
type draft struct {
	Post
	mentions []string
	unknown  []string
	claims   []statement
	at       time.Time
}

// check refuses what cannot be posted, before anything is written.
func (t *Thread) check(p Post) (*draft, error) {
	d := &draft{Post: p, at: t.now()}
	if !p.Author.Known() {
		return nil, &InvalidError{"member", "", "is nobody: say who posts"}
	}
	if err := CheckName("member", p.Author.Member); err != nil {
		return nil, err
	}
	if p.Author.Kind != Person && p.Author.Kind != Agent {
		return nil, &InvalidError{"kind", p.Author.Kind, "is neither agent nor person"}
	}
	switch {
	case len(p.Text) > MaxPost:
		return nil, &TooLongError{p.Text}
	case strings.TrimSpace(p.Text) == "":
		return nil, &InvalidError{"text", p.Text, "is empty"}
	case !utf8.ValidString(p.Text):
		return nil, &InvalidError{"text", p.Text, "is not UTF-8"}
	case strings.IndexByte(p.Text, 0) >= 0:
		return nil, &InvalidError{"text", p.Text, "holds a NUL byte"}
	case p.ReplyTo < 0:
		return nil, &InvalidError{"reply_to", strconv.FormatInt(p.ReplyTo, 10), "is below zero"}
	}
	if err := d.address(t); err != nil {
		return nil, err
	}
	list, err := statements(p.Text, d.at.Local())
	d.claims = list
	return d, err
}

// address finds out who is mentioned.
func (d *draft) address(t *Thread) error {
	names := mentions(d.Text)
	if len(names) == 0 {
		return nil
	}
	members, unread, err := t.members()
	if err != nil {
		return err
	}
	for _, name := range names {
		i := slices.IndexFunc(members, func(m Member) bool { return strings.EqualFold(m.Name, name) })
		u := slices.IndexFunc(unread, func(m unreadMember) bool { return strings.EqualFold(m.name, name) })
		switch {
		case i < 0 && u >= 0: // whom nobody could tell of it
			return fmt.Errorf("text: @%s: the member cannot be read: %w", name, unread[u].err)
		case i < 0:
			d.unknown = append(d.unknown, name)
		case members[i].Name != d.Author.Member:
			d.mentions = append(d.mentions, members[i].Name)
		case d.Author.Kind == Agent:
			return &InvalidError{"text", "@" + name, "is yourself: an agent does not mention itself"}
		}
	}
	if d.Author.Kind == Agent && len(d.mentions) > 1 {
		return &InvalidError{"text", "@" + strings.Join(d.mentions, ", @"), "are several: an agent mentions one member in a post"}
	}
	return nil
}

// Post posts what somebody says: the entry, an item for everybody who is
// mentioned, and the claims. What is refused is an *InvalidError, a
// *TooLongError, ErrNoEntry (of ReplyTo) or an *OverlapError, and leaves nothing
// behind.
func (t *Thread) Post(p Post) (Posted, error) {
	q := &posting{t: t, post: p, turn: make(chan bool, 1)}
	if p.Key == "" {
		if q.draft, q.err = t.check(p); q.err != nil {
			return Posted{}, q.err
		}
	}
	t.line.post(q)
	return q.res, q.err
}

// posting is a post on its way into the thread.
type posting struct {
	t     *Thread // which has the Warn of its poster
	post  Post
	draft *draft
	entry *Entry
	turn  chan bool // true: it writes all that wait; false: it is done

	res Posted
	err error
}

// queue has what is posted by one process at once written by one of the posters,
// with one sync: fifty that post once a second each cost the disk ten syncs, and
// not fifty.
type queue struct {
	mu      sync.Mutex
	busy    bool // somebody writes, or is about to
	waiting []*posting
	recent  map[string]time.Time // when each member has last posted. Of the last second
}

const (
	gather    = 2 * time.Millisecond // for each member who posts: how long a post that may waits for others
	maxGather = 100 * time.Millisecond
	fewPost   = 5 // so many do not wait for one another
)

func (c *queue) post(q *posting) {
	c.mu.Lock()
	c.waiting = append(c.waiting, q)
	pause := c.pause(q, time.Now())
	busy := c.busy
	c.busy = true
	c.mu.Unlock()
	if busy && !<-q.turn {
		return
	}
	if pause > 0 {
		time.Sleep(pause)
	}
	c.mu.Lock()
	batch := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	q.t.postAll(batch)
	for _, o := range batch {
		if o != q {
			o.turn <- false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy = len(c.waiting) > 0; c.busy {
		c.waiting[0].turn <- true
	}
}

// pause is how long a post waits for others. c is locked.
func (c *queue) pause(q *posting, now time.Time) time.Duration {
	if !q.post.Gather {
		return 0
	}
	if c.recent == nil {
		c.recent = make(map[string]time.Time)
	}
	c.recent[q.post.Author.Member] = now
	for member, at := range c.recent {
		if now.Sub(at) > time.Second {
			delete(c.recent, member)
		}
	}
	if len(c.recent) <= fewPost {
		return 0
	}
	return min(time.Duration(len(c.recent))*gather, maxGather)
}

// postAll posts in order what many say. Each has what became of its own.
func (t *Thread) postAll(all []*posting) {
	w, err := t.open()
	if err != nil {
		for _, q := range all {
			q.err = err
		}
		return
	}
	defer w.close()
	var ready []*posting // to be written together
	keys := make(map[string]bool)
	write := func() {
		w.commit(ready)
		ready = nil
		clear(keys)
	}
	for _, q := range all {
		if key := q.post.Key; key != "" {
			if keys[key] {
				write()
			}
			w.t = q.t
			var seq int64
			if seq, q.err = w.findKey(key, q.post.After); q.err != nil {
				continue
			}
			if seq > 0 {
				q.res, q.err = w.again(q.post.Author, seq)
				continue
			}
			// Only now: what it says may have been right when it was posted.
			if q.draft, q.err = q.t.check(q.post); q.err != nil {
				continue
			}
		}
		if len(q.draft.claims) > 0 { // of which those before it are to be known
			write()
		}
		w.t = q.t
		if w.prepare(q); q.err != nil {
			continue
		}
		ready = append(ready, q)
		keys[q.post.Key] = q.post.Key != ""
		if len(q.draft.claims) > 0 {
			write()
		}
	}
	write()
}

// again is what became of a post that is there, as far as it can still be told.
func (w *writer) again(by Author, seq int64) (Posted, error) {
	e, err := w.entry(seq)
	if err != nil {
		return Posted{}, err
	}
	res := Posted{Entry: e}
	for _, name := range res.Entry.Mentions {
		if it, err := w.t.Item(name, mentionItem(seq)); err == nil {
			res.Items = append(res.Items, it)
		}
	}
	l, err := w.ledger(0)
	if err != nil {
		return res, err
	}
	list, _ := statements(res.Entry.Text, res.Entry.At().Local())
	for i := range list {
		s := &list[i]
		o := Outcome{Verb: s.verb, What: s.what, Files: []string{}, Overlaps: []Overlap{}, Over: []Claim{}}
		switch s.verb {
		case verbClaim:
			o.Files, o.Until = s.files, s.until
			o.Live = slices.ContainsFunc(l.Claims, func(c Claim) bool { return c.Seq == seq && SameWhat(c.What, s.what) })
		default: // that it ended a claim is not known any more, nor that it did not
			o.Ended, o.Owner = s.verb != verbBlocked, by.Member
		}
		res.Claims = append(res.Claims, o)
	}
	return res, nil
}

// mentionItem is the id of the item for a mention in an entry.
func mentionItem(seq int64) string { return "e" + strconv.FormatInt(seq, 10) }

// post posts one, as postAll does.
func (w *writer) post(d *draft) (Posted, error) {
	q := &posting{t: w.t, post: d.Post, draft: d}
	if w.prepare(q); q.err == nil {
		w.commit([]*posting{q})
	}
	return q.res, q.err
}

// prepare makes the entry of a post.
func (w *writer) prepare(q *posting) { q.entry, q.err = w.entryOf(q.draft) }

func (w *writer) entryOf(d *draft) (*Entry, error) {
	e := &Entry{AtMS: d.at.UnixMilli(), Author: d.Author, Text: d.Text, Mentions: d.mentions, ReplyTo: d.ReplyTo, Key: d.Key}
	reply := -1
	if d.ReplyTo > 0 {
		to, err := w.entry(d.ReplyTo)
		if err != nil {
			return nil, err
		}
		reply = to.Hops
	}
	taken := -1
	if d.Author.Kind == Agent {
		var err error
		if taken, err = w.t.takenHops(d.Author.Member); err != nil {
			return nil, err
		}
	}
	e.Hops = baseHops(d.Author.Kind, taken, reply)
	if d.Author.Kind == Agent && len(d.mentions) > 0 {
		to, err := w.t.Member(d.mentions[0])
		if err != nil && !errors.Is(err, ErrNoMember) { // removed meanwhile
			return nil, err
		}
		if to.Kind == Agent {
			e.Hops++
		}
	}
	if len(d.claims) > 0 {
		if err := w.tryClaims(d, e); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// commit appends entries that were prepared, with one sync, and does what they ask
// for.
func (w *writer) commit(all []*posting) {
	if len(all) == 0 {
		return
	}
	entries := make([]*Entry, len(all))
	for i, q := range all {
		entries[i] = q.entry
	}
	posted, err := w.append(entries...)
	for _, q := range all[posted:] {
		q.err = err
	}
	if all = all[:posted]; posted == 0 {
		return
	}
	var failed error
	var late []*posting // of which something is left to do
	for i, q := range all {
		w.t = q.t
		next := int64(-1) // not known, but for the last
		if i == len(all)-1 {
			next = w.Offset
		}
		if q.entry.Key != "" {
			w.t.keys.add(q.entry.Key, q.entry.Seq, next)
		}
		if w.unsure != nil {
			w.t.warn("entry %d is posted; %v", q.entry.Seq, w.unsure)
		}
		q.res = Posted{Entry: *q.entry, Unknown: q.draft.unknown}
		switch {
		case failed == nil:
			if q.res.Claims, q.res.Items, failed = w.workThrough(q.entry); failed != nil {
				late = append(late, q)
			}
		case len(q.draft.mentions)+len(q.draft.claims) > 0:
			late = append(late, q)
		}
	}
	if failed == nil {
		if err := w.setState(w.state); err != nil {
			last := all[len(all)-1]
			last.t.warn("entry %d is posted; that all was done that it asks for cannot be noted: it is done again with the next one: %v", last.entry.Seq, err)
		}
	}
	for _, q := range late { // it is posted: an error would have it posted twice
		q.t.warn("entry %d is posted; what it asks for is done with the next one: %v", q.entry.Seq, failed)
	}
}

// tryClaims sees what the claims of a post would come to, and says so in its
// text.
func (w *writer) tryClaims(d *draft, e *Entry) error {
	l, err := w.ledger(0)
	if err != nil {
		return err
	}
	l.Claims = slices.Clone(l.Claims)
	at := e.At().Local()
	lines := strings.Split(e.Text, "\n")
	for i := range d.claims {
		s := &d.claims[i]
		o := l.apply(s, d.Author, w.Seq+1, at)
		if d.Claims && len(o.Overlaps) > 0 {
			return &OverlapError{s.what, o.Overlaps}
		}
		if over := expired(o.Over, at); over != "" {
			lines[s.line] = strings.TrimRight(lines[s.line], " \t\r") + over
		}
	}
	e.Text = strings.Join(lines, "\n")
	return nil
}

// entry is one entry.
func (w *writer) entry(seq int64) (Entry, error) {
	if seq > w.Seq {
		return Entry{}, ErrNoEntry
	}
	from, err := search(w.log, w.Offset, seq, w.limit)
	if err != nil {
		return Entry{}, err
	}
	l, n, err := newWalk(w.log, from, w.Offset, w.limit).next()
	if err == io.EOF {
		return Entry{}, ErrNoEntry
	}
	if err != nil {
		return Entry{}, err
	}
	e, ok := parseLine(l.b)
	if !ok || n != seq {
		return Entry{}, ErrNoEntry
	}
	return e, nil
}

// workThrough does what an entry asks for: its claims, and an item for each of
// its mentions. It may be called again for one entry: what is there is left as
// it is.
func (w *writer) workThrough(e *Entry) ([]Outcome, []Item, error) {
	if e.Author.Kind == Daemon {
		return nil, nil, nil
	}
	var claims []Outcome
	if list, err := statements(e.Text, e.At().Local()); err == nil && len(list) > 0 {
		l, err := w.ledger(e.Seq)
		if err != nil {
			return nil, nil, err
		}
		if l.Seq < e.Seq {
			claims = l.applyEntry(e)
			if err := w.saveLedger(&l, e.Seq); err != nil {
				return nil, nil, err
			}
			crash("post.claims")
		}
	}
	var items []Item
	for _, name := range e.Mentions {
		if !ValidName(name) {
			continue
		}
		it, err := w.deliver(e, name)
		switch {
		case err == nil:
			items = append(items, it)
		case shortage(err):
			return claims, items, err
		default: // an inbox that cannot be written stops nobody else
			w.t.warn("entry %d is not in the inbox of %s: %v", e.Seq, name, err)
		}
	}
	return claims, items, nil
}

// deliver puts the item of a mention into an inbox.
func (w *writer) deliver(e *Entry, name string) (Item, error) {
	it := Item{ID: mentionItem(e.Seq), Kind: KindMention, To: name, From: e.Author,
		Seq: e.Seq, Text: e.Text, AtMS: e.AtMS, Job: e.Job, State: Unread}
	there, err := w.item(name, it.ID)
	switch {
	case err == nil && there.AtMS == it.AtMS:
		return there, nil
	case err == nil: // of a thread that was here before
		for _, state := range [...]string{Taken, Answered} {
			if err := remove(w.t.itemPath(name, state, it.ID)); err != nil {
				return it, err
			}
		}
	case !errors.Is(err, ErrNoItem):
		return it, err
	}
	to, err := w.t.Member(name)
	if shortage(err) {
		return it, err
	}
	if err != nil {
		to = Member{Name: name, Kind: Agent} // removed meanwhile
	}
	hops := e.Hops
	if e.Author.Kind == Agent && to.Kind == Agent && hops > 0 {
		hops-- // its own mention is one of them
	}
	if err := w.judge(&it, e.Author.Kind, to, hops); err != nil {
		return it, err
	}
	return it, w.store(&it, true)
}

// PostedJob says what became of the end of a job.
type PostedJob struct {
	Seq     int64
	Existed bool // it was there already
}

// PostJob posts the end of a job, unless it is there. Its key is the id of the
// job, behind the Space that it ran in where that is another; mentions and claims
// in it are none.
func (t *Thread) PostJob(j JobEnd) (seq int64, existed bool, err error) {
	done, err := t.PostJobs([]JobEnd{j})
	if err != nil {
		return 0, false, err
	}
	return done[0].Seq, done[0].Existed, nil
}

// PostJobs is PostJob for many, with one sync. After an error it is called
// again: what was posted all the same is found.
func (t *Thread) PostJobs(jobs []JobEnd) ([]PostedJob, error) {
	w, err := t.open()
	if err != nil {
		return nil, err
	}
	defer w.close()
	fresh := make(map[string]*Entry, len(jobs))
	var entries []*Entry
	done := make([]PostedJob, len(jobs))
	for i, j := range jobs {
		key := j.key()
		if fresh[key] != nil {
			continue
		}
		if done[i].Seq, err = w.findKey(key, j.After); err != nil {
			return nil, err
		}
		if done[i].Existed = done[i].Seq > 0; !done[i].Existed {
			fresh[key] = &Entry{AtMS: t.now().UnixMilli(), Author: Author{daemonName, Daemon}, Text: j.Text, Job: string(j.Job), Hops: j.Hops, Key: key}
			entries = append(entries, fresh[key])
		}
	}
	if len(entries) == 0 {
		return done, nil
	}
	posted, err := w.append(entries...)
	if posted > 0 {
		if w.unsure != nil {
			t.warn("entry %d, the end of job %s, is posted; %v", entries[0].Seq, entries[0].Job, w.unsure)
		}
		if failed := w.setState(w.state); err == nil {
			err = failed
		}
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		t.keys.add(e.Key, e.Seq, -1)
	}
	told := make(map[string]bool, len(entries))
	for i, j := range jobs {
		if e := fresh[j.key()]; e != nil {
			done[i] = PostedJob{e.Seq, told[e.Key]}
			told[e.Key] = true
		}
	}
	return done, nil
}

// keyCache remembers the keys of a part of the thread: whoever posts the ends of
// a thousand jobs reads the thread once.
type keyCache struct {
	mu       sync.Mutex
	keys     map[string]int64
	from, to int64 // of the entries after from, up to to
	offset   int64 // where those after to begin, -1: not known
}

const maxKeys = 100_000

// add notes what was just posted, and where what comes next will begin, -1 where
// that is not known.
func (c *keyCache) add(key string, seq, next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys != nil && seq == c.to+1 {
		c.keys[key], c.to, c.offset = seq, seq, next
	}
}

// findKey is the seq of the entry with this key that comes after another, 0 if
// there is none.
func (w *writer) findKey(key string, after int64) (int64, error) {
	c := w.t.keys
	c.mu.Lock()
	defer c.mu.Unlock()
	after = min(max(after, 0), w.Seq)
	if c.keys == nil || c.to > w.Seq || len(c.keys) > maxKeys {
		c.keys, c.from, c.to, c.offset = make(map[string]int64), after, after, -1
	}
	if after < c.from {
		if err := w.eachKey(after, c.from, -1, c.keys); err != nil {
			return 0, err
		}
		c.from = after
	}
	if c.to < w.Seq {
		if err := w.eachKey(c.to, w.Seq, c.offset, c.keys); err != nil {
			return 0, err
		}
		c.to, c.offset = w.Seq, w.Offset
	}
	if seq := c.keys[key]; seq > after {
		return seq, nil
	}
	return 0, nil
}

// FindKey is the seq of the entry with this key that comes after another, 0 if
// there is none.
func (t *Thread) FindKey(key string, after int64) (int64, error) {
	w, err := t.open()
	if err != nil {
		return 0, err
	}
	defer w.close()
	return w.findKey(key, after)
}

// eachKey adds the keys of the entries after one, up to another. They begin at
// from, or are looked for where that is -1 or cannot be.
func (w *writer) eachKey(after, to, from int64, keys map[string]int64) error {
	at := place{from, after, after}
	if from < 0 || from > w.Offset {
		var err error
		if at, err = search(w.log, w.Offset, after+1, w.limit); err != nil {
			return err
		}
	}
	r := newWalk(w.log, at, w.Offset, w.limit)
	for {
		l, seq, err := r.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if seq > to {
			return nil
		}
		if seq == 0 || bytes.HasSuffix(l.b, []byte(`"key":""}`)) {
			continue
		}
		if e, ok := parseLine(l.b); ok && e.Key != "" && e.Seq > keys[e.Key] {
			keys[e.Key] = e.Seq
		}
	}
}

// Dirs are the directories in which something changes when there is an entry,
// and when there is a wake to be run. They need not exist.
func (t *Thread) Dirs() (entries, wakes string) {
	return t.path(threadDir), t.path(inboxDir, wakesDir)
}
