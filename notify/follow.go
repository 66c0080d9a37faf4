package notify

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/notify/thread"
)

// How often things are looked at that nobody reports.
const (
	slowSweep  = 30 * time.Second
	blindSweep = 500 * time.Millisecond // where the kernel reports nothing
	pruneEvery = time.Hour
	firstPrune = 5 * time.Minute // not at once: a daemon that starts has better things to do

	writtenBack = time.Minute // the kernel has written everything to disk by then

	batch    = 128 // messages that are brought on together: they share what is synced
	together = 8   // files that are written at once
)

// Time limits of one attempt. What a hook calls has a limit of its own, and is
// done by then.
const (
	sinkWithin    = 20 * time.Second
	desktopWithin = 10 * time.Second
	leaveWithin   = 300 * time.Millisecond // what is under way when Follow is to end
)

// soon is a time that has come.
var soon = time.Unix(0, 1)

// Follow brings the messages of a root to those who are to have them, until ctx
// is done. Only one process may do so: who calls it holds the [Lock]. It also
// writes down the jobs that are lost, runs the wakers of mentions, and prunes
// once an hour.
//
// It returns nil when ctx is done, and an error where it cannot begin, or where the
// root or its lock has been removed: then another may follow.
func Follow(ctx context.Context, root *jobdir.Root, h Hooks) error {
	f, err := newFollower(root, h)
	if err != nil {
		return err
	}
	defer f.close()
	// What is running when the end comes is told so, and given a moment.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.run(ctx)
	cancel()
	done := make(chan struct{})
	go func() {
		f.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(leaveWithin):
	}
	if f.gone {
		return &fs.PathError{Op: "follow", Path: root.Path(), Err: fs.ErrNotExist}
	}
	return nil
}

// follower is the state of Follow. All of it belongs to the one goroutine that
// runs it; what others find out comes to it as a function that it calls.
type follower struct {
	root    *jobdir.Root
	thread  *thread.Thread
	hooks   Hooks
	watch   *watcher
	slow    time.Duration                    // between two sweeps
	backoff func(attempts int) time.Duration // after so many failed attempts

	jobs    map[jobdir.ID]*followed // that have an entry
	fresh   []jobdir.ID             // entries that may not be durable yet
	syncing bool
	lock    os.FileInfo // that of the daemon, nil where there is none
	gone    bool        // the root has been removed, and there may be another in its place
	results chan func()
	work    sync.WaitGroup // sinks, wakers, a prune

	sweepAt, pruneAt time.Time
	unended          map[jobdir.ID]*unended // every job without an end, at the last sweep
	ended            map[[13]byte]struct{}  // every other job
	list, outbox     listing                // of the jobs directory, and of the outbox
	kept, keepOpen   int                    // open pid files of those, and how many there may be
	said             map[string]bool        // complaints that need no repeating

	lanes      map[string]*lane      // by sink
	configs    map[string]configured // the sinks, as they were at configsAt
	configsAt  time.Time
	configsOf  time.Time   // when their directory had last changed then, zero where there was none
	telling    bool        // the parent is being told
	behind     []*followed // that wait for that
	notifying  bool        // a desktop notification is being shown
	waking     map[string]bool
	unnoted    map[string]*wakeRun // by item: wakers that were run, which could not be noted
	wakesDirty bool
	wakesAt    time.Time // when the next pending wake is due, zero for none
}

// followed is a job that has an entry.
type followed struct {
	job     *jobdir.Job
	entry   *Entry
	due     time.Time     // when to look at it again; zero: when something is reported
	pause   time.Duration // until the look after the next
	watched bool
	ended   bool
	saved   uint64   // hash of the entry as it was last written
	asked   []string // sinks that somebody wants tried at once
	told    string   // what was last said about it
}

// lane is the way to one sink: one message at a time, so that one that does not
// answer is not asked a thousand times over.
type lane struct {
	busy      bool
	fails     int // in a row
	notBefore time.Time
}

// configured is a sink as its file has it, or why that cannot be read.
type configured struct {
	SinkConfig
	err error
}

