package ranks

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// The check of a benchmark: ranks contribute small whole numbers whose results are known. The
// numbers are chosen so that every partial result is exact in the type, however short the type is.
// Neither the order in which an algorithm combines them nor the number of its roundings matters.

// largestGiven is the largest number that ranks contribute. Unless the type is too short, they use
// all numbers from 1 to largestGiven.
const largestGiven = 4

// Check runs the call once on known values and counts the wrong elements over all ranks.
func (b *Buffers) Check(ctx context.Context) (int64, error) {
	spec := b.spec
	sending, receiving := &b.Call, &b.Call
	if spec.Coll == dtype.Send {
		receiving = &b.back
		if spec.Rank == 1 {
			sending, receiving = receiving, sending
		}
	}
	// A previous run may have left the right results in the output.
	for _, block := range receiving.Out {
		Fill(block, spec.Type, []byte{0xa5})
	}
	for i, block := range sending.In {
		Fill(block, spec.Type, spec.Pattern(func(place int) int { return spec.Given(spec.Rank, i, place) }))
	}
	if err := b.Run(ctx); err != nil {
		return 0, err
	}
	wrong := int64(0)
	if spec.Coll != dtype.Send || spec.Rank < 2 {
		for i, block := range receiving.Out {
			expected := spec.Pattern(func(place int) int { return spec.Expected(i, place) })
			if spec.Coll.Reduces() && spec.Op == dtype.Avg {
				expected = spec.means(i)
			}
			wrong += Count(block, spec.Type, expected)
		}
	}
	total := []int64{wrong}
	err := ccl.AllReduce(ctx, b.Comm, total, total, ccl.Sum)
	return total[0], err
}

// Given returns the number that a rank contributes at a place of one of its blocks.
func (s *Spec) Given(rank, block, place int) int {
	at := rank + block + place
	if !s.Coll.Reduces() {
		return 1 + at%largestGiven
	}
	switch s.Op {
	case dtype.Sum, dtype.Avg, dtype.PremulSum:
		switch most := exactTo(s.Type); {
		case s.Ranks > most:
			return oneOf(at, s.Ranks, most)
		case s.Ranks > most/largestGiven:
			return 1 + oneOf(at, s.Ranks, min(most-s.Ranks, s.Ranks/2))
		}
	case dtype.Prod:
		return 1 + oneOf(at, s.Ranks, 3)
	}
	return 1 + at%largestGiven
}

// oneOf returns 1 for most of the ranks (most is a count) and 0 for the others. Which ranks get 1
// changes from place to place.
func oneOf(at, ranks, most int) int {
	if at%ranks*most%ranks < most {
		return 1
	}
	return 0
}

// exactTo returns the number up to which the type represents every whole number. Sums of integers
// wrap and are always right.
func exactTo(t dtype.Type) int {
	real, _ := dtype.Real(t)
	if f, ok := floats[real]; ok {
		return 2 << f.fraction
	}
	return math.MaxInt
}

// period is the number of places after which the contributions of all ranks repeat.
func (s *Spec) period() int { return largestGiven * s.Ranks }

// Expected returns the result at a place of output block i; for an average, the sum.
func (s *Spec) Expected(i, place int) int {
	switch s.Coll {
	case dtype.Send:
		return s.Given(1-s.Rank, 0, place)
	case dtype.Broadcast:
		return s.Given(s.Root, 0, place)
	case dtype.Scatter:
		return s.Given(s.Root, s.Rank, place)
	case dtype.Gather, dtype.AllGather:
		return s.Given(i, 0, place)
	case dtype.AllToAll:
		return s.Given(i, s.Rank, place)
	}
	block := 0
	if s.Coll == dtype.ReduceScatter {
		block = s.Rank
	}
	result := s.truth(s.Given(0, block, place))
	for rank := 1; rank < s.Ranks; rank++ {
		result = s.combined(result, s.truth(s.Given(rank, block, place)))
	}
	return result
}

// truth returns v as the type represents it: for Bool, its last bit.
func (s *Spec) truth(v int) int {
	if s.Type == dtype.Bool {
		return v & 1
	}
	return v
}

func (s *Spec) combined(a, b int) int {
	op := s.Op
	if s.Type == dtype.Bool {
		switch op {
		case dtype.Sum:
			op = dtype.BOr
		case dtype.Prod:
			op = dtype.BAnd
		}
	}
	switch op {
	case dtype.Prod:
		return a * b
	case dtype.Max:
		return max(a, b)
	case dtype.Min:
		return min(a, b)
	case dtype.BAnd:
		return a & b
	case dtype.BOr:
		return a | b
	case dtype.BXor:
		return a ^ b
	}
	return a + b
}

// Pattern encodes the numbers of one period.
func (s *Spec) Pattern(at func(place int) int) []byte {
	var all []byte
	for place := range s.period() {
		all = encode(all, s.Type, float64(s.truth(at(place))))
	}
	return all
}

// means encodes the averages of one period: the exact sum times the inverse of the number of ranks,
// rounded once.
func (s *Spec) means(i int) []byte {
	var all []byte
	for place := range s.period() {
		all = encode(all, s.Type, float64(s.Expected(i, place))*(1/float64(s.Ranks)))
	}
	return all
}

// bytesOf returns the bytes of a block.
func bytesOf(block ccl.Block, t dtype.Type) []byte {
	return unsafe.Slice((*byte)(block.Ptr), block.Count*t.Size())
}

// Fill repeats a pattern over a block.
func Fill(block ccl.Block, t dtype.Type, pattern []byte) {
	mem := bytesOf(block, t)
	for done := copy(mem, pattern); done < len(mem); done *= 2 {
		copy(mem[done:], mem[:done])
	}
}

// Count returns the number of elements of a block that differ from the repeated pattern.
func Count(block ccl.Block, t dtype.Type, pattern []byte) int64 {
	size := t.Size()
	pattern = bytes.Repeat(pattern, 1+4096/len(pattern)) // to compare long runs at a time
	wrong := int64(0)
	for mem := bytesOf(block, t); len(mem) > 0; {
		n := min(len(mem), len(pattern))
		if !bytes.Equal(mem[:n], pattern[:n]) {
			for at := 0; at < n; at += size {
				if !bytes.Equal(mem[at:at+size], pattern[at:at+size]) {
					wrong++
				}
			}
		}
		mem = mem[n:]
	}
	return wrong
}

// shortFloat holds the widths of the fields of a float.
type shortFloat struct{ exponent, fraction int }

var floats = map[dtype.Type]shortFloat{
	dtype.F64: {11, 52}, dtype.F32: {8, 23}, dtype.F16: {5, 10}, dtype.BF16: {8, 7}, dtype.F8E4M3: {4, 3},
	dtype.F8E5M2: {5, 2},
}

// encode appends an element: for a float, v rounded to nearest even, which must be 0 or a normal
// number; for a complex number, v in both parts.
func encode(to []byte, t dtype.Type, v float64) []byte {
	real, parts := dtype.Real(t)
	bits := uint64(int64(v))
	if f, ok := floats[real]; ok {
		bits = f.bits(v)
	}
	for range parts {
		to = append(to, binary.LittleEndian.AppendUint64(nil, bits)[:real.Size()]...)
	}
	return to
}

func (f shortFloat) bits(v float64) uint64 {
	if v == 0 {
		return 0
	}
	fraction, exponent := math.Frexp(v) // v = fraction × 2^exponent, 1/2 ≤ fraction < 1
	whole := uint64(math.RoundToEven(math.Ldexp(fraction, f.fraction+1)))
	return uint64(exponent+1<<(f.exponent-1)-3)<<f.fraction + whole
}
