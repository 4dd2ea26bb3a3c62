//go:build amd64 && !noasm

package kernel

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// stringCopy reports whether the processor has a fast string copy. That copy takes ownership of
// cache lines without reading them first, which the stores of the runtime's copy cannot do. Where
// another core has read the old contents it is twice as fast: 64 KiB there and back through shared
// memory took 2.9 instead of 5.5 µs (Zen 5).
var stringCopy = cpu.X86.HasERMS

// repMovsb copies n bytes from src to dst with REP MOVSB.
//
//go:noescape
func repMovsb(dst, src unsafe.Pointer, n int)
