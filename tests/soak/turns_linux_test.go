package soak_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"

	"github.com/goccl/goccl/ccl/dtype"
)

const ranks = 4

// members lists the ranks of each group in the order of the group.
var members = [][]int{{0, 1, 2, 3}, {0, 1}, {2, 3}, {0, 2, 3}, {1, 3}, {3, 2, 1, 0}}

// threads lists the groups that each thread of a rank calls. All ranks make the calls of a thread
// in the same order, so blocking calls of several groups cannot wait for each other in a circle.
var threads = [][]int{{0, 2}, {1, 3}, {4, 5}}

// turn is a call that all ranks of a group make, or a message from each of them to the next.
type turn struct {
	number  int // in its thread, from 1
	group   int
	coll    dtype.Collective // Send for messages
	typ     dtype.Type
	op      dtype.Op
	root, n int
	uneven  bool
	inPlace bool
	anyone  bool // the message is received from any rank
}

func (u *turn) String() string {
	return fmt.Sprintf("turn %d: group %d %v, %v of %d elements (uneven %v, in place %v) of %v, %v, root %d",
		u.number, u.group, members[u.group], u.coll, u.n, u.uneven, u.inPlace, u.typ, u.op, u.root)
}

func (u *turn) size() int { return len(members[u.group]) }

// drawing draws the turns of a thread, the same on all ranks.
type drawing struct {
	thread int
	random *rand.Rand
	turn   turn
	again  int // how often the turn comes again: programs of repeated calls are kept
	first  []turn
}

func newDrawing(seed uint64, thread int) *drawing {
	d := &drawing{thread: thread, random: rand.New(rand.NewPCG(seed, uint64(thread)))}
	// Long calls of all kinds come first: then links have the memory that they will ever need.
	for _, group := range threads[thread] {
		for _, coll := range append(dtype.Collectives(), dtype.Send, dtype.Send) {
			d.first = append(d.first, turn{group: group, coll: coll, typ: dtype.F32, n: longest / 4})
		}
	}
	return d
}

const longest = 2 << 20 // bytes of a block

func (d *drawing) next() turn {
	d.turn.number++
	if len(d.first) > 0 {
		u := d.first[0]
		d.first = d.first[1:]
		u.number = d.turn.number
		return u
	}
	if d.again > 0 {
		d.again--
		return d.turn
	}
	r := d.random
	u := turn{number: d.turn.number, group: threads[d.thread][r.IntN(len(threads[d.thread]))], coll: dtype.Send}
	if r.IntN(6) > 0 {
		all := dtype.Collectives()
		if u.coll = all[r.IntN(len(all))]; r.IntN(4) == 0 {
			u.coll = dtype.AllReduce
		}
	}
	types := dtype.Types()
	u.typ = types[r.IntN(len(types))]
	for u.coll.Reduces() {
		ops := dtype.Ops()
		u.op = ops[r.IntN(len(ops))]
		thirds := u.op == dtype.Avg && u.size() == 3 // which would be rounded
		if dtype.Reducible(u.typ, u.op) == nil && !thirds {
			break
		}
	}
	u.root, u.n = r.IntN(u.size()), elements(r)/u.typ.Size()
	u.uneven, u.inPlace, u.anyone = r.IntN(5) == 0, r.IntN(3) == 0, r.IntN(4) == 0
	if u.coll == dtype.Barrier {
		u.n = 0
	}
	d.turn, d.again = u, r.IntN(2)*r.IntN(6)
	return u
}

// elements draws a length in bytes: mostly short, up to 2 MiB.
func elements(r *rand.Rand) int {
	switch x := r.IntN(100); {
	case x < 4:
		return 0
	case x < 64:
		return r.IntN(256)
	case x < 82:
		return r.IntN(8 << 10)
	case x < 94:
		return r.IntN(96 << 10)
	case x < 99:
		return r.IntN(512 << 10)
	}
	return r.IntN(longest)
}

// block returns the number of elements of a block: the one that rank from of the group gives to
// rank to. Where only one of the two counts, the other is 0.
func (u *turn) block(from, to int) int {
	if !u.uneven {
		return u.n
	}
	switch u.coll {
	case dtype.AllToAll:
		return (from*5 + to*3 + u.number) % 4 * u.n / 2
	case dtype.AllGather, dtype.Gather:
		return (from + u.number) % 3 * u.n / 2
	case dtype.Scatter, dtype.ReduceScatter:
		return (to + u.number) % 3 * u.n / 2
	}
	return u.n
}

// source names the contents of a block: rank from of the group has it for rank to.
func (u *turn) source(seed uint64, from, to int) uint64 {
	return mixed(seed ^ mixed(uint64(u.number)<<24^uint64(u.group)<<16^uint64(from)<<8^uint64(to)))
}

func mixed(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fill writes a block that is only moved: any bits.
func fill(b []byte, source uint64) {
	for i := uint64(0); len(b) > 0; i++ {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], mixed(source+i))
		b = b[copy(b, word[:]):]
	}
}

// differs returns the first byte that fill would have written otherwise, or -1.
func differs(b []byte, source uint64) int {
	for at := 0; at < len(b); at += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], mixed(source+uint64(at/8)))
		for i := range min(8, len(b)-at) {
			if b[at+i] != word[i] {
				return at + i
			}
		}
	}
	return -1
}

