package runner

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"space-job/jobdir/record"
)

func init() { roles["pump"] = pumpRole }

// pumpRole is a pump without a job, for what only a stop at the right moment
// shows. Its argument is a directory to work in.
func pumpRole(args []string) int {
	if err := pumpAlone(args[0]); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func pumpAlone(dir string) error {
	signal.Ignore(unix.SIGXFSZ)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_NONBLOCK); err != nil {
		return err
	}
	log, err := unix.Open(filepath.Join(dir, record.Log), unix.O_CREAT|unix.O_RDWR|unix.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	at, err := unix.Open(dir, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	const far = 100 // where these are not overwritten by what follows
	for i, fd := range []int{pipe[0], pipe[1], log, at} {
		if err := unix.Dup3(fd, far+i, 0); err != nil {
			return err
		}
	}
	for i, fd := range []int{fdPipe, fdOut, fdLog, fdDir} {
		if err := unix.Dup3(far+i, fd, 0); err != nil {
			return err
		}
	}
	want := func(what, log string, hole *record.Hole, p *pump) error {
		b, err := os.ReadFile(filepath.Join(dir, record.Log))
		if err != nil {
			return err
		}
		if string(b) != log || p.off != int64(len(log)) {
			return fmt.Errorf("%s: log is %.40q of %d bytes, want %.40q of %d; size says %d", what, b, len(b), log, len(log), p.off)
		}
		if h := p.dropped.Hole; (h == nil) != (hole == nil) || h != nil && *h != *hole {
			return fmt.Errorf("%s: hole is %+v, want %+v", what, h, hole)
		}
		return nil
	}
	write := func(s string) error {
		_, err := unix.Write(fdOut, []byte(s))
		return err
	}

	// Cut between the look and the write.
	var p pump
	p.init(0)
	defer func() { testOnlyCrash = nil }()
	for i, tt := range []struct {
		to   int64
		log  string
		hole *record.Hole
		want *record.Hole
	}{
		{0, "two", nil, nil},
		{2, "ontwo", nil, nil},
		{0, "two", &record.Hole{From: 1, To: 2}, nil},
		{1, "otwo", &record.Hole{From: 1, To: 3}, nil},
		{2, "ontwo", &record.Hole{From: 1, To: 3}, &record.Hole{From: 1, To: 2}},
		{3, "onetwo", &record.Hole{From: 1, To: 3}, &record.Hole{From: 1, To: 3}},
	} {
		testOnlyCrash = nil
		if err := unix.Ftruncate(fdLog, 0); err != nil {
			return err
		}
		p.look()
		if err := write("one"); err != nil {
			return err
		}
		p.turn()
		p.dropped.Hole = tt.hole
		testOnlyCrash = func(point string) {
			if point == "log.read" {
				_ = unix.Ftruncate(fdLog, tt.to)
			}
		}
		if err := write("two"); err != nil {
			return err
		}
		p.turn()
		if err := want(fmt.Sprint("cut ", i), tt.log, tt.want, &p); err != nil {
			return err
		}
	}

	// Room for a part of what has been read already, and then for the rest.
	testOnlyCrash = nil
	if err := unix.Ftruncate(fdLog, 0); err != nil {
		return err
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		return err
	}
	p = pump{}
	p.init(0)
	text := strings.Repeat("0123456789", 3000)
	if err := write(text); err != nil {
		return err
	}
	for i, room := range []uint64{5000, 12000, 12000, 29000} {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: room, Max: lim.Max}); err != nil {
			return err
		}
		if i == 0 {
			p.turn()
		} else {
			p.tick(p.retryAt)
		}
		if err := want(fmt.Sprint("room ", i), text[:room], nil, &p); err != nil {
			return err
		}
		if p.timeout(p.retryAt) != 0 || p.until.IsZero() {
			return fmt.Errorf("room %d: nothing will write the %d bytes that are left", i, len(p.carry))
		}
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &lim); err != nil {
		return err
	}
	p.tick(p.retryAt)
	if err := want("room for all", text, nil, &p); err != nil {
		return err
	}
	if p.timeout(time.Now()) >= 0 || p.pollFD() != fdPipe || p.dropped.Unwritten != nil {
		return fmt.Errorf("room for all: %+v", p.dropped)
	}
	return nil
}

// A log that is cut, or gets room, at a moment that the runner does not see.
func TestL5PumpAtTheWrongMoment(t *testing.T) {
	t.Parallel()
	if out, err := runCommand(t, helper("pump", t.TempDir())); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
