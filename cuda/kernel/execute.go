package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	processor "github.com/goccl/goccl/ccl/kernel"
)

// Execute does on the processor what a launch of a kernel does on a device: args are the bytes of
// its Arguments, and memory returns the memory at an address, or nil where there is none. What a
// device would not do, or nobody says how, is an error: an unknown name, a number of sources that
// the kernel does not take, an address that is not aligned to the unit, a destination that covers a
// part of a source.
func Execute(name string, args []byte, memory func(ptr uint64, bytes int) []byte) error {
	f := byName[name]
	if f == nil {
		return fault.New(fault.Invalid, "there is no kernel %q", name)
	}
	if len(args) != argumentBytes {
		return fault.New(fault.Invalid, "%s: %d bytes of arguments, not %d", name, len(args), argumentBytes)
	}
	a := decode(args)
	if most := f.mostSources(); a.Count < 1 || a.Count > most {
		return fault.New(fault.Invalid, "%s: %d sources, not 1 to %d", name, a.Count, most)
	}
	if a.N > mostUnits {
		return fault.New(fault.Invalid, "%s: %d elements", name, a.N)
	}
	if a.N == 0 {
		return nil
	}
	n := int(a.N)
	at := func(ptr uint64, t dtype.Type) (unsafe.Pointer, error) {
		part, _ := dtype.Real(t)
		if ptr%uint64(part.Size()) != 0 {
			return nil, fault.New(fault.Invalid, "%s: address %#x is not aligned to %v", name, ptr, part)
		}
		bytes := memory(ptr, n*t.Size())
		if len(bytes) < n*t.Size() {
			return nil, fault.New(fault.Invalid, "%s: no memory of %d bytes at %#x", name, n*t.Size(), ptr)
		}
		return unsafe.Pointer(unsafe.SliceData(bytes)), nil
	}
	dst, err := at(a.Dst, f.to)
	if err != nil {
		return err
	}
	var places [MostSources]unsafe.Pointer
	src := places[:a.Count]
	for k := range src {
		if f.covers(a.Dst, a.Src[k], a.N) {
			return fault.New(fault.Invalid, "%s: the destination at %#x covers a part of the source at %#x",
				name, a.Dst, a.Src[k])
		}
		if src[k], err = at(a.Src[k], f.from); err != nil {
			return err
		}
	}
	f.execute(dst, src, n, a.Factor)
	return nil
}

// mostUnits bounds the units of a launch, so that their bytes are a number of Go.
const mostUnits = 1 << 48

func (f *Function) mostSources() uint32 {
	if f.kind == converts || f.kind == copies {
		return 1
	}
	return MostSources
}

// covers reports whether dst and src overlap in another way than a kernel allows: reductions and
// scaling allow that they are the same.
func (f *Function) covers(dst, src, n uint64) bool {
	if dst == src && f.mostSources() > 1 {
		return false
	}
	return dst < src+n*uint64(f.from.Size()) && src < dst+n*uint64(f.to.Size())
}

func (f *Function) execute(dst unsafe.Pointer, src []unsafe.Pointer, n int, factor float64) {
	switch f.kind {
	case reduces:
		processor.Reduce(f.to, f.op)(dst, src, n)
	case scales:
		if len(src) > 1 {
			processor.Reduce(f.to, dtype.Sum)(dst, src, n)
			src[0] = dst
		}
		processor.Scale(f.to)(dst, src[0], n, factor)
	case converts:
		processor.Convert(f.to, f.from)(dst, src[0], n)
	case copies:
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src[0]), n))
	}
}
