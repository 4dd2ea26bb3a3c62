package kernel

import "unsafe"

const (
	stringLeast = 1 << 10   // below this, starting the string copy costs more than it saves
	stringMost  = 256 << 10 // in one call: the runtime cannot stop a thread in the middle of it
	cacheLine   = 64
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
