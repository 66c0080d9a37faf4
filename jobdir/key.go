package jobdir

// Key is a start key, locked.
type Key struct{ _ int }

// LockKey locks a start key, and waits for a start under way with the same
// one. The root must have been created.
func (r *Root) LockKey(key string) (*Key, error) { panic("TODO") }

// Job is the job that was started with the key, if it is still there.
func (k *Key) Job() (ID, bool) { panic("TODO") }

// Set notes the job that is about to appear.
func (k *Key) Set(id ID) error { panic("TODO") }

// Unlock lets the next start go on. It may be called twice.
func (k *Key) Unlock() { panic("TODO") }
