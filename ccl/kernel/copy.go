package kernel

import "unsafe"

const (
	stringLeast = 1 << 10   // below this, starting the string copy costs more than it saves
	stringMost  = 256 << 10 // in one call: the runtime cannot stop a thread in the middle of it
	cacheLine   = 64

	claimLeast = 512 // below this, the runtime's copy
	claimStep  = 256 // of the loop in assembly
	claimAhead = 1024
)

// Copy copies as much of src as dst has room for, and returns the number of bytes, like the
// built-in copy; the two must not overlap. It is for memory that another core has read or will
// read: see copy_amd64.go.
func Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
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
