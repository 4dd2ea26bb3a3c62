package kernel

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	processor "github.com/goccl/goccl/ccl/kernel"
)

const defaultPairs = 1 << 18

var pairs = flag.Int("kernel.pairs", defaultPairs, "random pairs of each type and operator")

// batch is the number of random elements that are compared at once.
const batch = 1 << 16

// format describes a float by its bits.
type format struct {
	sign, infinity, fraction uint64
}

var formats = map[dtype.Type]format{
	dtype.F64: {1 << 63, 0x7ff << 52, 1<<52 - 1}, dtype.F32: {1 << 31, 0xff << 23, 1<<23 - 1},
	dtype.F16: {1 << 15, 0x1f << 10, 1<<10 - 1}, dtype.BF16: {1 << 15, 0xff << 7, 1<<7 - 1},
	dtype.F8E4M3: {1 << 7, 0x7e, 7}, dtype.F8E5M2: {1 << 7, 0x7c, 3},
}

// element returns the bits of a random element: a NaN with a payload, zero, infinity, a subnormal,
// a number near 1 (of which sums are halfway cases and cancel), a neighbour of those, or anything.
func element(r *rand.Rand, t dtype.Type) uint64 {
	size := 8 * t.Size()
	random := r.Uint64()
	anything := random >> (64 - size)
	f, float := formats[t]
	switch {
	case t == dtype.Bool:
		return []uint64{0, 0, 1, 1, 0x80, anything}[r.IntN(6)]
	case !float:
		top := uint64(1) << (size - 1)
		return []uint64{0, 1, top, top - 1, 2*top - 1, anything, anything, anything, anything}[r.IntN(9)]
	}
	sign := anything & f.sign
	fraction := anything & f.fraction
	switch r.IntN(8) {
	case 0:
		return sign | []uint64{0, 1, f.infinity, f.infinity - 1, f.fraction, f.fraction + 1}[r.IntN(6)]
	case 1:
		return sign | f.infinity | fraction
	case 2:
		return sign | fraction
	case 3, 4, 5:
		one := f.infinity / 2 &^ f.fraction
		return sign | (one-4*(f.fraction+1)+r.Uint64N(9)*(f.fraction+1))&^f.sign | fraction
	}
	return anything
}

func put(b []byte, size int, u uint64) {
	switch size {
	case 1:
		b[0] = byte(u)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(u))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(u))
	default:
		binary.LittleEndian.PutUint64(b, u)
	}
}

// fill writes random elements of a type.
func fill(r *rand.Rand, t dtype.Type, b []byte) {
	t, _ = dtype.Real(t)
	for size := t.Size(); len(b) >= size; b = b[size:] {
		put(b, size, element(r, t))
	}
}

