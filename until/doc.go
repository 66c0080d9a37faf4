// Package until is the conditions that a watcher waits for: a path, a port, a
// command, the required checks of a pull request, the end of another job, a
// line in a job's log. A watcher is a job like any other, whose command is
// space-job until; so time limit, cancel, log and notification are those of a
// job, and this package knows nothing of them.
//
// # Promises
//
// A condition is checked in full by [Condition.Resolve] before anything is
// made: what is refused later is only what the world does. A condition that
// holds at the start ends the watch at once. Events of the kernel are hints:
// under them there is always a poll, and where the kernel has no more to give
// the poll is all there is, without a word in the log.
//
// The log of a watch has a few lines: what it waits for, what it saw and when
// that changed, how it ended. What changes all the time is not repeated: after
// the first twenty changes there is one line a minute at most.
//
// A watch ends with a code: 0 the condition holds; for the checks of a pull
// request 1 when one has failed and 3 when none is required; for a job the code
// that stands for its end; for a log 1 when the job ended and no line matched.
// A watch that can never succeed ends at once with 2 and says why.
//
// # Caveats
//
// A path that is reached through a symbolic link is watched where the link is;
// what appears behind the link is found by the poll, within a second.
//
// A command's tries have a session of their own, one at a time. What a try
// leaves behind is killed before the next one: on Linux all of it, but for what
// belongs to another job or is the daemon; on macOS what stayed in its process
// group.
//
// The checks of a pull request are read through gh, with its credentials and
// its settings. Only checks that have been reported are known for certain; what
// else the rules of the branch demand is waited for where gh may read them. A
// minute of grace is given for the first report.
//
// It does not judge: that a path exists does not mean that it is complete, that
// a port accepts does not mean that what is behind it works.
package until
