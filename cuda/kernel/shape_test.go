package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
)

// calls returns a call for each function that does one thing with sources.
func calls() []Call {
	var all []Call
	for _, f := range Functions() {
		if f.kind != ticks && f.kind != runs && f.kind != gathers {
			all = append(all, Call{f, 1})
		}
	}
	return all
}

const guard = 64

// guarded is memory of which a kernel may use the middle only.
type guarded struct{ all, data []byte }

func newGuarded(r *rand.Rand, t dtype.Type, bytes, skew int) guarded {
	all := memory(bytes+2*guard+skew, 0)
	for i := range all {
		all[i] = 0xa5
	}
	g := guarded{all, all[guard+skew : guard+skew+bytes : guard+skew+bytes]}
	fill(r, t, g.data)
	return g
}

// operands makes memory for a function: at any alignment, with dst the same as a source where that
// is allowed.
func operands(r *rand.Rand, c Call, n, sources int) (j job, all []guarded, way string) {
	part := func(t dtype.Type) int { real, _ := dtype.Real(t); return real.Size() }
	j = job{call: c, n: n, factor: factors[r.IntN(len(factors))]}
	alike, same := r.IntN(3) > 0, r.IntN(16)
	make := func(t dtype.Type) guarded {
		skew := same * max(part(c.to), part(c.from))
		if !alike {
			skew = r.IntN(16) * part(t)
		}
		if c.kind == converts && alike { // the same number of elements behind a boundary
			skew = same * t.Size()
		}
		return newGuarded(r, t, n*t.Size(), skew%guard)
	}
	for range sources {
		g := make(c.from)
		all, j.src = append(all, g), append(j.src, g.data)
	}
	way = fmt.Sprintf("%d sources, n %d, alike %v, skew %d", sources, n, alike, same)
	if k := r.IntN(2 * sources); k < sources && c.mostSources() > 1 {
		j.dst = j.src[k]
		return j, all, way + fmt.Sprintf(", dst is source %d", k)
	}
	g := make(c.to)
	j.dst = g.data
	return j, append(all, g), way
}

// launched runs an operation and returns what it wrote to dst. Everything is as before then. It is
// an error if anything else was written.
func (j job) launched(all []guarded, run func() error) ([]byte, error) {
	var before [][]byte
	for _, g := range all {
		before = append(before, bytes.Clone(g.all))
	}
	old := bytes.Clone(j.dst)
	if err := run(); err != nil {
		return nil, err
	}
	got := bytes.Clone(j.dst)
	copy(j.dst, old)
	for i, g := range all {
		if !bytes.Equal(g.all, before[i]) {
			return nil, fmt.Errorf("%s wrote to operand %d, outside of the destination", j.call.Name, i)
		}
	}
	return got, nil
}

// Any number of elements and sources, at any alignment, in any grid, has the bits of ccl/kernel;
// nothing else is written. Execute does the same.
func TestEveryShape(t *testing.T) {
	l := hostLibrary(t)
	r := rand.New(rand.NewPCG(5, 5))
	times := 150
	if testing.Short() {
		times = 20
	}
	for _, c := range calls() {
		for range times {
			n, sources := r.IntN(100), 1+r.IntN(c.mostSources())
			if r.IntN(10) == 0 {
				n = r.IntN(3000)
			}
			j, all, way := operands(r, c, n, sources)
			blocks, threads := 1+r.IntN(3), 1+r.IntN(40)
			got, err := j.launched(all, func() error { j.run(l, blocks, threads); return nil })
			if err != nil {
				t.Fatalf("%v: %s, %d blocks of %d", err, way, blocks, threads)
			}
			want, err := j.launched(all, func() error { return j.execute() })
			if err != nil {
				t.Fatalf("%v: %s", err, way)
			}
			if err := j.differs(got, want); err != nil {
				t.Fatalf("%v: %s, %d blocks of %d", err, way, blocks, threads)
			}
		}
	}
}

