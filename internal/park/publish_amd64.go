//go:build !race && !noasm

package park

import "sync/atomic"

// Publish stores v, so that a thread that loads it sees everything written before. Unlike
// word.Store it does not wait until the store is visible to others, and later loads may return
// older values: pass a Fence before checking for sleepers. (On amd64 every store is a release.
// Atomic stores are exchanges, which also empty the store buffer, and that takes as long as an
// exchange between two cores.)
//
//go:noescape
func Publish(word *atomic.Uint64, v uint64)
