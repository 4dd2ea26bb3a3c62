// Package dtype defines the element types, the reduction operators and the collectives.
//
// The numbers of the constants are part of the C ABI (cabi/exports/goccl.h) and of the wire format
// (package exec): append new constants, never renumber.
package dtype
