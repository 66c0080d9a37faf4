// Package space is how the jobs of another Space are reached: by an exec prefix
// such as ["ssh", "box"], behind which space-job is run. It reads spaces.json and
// makes calls; what is asked and answered is in package api.
//
// # A call
//
// A call is one program here (that of the prefix) and one over there:
//
//	PREFIX... space-job ACTION --request - --json
//
// These words are all that is in an argv: the request is one line of JSON on the
// standard input of it. So what a shell over there may do to words does not
// matter, and no command, no value of a variable and no path is seen in a list of
// processes. The program over there says in two lines of JSON who it is (a
// [Hello]: its version, and the format of job directories that it writes) and what
// came of the request (an [Answer]). What a login prints before that is skipped.
//
// A request that changes something (start, cancel) is sent only after the hello
// has come: so it goes to nothing but a space-job, and to none that writes a newer
// format than this one knows. What only reads is sent at once, and newer formats
// are read.
//
// A wait (follow_ms, the timeout of wait) is made over there, in one call. The
// program there stops waiting when its standard input is closed, so when whoever
// waits is gone.
//
// # What is promised of a call that fails
//
// The error is an *[Error]: what kind it is, and whether the request may have been
// done. One that broke off before the whole answer was there has no result: half an
// answer is none.
//
// The program of the prefix runs in a session of its own, without a terminal: it
// cannot ask for a password, and Ctrl-C does not reach it. ssh is told so
// (BatchMode), and never waits for one. What it says on stderr is in the error.
// Nothing is waited for without end: neither the hello nor the answer.
//
// # What is not
//
// The prefix is run as it stands, by this user: whoever can write spaces.json can
// run anything. Of the variables that concern space-job (SPACE_JOB_HOME, SPACE_JOB,
// SPACE_MEMBER) it has none, as the Space over there has its own.
package space
