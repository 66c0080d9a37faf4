package jobdir

import "context"

// Watch waits for changes of one job directory.
type Watch struct{ _ int }

// Watch starts to watch: a change after it returns is not missed by the next
// Wait. Where the kernel has no more watches to give, it polls.
func (j *Job) Watch() (*Watch, error) { panic("TODO") }

// Wait returns nil after something may have changed, at the latest after a
// slow poll: the caller looks, and waits again. It returns ctx.Err() when ctx
// is done. It is for one goroutine at a time.
func (w *Watch) Wait(ctx context.Context) error { panic("TODO") }

// Close frees everything the watch holds. It may be called twice.
func (w *Watch) Close() error { panic("TODO") }

// WaitEnd waits until the job has ended, and returns how. A runner that was
// killed is noticed within about 250 ms.
func (j *Job) WaitEnd(ctx context.Context) (State, error) { panic("TODO") }
