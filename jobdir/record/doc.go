// Package record is the part of the job directory that its writers share: the
// names of the files, the lock that is the proof of life, reserved files, and
// the few records that are written without a JSON library.
//
// The process that watches a job links this package and not its parent, so
// that a waiting runner stays small: nothing here imports encoding/json, os,
// fmt or a network. Package jobdir reads what is written here and documents
// the format.
//
// # Locks
//
// The runner holds [Lock] on the job's pid file for its whole life; the kernel
// frees it however the runner goes. [Held] looks without taking, so any number
// of readers never disturb each other. Whoever writes down that a job was lost
// holds [LockShared] on pid (no runner is alive, and readers still see it as
// free) together with Lock on cmd (no second recorder).
//
// On Linux these are open-file-description locks, with flock where the kernel
// has none; on macOS always flock, where Held takes a shared lock for an
// instant. Both belong to the open file: they pass through exec and go with
// the last descriptor.
//
// # Reserved files
//
// A record that must be written on a full disk has its blocks set aside by
// [Reserve] when the job is made. A reserved file is empty, or holds nothing
// but white space where the file system cannot preallocate: both read as
// absent.
package record
