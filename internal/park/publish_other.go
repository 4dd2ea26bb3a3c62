//go:build !amd64 || race || noasm

package park

import "sync/atomic"

// Publish stores v, so that a thread that loads it sees everything written before. Later loads may
// return older values: pass a Fence before checking for sleepers.
func Publish(word *atomic.Uint64, v uint64) { word.Store(v) }
