package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

type float interface{ float32 | float64 }

func floatReduction[E float](op dtype.Op, smaller, larger Func) Func {
	switch op {
	case dtype.Sum:
		return sumFloats[E]
	case dtype.Prod:
		return prodFloats[E]
	case dtype.Min:
		return smaller
	case dtype.Max:
		return larger
	}
	return nil
}

func sumFloats[E float](dst, a, b unsafe.Pointer, n int) {
	d, dRest := blocks[E](dst, n)
	x, xRest := blocks[E](a, n)
	y, yRest := blocks[E](b, n)
	for i := range d {
		r, p, q := &d[i], &x[i], &y[i]
		s0, s1, s2, s3 := p[0]+q[0], p[1]+q[1], p[2]+q[2], p[3]+q[3]
		if s0 != s0 || s1 != s1 || s2 != s2 || s3 != s3 {
			sumNaN(r[:], p[:], q[:])
			continue
		}
		r[0], r[1], r[2], r[3] = s0, s1, s2, s3
	}
	sumNaN(dRest, xRest, yRest)
}

func prodFloats[E float](dst, a, b unsafe.Pointer, n int) {
	d, dRest := blocks[E](dst, n)
	x, xRest := blocks[E](a, n)
	y, yRest := blocks[E](b, n)
	for i := range d {
		r, p, q := &d[i], &x[i], &y[i]
		s0, s1, s2, s3 := p[0]*q[0], p[1]*q[1], p[2]*q[2], p[3]*q[3]
		if s0 != s0 || s1 != s1 || s2 != s2 || s3 != s3 {
			prodNaN(r[:], p[:], q[:])
			continue
		}
		r[0], r[1], r[2], r[3] = s0, s1, s2, s3
	}
	prodNaN(dRest, xRest, yRest)
}

// sumNaN and prodNaN are the loops for few elements, some of which may give NaN.
func sumNaN[E float](d, x, y []E) {
	for i := range d {
		s := x[i] + y[i]
		if s != s {
			s = nanOf(x[i], y[i])
		}
		d[i] = s
	}
}

func prodNaN[E float](d, x, y []E) {
	for i := range d {
		s := x[i] * y[i]
		if s != s {
			s = nanOf(x[i], y[i])
		}
		d[i] = s
	}
}

// nanOf returns the NaN that an operation on x and y gives. It is spelt out because CPUs differ in
// this NaN, and because the compiler may exchange the operands of an addition.
//
//go:noinline
func nanOf[E float](x, y E) E {
	if unsafe.Sizeof(x) == 4 {
		u := float32Layout.nan(*(*int32)(unsafe.Pointer(&x)), *(*int32)(unsafe.Pointer(&y)))
		return *(*E)(unsafe.Pointer(&u))
	}
	u := float64Layout.nan(*(*int64)(unsafe.Pointer(&x)), *(*int64)(unsafe.Pointer(&y)))
	return *(*E)(unsafe.Pointer(&u))
}
