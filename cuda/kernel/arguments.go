package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// MostSources is the number of sources that one launch combines at most.
const MostSources = 8

// Arguments is the one parameter of every kernel, as arguments.h has it in CUDA.
type Arguments struct {
	Dst    uint64
	Src    [MostSources]uint64 // the first Count of them
	N      uint64              // units: elements, parts of complex numbers, or bytes of a copy
	Factor float64             // of Scale
	Count  uint32
	_      uint32
}

// argumentBytes and the offsets are those of arguments.h, which asserts them, too.
const (
	argumentBytes  = 96
	sourcesOffset  = 8
	unitsOffset    = 72
	factorOffset   = 80
	countOffset    = 88
	alignArguments = 8
)

// These do not compile where the layout is another.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Arguments{})-argumentBytes]
	_ = [1]struct{}{}[unsafe.Offsetof(Arguments{}.Src)-sourcesOffset]
	_ = [1]struct{}{}[unsafe.Offsetof(Arguments{}.N)-unitsOffset]
	_ = [1]struct{}{}[unsafe.Offsetof(Arguments{}.Factor)-factorOffset]
	_ = [1]struct{}{}[unsafe.Offsetof(Arguments{}.Count)-countOffset]
	_ = [1]struct{}{}[unsafe.Alignof(Arguments{})-alignArguments]
)

// Bytes returns the memory of a, which is what a launch passes to the device.
func (a *Arguments) Bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(a)), argumentBytes) }

// decode is the reverse of Bytes, for bytes at any address.
func decode(b []byte) Arguments {
	little := binary.LittleEndian
	a := Arguments{Dst: little.Uint64(b), N: little.Uint64(b[unitsOffset:]),
		Factor: math.Float64frombits(little.Uint64(b[factorOffset:])), Count: little.Uint32(b[countOffset:])}
	for k := range a.Src {
		a.Src[k] = little.Uint64(b[sourcesOffset+8*k:])
	}
	return a
}
