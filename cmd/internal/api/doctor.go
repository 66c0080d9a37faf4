package api

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"space-job/cmd/internal/policy"
	"space-job/cmd/internal/space"
	"space-job/jobdir"
	"space-job/jobdir/record"
	"space-job/runner"
)

// Verdict is what a doctor says of one thing.
type Verdict string

const (
	Good    Verdict = "ok"
	Warning Verdict = "warning" // works, but somebody should know
	Failed  Verdict = "failed"
)

// Finding is one thing that was looked at.
type Finding struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	Note    string  `json:"note"`
}

// DoctorResult is all that was looked at.
type DoctorResult struct {
	OK       bool      `json:"ok"` // nothing failed
	Findings []Finding `json:"findings"`
}

func (r *DoctorResult) add(name string, v Verdict, note string) {
	r.Findings = append(r.Findings, Finding{name, v, note})
	if v == Failed {
		r.OK = false
	}
}

// Doctor looks whether jobs can be run here: the programs, the root, its file
// system, what the kernel offers, and one real job in a folder of its own. It
// leaves nothing behind, and makes no root.
func Doctor(ctx context.Context) DoctorResult {
	res := DoctorResult{OK: true}
	if self, err := Program(); err == nil {
		res.add("space-job", Good, self)
	}
	program, err := runnerProgram()
	if err != nil {
		res.add("space-runner", Failed, err.Error())
	} else {
		res.add("space-runner", Good, program)
	}
	if daemon, err := daemonProgram(); err != nil {
		res.add("space-jobd", Warning, AsError(err).Message+": start --notify is refused")
	} else {
		res.add("space-jobd", Good, daemon)
	}
	a, err := Open()
	if err != nil {
		res.add("root", Failed, err.Error())
	} else {
		a.examine(ctx, &res, program != "")
	}
	for _, h := range runner.Probe() {
		if h.OK {
			res.add("kernel", Good, h.Name)
		} else {
			res.add("kernel", Warning, "no "+h.Name+": "+h.Note)
		}
	}
	return res
}

func (a *Actions) examine(ctx context.Context, res *DoctorResult, runs bool) {
	path := a.root.Path()
	_, err := os.Stat(path)
	exists := err == nil
	switch {
	case exists:
		res.add("root", Good, path)
	case os.IsNotExist(err):
		res.add("root", Good, path+" (made by the first start)")
	default:
		res.add("root", Failed, err.Error())
		return
	}
	if fs, err := a.root.FileSystem(); err != nil {
		res.add("file system", Failed, err.Error())
	} else {
		switch {
		case fs.ReadOnly:
			res.add("file system", Failed, fs.Type+" is read-only: jobs can be read, not started")
		case fs.Network:
			res.add("file system", Warning, fs.Type+": a lock there proves a job alive only on the machine that runs it; elsewhere its jobs look lost")
		default:
			res.add("file system", Good, fs.Type)
		}
		if low := diskWarning(fs, path); len(low) > 0 {
			for _, s := range low {
				res.add("disk", Warning, s)
			}
		} else {
			res.add("disk", Good, FormatSize(int64(fs.FreeBytes))+" free of "+FormatSize(int64(fs.TotalBytes)))
		}
	}
	a.trial(ctx, res, runs)
	if !exists {
		return
	}
	a.examineDaemon(res)
	a.examineParent(ctx, res)
	a.examinePolicy(res)
	a.examineSpaces(res)
	a.census(res)
}

// examineSpaces looks at what says how to get to other Spaces. It goes to none.
func (a *Actions) examineSpaces(res *DoctorResult) {
	all, err := space.Load(a.root.Path())
	switch {
	case err != nil:
		res.add("spaces", Warning, "no other Space can be reached: "+err.Error())
	case len(all) > 0:
		names := make([]string, len(all))
		for i := range all {
			names[i] = all[i].Name
		}
		res.add("spaces", Good, strings.Join(names, ", "))
	}
}

// trial makes a root of its own beside the jobs, or where the root would be
// made, and proves there what jobs rest on.
func (a *Actions) trial(ctx context.Context, res *DoctorResult, runs bool) {
	parent := a.root.Path()
	for parent != "/" {
		if _, err := os.Stat(parent); !os.IsNotExist(err) {
			break
		}
		parent = filepath.Dir(parent)
	}
	dir, err := os.MkdirTemp(parent, jobdir.TrialPrefix)
	if err != nil {
		res.add("locks", Failed, err.Error())
		return
	}
	defer os.RemoveAll(dir)
	locks(res, filepath.Join(dir, "lock"))
	if !runs {
		return
	}
	began := time.Now()
	if err := oneJob(ctx, dir); err != nil {
		res.add("a job", Failed, err.Error())
		return
	}
	res.add("a job", Good, "started, ended and read in "+FormatDuration(time.Since(began)))
}

