// Package thread is the thread of a Space: one list of entries that all its
// members share, the mentions in them that wake, the inboxes, and the claims.
//
// # What is promised
//
// Entries are numbered 1, 2, 3, ... without a gap, whatever number of processes
// posts. An entry that a poster was told of is on the disk, and no entry ever
// changes. What an entry asks for (an item for each mention, a claim) is done
// once: by the poster or, where that was killed, by whoever writes next. The end
// of a job is posted once, by its id, and a post that has a key once for that: tried
// again, it is the one that is there.
//
// Reading from the end or from a cursor costs what is read, and posting what is
// written, however long the thread is. Reading takes no lock and makes nothing.
//
// Whether a mention may wake is decided in one function, rule, from: who
// mentions whom, how many agent to agent hops have led to it, and the wakes of
// the last minute. What is past a limit is posted, and is in the inbox; it wakes
// nobody, and the poster is told.
//
// Of several that claim the same ground at once, one has it.
//
// # What is not
//
// Members keep honest programs apart. On one uid they are no security boundary:
// any program of the user can write every file here, and say that it is anybody.
//
// This package runs no waker. It marks an item as one whose waker is to be run
// ([Thread.PendingWakes]), and is told how that went ([Thread.WakeResult]).
//
// Paths of claims are compared as they are written: no file is looked at, and an
// absolute path meets no relative one. Overlap is rather found than missed.
//
// A clock that is set back makes leases and claims last longer.
//
// # Files
//
//	<root>/thread/log        the entries, a JSON object on a line each; see [Entry]
//	<root>/thread/lock       locked by who writes anything of what is here
//	<root>/thread/state      JSON: up to which entry, and which byte of the log, the
//	                         items and claims are done
//	<root>/thread/claims     JSON: the claims that follow from the entries up to a seq,
//	                         the expired ones of the last week included
//	<root>/thread/wakes      JSON: the agent to agent wakes of the last minute
//	<root>/thread/damaged    what was torn off the log, a JSON object on a line each
//	<root>/members/<name>.json            see [Member]
//	<root>/inbox/<member>/<item>.json     an unread item; see [Item]
//	<root>/inbox/<member>/taken/          items that were taken
//	<root>/inbox/<member>/answered/       items that were answered, for eight days
//	<root>/inbox/.wakes/<member>,<item>   the waker of this item is to be run; written to when the item is there
//
// Directories have mode 0700 and files 0600. A post is one write to the log, a
// sync, then the claims, then the items (each written whole, synced and renamed),
// then the state. A line without its newline is no entry: the next writer puts it
// into damaged and cuts it off. Only log, members and inbox hold what is nowhere
// else: state, claims and wakes may be removed, and are made anew. Without a
// state, mentions of the last seven days are looked at again, and those whose
// item is there, answered ones included, are left alone.
//
// An item only moves on: unread, taken, answered. It is written where it goes
// before it is removed where it was, so of two the later counts. A taken one has
// a [Lease]; when that is over it counts as unread.
//
// What is damaged is passed over or set aside under another name, said through
// Thread.Warn with its place, and the rest goes on. A damaged line keeps its
// number.
//
// # Mentions
//
// @name mentions the member of that name, in whatever capitals, unless it is in a
// line that begins with ">" or is indented by four blanks or a tab, in a code
// fence or between backticks, in an e-mail address, a URL, or a package's name
// (@scope/name). Nobody mentions themselves. A post by an agent mentions one
// member at most, and never itself, or it is refused. In entries of the daemon
// there are no mentions and no claims.
//
// # Hops
//
// The hops of what a person posts are 0. Those of what an agent posts are those
// of the newest item that it has taken and not answered; with none, of the entry
// that it replies to; with neither, 0. An agent's mention of an agent adds one,
// to the entry and to the item: 1, 2 and 3 wake. Twenty such wakes fit into any
// 60 s of a Space. The end of a job is no hop.
//
// # Claims
//
//	CLAIM <what> | files: <paths or branch> | until: <when>
//	DONE <what> | <result> | next: <step>
//	RELEASE <what>
//	BLOCKED <what> | needs: <thing> | from @who
//
// Such a line counts wherever it stands in a post, but where it is quoted as
// mentions are. Blanks do not matter. In capitals it is taken at its word, and
// refused where it is not whole; otherwise it is prose, unless one of its fields
// is there. files: has paths, globs (*, ?, [...], {...}, and ** for any number of
// folders) and "branch NAME", with commas or blanks between; until: is 15:04 (the
// next one of the clock of the Space that has the thread), RFC 3339, or a duration
// as 30m and +2h.
//
// A claim is live until its time, or its owner's DONE or RELEASE of the same
// what, capitals and blanks aside. One that overlaps a live claim of somebody
// else is posted, and is not live; [Post.Claims] refuses it instead. One on
// ground whose claim has expired says from whom it takes over.
package thread
