package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"sort"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// The reference works on one element at a time, as bits in a uint64, and shares nothing with the
// kernels: integers through big.Int, floats through big.Float and exact tables of the formats of 16
// and 8 bits.

// format describes a float by the widths of its fields. With finite set, the largest number takes
// the place of infinity, and one NaN follows it.
type format struct {
	exponent, fraction int
	finite             bool
}

var formats = map[dtype.Type]format{
	dtype.F64: {11, 52, false}, dtype.F32: {8, 23, false}, dtype.F16: {5, 10, false}, dtype.BF16: {8, 7, false},
	dtype.F8E4M3: {4, 3, true}, dtype.F8E5M2: {5, 2, false},
}

// infinity returns the result of operations whose exact result is too large.
func (f format) infinity() uint64 {
	if f.finite {
		return f.sign() - 2
	}
	return (1<<f.exponent - 1) << f.fraction
}

// quiet returns the bits that are set in every NaN result.
func (f format) quiet() uint64 {
	if f.exponent+f.fraction == 7 {
		return f.sign() - 1
	}
	return 1 << (f.fraction - 1)
}

func (f format) sign() uint64      { return 1 << (f.exponent + f.fraction) }
func (f format) nan(u uint64) bool { return u&^f.sign() > f.infinity() }

// float decodes u exactly.
func (f format) float(u uint64) float64 {
	if f.fraction == 52 {
		return math.Float64frombits(u)
	}
	fraction, exponent := u&(1<<f.fraction-1), int(u>>f.fraction&(1<<f.exponent-1))
	bias := 1<<(f.exponent-1) - 1
	v := 0.0
	switch {
	case f.nan(u):
		return math.NaN()
	case u&^f.sign() == f.infinity() && !f.finite:
		v = math.Inf(1)
	case exponent == 0:
		v = math.Ldexp(float64(fraction), 1-bias-f.fraction)
	default:
		v = math.Ldexp(float64(fraction|1<<f.fraction), exponent-bias-f.fraction)
	}
	if u&f.sign() != 0 {
		v = -v
	}
	return v
}

// magnitudes lists the values of the formats of 16 and 8 bits from 0 to infinity. In place of
// infinity it has the power of two that would come next, which is where rounding puts infinity; a
// finite format ends with its largest number.
var magnitudes = map[format][]float64{
	formats[dtype.F16]: values(formats[dtype.F16]), formats[dtype.BF16]: values(formats[dtype.BF16]),
	formats[dtype.F8E4M3]: values(formats[dtype.F8E4M3]), formats[dtype.F8E5M2]: values(formats[dtype.F8E5M2]),
}

func values(f format) []float64 {
	all := make([]float64, f.infinity()+1)
	for u := range all[:f.infinity()] {
		all[u] = f.float(uint64(u))
	}
	all[f.infinity()] = math.Ldexp(1, 1<<(f.exponent-1))
	if f.finite {
		all[f.infinity()] = f.float(f.infinity())
	}
	return all
}

// round returns the bits of v, which is not NaN, rounded once to nearest even.
func (f format) round(v float64) uint64 {
	switch f.fraction {
	case 52:
		return math.Float64bits(v)
	case 23:
		return uint64(math.Float32bits(float32(v)))
	}
	sign, v := uint64(0), v
	if math.Signbit(v) {
		sign, v = f.sign(), -v
	}
	all := magnitudes[f]
	hi := sort.SearchFloat64s(all, v)
	if hi == len(all) {
		return sign | f.infinity()
	}
	if all[hi] == v {
		return sign | uint64(hi)
	}
	lo := hi - 1
	middle := all[lo]/2 + all[hi]/2
	if v < middle || v == middle && lo%2 == 0 {
		return sign | uint64(lo)
	}
	return sign | uint64(hi)
}

func referenceFloat(f format, op dtype.Op, a, b uint64) uint64 {
	switch {
	case f.nan(a):
		return a | f.quiet()
	case f.nan(b):
		return b | f.quiet()
	}
	x, y := f.float(a), f.float(b)
	invalid := f.sign() | f.infinity() | f.quiet()
	switch op {
	case dtype.Min:
		return f.round(math.Min(x, y))
	case dtype.Max:
		return f.round(math.Max(x, y))
	case dtype.Prod:
		if math.IsNaN(x * y) {
			return invalid
		}
		if f.fraction == 52 {
			return math.Float64bits(exact(x, y, (*big.Float).Mul, x*y))
		}
		return f.round(float64(float32(x * y))) // x*y is exact
	}
	switch {
	case math.IsNaN(x + y):
		return invalid
	case f.fraction == 52:
		return math.Float64bits(exact(x, y, (*big.Float).Add, x+y))
	}
	return f.round(float64(float32(x + y))) // 53 bits are enough for a second rounding to 24 to do no harm
}

// exact rounds the exact result once. For zero and infinity, where big.Float treats the sign
// differently, it returns plain.
func exact(x, y float64, op func(z, x, y *big.Float) *big.Float, plain float64) float64 {
	if plain == 0 && (x == 0 || y == 0 || x == -y) || math.IsInf(x, 0) || math.IsInf(y, 0) {
		return plain
	}
	r, _ := op(new(big.Float).SetPrec(2200), big.NewFloat(x), big.NewFloat(y)).Float64()
	return r
}