// locks proves that a lock is seen through another open file, and whether a
// file can have a hole.
func locks(res *DoctorResult, path string) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		res.add("locks", Failed, err.Error())
		return
	}
	defer f.Close()
	other, err := os.Open(path)
	if err != nil {
		res.add("locks", Failed, err.Error())
		return
	}
	defer other.Close()
	held := false
	if err = record.Lock(int(f.Fd())); err == nil {
		held, err = record.Held(int(other.Fd()))
	}
	switch {
	case err != nil:
		res.add("locks", Failed, err.Error())
	case !held:
		res.add("locks", Failed, "a lock that is held is not seen: no job could be told from a lost one")
	default:
		res.add("locks", Good, "a lock that is held is seen")
	}
	if _, err := f.Write(make([]byte, 8192)); err != nil {
		res.add("holes", Failed, err.Error())
	} else if err := record.Punch(int(f.Fd()), 0, 4096); err != nil {
		res.add("holes", Warning, "the file system has none: --max-log is refused")
	} else {
		res.add("holes", Good, "--max-log works")
	}
}

// oneJob runs a job in a root of its own.
func oneJob(ctx context.Context, dir string) error {
	const most = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	a, err := OpenRoot(dir)
	if err != nil {
		return err
	}
	started, err := a.Start(StartRequest{Command: "echo a word; exit 7", Cwd: "/"})
	if err != nil {
		return err
	}
	id := string(started.Job)
	waited, err := a.Wait(ctx, WaitRequest{Jobs: []string{id}})
	if err != nil {
		_, _ = a.Cancel(context.Background(), CancelRequest{Jobs: []string{id}})
		return err
	}
	read, err := a.Logs(ctx, LogsRequest{Job: id, Encoding: Raw})
	if err != nil {
		return err
	}
	if waited.Code != 7 || string(read.Bytes) != "a word\n" {
		return &Error{Code: IO, Message: "a job that prints a word and exits with 7 came back as " + string(waited.Jobs[0].State) +
			", code " + strconv.Itoa(waited.Code) + ", log " + shown(string(read.Bytes)) + ": are space-job and space-runner of one version?"}
	}
	return nil
}

// examinePolicy looks at what says whether a job may be started.
func (a *Actions) examinePolicy(res *DoctorResult) {
	switch p := policy.Load(a.root.Path()); {
	case p.Broken() != nil:
		res.add("policy", Warning, "it cannot be used, so a person is asked about every start: "+p.Broken().Error())
	case p.Present():
		res.add("policy", Good, strconv.Itoa(len(p.Rules))+" rules in "+policy.File)
	default:
		res.add("policy", Good, "none: every start is allowed")
	}
	all, damaged, err := a.questions().List()
	if err != nil {
		res.add("approvals", Warning, err.Error())
	}
	for _, d := range damaged {
		res.add("approvals", Warning, d.Error())
	}
	if n := len(all); n > 0 {
		res.add("approvals", Good, strconv.Itoa(n)+" starts wait for a person's word, or have it: space-job approvals")
	}
}

// census looks at all jobs.
func (a *Actions) census(res *DoctorResult) {
	ids, err := a.root.IDs()
	if err != nil {
		res.add("jobs", Failed, err.Error())
		return
	}
	count := make(map[jobdir.State]int)
	for _, id := range ids {
		j := a.root.Job(id)
		s, err := stateOf(j)
		if err != nil {
			continue
		}
		count[s]++
		if s == jobdir.Running {
			if info, err := j.Read(); err == nil {
				e := entry(info)
				for _, w := range bigLogWarning(&e) {
					res.add("log", Warning, w)
				}
			}
		}
	}
	note := strconv.Itoa(len(ids))
	for _, s := range states {
		if count[s] > 0 {
			note += ", " + strconv.Itoa(count[s]) + " " + string(s)
		}
	}
	if count[Damaged] > 0 {
		res.add("jobs", Warning, note+" (space-job check says what is wrong)")
	} else {
		res.add("jobs", Good, note)
	}
	if n := a.overdue(ids); n > 0 {
		res.add("prune", Warning, strconv.Itoa(n)+" jobs ended more than 8 days ago and are still kept: space-job prune removes them")
	} else {
		res.add("prune", Good, "nothing is overdue")
	}
}