func newFollower(root *jobdir.Root, h Hooks) (*follower, error) {
	outbox, err := root.MakeDir(record.Outbox)
	if err == nil {
		err = jobdir.SyncDir(root.Path() + "/") // a start may have made it, and waits for no disk
	}
	if err != nil {
		return nil, err
	}
	f := &follower{
		root: root, thread: thread.Open(root), hooks: h,
		jobs: map[jobdir.ID]*followed{}, results: make(chan func()),
		unended: map[jobdir.ID]*unended{}, said: map[string]bool{},
		lanes: map[string]*lane{}, waking: map[string]bool{}, unnoted: map[string]*wakeRun{}, wakesDirty: true,
		slow: slowSweep, keepOpen: spareDescriptors(),
		backoff: func(attempts int) time.Duration { return Backoff(attempts, rand.Float64) },
	}
	if h.Lock != nil { // that which is held, and not what has its name by now
		if f.lock, err = h.Lock.file.Stat(); err != nil {
			return nil, err
		}
	}
	f.thread.Warn = func(line string) { f.say("thread: %s", line) }
	_, wakes := f.thread.Dirs()
	below, err := filepath.Rel(root.Path(), wakes)
	if err == nil {
		_, err = root.MakeDurableDir(strings.Split(below, string(filepath.Separator))...)
	}
	if err != nil {
		return nil, err
	}
	f.watch = newWatcher(outbox, wakes)
	if f.watch.events == nil {
		f.say("the kernel reports no changes of files: looking every %v", blindSweep)
	}
	f.pruneAt = time.Now().Add(firstPrune)
	return f, nil
}

func (f *follower) close() {
	f.watch.close()
	for _, u := range f.unended {
		f.letGo(u)
	}
}

func (f *follower) say(format string, args ...any) {
	if f.hooks.Log != nil {
		f.hooks.Log.Printf(format, args...)
	}
}

// sayOnce is say for what would be found again and again.
func (f *follower) sayOnce(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if !f.said[line] {
		f.said[line] = true
		f.say("%s", line)
	}
}

func (f *follower) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		f.look()
		next := f.step(ctx, time.Now())
		timer.Reset(max(time.Until(next), 0))
		select {
		case <-ctx.Done():
			return
		case <-f.watch.hint:
		case <-timer.C:
		case <-f.hooks.Back:
			f.parentBack()
		case result := <-f.results:
			result()
			for more := true; more; { // those that came at the same time
				select {
				case result := <-f.results:
					result()
				default:
					more = false
				}
			}
		}
		if ctx.Err() != nil || f.gone {
			return
		}
	}
}

// begin runs something that may take long beside the loop. What it returns is
// called by the loop.
func (f *follower) begin(ctx context.Context, work func(context.Context) (result func())) {
	f.work.Go(func() {
		result := work(ctx)
		if ctx.Err() != nil {
			return // what was cut short is no result
		}
		select {
		case f.results <- result:
		case <-ctx.Done():
		}
	})
}

// look takes in what was reported.
func (f *follower) look() {
	s := f.watch.take()
	if s.all {
		f.sweepAt = time.Time{}
	}
	f.wakesDirty = f.wakesDirty || s.wakes
	for id := range s.entries {
		f.notice(id)
	}
	for id := range s.ended {
		if fd := f.jobs[id]; fd != nil {
			fd.due = soon
		}
	}
}

// step does what is due, and returns when to come again at the latest.
func (f *follower) step(ctx context.Context, now time.Time) time.Time {
	if f.lock != nil { // or a root that was removed and made anew would be followed twice
		there, err := os.Lstat(lockPath(f.root))
		f.gone = errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(f.lock, there)
		if f.gone {
			return now
		}
	}
	if !now.Before(f.sweepAt) {
		f.sweep(now)
		f.sweepAt = now.Add(f.slow)
		if f.watch.events == nil {
			f.sweepAt = now.Add(blindSweep)
		}
	}
	var ready []*followed
	for _, fd := range f.jobs {
		if fd.due.IsZero() || notYet(fd.due, now, maxBackoff) {
			continue
		}
		fd.due = time.Time{}
		if !fd.ended {
			f.examine(fd, now)
		}
		if fd.ended && f.jobs[fd.job.ID()] == fd {
			ready = append(ready, fd)
		}
	}
	slices.SortFunc(ready, func(a, b *followed) int { return strings.Compare(string(a.job.ID()), string(b.job.ID())) })
	for _, fd := range ready[min(batch, len(ready)):] {
		fd.due = now
	}
	f.deliver(ctx, ready[:min(batch, len(ready))], now)
	f.keep(ctx)
	sendAt := f.sendAll(ctx, now)
	f.wakeAll(ctx, now)
	if !now.Before(f.pruneAt) {
		f.pruneAt = now.Add(pruneEvery)
		f.begin(ctx, f.prune)
	}

	next := f.sweepAt
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	earlier(f.pruneAt)
	earlier(f.wakesAt)
	earlier(sendAt)
	for _, fd := range f.jobs {
		earlier(fd.due)
	}
	return next
}

