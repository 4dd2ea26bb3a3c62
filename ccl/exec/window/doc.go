// Package window is the memory that the ranks of a host read of each other: what each says there of
// the operations that it is in, the slots that they take in turn, registered memory that a rank
// exposes in place of a copy, and on which cores ranks run. PROTOCOL.md is its layout and rules; a
// test compares its tables with the code.
//
// Nothing here waits, and nothing is written into the memory of another rank. What a rank reads of
// another one may be nonsense: then the data of their group is wrong, and nothing else.
package window