// sums is the arithmetic of a turn that reduces: its values are small whole numbers, with which all
// results are exact in every type.
type sums struct {
	turn   *turn
	real   dtype.Type
	parts  int // two for complex numbers
	values [16]int
	codes  [2*most + 1]uint64 // of floats: the bits of -most to most
}

const most = 64

func newSums(u *turn) *sums {
	s := &sums{turn: u}
	s.real, s.parts = dtype.Real(u.typ)
	tiny := u.typ.Float8()
	for i := range s.values {
		v := i - 8
		switch {
		case u.typ == dtype.Bool:
			v = i & 1
		case u.typ.Integer():
			if unsigned(u.typ) {
				v = i
			}
		case u.op == dtype.Prod:
			v = []int{1, 2, -1, -2}[i%4] // no 0: its sign would count
			if s.parts == 2 {
				v = 1 + i%2
			}
		case u.op == dtype.Avg && tiny:
			v = 4 * (i%3 - 1)
		case u.op == dtype.Avg:
			v = 4 * (i%5 - 2)
		case u.op == dtype.PremulSum && tiny:
			v = 2 * (i%3 - 1)
		case u.op == dtype.PremulSum:
			v = 2 * (i%5 - 2)
		case tiny:
			v = i%5 - 2
		}
		s.values[i] = v
	}
	for v := -most; v <= most; v++ {
		s.codes[v+most] = bitsOf(s.real, v)
	}
	return s
}

func unsigned(t dtype.Type) bool {
	return t == dtype.U8 || t == dtype.U16 || t == dtype.U32 || t == dtype.U64
}

// premultiplied is the factor of PremulSum.
const premultiplied = 0.5

// bitsOf encodes a small whole number.
func bitsOf(t dtype.Type, v int) uint64 {
	switch t {
	case dtype.F64:
		return math.Float64bits(float64(v))
	case dtype.F32:
		return uint64(math.Float32bits(float32(v)))
	case dtype.BF16:
		return uint64(math.Float32bits(float32(v)) >> 16)
	case dtype.F16:
		return short(v, 5, 10)
	case dtype.F8E4M3:
		return short(v, 4, 3)
	case dtype.F8E5M2:
		return short(v, 5, 2)
	}
	return uint64(v)
}

// short encodes a small whole number as a float with the given bits of exponent and mantissa.
func short(v, exponent, mantissa int) uint64 {
	sign := uint64(0)
	if v < 0 {
		sign, v = 1, -v
	}
	if v == 0 {
		return 0
	}
	top := bits.Len(uint(v)) - 1
	bias := 1<<(exponent-1) - 1
	fraction := uint64(v) << mantissa >> top & (1<<mantissa - 1)
	return sign<<(exponent+mantissa) | uint64(top+bias)<<mantissa | fraction
}

// part returns the number at place i of a block.
func (s *sums) part(word uint64, i int) int {
	if s.parts == 2 && s.turn.op == dtype.Prod && i%2 == 1 {
		return 0 // real numbers only
	}
	return s.values[word>>(4*(i%16))&15]
}

func (s *sums) code(v int) uint64 {
	if -most <= v && v <= most {
		return s.codes[v+most]
	}
	return uint64(v) // an integer
}

// combine is the operator.
func (s *sums) combine(a, b int) int {
	switch s.turn.op {
	case dtype.Prod:
		return a * b
	case dtype.Min:
		return min(a, b)
	case dtype.Max:
		return max(a, b)
	case dtype.BAnd:
		return a & b
	case dtype.BOr:
		return a | b
	case dtype.BXor:
		return a ^ b
	}
	if s.turn.typ == dtype.Bool {
		return a | b
	}
	return a + b
}

// end makes the result of what is combined.
func (s *sums) end(v, contributions int) int {
	switch s.turn.op {
	case dtype.Avg:
		return v / contributions
	case dtype.PremulSum:
		return v / 2
	}
	return v
}

// fill writes a block that is to be reduced.
func (s *sums) fill(b []byte, source uint64) {
	size, word := s.real.Size(), uint64(0)
	for i := 0; i*size < len(b); i++ {
		if i%16 == 0 {
			word = mixed(source + uint64(i/16))
		}
		put(b[i*size:], size, s.code(s.part(word, i)))
	}
}

// differs returns the first byte of the reduction of several blocks that is wrong, or -1; or of one
// block as fill has written it, if whole is not set.
func (s *sums) differs(b []byte, sources []uint64, whole bool) int {
	size := s.real.Size()
	words := make([]uint64, len(sources))
	for i := 0; i*size < len(b); i++ {
		if i%16 == 0 {
			for k, source := range sources {
				words[k] = mixed(source + uint64(i/16))
			}
		}
		v := s.part(words[0], i)
		for _, word := range words[1:] {
			v = s.combine(v, s.part(word, i))
		}
		if whole {
			v = s.end(v, len(sources))
		}
		var want [8]byte
		put(want[:], size, s.code(v))
		for k := range size {
			if b[i*size+k] != want[k] {
				return i*size + k
			}
		}
	}
	return -1
}

func put(b []byte, size int, code uint64) {
	switch size {
	case 1:
		b[0] = byte(code)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(code))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(code))
	default:
		binary.LittleEndian.PutUint64(b, code)
	}
}