// execute runs the launch by Execute.
func (j job) execute() error {
	var places []uint64
	known := map[uint64][]byte{address(j.dst): j.dst}
	for _, s := range j.src {
		places = append(places, address(s))
		known[address(s)] = s
	}
	a := j.call.Arguments(address(j.dst), j.n, j.factor, places...)
	return Execute(j.call.Name, a.Bytes(), func(ptr uint64, n int) []byte {
		if b := known[ptr]; len(b) == n {
			return b
		}
		return nil
	})
}

// The number of units is that of whole complex numbers times two, except for products.
func TestComplexElements(t *testing.T) {
	l := hostLibrary(t)
	r := rand.New(rand.NewPCG(6, 6))
	for _, ty := range []dtype.Type{dtype.C64, dtype.C128} {
		for _, op := range []dtype.Op{dtype.Sum, dtype.Prod, dtype.Avg, dtype.PremulSum} {
			a, b := memory(33*ty.Size(), 0), memory(33*ty.Size(), 0)
			fill(r, ty, a)
			fill(r, ty, b)
			if err := pair(l, ty, op, a, b); err != nil {
				t.Error(err)
			}
		}
	}
}

// A tick adds one, however many threads it has. So does Execute.
func TestTick(t *testing.T) {
	l := hostLibrary(t)
	words := []uint64{1, math.MaxUint64, 3}
	at := uint64(uintptr(unsafe.Pointer(&words[1])))
	a := Tick().Arguments(at, 1, 0)
	for i, size := range [][2]int{{1, 1}, {1, 512}, {3, 40}} {
		l.launch(Tick().Name, &a, size[0], size[1])
		if want := []uint64{1, uint64(2 * i), 3}; !slices.Equal(words, want) {
			t.Errorf("%d blocks of %d: the words are %d, want %d", size[0], size[1], words, want)
		}
		if err := Execute(Tick().Name, a.Bytes(), func(ptr uint64, n int) []byte {
			if ptr != at || n != 8 {
				t.Errorf("%d bytes at %#x, want 8 at %#x", n, ptr, at)
			}
			return unsafe.Slice((*byte)(unsafe.Pointer(&words[1])), 8)
		}); err != nil {
			t.Error(err)
		}
		if words[1] != uint64(2*i+1) {
			t.Errorf("Execute: the word is %d, want %d", words[1], 2*i+1)
		}
	}
	if n := Tick().Blocks(1, 132); n != 1 {
		t.Errorf("%d blocks", n)
	}
}

func TestExecuteRefuses(t *testing.T) {
	b := memory(1<<10, 0)
	at := address(b)
	anywhere := func(ptr uint64, n int) []byte {
		if from := ptr - at; from <= uint64(len(b)) && uint64(n) <= uint64(len(b))-from {
			return b[from : from+uint64(n)]
		}
		return nil
	}
	sum, _ := Reduce(dtype.F32, dtype.Sum)
	widen, _ := Convert(dtype.F32, dtype.F16)
	cases := []struct {
		name string
		a    Arguments
		want string
	}{
		{"goccl_reduce_sum_f31", sum.Arguments(at, 1, 0, at), "no kernel"},
		{sum.Name, sum.Arguments(at, 1, 0), "0 sources"},
		{sum.Name, Arguments{Step: Step{Dst: at, N: 1, Count: 9}}, "9 sources"},
		{widen.Name, widen.Arguments(at, 1, 0, at+64, at+128), "2 sources"},
		{sum.Name, sum.Arguments(at+2, 1, 0, at+64, at+64), "not aligned"},
		{sum.Name, sum.Arguments(at, 1, 0, at, at+65), "not aligned"},
		{sum.Name, sum.Arguments(at, 4, 0, at, at+8), "covers a part"},
		{sum.Name, sum.Arguments(at+8, 4, 0, at, at), "covers a part"},
		{widen.Name, widen.Arguments(at, 4, 0, at), "covers a part"},
		{Copy().Name, Copy().Arguments(at, 4, 0, at+3), "covers a part"},
		{sum.Name, sum.Arguments(at, 200, 0, at, at+800), "no memory of 800 bytes"},
		{sum.Name, Arguments{Step: Step{Dst: at, Src: [8]uint64{at}, N: 1 << 62, Count: 1}}, "elements"},
		{sum.Name, Arguments{Step{Dst: at, Src: [8]uint64{at}, N: 1, Count: 1}, 2, [8]Lent{}}, "are indirect"},
		{sum.Name, Arguments{Step{Dst: at, Src: [8]uint64{at}, N: 1, Count: 1}, 1, [8]Lent{}}, "nobody has resolved"},
		{widen.Name, Arguments{Step{Dst: at, Src: [8]uint64{at + 64}, N: 1, Count: 1}, 1, [8]Lent{}}, "are indirect"},
		{Tick().Name, Tick().Arguments(at, 2, 0), "2 elements"},
		{Tick().Name, Tick().Arguments(at, 1, 0, at+8), "1 sources"},
		{Tick().Name, Tick().Arguments(at+4, 1, 0), "not aligned"},
	}
	for _, c := range cases {
		err := Execute(c.name, c.a.Bytes(), anywhere)
		if !errors.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %+v: %v, want an error with %q", c.name, c.a, err, c.want)
		}
	}
	a := sum.Arguments(at, 0, 0, at, at)
	if err := Execute(sum.Name, a.Bytes(), func(uint64, int) []byte { return nil }); err != nil {
		t.Errorf("no elements: %v", err)
	}
	if err := Execute(sum.Name, a.Bytes()[:8], anywhere); !errors.Is(err, fault.Invalid) {
		t.Errorf("8 bytes of arguments: %v", err)
	}
}

