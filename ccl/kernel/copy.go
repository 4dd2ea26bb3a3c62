package kernel

import "unsafe"

const (
	stringLeast = 1 << 10   // below this, starting the string copy costs more than it saves
	stringMost  = 256 << 10 // in one call: the runtime cannot stop a thread in the middle of it
	cacheLine   = 64

	claimLeast = 512 // below this, the runtime's copy

	// From here on Copy claims, too: the lines of its destination are far, in the second cache at
	// best. 256 KiB there and back took 17.4 instead of 18.9 µs, an all_gather of as much 17.5
	// instead of 18.4 (Intel Emerald Rapids, 2026-11).
	claimLong = 8 << 10

	claimStep  = 256 // of the loop in assembly
	claimAhead = 1024
)

// Copy copies as much of src as dst has room for, and returns the number of bytes, like the
// built-in copy; the two must not overlap. It is for memory that another core has read or will
// read: see copy_amd64.go.
func Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	if claims && n >= claimLong {
		return copyClaiming(dst, src)
	}
	if !stringCopy || n < stringLeast {
		return copy(dst, src)
	}
	to, from := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	done := int(-uintptr(to) % cacheLine) // whole lines from here
	copy(dst[:done], src)
	for done < n {
		k := min(n-done, stringMost)
		repMovsb(unsafe.Add(to, done), unsafe.Add(from, done), k)
		done += k
	}
	return n
}

// copyClaiming is Copy into memory that another core has read, for processors where claims is set.
func copyClaiming(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < claimLeast {
		return copy(dst, src)
	}
	to, from := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	done := int(-uintptr(to) % cacheLine) // whole lines from here
	copy(dst[:done], src)
	for n-done >= claimStep {
		k := min(n-done, stringMost) &^ (claimStep - 1)
		claimingCopy(unsafe.Add(to, done), unsafe.Add(from, done), k, claimAhead)
		done += k
	}
	copy(dst[done:n], src[done:n])
	return n
}
