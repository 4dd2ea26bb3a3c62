package kernel

import (
	"encoding/binary"
	"math"
	"unsafe"
)

// MostSources is the number of sources that one launch combines at most.
const MostSources = 8

// Step is one thing that a kernel does, as arguments.h has it in CUDA.
type Step struct {
	Dst    uint64
	Src    [MostSources]uint64 // the first Count of them
	N      uint64              // units: elements, parts of complex numbers, or bytes of a copy
	Factor float64             // of Scale
	Count  uint32
	Kind   StepKind // in a Table; else 0
}

// Arguments is the one parameter of a kernel that does one thing, as arguments.h has it in CUDA.
type Arguments struct {
	Step
	Indirect uint64            // bit k: source k is where Lent[k] says
	Lent     [MostSources]Lent // see Arguments.Lend
}

// Lent says where a source may be in place of its address: in Bytes of memory from Base on, at the
// place that the word at the address Place tells.
type Lent struct{ Place, Base, Bytes uint64 }

// Gather is the one parameter of the kernel that copies several chunks, as arguments.h has it in
// CUDA.
type Gather struct {
	Chunks [MostChunks]Chunk
	Count  uint64
}

// Chunk is a run of bytes that a Gather copies. With a Place they are where Lent says.
type Chunk struct {
	Dst, Src, N uint64
	Lent
}

// MostChunks is the number of chunks that one launch copies at most.
const MostChunks = 8

// These are the sizes and offsets of arguments.h.
const (
	stepBytes      = 96
	sourcesOffset  = 8
	unitsOffset    = 72
	factorOffset   = 80
	countOffset    = 88
	kindOffset     = 92
	argumentBytes  = 296
	indirectOffset = 96
	lentOffset     = 104
	lentBytes      = 24
	alignArguments = 8
	gatherBytes    = 392
	chunkBytes     = 48
	chunksOffset   = 384 // of their count
)

// These do not compile where the layout is another.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(Step{})-stepBytes]
	_ = [1]struct{}{}[unsafe.Offsetof(Step{}.Src)-sourcesOffset]
	_ = [1]struct{}{}[unsafe.Offsetof(Step{}.N)-unitsOffset]
	_ = [1]struct{}{}[unsafe.Offsetof(Step{}.Factor)-factorOffset]
	_ = [1]struct{}{}[unsafe.Offsetof(Step{}.Count)-countOffset]
	_ = [1]struct{}{}[unsafe.Offsetof(Step{}.Kind)-kindOffset]
	_ = [1]struct{}{}[unsafe.Sizeof(Arguments{})-argumentBytes]
	_ = [1]struct{}{}[unsafe.Sizeof(Lent{})-lentBytes]
	_ = [1]struct{}{}[unsafe.Offsetof(Arguments{}.Indirect)-indirectOffset]
	_ = [1]struct{}{}[unsafe.Offsetof(Arguments{}.Lent)-lentOffset]
	_ = [1]struct{}{}[unsafe.Alignof(Arguments{})-alignArguments]
	_ = [1]struct{}{}[unsafe.Sizeof(Gather{})-gatherBytes]
	_ = [1]struct{}{}[unsafe.Sizeof(Chunk{})-chunkBytes]
	_ = [1]struct{}{}[unsafe.Offsetof(Gather{}.Count)-chunksOffset]
)

// Lend makes source k indirect.
func (a *Arguments) Lend(k int, lent Lent) {
	a.Indirect |= 1 << k
	a.Lent[k] = lent
}

// Bytes returns the memory of a, which is what a launch passes to the device.
func (a *Arguments) Bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(a)), argumentBytes) }

// Bytes returns the memory of g, which is what a launch passes to the device.
func (g *Gather) Bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(g)), gatherBytes) }

// Add appends a chunk. It reports whether there was room for it, and whether it may be copied at
// the same time as those before.
func (g *Gather) Add(c Chunk) bool {
	if g.Count == MostChunks {
		return false
	}
	for _, other := range g.Chunks[:g.Count] {
		if overlap(c.Dst, c.N, other.Dst, other.N) || overlap(c.Dst, c.N, other.Src, other.N) ||
			overlap(c.Src, c.N, other.Dst, other.N) {
			return false
		}
	}
	g.Chunks[g.Count] = c
	g.Count++
	return true
}

func overlap(a, aBytes, b, bBytes uint64) bool {
	return aBytes > 0 && bBytes > 0 && a < b+bBytes && b < a+aBytes
}

// copies returns the launches that would copy the chunks one by one.
func (g *Gather) copies() (all []Arguments) {
	for _, c := range g.Chunks[:g.Count] {
		a := copying.Arguments(c.Dst, int(c.N), 0, c.Src)
		if c.Place != 0 {
			a.Lend(0, c.Lent)
		}
		all = append(all, a)
	}
	return all
}

func decodeGather(b []byte) *Gather {
	little := binary.LittleEndian
	g := &Gather{Count: little.Uint64(b[chunksOffset:])}
	for i := range g.Chunks {
		var word [chunkBytes / 8]uint64
		for k := range word {
			word[k] = little.Uint64(b[chunkBytes*i+8*k:])
		}
		g.Chunks[i] = Chunk{word[0], word[1], word[2], Lent{word[3], word[4], word[5]}}
	}
	return g
}

// decode is the reverse of Bytes, for bytes at any address.
func decode(b []byte) Arguments {
	little := binary.LittleEndian
	a := Arguments{Step: decodeStep(b), Indirect: little.Uint64(b[indirectOffset:])}
	for k := range a.Lent {
		lent := b[lentOffset+lentBytes*k:]
		a.Lent[k] = Lent{little.Uint64(lent), little.Uint64(lent[8:]), little.Uint64(lent[16:])}
	}
	return a
}

func decodeStep(b []byte) Step {
	little := binary.LittleEndian
	s := Step{Dst: little.Uint64(b), N: little.Uint64(b[unitsOffset:]),
		Factor: math.Float64frombits(little.Uint64(b[factorOffset:])), Count: little.Uint32(b[countOffset:]),
		Kind: StepKind(little.Uint32(b[kindOffset:]))}
	for k := range s.Src {
		s.Src[k] = little.Uint64(b[sourcesOffset+8*k:])
	}
	return s
}