func referenceInteger(size int, isSigned bool, op dtype.Op, a, b uint64) uint64 {
	x, y := integerOf(size, isSigned, a), integerOf(size, isSigned, b)
	r := new(big.Int)
	switch op {
	case dtype.Sum:
		r.Add(x, y)
	case dtype.Prod:
		r.Mul(x, y)
	case dtype.Min:
		r.Set(x)
		if y.Cmp(x) < 0 {
			r.Set(y)
		}
	case dtype.Max:
		r.Set(x)
		if y.Cmp(x) > 0 {
			r.Set(y)
		}
	case dtype.BAnd:
		r.And(x, y)
	case dtype.BOr:
		r.Or(x, y)
	case dtype.BXor:
		r.Xor(x, y)
	}
	modulus := new(big.Int).Lsh(big.NewInt(1), uint(8*size))
	return r.Mod(r, modulus).Uint64()
}

func integerOf(size int, isSigned bool, u uint64) *big.Int {
	v := new(big.Int).SetUint64(u)
	if isSigned && u>>(8*size-1) != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	}
	return v
}

func referenceBool(op dtype.Op, a, b uint64) uint64 {
	x, y := a != 0, b != 0
	r := false
	switch op {
	case dtype.Sum, dtype.Max, dtype.BOr:
		r = x || y
	case dtype.Prod, dtype.Min, dtype.BAnd:
		r = x && y
	case dtype.BXor:
		r = x != y
	}
	if r {
		return 1
	}
	return 0
}

// reference combines two elements of a type that is not complex.
func reference(t dtype.Type, op dtype.Op, a, b uint64) uint64 {
	switch {
	case t == dtype.Bool:
		return referenceBool(op, a, b)
	case t.Integer():
		isSigned := t == dtype.I8 || t == dtype.I16 || t == dtype.I32 || t == dtype.I64
		return referenceInteger(t.Size(), isSigned, op, a, b)
	}
	return referenceFloat(formats[t], op, a, b)
}

// referenceScale multiplies one element of a real floating-point type.
func referenceScale(t dtype.Type, a uint64, factor float64) uint64 {
	f := formats[t]
	if f.nan(a) {
		return a | f.quiet()
	}
	p := f.float(a) * factor
	if math.IsNaN(p) {
		return f.sign() | f.infinity() | f.quiet()
	}
	return f.round(p)
}

// interesting returns the bits of a random element: a corner, a neighbour of a corner, an ordinary
// value, or anything.
func interesting(r *rand.Rand, t dtype.Type) uint64 {
	size := t.Size()
	any := r.Uint64() >> (64 - 8*size)
	f, ok := formats[t]
	switch {
	case t == dtype.Bool:
		return []uint64{0, 0, 1, 1, 1, 0x80, 0xff, any}[r.IntN(8)]
	case !ok:
		top := uint64(1) << (8*size - 1)
		return []uint64{0, 1, top, top - 1, 2*top - 1, any, any, any}[r.IntN(8)]
	}
	sign := uint64(0)
	if r.IntN(2) == 0 {
		sign = f.sign()
	}
	switch r.IntN(8) {
	case 0:
		return sign | []uint64{0, 1, f.infinity(), f.infinity() - 1, 1 << f.fraction, 1<<f.fraction - 1}[r.IntN(6)]
	case 1:
		return sign | f.infinity() | any&(1<<f.fraction-1) // infinity or any NaN
	case 2:
		return sign | any&(1<<f.fraction-1) // subnormal
	case 3, 4, 5:
		bias := uint64(1)<<(f.exponent-1) - 1
		return sign | (bias-4+r.Uint64N(9))<<f.fraction | any&(1<<f.fraction-1)
	}
	return any
}

func load(p []byte, size int) uint64 {
	var u [8]byte
	copy(u[:], p[:size])
	return binary.LittleEndian.Uint64(u[:])
}

func store(p []byte, size int, u uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], u)
	copy(p[:size], b[:])
}

// fill writes random elements. In a long p they repeat, at a distance that is no multiple of a
// vector.
func fill(r *rand.Rand, t dtype.Type, p []byte) {
	real, _ := dtype.Real(t)
	size := real.Size()
	made := min(len(p), 1031*size)
	for q := p[:made]; len(q) >= size; q = q[size:] {
		store(q, size, interesting(r, real))
	}
	for made > 0 && made < len(p) {
		made += copy(p[made:], p[:made])
	}
}

const guard = 0xa5

// guarded is n bytes that start skew bytes after a multiple of 64, between guards that a kernel
// must not touch.
type guarded struct {
	all, data []byte
	start     int
}

func newGuarded(n, skew int) guarded {
	all := bytes.Repeat([]byte{guard}, 64+64+skew+n+64)
	start := 64 + int(-uintptr(unsafe.Pointer(&all[0]))&63) + skew
	return guarded{all, all[start : start+n : start+n], start}
}

func (g guarded) pointer() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(g.data)) }

// broken reports where a byte outside the data was written.
func (g guarded) broken() error {
	end := g.start + len(g.data)
	for _, at := range []int{g.start - 64, end} {
		if !bytes.Equal(g.all[at:at+64], bytes.Repeat([]byte{guard}, 64)) {
			return fmt.Errorf("a byte from %d to %d was written; the data are %d to %d", at, at+63, g.start, end)
		}
	}
	return nil
}