// keep makes new entries durable.
func (f *follower) keep(ctx context.Context) {
	if f.syncing || len(f.fresh) == 0 {
		return
	}
	f.syncing = true
	fresh := f.fresh
	f.fresh = nil
	f.begin(ctx, func(context.Context) func() {
		err := syncEntries(f.root, fresh)
		return func() {
			f.syncing = false
			if err != nil {
				f.sayOnce("outbox: %v", err)
			}
		}
	})
}

// sweep looks at everything that no report is needed for.
func (f *follower) sweep(now time.Time) {
	f.watch.refresh()
	f.wakesDirty = true
	if f.gone = f.gone || !exists(f.root.Path()); f.gone {
		return // nobody will come to this root any more
	}
	if err := f.sweepOutbox(now); err != nil {
		f.sayOnce("outbox: %v", err)
		return
	}
	f.sweepJobs(now)
	for _, fd := range f.jobs {
		if fd.due.IsZero() && (!fd.ended && !fd.watched || fd.ended && fd.stuck()) {
			fd.due = now // something went wrong when it was last looked at
		}
	}
	// Mentions whose poster was killed before they were in an inbox.
	if entries, _ := f.thread.Dirs(); exists(filepath.Join(entries, "log")) {
		if _, err := f.thread.PostJobs(nil); err != nil {
			f.sayOnce("thread: %v", err)
		}
	}
}

// sweepOutbox finds entries that came or went unreported.
func (f *follower) sweepOutbox(now time.Time) error {
	if !f.outbox.changed(outboxDir(f.root), now) {
		return nil
	}
	ids, err := outboxIDs(f.root)
	if err != nil {
		return err
	}
	there := make(map[jobdir.ID]bool, len(ids))
	for _, id := range ids {
		there[id] = true
		if fd := f.jobs[id]; fd == nil || fd.ended { // somebody may have asked for another attempt
			f.notice(id)
		}
	}
	for id, fd := range f.jobs {
		if !there[id] {
			f.forget(fd)
		}
	}
	return nil
}

// listing is when a directory was last listed, and when it had last changed then.
type listing struct{ at, modified time.Time }

// changed reports whether a directory is to be listed again, and takes it for
// done. A change in the moment of a listing need not show in the time.
func (l *listing) changed(dir string, now time.Time) bool {
	info, err := os.Lstat(dir)
	if err == nil && info.ModTime().Equal(l.modified) && l.at.Sub(l.modified) > 2*time.Second {
		return false
	}
	*l = listing{}
	if err == nil {
		*l = listing{now, info.ModTime()}
	}
	return true
}

// sweepJobs looks at every job that has no end, and writes down those that are
// lost. Jobs that have ended cost nothing: they are listed again only when
// something has changed in their directory.
func (f *follower) sweepJobs(now time.Time) {
	dir := filepath.Join(f.root.Path(), record.Jobs)
	if f.list.changed(dir, now) {
		ids, err := f.root.IDs()
		if err != nil {
			f.sayOnce("jobs: %v", err)
			return
		}
		ended := make(map[[13]byte]struct{}, len(ids))
		still := map[jobdir.ID]*unended{}
		for _, id := range ids {
			key := [13]byte([]byte(id))
			u := f.unended[id]
			_, known := f.ended[key]
			switch {
			case known || u == nil && hasExit(dir, id):
				ended[key] = struct{}{}
			case u == nil:
				u = &unended{job: f.root.Job(id), pid: -1}
				fallthrough
			default:
				still[id] = u
				delete(f.unended, id)
			}
		}
		for _, u := range f.unended { // removed
			f.letGo(u)
		}
		f.ended, f.unended = ended, still
		for id, fd := range f.jobs {
			_, over := ended[[13]byte([]byte(id))]
			if fd.ended && !over && still[id] == nil { // removed, with what a sink has refused
				fd.ended, fd.due = false, now
			}
		}
	}
	fd, err := record.Open(-1, dir, syscall.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		f.sayOnce("jobs: %v", err)
		return
	}
	defer syscall.Close(fd)
	for id, u := range f.unended {
		if f.held(fd, u) {
			continue
		}
		if !hasExit(dir, id) && !f.recordLost(u.job, now) {
			continue
		}
		f.letGo(u)
		delete(f.unended, id)
		f.ended[[13]byte([]byte(id))] = struct{}{}
		if fd := f.jobs[id]; fd != nil {
			fd.due = now
		}
	}
}

