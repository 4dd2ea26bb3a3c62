package dtype

import "fmt"

// Op is a reduction operator.
type Op uint8

const (
	Sum Op = iota
	Avg
	Prod
	Min
	Max
	BAnd
	BOr
	BXor
	PremulSum // every contribution is multiplied by a factor, then summed
	numOps
)

var opNames = [numOps]string{"sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "premulsum"}

// Ops returns every operator in the order of the constants.
func Ops() []Op {
	all := make([]Op, numOps)
	for i := range all {
		all[i] = Op(i)
	}
	return all
}

func (o Op) String() string {
	if o >= numOps {
		return fmt.Sprintf("op(%d)", uint8(o))
	}
	return opNames[o]
}

// ParseOp finds an operator by its name.
func ParseOp(name string) (Op, error) {
	for i, n := range opNames {
		if n == name {
			return Op(i), nil
		}
	}
	if name == "product" {
		return Prod, nil
	}
	return 0, fmt.Errorf("unknown reduction operator %q; known: %v", name, Ops())
}

// Bitwise reports whether o works on bits: integers and Bool only.
func (o Op) Bitwise() bool { return o >= BAnd && o <= BXor }

// Reducible says why elements of type t cannot be reduced with o, or nil when they can.
//
// Real floats have every operator that is not bitwise; integers all but avg and premulsum (a mean
// of integers has no one right rounding); Bool the logical forms (sum and max are or, prod and min
// are and); complex numbers sum, avg and premulsum, by parts, and prod.
func Reducible(t Type, o Op) error {
	ok := false
	switch {
	case !t.Valid() || o >= numOps:
	case t.Float(), t.Float8():
		ok = !o.Bitwise()
	case t.Integer(), t == Bool:
		ok = o != Avg && o != PremulSum
	case t == C64 || t == C128:
		ok = o == Sum || o == Prod || o == Avg || o == PremulSum
	}
	if ok {
		return nil
	}
	return fmt.Errorf("reduction %v is not defined for %v", o, t)
}

// Unit is what a reduction combines: the parts of complex numbers one by one, unless they are
// multiplied; else the elements. It returns its type and how many of it one element has.
func Unit(t Type, o Op) (Type, int) {
	if o == Prod {
		return t, 1
	}
	return Real(t)
}

// Real maps a reduction of complex numbers onto one of their parts: the element type and how many
// of it one element has. Other types map to themselves and 1.
func Real(t Type) (Type, int) {
	switch t {
	case C64:
		return F32, 2
	case C128:
		return F64, 2
	}
	return t, 1
}
