//go:build !linux

package mem

import "math"

// AddressesLeft returns how many bytes of address space the limit of this process leaves; limited
// is false if it is not known, as here.
func AddressesLeft() (bytes int, limited bool) { return 0, false }

// Admits returns nil: no limit of this system counts for shared memory.
func Admits(int) error { return nil }

// Available returns the number of bytes that the system could still give to this process.
func Available() int64 { return math.MaxInt64 }
