//go:build !race && !noasm

package park

import "sync/atomic"

// Publish stores v, so that whoever loads it sees everything that was written before. Unlike
// word.Store it does not wait until others can see it, and what is loaded afterwards may be older:
// call Fence before a look at whether somebody sleeps. (On amd64 every store is a release; the
// exchange that atomic stores are made of also empties the store buffer, which takes as long as an
// exchange between two cores.)
//
//go:noescape
func Publish(word *atomic.Uint64, v uint64)
