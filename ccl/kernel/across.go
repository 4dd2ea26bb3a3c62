package kernel

import (
	"sync/atomic"
	"time"
	"unsafe"
)

const (
	acrossLeast = 16 << 10 // below this, where the cores are makes little difference
	probeBytes  = 64 << 10
	nearEvery   = 16  // copies of which one is timed, while the cores seem near
	farEvery    = 256 // the same while they seem far apart

	// A line that another core has read takes some 7 ns to write where the cores share a cache, and
	// 28 ns where they do not (Zen 4). Past the caches it takes 2 ns, and 2 ns more for the reader.
	farNanos = 14
	sureFar  = 2 // slow copies in a row
)

// CopyAcross is Copy into memory that another core has read and will read next. Where the cores
// share no cache (two processors, or two groups of cores of one), each line must be fetched from
// the other core before it can be written, and a copy past the caches, which fetches nothing, is
// five times as fast for writer and reader together. Where they share one it is slower. Which of
// the two holds depends on where threads run, and virtual cores move: so copies are timed.
func CopyAcross(dst, src []byte) int { return apart.copy(dst, src) }

// copyNear is CopyAcross where the cores share a cache.
func copyNear(dst, src []byte) int {
	if claims {
		return copyClaiming(dst, src)
	}
	return Copy(dst, src)
}

// apart is what this process has learned of the cores that it shares memory with.
var apart distance

type distance struct {
	slow   atomic.Int32 // timed copies in a row that were slow, up to sureFar: then the cores are far apart
	copies atomic.Uint32
}

func (d *distance) copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < acrossLeast || !streamsCopies {
		return copyNear(dst, src)
	}
	far, turn := d.slow.Load() >= sureFar, d.copies.Add(1)
	if turn%nearEvery != 0 || far && turn%farEvery != 0 {
		if far {
			return past(dst[:n], src)
		}
		return copyNear(dst, src)
	}
	timed := min(n, probeBytes)
	begun := now()
	copyNear(dst[:timed], src)
	d.observe(now()-begun, timed)
	if far {
		return timed + past(dst[timed:n], src[timed:])
	}
	return timed + copyNear(dst[timed:n], src[timed:])
}

var start = time.Now()

// now returns monotonic nanoseconds.
func now() int64 { return int64(time.Since(start)) }

// observe learns from a copy of n bytes by way of the caches.
func (d *distance) observe(took int64, n int) {
	if took*cacheLine < farNanos*int64(n) {
		d.slow.Store(0)
	} else if slow := d.slow.Load(); slow < sureFar {
		d.slow.Store(slow + 1)
	}
}

func past(dst, src []byte) int {
	if len(dst) > 0 {
		CopyStream(unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src)), len(dst))
	}
	return len(dst)
}
