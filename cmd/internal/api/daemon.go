package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"space-job/jobdir/record"
	"space-job/notify"
	"space-job/runner"
)

// DaemonResult says which daemon runs for a root, or ran until it was stopped.
type DaemonResult struct {
	PID     int        `json:"pid"` // 0: none
	Since   *time.Time `json:"since"`
	Service string     `json:"service"` // the service manager that starts it, "" for none
	Stopped bool       `json:"stopped"` // it was running, and is gone
}

func daemonResult(r record.DaemonRecord) DaemonResult {
	res := DaemonResult{PID: r.PID, Service: r.Service}
	if !r.At.IsZero() {
		res.Since = &r.At
	}
	return res
}

// daemonProgram is the path of space-jobd, which is installed beside this
// program.
func daemonProgram() (string, error) {
	self, err := Program()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), "space-jobd")
	if err := syscall.Access(path, 1); err != nil {
		return "", &Error{Code: Unavailable, Message: "space-jobd: " + path + ": " + err.Error(),
			Hint: "space-jobd belongs beside space-job: install both into one folder (space-job doctor looks at it)", cause: err}
	}
	return path, nil
}

// Tend starts a daemon if there is something for it to do and none runs, unless
// somebody has stopped it or a service manager will. It waits for nothing, and
// says nothing: what fails is in the daemon's log, and the status of a job says
// that there is no daemon. Where nothing was ever to be delivered it costs one
// look at a folder that is not there.
func (a *Actions) Tend() {
	if notify.Waiting(a.root) {
		a.tend()
	}
}

// TendAll is Tend that sees to wakes that were not run, too: one look more.
func (a *Actions) TendAll() {
	if notify.Waiting(a.root) || a.thread().WakesWaiting() || a.linked() {
		a.tend()
	}
}

func (a *Actions) tend() {
	if notify.Stopped(a.root) {
		return
	}
	last, held := notify.DaemonOf(a.root)
	if held || last.Service != "" && last.BootID == record.BootID() {
		return
	}
	if _, err := a.startDaemon(); err != nil && !errors.As(err, new(*notify.HeldError)) {
		if log, e := a.daemonLog(); e == nil {
			fmt.Fprintf(log, "%s space-job: the daemon cannot be started: %v\n", a.now().Format("2006/01/02 15:04:05"), err)
			log.Close()
		}
	}
}

// daemonLog opens the log that a daemon writes to, and takes a large one out of
// the way.
func (a *Actions) daemonLog() (*os.File, error) {
	const large = 4 << 20
	path := filepath.Join(a.root.Path(), record.DaemonLog)
	if info, err := os.Lstat(path); err == nil && info.Size() > large {
		_ = os.Rename(path, path+".old")
	}
	fd, err := record.Open(-1, path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_APPEND|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	return f, f.Chmod(0o600)
}

// startDaemon starts a daemon in the background. The lock is taken here and
// handed over, so that of many that try at once one starts one.
func (a *Actions) startDaemon() (record.DaemonRecord, error) {
	none := record.DaemonRecord{}
	program, err := daemonProgram()
	if err != nil {
		return none, err
	}
	lock, err := notify.TakeLock(a.root)
	if err != nil {
		return none, err
	}
	defer lock.Close()
	log, err := a.daemonLog()
	if err != nil {
		return none, err
	}
	defer log.Close()
	c := exec.Command(program, "--inherited")
	c.Env = notify.Environ(a.root, os.Environ())
	c.Dir = "/"
	c.Stdout, c.Stderr = log, log
	// The daemon waits until this one has said who it is, and then says so itself.
	signed, signing, err := os.Pipe()
	if err != nil {
		return none, err
	}
	defer signing.Close()
	c.ExtraFiles = []*os.File{lock.File(), signed}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = c.Start()
	signed.Close()
	if err != nil {
		return none, err
	}
	// Said here already, for whoever looks before the daemon can say so itself:
	// the runner of a job in which this is done must know it from the job's own.
	if err := lock.SignFor(c.Process.Pid, a.now()); err != nil {
		return none, err
	}
	r, _ := notify.DaemonOf(a.root)
	return r, c.Process.Release()
}

// DetachDaemon starts a daemon in the background, also where it was stopped.
func (a *Actions) DetachDaemon() (DaemonResult, error) {
	if _, err := daemonProgram(); err != nil {
		return DaemonResult{}, err
	}
	if err := a.allowDaemon(); err != nil {
		return DaemonResult{}, err
	}
	r, err := a.startDaemon()
	if err != nil {
		return DaemonResult{}, fault(err)
	}
	return daemonResult(r), nil
}

// allowDaemon makes the root, and takes back that the daemon was stopped.
func (a *Actions) allowDaemon() error {
	if err := a.root.Create(); err != nil {
		return fault(err)
	}
	if last, held := notify.DaemonOf(a.root); held {
		return fault(&notify.HeldError{Root: a.root.Path(), Holder: last})
	}
	return fault(notify.SetStopped(a.root, false))
}

// BecomeDaemon makes this process the daemon, in the foreground. It returns only
// when it fails.
func (a *Actions) BecomeDaemon() error {
	program, err := daemonProgram()
	if err != nil {
		return err
	}
	if err := a.allowDaemon(); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return fault(err)
	}
	err = syscall.Exec(program, []string{"space-jobd"}, notify.Environ(a.root, os.Environ()))
	return &Error{Code: Unavailable, Message: "execute " + program + ": " + err.Error(), cause: err}
}