// unended is a job without an end. Its pid file is kept open where there are
// descriptors enough: a look at the lock then costs one call, and there may be
// thousands of jobs, every half minute.
type unended struct {
	job *jobdir.Job
	pid int // -1: not open
}

// held reports whether a job's runner is alive. Where that is false or cannot be
// told, whoever writes down a loss looks again.
func (f *follower) held(jobs int, u *unended) bool {
	if u.pid >= 0 {
		held, err := record.Held(u.pid)
		return err == nil && held
	}
	fd, err := record.Open(jobs, string(u.job.ID())+"/"+record.Pid, syscall.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	held, err := record.Held(fd)
	if f.kept < f.keepOpen {
		f.kept++
		u.pid = fd
	} else {
		_ = syscall.Close(fd)
	}
	return err == nil && held
}

func (f *follower) letGo(u *unended) {
	if u.pid >= 0 {
		_ = syscall.Close(u.pid)
		u.pid = -1
		f.kept--
	}
}

// spareDescriptors is how many files may be kept open: half of what this process
// may have.
func spareDescriptors() int {
	const most = 8192
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		return 0
	}
	return int(min(lim.Cur/2, most))
}

// hasExit is a cheap look at whether a job's end is there.
func hasExit(jobs string, id jobdir.ID) bool {
	info, err := os.Lstat(jobs + "/" + string(id) + "/" + record.Exit)
	return err == nil && info.Size() > 0
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// recordLost writes down that a job is lost, if it is. It reports whether the job
// has an end by now.
func (f *follower) recordLost(j *jobdir.Job, now time.Time) bool {
	recorded, err := j.RecordLost(now)
	switch {
	case err == nil && recorded:
		f.say("job %s is lost: its runner is gone", j.ID())
		return true
	case err == nil:
		return hasExit(filepath.Dir(j.Dir()), j.ID())
	case errors.Is(err, jobdir.ErrNotFound), errors.Is(err, jobdir.ErrForeign), errors.Is(err, jobdir.ErrNewerFormat):
	case errors.As(err, new(*jobdir.DamagedError)):
		f.sayOnce("%v", err)
	default:
		f.sayOnce("job %s cannot be written down as lost: %v", j.ID(), err)
	}
	return false
}

// notice takes in an entry that has appeared, changed or gone.
func (f *follower) notice(id jobdir.ID) {
	path := entryPath(f.root, id)
	fd := f.jobs[id]
	e, err := readEntry(path, id)
	var damaged *damagedEntry
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		if fd != nil {
			f.forget(fd)
		}
		return
	case errors.As(err, &damaged):
		if e = f.restore(damaged, id, fd); e == nil {
			return
		}
	default:
		f.sayOnce("outbox: %v", err)
		return
	}
	if fd != nil {
		if e.requested() {
			fd.saved = 0
			f.save(fd, false)
		}
		return
	}
	j := f.root.Job(id)
	if _, ok := readReceipt(j); ok { // the last step was not done
		if err := os.Remove(path); err != nil {
			f.sayOnce("outbox: %v", err)
		}
		return
	}
	fd = &followed{job: j, entry: e, due: soon}
	f.jobs[id] = fd
	if e.requested() { // while no daemon ran
		f.save(fd, false)
	}
	if time.Since(e.CreatedAt) < writtenBack {
		f.fresh = append(f.fresh, id)
	}
}

// restore sets a damaged entry aside, and makes it anew of what is known.
func (f *follower) restore(damaged *damagedEntry, id jobdir.ID, fd *followed) *Entry {
	aside, err := damaged.setAside()
	if err != nil {
		f.sayOnce("%v; it cannot be set aside: %v", damaged, err)
		return nil
	}
	var e *Entry
	if fd != nil {
		e = fd.entry
	} else if info, err := f.root.Job(id).Read(); err == nil && info.Cmd != nil && info.Cmd.Notify {
		made := entryOf(info.Cmd)
		e = &made
	}
	if e == nil {
		f.say("%v: set aside as %s; there is no job that it could be of", damaged, aside)
		return nil
	}
	f.say("%v: set aside as %s, and made anew of what the job says", damaged, aside)
	if err := jobdir.ReplaceFile(entryPath(f.root, id), jobdir.Line(e), true); err != nil {
		f.sayOnce("outbox: %v", err)
	}
	return e
}

