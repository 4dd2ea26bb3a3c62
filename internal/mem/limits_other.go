//go:build !linux

package mem

// AddressesLeft returns how many bytes of address space the limit of this process leaves; limited
// is false if it is not known, as here.
func AddressesLeft() (bytes int, limited bool) { return 0, false }

// Admits returns nil: no limit of this system counts for shared memory.
func Admits(int) error { return nil }
