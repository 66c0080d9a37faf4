package thread

import (
	"bytes"
	"io"
	"strconv"
	"sync"
)

// workThrough makes items of the mentions of an entry. It may be called again
// for one entry: what is there is left as it is.
func (w *writer) workThrough(e *Entry) ([]Item, error) {
	if e.Author.Kind == Daemon {
		return nil, nil
	}
	var items []Item
	for _, name := range e.Mentions {
		if !ValidName(name) {
			continue
		}
		it := Item{ID: "e" + strconv.FormatInt(e.Seq, 10), Kind: KindMention, To: name, From: e.Author,
			Seq: e.Seq, Text: e.Text, AtMS: e.AtMS, Job: e.Job}
		there, err := w.item(name, it.ID)
		if err == nil && there.AtMS == it.AtMS { // not of a thread that was here before
			items = append(items, there)
			continue
		}
		to, err := w.t.Member(name)
		if err != nil {
			to = Member{Name: name, Kind: Agent} // removed meanwhile: it reads its inbox, if at all
		}
		hops := e.Hops
		if e.Author.Kind == Agent && to.Kind == Agent {
			hops-- // its own mention is one of them
		}
		if err := w.judge(&it, e.Author.Kind, to, hops); err != nil {
			return items, err
		}
		it.State = Unread
		if err := w.store(&it, true); err != nil {
			return items, err
		}
		items = append(items, it)
	}
	return items, nil
}

// PostedJob says what became of the end of a job.
type PostedJob struct {
	Seq     int64
	Existed bool // it was there already
}

// PostJob posts the end of a job, unless it is there. Its key is the id of the
// job; mentions and claims in it are none.
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
		key := string(j.Job)
		if fresh[key] != nil {
			continue
		}
		if done[i].Seq, err = w.findKey(key, j.After); err != nil {
			return nil, err
		}
		if done[i].Existed = done[i].Seq > 0; !done[i].Existed {
			fresh[key] = &Entry{AtMS: t.now().UnixMilli(), Author: Author{daemonName, Daemon}, Text: j.Text, Job: key, Hops: j.Hops, Key: key}
			entries = append(entries, fresh[key])
		}
	}
	if len(entries) == 0 {
		return done, nil
	}
	if err := w.append(entries...); err != nil {
		return nil, err
	}
	if err := w.setState(w.state); err != nil {
		return nil, err
	}
	for _, e := range entries {
		t.keys.add(e.Key, e.Seq)
	}
	told := make(map[string]bool, len(entries))
	for i, j := range jobs {
		if e := fresh[string(j.Job)]; e != nil {
			done[i] = PostedJob{e.Seq, told[e.Key]}
			told[e.Key] = true
		}
	}
	return done, nil
}

// keyCache remembers the keys of the entries of a part of the thread, which is
// all that was appended since it was first asked: whoever posts the ends of a
// thousand jobs reads the thread once.
type keyCache struct {
	mu       sync.Mutex
	keys     map[string]int64
	from, to int64 // entries after from, up to to
}

const maxKeys = 20000

func (c *keyCache) add(key string, seq int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys != nil && seq == c.to+1 {
		c.keys[key], c.to = seq, seq
	}
}

// findKey is the seq of the entry with this key that comes after another, 0 if
// there is none.
func (w *writer) findKey(key string, after int64) (int64, error) {
	c := &w.t.keys
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == nil || after < c.from || c.to > w.Seq || len(c.keys) > maxKeys {
		c.keys, c.from, c.to = make(map[string]int64), after, after
	}
	if c.to < w.Seq {
		from, err := search(w.log, w.Offset, c.to+1)
		if err != nil {
			return 0, err
		}
		r := newForward(w.log, from, w.Offset)
		for {
			l, err := r.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return 0, err
			}
			if !bytes.Contains(l.b, []byte(`"kind":"`+Daemon+`"`)) {
				continue
			}
			if e, ok := parseLine(l.b); ok && e.Key != "" && e.Author.Kind == Daemon {
				c.keys[e.Key] = e.Seq
			}
		}
		c.to = w.Seq
	}
	if seq := c.keys[key]; seq > after {
		return seq, nil
	}
	return 0, nil
}

// Dirs are the directories in which something changes when there is an entry,
// and when there is a wake to be run. They need not exist.
func (t *Thread) Dirs() (entries, wakes string) {
	return t.path(threadDir), t.path(inboxDir, wakesDir)
}
