package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

type integer interface {
	int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64
}

func integerReduction[E integer](op dtype.Op) Func {
	switch op {
	case dtype.Sum:
		return sumIntegers[E]
	case dtype.Prod:
		return prodIntegers[E]
	case dtype.Min:
		return minIntegers[E]
	case dtype.Max:
		return maxIntegers[E]
	case dtype.BAnd:
		return andIntegers[E]
	case dtype.BOr:
		return orIntegers[E]
	case dtype.BXor:
		return xorIntegers[E]
	}
	return nil
}

func sumIntegers[E integer](dst, a, b unsafe.Pointer, n int) {
	d, dRest := blocks[E](dst, n)
	x, xRest := blocks[E](a, n)
	y, yRest := blocks[E](b, n)
	for i := range d {
		r, p, q := &d[i], &x[i], &y[i]
		r[0] = p[0] + q[0]
		r[1] = p[1] + q[1]
		r[2] = p[2] + q[2]
		r[3] = p[3] + q[3]
	}
	for i := range dRest {
		dRest[i] = xRest[i] + yRest[i]
	}
}

func prodIntegers[E integer](dst, a, b unsafe.Pointer, n int) {
	d, dRest := blocks[E](dst, n)
	x, xRest := blocks[E](a, n)
	y, yRest := blocks[E](b, n)
	for i := range d {
		r, p, q := &d[i], &x[i], &y[i]
		r[0] = p[0] * q[0]
		r[1] = p[1] * q[1]
		r[2] = p[2] * q[2]
		r[3] = p[3] * q[3]
	}
	for i := range dRest {
		dRest[i] = xRest[i] * yRest[i]
	}
}

func minIntegers[E integer](dst, a, b unsafe.Pointer, n int) {
	d, dRest := blocks[E](dst, n)
	x, xRest := blocks[E](a, n)
	y, yRest := blocks[E](b, n)
	for i := range d {
		r, p, q := &d[i], &x[i], &y[i]
		r[0] = min(p[0], q[0])
		r[1] = min(p[1], q[1])
		r[2] = min(p[2], q[2])
		r[3] = min(p[3], q[3])
	}
	for i := range dRest {
		dRest[i] = min(xRest[i], yRest[i])
	}
}

func maxIntegers[E integer](dst, a, b unsafe.Pointer, n int) {
	d, dRest := blocks[E](dst, n)
	x, xRest := blocks[E](a, n)
	y, yRest := blocks[E](b, n)
	for i := range d {
		r, p, q := &d[i], &x[i], &y[i]
		r[0] = max(p[0], q[0])
		r[1] = max(p[1], q[1])
		r[2] = max(p[2], q[2])
		r[3] = max(p[3], q[3])
	}
	for i := range dRest {
		dRest[i] = max(xRest[i], yRest[i])
	}
}
