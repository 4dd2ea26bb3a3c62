//go:build race

package record

import "sync"

// guard is a lock in builds with the race detector, which cannot see that Records discards what it
// has read while the entry was written.
type guard struct{ mu sync.Mutex }

func (g *guard) lock()   { g.mu.Lock() }
func (g *guard) unlock() { g.mu.Unlock() }
