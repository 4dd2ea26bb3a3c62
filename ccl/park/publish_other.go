//go:build !amd64 || race || noasm

package park

import "sync/atomic"

// Publish stores v, so that whoever loads it sees everything that was written before. What is
// loaded afterwards may be older: call Fence before a look at whether somebody sleeps.
func Publish(word *atomic.Uint64, v uint64) { word.Store(v) }
