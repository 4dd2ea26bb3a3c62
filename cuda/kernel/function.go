package kernel

import (
	"github.com/goccl/goccl/ccl/dtype"
)

// Function is a kernel, and what a launch has to know of it.
type Function struct {
	// Name is the kernel's name in the code.
	Name string

	kind     kind
	to, from dtype.Type // of the units
	op       dtype.Op
}

type kind uint8

const (
	reduces kind = iota
	scales
	converts
	copies
	gathers
	ticks
	runs // of tables
)

const prefix = "goccl_"

var (
	functions   []*Function
	byName      = map[string]*Function{}
	reductions  [dtype.F8E5M2 + 1][dtype.PremulSum + 1]Call
	scalings    [dtype.F8E5M2 + 1]Call
	conversions [dtype.F8E5M2 + 1][dtype.F8E5M2 + 1]Call
	copying     Call
	gathering   Call
	ticking     Call
	runners     [dtype.F8E5M2 + 1][dtype.PremulSum + 1]Call
	copyRunner  Call
)

// shorterFloats lists the types that Convert knows beside F32.
var shorterFloats = [...]dtype.Type{dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.F8E5M2}

// The tables are filled once, so that a look-up neither computes nor allocates.
func init() {
	for _, t := range dtype.Types() {
		for _, op := range dtype.Ops() {
			if dtype.Reducible(t, op) == nil {
				unit, parts := unitOf(t, op)
				plain := plainOp(unit, op)
				name := plain.String() + "_" + unit.String()
				reductions[t][op] = Call{function("reduce_"+name,
					Function{kind: reduces, to: unit, from: unit, op: plain}), uint64(parts)}
				runners[t][op] = Call{function("run_"+name,
					Function{kind: runs, to: unit, from: unit, op: plain}), uint64(parts)}
			}
		}
		if real, parts := dtype.Real(t); real.Float() || real.Float8() {
			scalings[t] = Call{function("scale_"+real.String(),
				Function{kind: scales, to: real, from: real}), uint64(parts)}
		}
	}
	for _, t := range shorterFloats {
		for _, pair := range [][2]dtype.Type{{dtype.F32, t}, {t, dtype.F32}} {
			to, from := pair[0], pair[1]
			conversions[to][from] = Call{function("convert_"+to.String()+"_from_"+from.String(),
				Function{kind: converts, to: to, from: from}), 1}
		}
	}
	copying = Call{function("copy", Function{kind: copies, to: dtype.U8, from: dtype.U8}), 1}
	gathering = Call{function("gather", Function{kind: gathers, to: dtype.U8, from: dtype.U8}), 1}
	copyRunner = Call{function("run_copies", Function{kind: runs, to: dtype.U8, from: dtype.U8}), 1}
	ticking = Call{function("tick", Function{kind: ticks, to: dtype.U64, from: dtype.U64}), 1}
}

// function returns the function of a name, and notes f if it is new.
func function(name string, f Function) *Function {
	f.Name = prefix + name
	known := byName[f.Name]
	if known == nil {
		known = &f
		byName[f.Name] = known
		functions = append(functions, known)
	}
	return known
}

// unsigned maps integers to those of the same size without a sign.
var unsigned = map[dtype.Type]dtype.Type{
	dtype.I8: dtype.U8, dtype.I16: dtype.U16, dtype.I32: dtype.U32, dtype.I64: dtype.U64,
}

// unitOf is dtype.Unit, but the sign of an integer counts only where it matters.
func unitOf(t dtype.Type, op dtype.Op) (unit dtype.Type, parts int) {
	unit, parts = dtype.Unit(t, op)
	if u, ok := unsigned[unit]; ok && op != dtype.Min && op != dtype.Max {
		unit = u
	}
	return unit, parts
}

// plainOp returns the operator that combines two contributions. The logical operators have two or
// three names each.
func plainOp(unit dtype.Type, op dtype.Op) dtype.Op {
	switch {
	case op == dtype.Avg, op == dtype.PremulSum:
		return dtype.Sum
	case unit == dtype.Bool && (op == dtype.Sum || op == dtype.Max):
		return dtype.BOr
	case unit == dtype.Bool && (op == dtype.Prod || op == dtype.Min):
		return dtype.BAnd
	}
	return op
}

// Functions returns all functions: those whose names the code has.
func Functions() []*Function { return append([]*Function(nil), functions...) }

// Call is a function for elements of a type, which may be several units of the function.
type Call struct {
	*Function
	Units uint64 // of one element
}

// Reduce returns the kernel that reduces 1 to MostSources sources, where dtype.Reducible allows it.
// Avg and PremulSum have the kernel of Sum. One source is copied.
func Reduce(t dtype.Type, op dtype.Op) (Call, bool) {
	if int(t) >= len(reductions) || int(op) >= len(reductions[t]) {
		return Call{}, false
	}
	c := reductions[t][op]
	return c, c.Function != nil
}

// Scale returns the kernel that sums 1 to MostSources sources of a floating-point type (real or
// complex) and multiplies the sum by Arguments.Factor.
func Scale(t dtype.Type) (Call, bool) {
	if int(t) >= len(scalings) {
		return Call{}, false
	}
	c := scalings[t]
	return c, c.Function != nil
}

// Convert returns the conversion between F32 and a shorter float, in either direction.
func Convert(dst, src dtype.Type) (Call, bool) {
	if int(dst) >= len(conversions) || int(src) >= len(conversions) {
		return Call{}, false
	}
	c := conversions[dst][src]
	return c, c.Function != nil
}

// Copy returns the kernel that copies bytes.
func Copy() Call { return copying }

// Gathering returns the kernel that copies several chunks at once, whose parameter is a Gather.
func Gathering() Call { return gathering }

// TakesChunks reports whether the parameter of a kernel is a Gather.
func TakesChunks(name string) bool { return name == gathering.Name }

// Tick returns the kernel that adds one to a word of 64 bits in memory of the host, so that the
// host sees it. A launch has one element, no source, and any number of blocks and threads.
func Tick() Call { return ticking }

// Arguments returns the arguments of a launch for n elements. The factor is that of Scale; other
// kernels ignore it.
func (c Call) Arguments(dst uint64, n int, factor float64, src ...uint64) Arguments {
	a := Arguments{Step: Step{Dst: dst, N: uint64(n) * c.Units, Factor: factor, Count: uint32(len(src))}}
	copy(a.Src[:], src)
	return a
}

// Blocks returns the number of blocks of BlockSize threads for n elements on a device, or on a part
// of it, that has that many multiprocessors. Any other number of blocks gives the same result.
func (c Call) Blocks(n, multiprocessors int) int {
	bytes := n * int(c.Units) * max(c.to.Size(), c.from.Size())
	return max(min((bytes+blockBytes-1)/blockBytes, multiprocessors*blocksEach), 1)
}

const (
	// BlockSize is the number of threads in a block.
	BlockSize = 512

	blockBytes = BlockSize * 32 // of an operand, which a block does in one turn
	blocksEach = 2              // on a multiprocessor: with more, the registers would not suffice
)
