//go:build amd64 && !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// claims was measured on Intel's Emerald Rapids only (2026-11), so it holds for the processors that
// are built like this one, all of which have AVX512-FP16. On AMD's Zen 5 to prefetch lines for
// writing has made operations slower wherever it was tried.
var claims = isIntel() && cpu.X86.HasAVX512F && hasAVX512FP16()

func isIntel() bool {
	b, d, c := cpuidVendor()
	return b == 0x756e6547 && d == 0x49656e69 && c == 0x6c65746e // "Genu" "ineI" "ntel"
}

// cpuidVendor returns the registers of leaf 0 of CPUID that hold the name of the vendor, in the
// order of its letters.
func cpuidVendor() (b, d, c uint32)

// claimLines claims the lines of n bytes, n > 0.
//
//go:noescape
func claimLines(p unsafe.Pointer, n int)

// claimingCopy copies n bytes, a multiple of 256, and claims the lines of dst ahead of the stores,
// by so many bytes.
//
//go:noescape
func claimingCopy(dst, src unsafe.Pointer, n, ahead int)
