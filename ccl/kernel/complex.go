package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// complexReduction returns the kernel of products of complex numbers. The other operators work on
// the parts of the numbers (dtype.Unit).
func complexReduction[E float](op dtype.Op) Func {
	if op == dtype.Prod {
		return prodComplex[E]
	}
	return nil
}

// prodComplex rounds each product and each sum, so that all CPUs give the same bits: the compiler
// must not fuse them.
func prodComplex[E float](dst, a, b unsafe.Pointer, n int) {
	d, x, y := unsafe.Slice((*[2]E)(dst), n), unsafe.Slice((*[2]E)(a), n), unsafe.Slice((*[2]E)(b), n)
	for i := range d {
		p, q := x[i], y[i]
		d[i] = [2]E{
			addFloats(mulFloats(p[0], q[0]), -mulFloats(p[1], q[1])),
			addFloats(mulFloats(p[0], q[1]), mulFloats(p[1], q[0])),
		}
	}
}

func mulFloats[E float](x, y E) E {
	if p := E(x * y); p == p {
		return p
	}
	return nanOf(x, y)
}

func addFloats[E float](x, y E) E {
	if s := E(x + y); s == s {
		return s
	}
	return nanOf(x, y)
}
