// Package sink is where a message goes besides the thread, and how a member is
// woken: a shell command, a webhook, one line typed into a tmux pane, a
// notification on the desktop. Each function makes one attempt, and its caller
// decides whether there is another.
//
// # What is promised
//
// An attempt ends: a sink's after 10 s, a waker's after 60 s, at once when its
// context is done. A command runs through /bin/sh -c in /, in a process group of
// its own, without a terminal. Whatever is still in that group when the command
// has ended, or may not go on, is killed, and so it is when the calling process
// dies. Errors are one line each, and hold nothing of a webhook's address but
// its host.
//
// A webhook that answers with 400 to 499, apart from 408 and 429, refuses for
// good: the error is a *notify.PermanentError. An answer that says when to try
// again makes it a *notify.RetryError.
//
// # What is not
//
// A command that counts as failed may have done its work, as may a webhook whose
// answer did not come: the next attempt has the same key. A process that leaves
// the process group of its command is not killed with it. The pane of a tmux
// server that was restarted since may be another one of the same number.
//
// # Environment
//
// A command has the environment of the calling process without SPACE_JOB, and
//
//	SPACE_JOB_KEY    of a sink: the key of the message, "job/<id>", the same for each attempt
//	SPACE_JOB_STATE  of a sink: exited, cancelled, timed_out or lost
//	SPACE_JOB_EXIT   of a sink: the exit code, empty unless exited
//	SPACE_MEMBER     of a waker: the member who is woken
package sink
