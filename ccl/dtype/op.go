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

// Bitwise reports whether o is a bitwise operator. Such operators apply to integers and Bool only.
func (o Op) Bitwise() bool { return o >= BAnd && o <= BXor }

// Reducible returns an error if elements of type t cannot be reduced with o, and nil if they can.
//
// Real floats support every operator that is not bitwise. Integers support all but avg and
// premulsum (a mean of integers has no one right rounding). Bool supports the same operators in
// their logical forms (sum and max are or, prod and min are and). Complex numbers support sum, avg
// and premulsum, part by part, and prod.
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

// Unit returns the type of the units that a reduction combines, and the number of units in one
// element of t. The units are the two parts of a complex number, unless the operator multiplies;
// otherwise they are the elements.
func Unit(t Type, o Op) (Type, int) {
	if o == Prod {
		return t, 1
	}
	return Real(t)
}

// Real returns the type of the real numbers in an element of t, and their number: two for complex
// numbers. Other types map to themselves and 1.
func Real(t Type) (Type, int) {
	switch t {
	case C64:
		return F32, 2
	case C128:
		return F64, 2
	}
	return t, 1
}
