// Package record remembers the last operations of one rank of a group: what was called, when, and
// how it ended. The records are for the moment when an operation fails or never ends. Recording is
// always on in the Python package, so it must cost next to nothing: about one clock reading, no
// lock and no allocation.
//
// A Ring has a fixed number of entries; a new operation overwrites the oldest entry. Begin may be
// called by several threads at the same time, End by the thread that ends the operation, Records by
// any thread at any time: it leaves out an entry that changes while it is read.
package record
