package measured

import (
	"runtime"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/kernel"
)

// Sizes at which kernels are timed: one that is their overhead, one that a core's cache holds with
// all operands, and one that it does not hold.
const (
	shortest = 64
	cached   = 64 << 10
	uncached = 8 << 20
)

const (
	kernelSpan  = 2 * time.Millisecond
	kernelSpans = 5 // of which the best counts: other processes only make them worse
)

// Kernels measures, in 60 ms, what a core pays for each byte of a copy and of a reduction of memory
// that no other core touches (Byte, Miss), and sets that in c. The calls of a Fit do not tell these
// from what it costs to read the memory of others: an all_reduce does both at the same time.
func Kernels(c *cost.Table) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dst, a, b := make([]byte, uncached), make([]byte, uncached), make([]byte, uncached)
	for i := range dst {
		dst[i], a[i], b[i] = 1, 1, 1 // the system gives memory at the first write
	}
	measure(&c.Copy, func(bytes int) { kernel.Copy(dst[:bytes], a[:bytes]) })
	sum := kernel.Reduce(dtype.F32, dtype.Sum)
	operands := []unsafe.Pointer{unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0])}
	measure(&c.Reduce, func(bytes int) { sum(unsafe.Pointer(&dst[0]), operands, bytes/element) })
}

func measure(w *cost.Work, kernel func(bytes int)) {
	each := bestOf(kernel, shortest)
	w.Byte = max(0, bestOf(kernel, cached)-each) / cached
	w.Miss = max(0, (bestOf(kernel, uncached)-each)/uncached-w.Byte)
}

// bestOf returns the seconds that a kernel takes.
func bestOf(kernel func(bytes int), bytes int) (best float64) {
	for span := range kernelSpans {
		begun, times := time.Now(), 0
		for ; times == 0 || time.Since(begun) < kernelSpan; times++ {
			for range max(1, cached/bytes) { // the clock costs as much as a short one
				kernel(bytes)
			}
		}
		took := time.Since(begun).Seconds() / float64(times*max(1, cached/bytes))
		if span == 0 || took < best {
			best = took
		}
	}
	return best
}