// StopDaemon stops the daemon, and waits until it is gone. From then on no
// command starts one by itself, until somebody runs or detaches one.
func (a *Actions) StopDaemon(ctx context.Context) (DaemonResult, error) {
	if _, err := os.Lstat(a.root.Path()); os.IsNotExist(err) {
		return DaemonResult{}, nil // and reading makes no root
	}
	if err := notify.SetStopped(a.root, true); err != nil {
		return DaemonResult{}, fault(err)
	}
	const (
		within = 10 * time.Second
		pause  = 5 * time.Millisecond
	)
	var asked record.DaemonRecord
	for end := time.Now().Add(within); ; {
		r, held := notify.DaemonOf(a.root)
		if !held {
			if asked.PID == 0 || !record.IsProcess(asked.PID, asked.Start) {
				res := daemonResult(asked)
				res.Stopped = asked.PID != 0
				return res, nil
			}
		}
		if held && r.PID != 0 && r.PID != asked.PID && r.BootID == record.BootID() {
			if err := runner.Signal(r.PID, r.Start, syscall.SIGTERM); err != nil && err != syscall.ESRCH {
				return DaemonResult{}, fault(fmt.Errorf("signal process %d: %w", r.PID, err))
			}
			_ = runner.Signal(r.PID, r.Start, syscall.SIGCONT) // somebody may have stopped it
			asked = r
		}
		if time.Now().After(end) {
			what := "another process has its lock, and has not said which"
			if r.PID != 0 {
				what = fmt.Sprintf("process %d was told to end and is still there after %v", r.PID, within)
			}
			return DaemonResult{}, &Error{Code: Unavailable, Message: "stop the daemon: " + what}
		}
		select {
		case <-ctx.Done():
			return DaemonResult{}, fault(ctx.Err())
		case <-time.After(pause):
		}
	}
}

// examineDaemon is what a doctor says of the daemon.
func (a *Actions) examineDaemon(res *DoctorResult) {
	r, held := notify.DaemonOf(a.root)
	waiting := notify.Waiting(a.root)
	switch {
	case held && r.PID != 0:
		note := fmt.Sprintf("runs: process %d since %s", r.PID, r.At.Local().Format("2006-01-02 15:04:05"))
		if r.Service != "" {
			note += ", as a service of " + r.Service
		}
		res.add("daemon", Good, note)
	case held:
		res.add("daemon", Good, "starts")
	case notify.Stopped(a.root):
		v, note := Good, "was stopped: space-job daemon starts it"
		if waiting {
			v, note = Warning, "was stopped, and messages wait for it: space-job daemon --detach starts it"
		}
		res.add("daemon", v, note)
	case r.Service != "" && r.BootID == record.BootID() && waiting:
		res.add("daemon", Warning, "does not run, and messages wait for it: "+r.Service+" is to start it")
	case waiting:
		res.add("daemon", Warning, "does not run, and messages wait for it: see "+filepath.Join(a.root.Path(), record.DaemonLog))
	default:
		res.add("daemon", Good, "does not run: started when there is something for it to do")
	}
}
