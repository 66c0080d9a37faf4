// Package notify turns the end of a job into one message, and brings it to
// everybody who is to have it: the Space's thread, the member who started the
// job, those who are to be woken, and the sinks.
//
// # What is promised
//
// A job that was started with notify has an entry in the outbox before anybody
// can see it. Whoever runs [Follow] on the root brings the message of an ended
// job to its targets one by one and writes down each that has it; the entry
// goes when all have it, and a receipt in the job's directory stays. Killed at
// any moment, Follow loses nothing, and the next one goes on where it stood:
// the thread and an inbox get the message exactly once, a sink and a waker at
// least once, always with the same key.
//
// A job that is lost is announced as lost, once it is written down as that.
// Nothing is made up: a job whose entry is gone without a receipt is shown as
// pending, with that as its error.
//
// A sink that does not answer delays neither the thread nor another sink. What is
// for one whose file cannot be read waits until that is repaired or removed.
//
// In a root that has joined the thread of another Space ([Hooks.Parent]), thread
// and inboxes are those over there, and the parent's daemon sees to it that a
// message is there once; it waits here until that has said so. Sinks stay.
//
// A job that was started in another Space has its message in the thread over there.
// Who started it from here is told here: what is in outbox/elsewhere is waited for
// by the daemon, and their inbox gets the message exactly once, as the item
// SPACE/JOB.
//
// # What is not
//
// Nothing is delivered while no daemon runs; what is in the outbox waits. A
// sink that fails for good ([PermanentError]) is not tried again by itself. The
// message has the end of the log as it was when the message was made: what
// processes of the job write after its end may be missing in it.
//
// # Files
//
//	<root>/outbox/<id>         a message that not everybody has; see [Entry].
//	                           Locked by the starter until its job is visible
//	<root>/outbox/.damaged-<id>  an entry that could not be read, set aside
//	<root>/outbox/posts/       what members have said that a parent does not have yet: see
//	                           package api
//	<root>/outbox/elsewhere/   jobs of other Spaces whose end somebody here is to be told of;
//	                           see [Wait]
//	<root>/daemon.lock         JSON; locked by the daemon for its whole life
//	<root>/daemon.log          what the daemon has to say; a large one becomes .old
//	<root>/daemon.stopped      somebody stopped the daemon on purpose
//	<root>/jobs/<id>/notified  the receipt; see [Receipt]
package notify
