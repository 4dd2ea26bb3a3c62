// Package exports is the C ABI of goccl (goccl.h) in Go: handles, codes, error records. It is not main, so that every
// c-shared library that imports it carries the ABI, and one process never needs two Go runtimes.
//
// The functions that C sees are in guard.c: each looks first whether this is a forked child, where the Go runtime does
// not work, and only then enters Go.
package exports