// memory returns n bytes that start skew bytes behind a multiple of 64.
func memory(n, skew int) []byte {
	all := make([]byte, n+skew+64)
	start := int(-uintptr(unsafe.Pointer(&all[0]))&63) + skew
	return all[start : start+n : start+n]
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// job is a launch, with operands in memory of this process.
type job struct {
	call   Call
	dst    []byte
	src    [][]byte
	n      int
	factor float64
}

func (j job) run(l *library, blocks, threads int) {
	var places []uint64
	for _, s := range j.src {
		places = append(places, address(s))
	}
	a := j.call.Arguments(address(j.dst), j.n, j.factor, places...)
	l.launch(j.call.Name, &a, blocks, threads)
	runtime.KeepAlive(j)
}

// differs reports the first unit in which the result is not what ccl/kernel gives.
func (j job) differs(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	size := j.call.to.Size()
	for i := range len(want) / size {
		if at := i * size; !bytes.Equal(got[at:at+size], want[at:at+size]) {
			text := ""
			for _, s := range j.src {
				from := j.call.from.Size()
				text += fmt.Sprintf(" %x", s[i*from:(i+1)*from])
			}
			return fmt.Errorf("%s, n %d, factor %v, unit %d:%s gave %x, want %x (bytes in memory)",
				j.call.Name, j.n, j.factor, i, text, got[at:at+size], want[at:at+size])
		}
	}
	return fmt.Errorf("%s: %d bytes, want %d", j.call.Name, len(got), len(want))
}

// reductionsOf returns one call for each function that reduces, by type and operator. The kernel of
// ccl/kernel for the type and operator is what the function must equal.
func reductionsOf() (types []dtype.Type, ops []dtype.Op) {
	for _, t := range dtype.Types() {
		for _, op := range dtype.Ops() {
			if processor.For(t, op) != nil {
				types, ops = append(types, t), append(ops, op)
			}
		}
	}
	return types, ops
}

// pair compares a function of two sources with the kernel of ccl/kernel for the same type and
// operator, which need not be those of the function.
func pair(l *library, t dtype.Type, op dtype.Op, a, b []byte) error {
	c, ok := Reduce(t, op)
	if !ok {
		return fmt.Errorf("there is no kernel for %v of %v", op, t)
	}
	n := len(a) / t.Size()
	want := make([]byte, len(a))
	processor.For(t, op)(pointer(want), pointer(a), pointer(b), n)
	j := job{call: c, dst: memory(len(a), 0), src: [][]byte{a, b}, n: n}
	j.run(l, 1, 1)
	return j.differs(j.dst, want)
}

func TestEveryPairOfBytes(t *testing.T) {
	l := hostLibrary(t)
	a, b := everyPair()
	types, ops := reductionsOf()
	for i, ty := range types {
		if ty.Size() == 1 {
			if err := pair(l, ty, ops[i], a, b); err != nil {
				t.Error(err)
			}
		}
	}
}

// everyPair returns all pairs of bytes.
func everyPair() (a, b []byte) {
	a, b = memory(1<<16, 0), memory(1<<16, 0)
	for u := range 1 << 16 {
		a[u], b[u] = byte(u), byte(u>>8)
	}
	return a, b
}

func TestRandomPairs(t *testing.T) {
	l := hostLibrary(t)
	total := *pairs
	if testing.Short() {
		total = batch
	}
	r := rand.New(rand.NewPCG(1, uint64(total)))
	types, ops := reductionsOf()
	for _, ty := range dtype.Types() {
		if ty.Size() == 1 {
			continue
		}
		a, b := memory(batch*ty.Size(), 0), memory(batch*ty.Size(), 0)
		for done := 0; done < total; done += batch {
			fill(r, ty, a)
			fill(r, ty, b)
			for i := range types {
				if types[i] != ty {
					continue
				}
				if err := pair(l, ty, ops[i], a, b); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// aboveHalf makes of 1 what is so little above half-way between two F16 that F32 does not show it.
const aboveHalf = 1 + 0x1p-11 + 0x1p-40

var factors = []float64{aboveHalf, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-4 + 0x1p-40, 1 + 0x1p-3 + 0x1p-40,
	0.5, 1.0 / 3, 1.0 / 7, -1, 0, math.Copysign(0, -1), 1e-3, 3e38, 1e-42, 5e-324, 1e300,
	math.Inf(1), math.Inf(-1), math.NaN(), math.Float64frombits(0x7ff0000000000123)}

func TestScale(t *testing.T) {
	l := hostLibrary(t)
	r := rand.New(rand.NewPCG(2, 2))
	for _, ty := range dtype.Types() {
		c, ok := Scale(ty)
		if ok != (processor.Scale(ty) != nil) {
			t.Errorf("%v: there is a kernel: %v", ty, ok)
		}
		if !ok {
			continue
		}
		n := 1 << 16
		src := memory(n*ty.Size(), 0)
		fill(r, ty, src)
		if ty.Size() <= 2 {
			for u := range n {
				put(src[u*ty.Size():], ty.Size(), uint64(u)) // all there are
			}
		}
		times := len(factors) + 4*(*pairs)/defaultPairs
		for k := range times {
			factor := r.NormFloat64()
			if k < len(factors) {
				factor = factors[k]
			}
			want := make([]byte, len(src))
			processor.Scale(ty)(pointer(want), pointer(src), n, factor)
			j := job{c, memory(len(src), 0), [][]byte{src}, n, factor}
			j.run(l, 1, 1)
			if err := j.differs(j.dst, want); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A sum that is scaled has the bits of SumScale, which averages use.
func TestSumScale(t *testing.T) {
	l := hostLibrary(t)
	r := rand.New(rand.NewPCG(3, 3))
	for _, ty := range dtype.Types() {
		c, ok := Scale(ty)
		if !ok {
			continue
		}
		n := 1 << 12
		a, b := memory(n*ty.Size(), 0), memory(n*ty.Size(), 0)
		for _, factor := range factors {
			fill(r, ty, a)
			fill(r, ty, b)
			want := make([]byte, len(a))
			processor.SumScale(ty)(pointer(want), pointer(a), pointer(b), n, factor)
			j := job{c, memory(len(a), 0), [][]byte{a, b}, n, factor}
			j.run(l, 1, 1)
			if err := j.differs(j.dst, want); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestConvert(t *testing.T) {
	l := hostLibrary(t)
	r := rand.New(rand.NewPCG(4, 4))
	for _, dst := range dtype.Types() {
		for _, src := range dtype.Types() {
			c, ok := Convert(dst, src)
			if ok != (processor.Convert(dst, src) != nil) {
				t.Errorf("%v from %v: there is a kernel: %v", dst, src, ok)
			}
			if !ok {
				continue
			}
			times := 1
			if src == dtype.F32 {
				times = *pairs / batch
				if testing.Short() {
					times = (times + 7) / 8
				}
			}
			from, n := memory(batch*src.Size(), 0), batch
			for range times {
				for u := range n {
					x := uint64(u)
					if src == dtype.F32 {
						x = shortNeighbour(r, dst)
					}
					put(from[u*src.Size():], src.Size(), x)
				}
				want := make([]byte, n*dst.Size())
				processor.Convert(dst, src)(pointer(want), pointer(from), n)
				j := job{call: c, dst: memory(len(want), 0), src: [][]byte{from}, n: n}
				j.run(l, 1, 1)
				if err := j.differs(j.dst, want); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// shortNeighbour returns an F32: an element of a shorter type, one half-way between two of them, a
// neighbour of those, or any.
func shortNeighbour(r *rand.Rand, t dtype.Type) uint64 {
	if r.IntN(4) == 0 {
		return element(r, dtype.F32)
	}
	bits := [2]uint32{}
	var short [2][8]byte
	u := element(r, t)
	put(short[0][:], t.Size(), u)
	put(short[1][:], t.Size(), u+1)
	for i := range bits {
		processor.Convert(dtype.F32, t)(unsafe.Pointer(&bits[i]), unsafe.Pointer(&short[i]), 1)
	}
	x := bits[0]
	if half := bits[0]/2 + bits[1]/2 + bits[0]&bits[1]&1; r.IntN(2) == 0 && half>>31 == x>>31 {
		x = half
	}
	return uint64(x + uint32(r.IntN(3)) - 1)
}
