package mem

import "sync/atomic"

// Align is what every block and segment is aligned to, at least.
const Align = 64

var inUse atomic.Int64

// InUse is how many bytes of blocks and mapped segments this process holds now.
func InUse() int64 { return inUse.Load() }
