// Package jobdir reads the job directory: its files, who writes each, and how
// the state of a job is derived from them. This comment is the contract of the
// format, version 1. A program in any language that keeps to it can read jobs
// beside us.
//
// # What is promised
//
// A job is a directory. Nothing else has to run for it to be read, and reading
// changes nothing. A state is derived from the files and from one lock: never
// from a process id, so that neither a reboot nor a reused id can lie. An end,
// once recorded, survives a power failure, and no second record replaces it.
// What cannot be known is said to be unknown: no exit code is ever made up.
//
// # What is not
//
// The log is not synced: after a power failure it may end early. A job
// directory is no protection against its own user, who can write every file of
// it. On a file system that several kernels share, a free lock proves
// something only inside the kernel that took it; see Network file systems.
//
// # The root
//
//	<root>/jobs/<id>/            one job
//	<root>/jobs/.new-<...>/      a job being built: no job yet
//	<root>/jobs/.gone-<id>/      a job being removed: no job any more
//	<root>/keys/<FNV-1a/128>     a start key
//
// What else is there belongs to other packages: outbox, sinks and the daemon's
// files to notify; thread, members and inbox to notify/thread.
//
// The root is $SPACE_JOB_HOME, else $XDG_STATE_HOME/space-job, else
// ~/.local/state/space-job; a variable that is set and not absolute is an
// error. Directories have mode 0700 and files 0600, whatever the umask; the
// pipe alone has 0622, so that a child of the job that runs as another user can
// reopen its output. A root, or its jobs or keys, that another user owns or
// that group or others may write to is refused. There is no fallback.
//
// An id is "j" and 12 lowercase hex digits: the time of the creation in units
// of 1/65536 s since 1970, or the next one that was free. Ids sort by age. A
// caller may give the end of one, four digits or more, if only one job has it.
//
// # The files of a job
//
//	cmd      the starter, once     what was asked for; see [Cmd]
//	pid      the runner, once      whose job it is; see [record.ProcessRecord].
//	                               Locked by the runner for its whole life
//	pipe     the job               the FIFO that is its standard output and error;
//	                               removed when nothing can write to it any more
//	log      the runner            those bytes, in the order they were written
//	dropped  the runner            what the log does not have; see
//	                               [record.DroppedRecord]
//	cancel   the first canceller   a request to stop; see [record.CancelRecord]
//	timing   the runner, once      how long it took; see [record.TimingRecord]
//	exit     lock holder, once     how it ended; see [record.ExitRecord]
//	notified the daemon, once      who has the message of its end; see package notify
//
// All but pipe and log are one JSON object each. Times are RFC 3339 in UTC to
// the millisecond, durations and sizes whole numbers in the unit that the name
// ends with. Names of environment variables are kept, their values nowhere. An
// argument that is not UTF-8 is shown with U+FFFD in argv, and argv_base64 then
// holds every argument exactly.
//
// pid, dropped, cancel, timing and exit have their disk blocks set aside when
// the job is made, the last two under the names .timing and .exit, so that a
// full disk cannot keep an end from being recorded. A file that is empty, or
// holds nothing but white space, is reserved and not written: readers take it
// for absent.
//
//   - pid is written in place, in one write, as the lock is on that file.
//   - dropped is overwritten in place at a constant length of 512 bytes. A
//     reader reads it until two reads in a row agree.
//   - cancel is written in one write, under its own lock.
//   - timing and exit are written under their reserved names, synced, and
//     renamed without replacing. exit comes last: it commits the end. Before
//     anybody is told, the directory and jobs are synced too.
//
// # Locks
//
// Linux: open-file-description locks, on other systems flock; see package
// record for both and for how they are looked at without being taken.
//
//   - The runner holds pid exclusively, from before the job has its name
//     until it goes, which is after the end where processes of the job still
//     write. The kernel frees it however the runner goes.
//   - Whoever writes down that a job was lost holds pid shared (so there is no
//     runner, and readers still see it as free) and cmd exclusively (so there
//     is no second recorder), and reads exit again under both.
//   - A canceller holds cancel while it writes it.
//   - A starter with a key holds the file of the key until the job has its
//     name. Who got the lock makes sure that the file still has its name:
//     keys are removed under the same lock.
//
// # State
//
// In this order: exit readable, its state; pid locked, running; exit readable
// by now, its state; else lost. See [Derive].
//
//	running    the runner holds the lock
//	exited     the command ended by itself: exit_code is its code, 128+n and
//	           signal where signal n killed it, 127 not found, 126 not executable
//	cancelled  somebody asked, and the tree is gone
//	timed_out  the timeout passed, and the tree is gone
//	lost       the runner went without recording an end
//
// A job only ever goes from running to one of the others, once. exit_code is 0
// to 255 for exited, and null for all others. An exit that is empty, torn, not
// a regular file, or that says what cannot be true (an unknown state, a code
// beside the wrong state) counts as absent; it is removed under the locks when
// the loss is written down. Of a lost job there is no end and no duration: at
// is when the loss was recorded, and timing says nothing.
//
// A directory is damaged when its cmd is missing, is no JSON, or belongs to
// another job, when a file that decides cannot be read, or when it is not a
// directory at all: symbolic links are never followed. A damaged job has no
// state. It stops no list and is never written to or removed.
//
// # The log
//
// Offsets count the bytes that the job wrote. Where a limit was set, the runner
// frees the middle of the log and keeps the first MiB and the newest bytes: it
// first writes the hole into dropped, then punches it. Offsets stay true. The
// hole reads as zeros, which are never shown: a reader reads the bytes, then
// dropped, and takes away what that covers by then.
//
// Output that the log took no bytes for (a full disk) is counted in dropped and
// has no offset. That it is discarded is said there before it is done; of a lost
// job the count is therefore the least that is missing, perhaps 0.
//
// The log may grow after the end, while processes that the job left behind
// write. It may be shorter than log_bytes: cut from outside, or by a power
// failure. Readers believe the size of the file; a read that begins past it
// says so (truncated) and goes on at the size.
//
// # Retention
//
// An ended job is kept for seven days after its end, a lost one for seven days
// after that was written down. Its directory is first renamed to a hidden name
// and then removed, then its key. Kept are: a job whose lock is held, whose end
// is in the future or not readable, that is damaged or of a newer format, that
// the caller of [Root.Prune] vetoes. What has no id's name is left alone,
// except for hidden directories older than an hour that nobody holds, and those
// of a doctor that was killed.
//
// # Network file systems
//
// On NFS, CIFS, SMB, 9p, virtiofs, FUSE and their like (see [Root.FileSystem])
// a job whose pid names another boot and another machine, and whose lock looks
// free, is shown as lost. Only the machine that ran it writes that down.
//
// # Versions
//
// cmd carries the format. Readers keep fields that they do not know when they
// rewrite, and derive missing ones without rewriting: an id from the name of
// the directory, a time of creation from the id. A format above 1 is read as
// far as it goes and never written to, recorded or removed. The first write of
// an upgraded format keeps the old bytes beside it.
package jobdir
