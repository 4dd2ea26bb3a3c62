package conformance

import (
	"errors"
	"os"
	"syscall"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// testRanges asks about addresses in allocations and outside, and allocates again what was freed.
func testRanges(b *bench) {
	const n = 70000
	seen := map[uint64]bool{}
	for range 3 {
		one, err := b.c.Alloc(n)
		b.must(err)
		two, err := b.c.Alloc(1)
		b.must(err)
		for _, m := range []cuda.Memory{one, two} {
			first, err := b.c.Range(m.Ptr())
			b.must(err)
			if first.Ptr != m.Ptr() || first.Bytes != m.Bytes() || seen[first.ID] {
				b.t.Errorf("%d bytes at %#x are %+v", m.Bytes(), uint64(m.Ptr()), first)
			}
			seen[first.ID] = true
			for _, at := range []int{1, m.Bytes() / 2, m.Bytes() - 1} {
				if r, err := b.c.Range(m.Ptr() + ptr(at)); err != nil || r != first {
					b.t.Errorf("byte %d of %+v is of %+v, %v", at, first, r, err)
				}
			}
		}
		b.must(two.Free())
		b.must(one.Free())
	}
	_, err := b.c.Range(0)
	b.isClass(err, fault.Invalid, "Range of address 0")
	if b.info.Registers {
		_, err := b.c.Range(b.register(100).Ptr())
		b.isClass(err, fault.Invalid, "Range of memory of the host")
	}
}

// testDMABuf makes descriptors, and closes them. What one is for, only an adapter can tell.
func testDMABuf(b *bench) {
	page := os.Getpagesize()
	m := b.alloc(4 * page)
	r, err := b.c.Range(m.Ptr())
	b.must(err)
	bytes := (r.Bytes + page - 1) / page * page
	if !b.info.DMABuf {
		if _, err := b.c.DMABuf(r.Ptr, bytes); !errors.Is(err, fault.NotSupported) {
			b.t.Errorf("DMABuf of a device without: %v", err)
		}
		return
	}
	one, err := b.c.DMABuf(r.Ptr, bytes)
	b.must(err)
	two, err := b.c.DMABuf(r.Ptr, bytes)
	b.must(err)
	if one == two || one < 0 || two < 0 {
		b.t.Errorf("descriptors %d and %d", one, two)
	}
	b.must(syscall.Close(one))
	b.must(syscall.Close(two))
	make := func(p cuda.Ptr, bytes int) error { _, err := b.c.DMABuf(p, bytes); return err }
	for what, err := range map[string]error{
		"DMABuf of 0 bytes":         make(r.Ptr, 0),
		"DMABuf of a half page":     make(r.Ptr, page/2),
		"DMABuf from within a page": make(r.Ptr+8, page),
	} {
		b.isClass(err, fault.Invalid, what)
	}
	b.isFault(make(0, page), "DMABuf of address 0")
}
