//go:build amd64 && !noasm

package kernel

import "unsafe"

// The bodies are in sum_amd64.s, half_amd64.s and scale_amd64.s. Those for AVX-512 take any n, the others whole vectors only.

//go:noescape
func addF32AVX512(dst, a, b unsafe.Pointer, n int)

//go:noescape
func addF64AVX512(dst, a, b unsafe.Pointer, n int)

//go:noescape
func addF16AVX512(dst, a, b unsafe.Pointer, n int)

//go:noescape
func addBF16AVX512(dst, a, b unsafe.Pointer, n int)

// addF32AVX2 needs a multiple of 8.
//
//go:noescape
func addF32AVX2(dst, a, b unsafe.Pointer, n int)

// addF64AVX2 needs a multiple of 4.
//
//go:noescape
func addF64AVX2(dst, a, b unsafe.Pointer, n int)

// addF16AVX2 needs a multiple of 8.
//
//go:noescape
func addF16AVX2(dst, a, b unsafe.Pointer, n int)

// addBF16AVX2 needs a multiple of 16.
//
//go:noescape
func addBF16AVX2(dst, a, b unsafe.Pointer, n int)

//go:noescape
func mulF32AVX512(dst, src unsafe.Pointer, n int, factor float64)

//go:noescape
func mulF64AVX512(dst, src unsafe.Pointer, n int, factor float64)

//go:noescape
func mulF16AVX512(dst, src unsafe.Pointer, n int, factor float64)

//go:noescape
func mulBF16AVX512(dst, src unsafe.Pointer, n int, factor float64)

// mulF32AVX2 needs a multiple of 8.
//
//go:noescape
func mulF32AVX2(dst, src unsafe.Pointer, n int, factor float64)

// mulF64AVX2 needs a multiple of 4.
//
//go:noescape
func mulF64AVX2(dst, src unsafe.Pointer, n int, factor float64)

// mulF16AVX2 needs a multiple of 8.
//
//go:noescape
func mulF16AVX2(dst, src unsafe.Pointer, n int, factor float64)

// mulBF16AVX2 needs a multiple of 8.
//
//go:noescape
func mulBF16AVX2(dst, src unsafe.Pointer, n int, factor float64)
