// Package exports implements the C ABI of goccl (goccl.h) in Go: handles, codes, error records. It
// is not main, so that every c-shared library that imports it carries the ABI and one process never
// needs two Go runtimes.
//
// The functions that C calls are in guard.c. Each first checks whether the process is a forked
// child, in which the Go runtime does not work, and only then enters Go.
package exports
