package transport

import "github.com/goccl/goccl/ccl/fault"

// CheckShare returns an error unless a session may share these descriptors and this note.
func CheckShare(share []int, note []byte) error {
	if len(share) > MaxShare {
		return fault.New(fault.Invalid, "%d descriptors to share; the limit is %d", len(share), MaxShare)
	}
	for _, fd := range share {
		if fd < 0 {
			return fault.New(fault.Invalid, "%d is no descriptor to share", fd)
		}
	}
	if len(note) > MaxNote {
		return fault.New(fault.Invalid, "a note of %d bytes; the limit is %d", len(note), MaxNote)
	}
	return nil
}
