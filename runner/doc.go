// Package runner is the two ends of one hand-over: Start, in the caller, makes
// a job and leaves it with a process of its own; Main is that process, the
// runner, which watches the command until its end is on disk.
//
// # Promises
//
// Start does everything that can fail before the job can be seen, and leaves
// nothing behind when it fails. When it returns, the runner is in a session of
// its own, holds the job's lock and no descriptor of the caller's; the caller
// that exits leaves the runner to init (or the nearest subreaper).
//
// The runner is the only writer of the log. The command writes into a FIFO
// that it holds open both ways, so it never meets SIGPIPE. The runner is the
// only one that waits for the job's processes, and it alone kills them: natural
// end, timeout and cancel race inside one process, and whichever comes first is
// recorded, once. Cancelled and timed out are recorded only when the whole tree is gone:
// TERM, then CONT, five seconds for the tree, then KILL until a pass finds
// nothing that may be signalled.
//
// # Caveats
//
// The runner is bound by hard limits of its caller: a lowered hard limit on the
// size of files cuts the log (counted), one on CPU time can lose the job, one on
// address space can stop the start. Set such limits inside the command.
//
// What the command has written and the runner not yet, up to 128 KiB in its
// memory and what the pipe holds, goes with a runner that is killed.
//
// The Go runtime ends a process that gets TERM, HUP, INT or QUIT before its
// program can say otherwise: such a signal in the first millisecond of a runner
// loses the job. Later ones are ignored.
//
// On macOS there is no subreaper. The tree is found by parent, by session and
// by SPACE_JOB in the environment; a process that has left its session, whose
// parent is gone and that has cleared its environment escapes, and so does one
// whose environment the system hides (Apple's own programs). There are no
// open-file-description locks (flock serves) and no pidfds.
//
// What Start's caller may not do is be long-lived: a process that goes on
// should start jobs through the space-job command, or it stays the runner's
// parent.
//
// The package imports neither os nor fmt nor encoding/json: what a runner weighs
// is paid once for every job that runs.
package runner