// forget stops following a job.
func (f *follower) forget(fd *followed) {
	if fd.watched {
		f.watch.leave(fd.job)
	}
	delete(f.jobs, fd.job.ID())
}

// complain says what keeps a message from going on, once.
func (f *follower) complain(fd *followed, err error) {
	if fd.told != err.Error() {
		fd.told = err.Error()
		f.say("job %s: %v", fd.job.ID(), err)
	}
}

// examine looks whether a job has ended.
func (f *follower) examine(fd *followed, now time.Time) {
	for {
		state, err := fd.job.State()
		switch {
		case errors.Is(err, jobdir.ErrNotFound):
			f.examineNone(fd, now)
			return
		case errors.As(err, new(*jobdir.DamagedError)):
			fd.entry.Thread.Error = err.Error()
			f.save(fd, false) // so that status says so, too
			f.complain(fd, err)
			return
		case err != nil:
			f.complain(fd, err)
			return
		case state == jobdir.Lost && !f.recordLost(fd.job, now):
			return // not ours to write down, or not now: the next sweep tries again
		case state != jobdir.Running:
			crash("follow.ended")
			fd.ended = true
			if fd.watched {
				f.watch.leave(fd.job)
				fd.watched = false
			}
			return
		case fd.watched:
			return
		}
		if fd.watched = f.watch.follow(fd.job); !fd.watched {
			fd.due = now.Add(blindSweep)
			return
		}
		// It may have ended before it was watched.
	}
}

// examineNone deals with an entry whose job is not there: not yet, as long as
// its starter holds it, or no more.
func (f *follower) examineNone(fd *followed, now time.Time) {
	dropped, err := dropIfNone(f.root, fd.job.ID())
	switch {
	case err != nil:
		f.complain(fd, err)
	case dropped:
		f.forget(fd)
	default:
		fd.pause = min(max(2*fd.pause, time.Millisecond), blindSweep)
		fd.due = now.Add(fd.pause)
	}
}

// save writes an entry down, if it is another by now, and takes in what somebody
// has asked for.
func (f *follower) save(fd *followed, sync bool) {
	if fd.saved == hash(fd.entry) {
		return
	}
	asked, err := saveEntry(f.root, fd.entry, sync)
	fd.asked = append(fd.asked, asked...)
	switch {
	case err == nil:
		fd.saved = hash(fd.entry)
	case !errors.Is(err, fs.ErrNotExist):
		f.complain(fd, err)
	}
}

func hash(e *Entry) uint64 {
	h := fnv.New64a()
	h.Write(jobdir.Line(e))
	return h.Sum64()
}

// prune removes what ended long ago, as the command of that name does.
func (f *follower) prune(context.Context) func() {
	now := time.Now()
	Sweep(f.root, now)
	report, err := f.root.Prune(jobdir.Retention, now, Keeps(f.root))
	_, old := f.thread.Prune()
	var more error
	if f.hooks.Prune != nil {
		more = f.hooks.Prune()
	}
	return func() {
		if more != nil {
			f.say("prune: %v", more)
		}
		if old != nil {
			f.say("prune: inboxes: %v", old)
		}
		if err != nil {
			f.say("prune: %v", err)
		}
		for _, err := range report.Errors {
			f.say("prune: %v", err)
		}
		if n := len(report.Removed); n > 0 {
			f.say("prune: jobs removed: %d", n)
		}
		clear(f.said)
		f.sweepAt = time.Time{}
	}
}

// Sweep is a part of a prune: it removes what starts that were killed have left in
// the outbox, and returns how many files those were.
func Sweep(root *jobdir.Root, now time.Time) (swept int) {
	for _, dir := range []string{outboxDir(root), filepath.Join(outboxDir(root), elsewhereDir)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), jobdir.TempPrefix) {
				continue
			}
			if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > time.Hour {
				if os.Remove(filepath.Join(dir, e.Name())) == nil {
					swept++
				}
			}
		}
	}
	return swept
}
