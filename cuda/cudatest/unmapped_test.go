//go:build !race

package cudatest_test

import (
	"testing"

	"github.com/goccl/goccl/cuda/cudatest"
	"github.com/goccl/goccl/internal/mem"
)

// TestUnmapped: memory that was unmapped while it was registered is a report, not a crash.
func TestUnmapped(t *testing.T) {
	for _, work := range []string{"wait", "copy", "kernel"} {
		b := newBench(t, cudatest.Options{})
		data, s := b.alloc(100), b.stream()
		block, err := mem.Alloc(1 << 16)
		b.must(err)
		r, err := b.c.Register(block.Bytes())
		b.must(err)
		b.d.Hold(s)
		switch work {
		case "wait":
			b.wait(s, r, 0, 1)
		case "copy":
			b.must(s.Copy(data.Ptr(), r.Ptr(), 100))
		case "kernel":
			b.sum(s, 1000, data.Ptr(), r.Ptr(), data.Ptr())
		}
		b.must(block.Free())
		b.d.Release(s)
		isCode(t, s.Synchronize(), 700)
		b.reported(cudatest.Address, "unmapped before its Free")
	}
}
