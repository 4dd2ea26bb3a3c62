package kernel

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	processor "github.com/goccl/goccl/ccl/kernel"
)

// Operand is memory that a launch reads or writes.
type Operand struct {
	Ptr   uint64
	Bytes int
	Align int // Ptr must be a multiple of it
	Write bool
}

// Operands returns what a launch writes and then what it reads, each source once, chunk by chunk if
// it has several; an indirect source is where it is if it is not lent. args are the bytes of its
// Arguments. What a device would not do, or nobody says how, is an error: an unknown name, a number
// of sources that the kernel does not take, a destination that covers a part of a source. Operands
// does not look at the alignment: on a device, the launch itself is accepted.
func Operands(name string, args []byte) ([]Operand, error) {
	if TakesChunks(name) {
		return operandsOfChunks(name, args)
	}
	f, a, err := launch(name, args)
	if err != nil || a.N == 0 {
		return nil, err
	}
	all := []Operand{operand(a.Dst, f.to, a.N)}
	all[0].Write = true
	for _, ptr := range a.Src[:a.Count] {
		all = append(all, operand(ptr, f.from, a.N))
	}
	return all, nil
}

func operand(ptr uint64, t dtype.Type, n uint64) Operand {
	part, _ := dtype.Real(t)
	return Operand{Ptr: ptr, Bytes: int(n) * t.Size(), Align: part.Size()}
}

// Execute does on the processor what a launch does on a device, on the memory that it gets for each
// of the Operands: memory returns the bytes at an address, or nil where there are none. Addresses
// that are not aligned are an error, too, and so are indirect sources (Resolve).
func Execute(name string, args []byte, memory func(ptr uint64, bytes int) []byte) error {
	if TakesChunks(name) {
		return executeChunks(name, args, memory)
	}
	f, a, err := launch(name, args)
	if err != nil || a.N == 0 {
		return err
	}
	if a.Indirect != 0 {
		return fault.New(fault.Invalid, "%s: nobody has resolved the indirect sources", name)
	}
	at := func(o Operand) unsafe.Pointer {
		if o.Ptr%uint64(o.Align) != 0 {
			err = fault.New(fault.Invalid, "%s: address %#x is not aligned to %d bytes", name, o.Ptr, o.Align)
			return nil
		}
		b := memory(o.Ptr, o.Bytes)
		if len(b) < o.Bytes {
			err = fault.New(fault.Invalid, "%s: there is no memory of %d bytes at %#x", name, o.Bytes, o.Ptr)
		}
		return unsafe.Pointer(unsafe.SliceData(b))
	}
	dst := at(operand(a.Dst, f.to, a.N))
	var src [MostSources]unsafe.Pointer
	for k, ptr := range a.Src[:a.Count] {
		src[k] = at(operand(ptr, f.from, a.N))
	}
	if err != nil {
		return err
	}
	f.execute(dst, src[:a.Count], int(a.N), a.Factor)
	return nil
}

// mostUnits bounds the units of a launch, so that their bytes are a number of Go.
const mostUnits = 1 << 48

// launch decodes a launch, and checks it.
func launch(name string, args []byte) (*Function, Arguments, error) {
	f := byName[name]
	if f == nil {
		return nil, Arguments{}, fault.New(fault.Invalid, "there is no kernel %q", name)
	}
	if f.kind == runs || f.kind == gathers {
		return nil, Arguments{}, fault.New(fault.Invalid, "%s has other arguments: a Run executes tables", name)
	}
	if len(args) != argumentBytes {
		return nil, Arguments{}, fault.New(fault.Invalid, "%s: %d bytes of arguments, not %d",
			name, len(args), argumentBytes)
	}
	a := decode(args)
	if a.Indirect>>a.Count != 0 || a.Indirect != 0 && f.kind == converts {
		return nil, Arguments{}, fault.New(fault.Invalid, "%s: sources %b of %d are indirect",
			f.Name, a.Indirect, a.Count)
	}
	return f, a, f.check(a.Step)
}

func (f *Function) check(a Step) error {
	if f.kind == ticks {
		if a.Count != 0 || a.N != 1 {
			return fault.New(fault.Invalid, "%s: %d sources and %d elements, not one element without a source",
				f.Name, a.Count, a.N)
		}
		return nil
	}
	if most := f.mostSources(); a.Count < 1 || a.Count > uint32(most) {
		return fault.New(fault.Invalid, "%s: %d sources, not 1 to %d", f.Name, a.Count, most)
	}
	if a.N > mostUnits {
		return fault.New(fault.Invalid, "%s: %d elements", f.Name, a.N)
	}
	if a.N == 0 {
		return nil
	}
	for _, src := range a.Src[:a.Count] {
		if f.covers(a.Dst, src, a.N) {
			return fault.New(fault.Invalid, "%s: the destination at %#x covers a part of the source at %#x",
				f.Name, a.Dst, src)
		}
	}
	return nil
}

func (f *Function) mostSources() int {
	if f.kind == ticks {
		return 0
	}
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
		from := src[0]
		if len(src) > 1 {
			processor.Reduce(f.to, dtype.Sum)(dst, src, n)
			from = dst
		}
		processor.Scale(f.to)(dst, from, n, factor)
	case converts:
		processor.Convert(f.to, f.from)(dst, src[0], n)
	case copies:
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src[0]), n))
	case ticks:
		atomic.AddUint64((*uint64)(dst), 1)
	}
}
