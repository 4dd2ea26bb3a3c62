package park

import "sync/atomic"

// Fence is what makes everything written before, with Publish too, visible to others before
// anything is loaded after it. Each thread has a word of its own for it.
type Fence struct{ word atomic.Uint32 }

// Pass is the fence.
func (f *Fence) Pass() { f.word.Swap(0) }
