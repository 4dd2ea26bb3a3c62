package pgbackend

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/kernel"
)

// elements are the elements of one rank, or of the sum. The place of an element is its position in
// the sparse dimensions, numbered in memory order.
type elements struct {
	places  []int64
	indices []int64
	values  []byte
}

func (e *elements) count() int { return len(e.places) }

// places returns the places of the n elements with these indices.
func (t *SparseTensor) places(indices []int64, n int) ([]int64, error) {
	places := make([]int64, n)
	for d, size := range t.Sizes[:t.SparseDims] {
		for i, at := range indices[d*n:][:n] {
			if at < 0 || at >= size {
				return nil, fmt.Errorf("element %d has index %d in dimension %d, whose size is %d", i, at, d, size)
			}
			places[i] = places[i]*size + at
		}
	}
	return places, nil
}

// indicesOf is the inverse of places.
func (t *SparseTensor) indicesOf(places []int64) []int64 {
	indices, n := make([]int64, len(places)*t.SparseDims), len(places)
	for i, at := range places {
		for d := t.SparseDims - 1; d >= 0; d-- {
			indices[d*n+i] = at % t.Sizes[d]
			at /= t.Sizes[d]
		}
	}
	return indices
}

// sum merges the elements of all parts, sorted by place. Elements at the same place are added in
// the order of the parts, then multiplied by factor. Short floats are added in F32 and rounded
// once.
func (t *SparseTensor) sum(parts []elements, factor float64) elements {
	var places []int64
	for i := range parts {
		places = append(places, parts[i].places...)
	}
	slices.Sort(places)
	places = slices.Compact(places)
	wide := kernel.Convert(dtype.F32, t.Type)
	in, width := t.Type, t.width()
	if wide != nil {
		in = dtype.F32
	}
	row := width * in.Size()
	sums, there := make([]byte, len(places)*row), make([]bool, len(places))
	add := kernel.For(in, dtype.Sum)
	for i := range parts {
		values := parts[i].values
		if wide != nil {
			values = converted(values, wide, t.Type, dtype.F32)
		}
		at := 0
		for j, place := range parts[i].places {
			if at == len(places) || places[at] != place { // mostly it is the next one
				at, _ = slices.BinarySearch(places, place)
			}
			from, to := values[j*row:][:row], sums[at*row:][:row]
			if there[at] && width > 0 {
				add(pointer(to), pointer(to), pointer(from), width)
			} else {
				copy(to, from)
				there[at] = true
			}
			at++
		}
	}
	if factor != 1 && len(sums) > 0 {
		kernel.Scale(in)(pointer(sums), pointer(sums), len(places)*width, factor)
	}
	if wide != nil {
		sums = converted(sums, kernel.Convert(t.Type, dtype.F32), dtype.F32, t.Type)
	}
	return elements{places, t.indicesOf(places), sums}
}

func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func converted(values []byte, convert kernel.ConvertFunc, from, to dtype.Type) []byte {
	n := len(values) / from.Size()
	out := make([]byte, n*to.Size())
	if n > 0 {
		convert(pointer(out), pointer(values), n)
	}
	return out
}
