package kernel

import (
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
)

// Func sets dst[i] = a[i] ⊕ b[i] for n elements. dst may be the same memory as a or b, or apart from both.
type Func func(dst, a, b unsafe.Pointer, n int)

// ScaleFunc sets dst[i] = src[i] × factor for n elements, in one rounding from float64. dst may be src.
type ScaleFunc func(dst, src unsafe.Pointer, n int, factor float64)

// For returns the kernel of a type and an operator, nil where dtype.Reducible refuses. Avg and PremulSum have the
// kernel of Sum: their scaling is done apart, by Scale.
func For(t dtype.Type, op dtype.Op) Func { panic("kernel: being written") }

// Scale returns the kernel that multiplies elements of a floating-point (real or complex) type, nil for others.
func Scale(t dtype.Type) ScaleFunc { panic("kernel: being written") }