func TestOperands(t *testing.T) {
	narrow, _ := Convert(dtype.F8E5M2, dtype.F32)
	sum, _ := Reduce(dtype.C64, dtype.Sum)
	for _, each := range []struct {
		call Call
		a    Arguments
		want []Operand
	}{
		{narrow, narrow.Arguments(1, 10, 0, 100), []Operand{{1, 10, 1, true}, {100, 40, 4, false}}},
		{sum, sum.Arguments(400, 10, 0, 200, 400, 600),
			[]Operand{{400, 80, 4, true}, {200, 80, 4, false}, {400, 80, 4, false}, {600, 80, 4, false}}},
		{sum, sum.Arguments(400, 0, 0, 200), nil},
		{Tick(), Tick().Arguments(400, 1, 0), []Operand{{400, 8, 8, true}}},
	} {
		if got, err := Operands(each.call.Name, each.a.Bytes()); err != nil || !slices.Equal(got, each.want) {
			t.Errorf("%s: %v, %v, want %v", each.call.Name, got, err, each.want)
		}
	}
}

func TestLookUps(t *testing.T) {
	for _, ty := range append(dtype.Types(), dtype.Invalid, 200) {
		for _, op := range append(dtype.Ops(), 200) {
			c, ok := Reduce(ty, op)
			if want := dtype.Reducible(ty, op) == nil; ok != want || ok != (c.Function != nil) {
				t.Errorf("%v of %v: there is a kernel: %v, want %v", op, ty, ok, want)
			}
		}
	}
	_, scale := Scale(200)
	_, to := Convert(200, dtype.F32)
	_, from := Convert(dtype.F32, 200)
	if scale || to || from {
		t.Error("there are kernels of a type that does not exist")
	}
	f32, _ := Reduce(dtype.F32, dtype.Sum)
	c64, _ := Reduce(dtype.C64, dtype.Sum)
	for _, each := range []struct {
		call            Call
		n, most, blocks int
	}{
		{f32, 0, 132, 1}, {f32, 1, 132, 1}, {f32, 4096, 132, 1}, {f32, 4097, 132, 2}, {c64, 4096, 132, 2},
		{f32, 1 << 30, 132, 264}, {f32, 1 << 30, 1, 2}, {Copy(), 1 << 20, 132, 64},
	} {
		if got := each.call.Blocks(each.n, each.most); got != each.blocks {
			t.Errorf("%s: %d blocks for %d elements on %d multiprocessors, want %d",
				each.call.Name, got, each.n, each.most, each.blocks)
		}
	}
	if allocations := testing.AllocsPerRun(10, func() {
		c, _ := Reduce(dtype.BF16, dtype.Sum)
		a := c.Arguments(16, 100, 0, 16, 32)
		_ = a.Bytes()
	}); allocations > 1 {
		t.Errorf("a look-up allocates %v times", allocations)
	}
}
