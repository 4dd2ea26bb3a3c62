// Package dtype names what a collective works on: element types, reduction operators and the
// collectives themselves.
//
// The numbers of the constants are part of the C ABI (cabi/exports/goccl.h) and of the wire format
// (package exec); append, never renumber.
package dtype
