// Package prefault gives the process the pages of its own code in one step, by being
// imported. A program touches a good part of them while it begins, a few at a time,
// and each time costs more than all of them at once: where the kernel runs on another
// one, a large part of a short program's life. They are the page cache's, so they cost
// no memory. (Of its constants it touches little.)
//
// Only Linux can do that, from 5.14 on. Elsewhere the package does nothing.
//
// It imports next to nothing, so as to be initialised before most packages.
package prefault
