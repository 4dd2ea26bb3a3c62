// Package record remembers the last operations of one rank of a group: what was called, when, and
// how it ended. It is for the moment when an operation fails or never ends, so it is always on in
// the Python package, and has to cost next to nothing: about the time of one look at a clock, no
// lock and no allocation.
//
// A Ring has a fixed number of entries; an operation overwrites the one that is as old as the ring
// is long. Begin may be called by several threads at the same time, End by the one that ends the
// operation, Operations by anybody at any time: an entry that changes while it is read is left out.
package record
