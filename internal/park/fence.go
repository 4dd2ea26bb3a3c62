package park

import "sync/atomic"

// Fence is a full fence: everything written before it, also by Publish, becomes visible to others
// before anything is loaded after it. Each thread has a Fence of its own.
type Fence struct{ word atomic.Uint32 }

// Pass executes the fence.
func (f *Fence) Pass() { f.word.Swap(0) }
