package mem

import "sync/atomic"

// Align is the minimum alignment of blocks and segments, in bytes.
const Align = 64

var inUse atomic.Int64

// InUse returns the number of bytes of blocks, mapped segments and arena allocations that this
// process holds now.
func InUse() int64 { return inUse.Load() }
