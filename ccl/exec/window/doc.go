// Package window is the memory that the ranks of a host read of each other: their records of the
// operations in flight, the slots that operations use in turn, the registered memory that a rank
// exposes in place of a copy, and the placement of ranks on cores. PROTOCOL.md describes its layout
// and rules; a test compares the tables there with the code.
//
// This package never waits, and no rank writes into the memory of another. Data that a rank reads
// from another rank may be nonsense: then the data of their group is wrong, and nothing else.
package window
