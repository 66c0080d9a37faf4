// Package thread is the thread of a Space: what its members post, the mentions
// that wake them, and their inboxes.
package thread
