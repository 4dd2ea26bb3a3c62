package ccl_test

import (
	"math"
	"math/rand"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
)

// floatFormat is the number of exponent and fraction bits of a type. It decodes and rounds by
// arithmetic, without package kernel.
type floatFormat struct {
	typ                dtype.Type
	exponent, fraction int
}

func (f floatFormat) size() int { return (1 + f.exponent + f.fraction) / 8 }

// least returns the exponent of the smallest number.
func (f floatFormat) least() int { return 2 - 1<<(f.exponent-1) - f.fraction }

func (f floatFormat) decode(bits uint64) float64 {
	x := float64(bits & (1<<f.fraction - 1))
	e := int(bits >> f.fraction & (1<<f.exponent - 1))
	if e > 0 {
		x += float64(uint64(1) << f.fraction)
	}
	x = math.Ldexp(x, max(e, 1)-1+f.least())
	if bits>>(f.exponent+f.fraction) != 0 {
		x = -x
	}
	return x
}

// round returns the nearest number of the format, and the even one of two that are equally near.
func (f floatFormat) round(x float64) float64 {
	if f.fraction == 52 {
		return x
	}
	_, e := math.Frexp(x)
	unit := math.Ldexp(1, max(e-1-f.fraction, f.least()))
	return math.RoundToEven(x/unit) * unit
}

var floatFormats = []floatFormat{{dtype.F64, 11, 52}, {dtype.F32, 8, 23}, {dtype.F16, 5, 10}, {dtype.BF16, 8, 7},
	{dtype.F8E4M3, 4, 3}, {dtype.F8E5M2, 5, 2}}

// vector holds elements of a format.
type vector struct {
	floatFormat
	mem []byte
}

func (v vector) bits(i int) uint64 {
	var word [8]byte
	copy(word[:], v.mem[i*v.size():(i+1)*v.size()])
	return *(*uint64)(unsafe.Pointer(&word))
}

func (v vector) block() []ccl.Block {
	return []ccl.Block{{Ptr: unsafe.Pointer(&v.mem[0]), Count: len(v.mem) / v.size()}}
}

// random returns numbers below 16, so that their sums are finite. Some are subnormal.
func random(f floatFormat, n int, r *rand.Rand) vector {
	v := vector{f, make([]byte, n*f.size())}
	for i := range n {
		for {
			x := r.Uint64()
			if i%4 > 0 { // near one: in a wide format nearly all random exponents are far apart
				x = x&^(1<<(f.exponent+f.fraction)-1<<f.fraction) | uint64(1<<(f.exponent-1)-1-r.Intn(4))<<f.fraction
			}
			word := [8]byte(unsafe.Slice((*byte)(unsafe.Pointer(&x)), 8))
			copy(v.mem[i*f.size():], word[:f.size()])
			if math.Abs(f.decode(v.bits(i))) < 16 {
				break
			}
		}
	}
	return v
}

// TestAverage checks what docs/determinism.md promises: the mean is the sum, rounded to the type at
// each addition, times 1/n as a float64, rounded to float64 and then to the type. That is the
// rounded quotient in all types but float64.
func TestAverage(t *testing.T) {
	for _, transport := range []string{"inproc", "tcp"} { // many operands at once, and one after the other
		for n := 2; n <= 8; n++ {
			comms := group(t, transport, n, ccl.GroupOptions{Determinism: 4}) // sums are in the order of the ranks
			for _, f := range floatFormats {
				checkAverage(t, comms, f)
			}
		}
	}
}

func checkAverage(t *testing.T, comms []*ccl.Communicator, f floatFormat) {
	const count = 257
	n := len(comms)
	r := rand.New(rand.NewSource(int64(n)))
	in, out := make([]vector, n), make([]vector, n)
	for rank := range n {
		in[rank], out[rank] = random(f, count, r), vector{f, make([]byte, count*f.size())}
	}
	each(t, n, func(rank int) error {
		return comms[rank].Do(background, &ccl.Call{Coll: dtype.AllReduce, Type: f.typ, Op: ccl.Avg,
			In: in[rank].block(), Out: out[rank].block()})
	})
	single, quotients, products := float64(float32(1/float64(n))), 0, 0
	for i := range count {
		sum := f.decode(in[0].bits(i))
		for rank := 1; rank < n; rank++ {
			sum = f.round(sum + f.decode(in[rank].bits(i)))
		}
		got, want := f.decode(out[0].bits(i)), f.round(sum*(1/float64(n)))
		if math.Float64bits(want) != math.Float64bits(got) {
			t.Fatalf("%v on %d ranks: the mean of sum %v is %v, want %v", f.typ, n, sum, got, want)
		}
		for rank := range n {
			require.Equal(t, out[0].bits(i), out[rank].bits(i))
		}
		if got != f.round(sum/float64(n)) {
			quotients++
		}
		if got != f.round(sum*single) {
			products++
		}
	}
	exact := n&(n-1) == 0
	require.Equal(t, !exact && f.typ == dtype.F64, quotients > 0, "%v, %d ranks: %d no quotients", f.typ, n, quotients)
	if f.typ == dtype.F64 || f.typ == dtype.F32 {
		require.Equal(t, !exact, products > 0,
			"%v, %d ranks: %d are not the product with a float32", f.typ, n, products)
	}
}

// The product with 1/n is the rounded quotient for all numbers of the short types.
func TestAverageIsTheQuotient(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	for _, f := range floatFormats[2:] {
		for n := 2; n <= 64; n += step {
			for bits := range uint64(1 << (f.exponent + f.fraction)) {
				sum := f.decode(bits)
				product, quotient := f.round(sum*(1/float64(n))), f.round(sum/float64(n))
				if product != quotient {
					t.Fatalf("%v: %v/%d is %v, the product is %v", f.typ, sum, n, quotient, product)
				}
			}
		}
	}
}
