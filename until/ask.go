package until

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// question is a system call that a watcher makes again and again. A waiting
// process does little else, and there may be hundreds of them, so an answer that
// is the usual one must cost next to nothing.
type question struct {
	call                // what is asked, in the manner of the platform
	usual atomic.Uint32 // the error number that is no news
}

// asker asks questions at a steady pace.
type asker interface {
	// wait returns which of them has an answer that is not the usual one, and
	// what it is; once a minute -1, for whatever else may have changed; and
	// false when it is stopped.
	wait() (i int, answer syscall.Errno, ok bool)
	stop()  // may be called while one waits
	close() // must not
}

// anyway is how often a watcher looks again for another reason than an answer.
const anyway = time.Minute

// keepAsking has questions asked until heard, which is told of every answer that
// is not the usual one, returns false. What it returns stops that, and returns
// when none is being asked and none will be.
func keepAsking(pace time.Duration, questions []*question, heard func(i int, answer syscall.Errno) bool) (stop func()) {
	a := newAsker(pace, questions)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			i, answer, ok := a.wait()
			if !ok || !heard(i, answer) {
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		a.stop()
		wg.Wait()
		a.close()
	})
}
