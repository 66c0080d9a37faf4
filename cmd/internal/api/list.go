package api

import (
	"errors"
	"math"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"space-job/jobdir"
)

// ListRequest says which jobs to list.
type ListRequest struct {
	N      int // most; 0: 20
	All    bool
	States []string // only these; none: any
}

// ListResult are jobs, newest first.
type ListResult struct {
	Jobs     []Entry
	More     int      // how many there are beyond these
	Warnings []string // what somebody should know of
}

// states are all that a job is shown as: the real states, and Damaged.
var states = [...]jobdir.State{jobdir.Running, jobdir.Exited, jobdir.Cancelled, jobdir.TimedOut, jobdir.Lost, Damaged}

// States are the values that ListRequest.States may hold.
func States() []string {
	out := make([]string, len(states))
	for i, s := range states {
		out[i] = string(s)
	}
	return out
}

// List lists the jobs, newest first. A damaged job is listed as that.
func (a *Actions) List(req ListRequest) (ListResult, error) {
	if a.away != nil {
		return a.listThere(req)
	}
	var res ListResult
	n := req.N
	if n < 0 {
		return res, invalid("n", strconv.Itoa(n), "is below zero")
	}
	if n == 0 {
		n = 20
	}
	want := make(map[jobdir.State]bool)
	for _, s := range req.States {
		if !known(s) {
			return res, invalid("state", s, "is none of running, exited, cancelled, timed_out, lost, damaged")
		}
		want[jobdir.State(s)] = true
	}
	read := n
	if req.All || len(want) > 0 {
		read = math.MaxInt
	}
	names, err := a.root.List(read)
	if err != nil {
		return res, fault(err)
	}
	jobs := make([]*jobdir.Job, len(names.Newest))
	for i, id := range names.Newest {
		jobs[i] = a.root.Job(id)
	}
	total := names.Total
	if len(want) > 0 {
		wanted := make([]bool, len(jobs))
		eachAtOnce(len(jobs), func(i int) {
			s, err := stateOf(jobs[i])
			wanted[i] = err == nil && want[s]
		})
		jobs = kept(jobs, wanted)
		total = len(jobs)
	}
	if !req.All {
		jobs = jobs[:min(n, len(jobs))]
	}
	res.Jobs = make([]Entry, len(jobs))
	there := make([]bool, len(jobs))
	eachAtOnce(len(jobs), func(i int) {
		info, err := jobs[i].ReadBrief()
		if errors.Is(err, jobdir.ErrNotFound) { // pruned meanwhile
			return
		}
		if err != nil {
			info = &jobdir.Info{ID: jobs[i].ID(), Damaged: err.Error()}
		}
		res.Jobs[i], there[i] = a.entry(info), true
	})
	total -= len(jobs)
	res.Jobs = kept(res.Jobs, there)
	res.More = total
	res.Warnings = a.warnings(res.Jobs, names.Some)
	return res, nil
}

// eachAtOnce calls f for 0 to n-1, on as many processors as there are: most of
// what reading a job costs is the kernel's work.
func eachAtOnce(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// kept are those items whose sign is set, in their order.
func kept[T any](items []T, sign []bool) []T {
	n := 0
	for i := range items {
		if sign[i] {
			items[n] = items[i]
			n++
		}
	}
	return items[:n]
}

func known(s string) bool {
	for _, k := range states {
		if string(k) == s {
			return true
		}
	}
	return false
}

// stateOf is a job's state; a damaged one's is Damaged.
func stateOf(j *jobdir.Job) (jobdir.State, error) {
	s, err := j.State()
	if errors.As(err, new(*jobdir.DamagedError)) {
		return Damaged, nil
	}
	return s, jobFault(j, err)
}

// jobFault is fault for what went wrong with one job, which may be gone by now.
func jobFault(j *jobdir.Job, err error) error {
	if errors.Is(err, jobdir.ErrNotFound) {
		return notFound(string(j.ID()))
	}
	return fault(err)
}

// warnings are what a list says besides: large logs among the jobs at hand, a
// disk that fills up, ended jobs that nobody removes.
func (a *Actions) warnings(jobs []Entry, sample []jobdir.ID) []string {
	var out []string
	for i := range jobs {
		if jobs[i].State == jobdir.Running {
			out = append(out, bigLogWarning(&jobs[i])...)
		}
		if m := jobs[i].LogDropped; m != nil && m.Unwritten != nil {
			out = append(out, "job "+string(jobs[i].Job)+": "+unwritten(m.Unwritten).Warning())
		}
	}
	if fs, err := a.root.FileSystem(); err == nil {
		out = append(out, diskWarning(fs, a.root.Path())...)
	}
	// A few jobs tell: where nobody prunes, most are overdue.
	if a.overdue(sample) > 0 {
		out = append(out, "jobs that ended more than 8 days ago are still kept: space-job prune removes them")
	}
	return out
}

func bigLogWarning(e *Entry) []string {
	onDisk := e.LogBytes
	if e.LogDropped != nil && e.LogDropped.Hole != nil {
		onDisk -= e.LogDropped.Hole.To - e.LogDropped.Hole.From
	}
	if onDisk <= bigLog {
		return nil
	}
	return []string{"the log of " + string(e.Job) + " has " + FormatSize(onDisk) + " and the job goes on writing (--max-log bounds a log)"}
}

func diskWarning(fs jobdir.FSInfo, path string) []string {
	var out []string
	if fs.TotalBytes > 0 && fs.FreeBytes < fs.TotalBytes/20 {
		out = append(out, "the disk of "+path+" has only "+FormatSize(int64(fs.FreeBytes))+" left, less than 5 %")
	}
	if fs.TotalInodes > 0 && fs.FreeInodes < fs.TotalInodes/20 {
		out = append(out, "the disk of "+path+" has only "+strconv.FormatUint(fs.FreeInodes, 10)+" inodes left, less than 5 %")
	}
	return out
}

// overdue counts the jobs that a daily prune would have removed.
func (a *Actions) overdue(ids []jobdir.ID) int {
	before := a.now().Add(-jobdir.Retention - 24*time.Hour)
	count := 0
	for _, id := range ids {
		if !id.Time().Before(before) {
			continue
		}
		info, err := a.root.Job(id).Read()
		if err != nil || info.State == jobdir.Running {
			continue
		}
		if at, ok := endOf(info); ok && at.Before(before) {
			count++
		}
	}
	return count
}

// endOf is when a job ended, or was written down as lost.
func endOf(info *jobdir.Info) (time.Time, bool) {
	switch {
	case info.Timing != nil && info.State != jobdir.Lost:
		return info.Timing.EndedAt, true
	case info.Exit != nil:
		return info.Exit.At, true
	}
	return time.Time{}, false
}
