package pgbackend

import (
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
)

// Alloc gives out registered memory of this process (ccl.Node.Alloc). options count where no group was made yet.
func Alloc(options string, bytes int) (unsafe.Pointer, error) {
	opts, err := ccl.ParseOptions(options)
	if err != nil {
		return nil, err
	}
	n, err := node(opts)
	if err != nil {
		return nil, err
	}
	memory, err := n.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return unsafe.Pointer(unsafe.SliceData(memory)), nil
}

// Free gives back what Alloc gave out.
func Free(memory unsafe.Pointer) error {
	process.Lock()
	n := process.node
	process.Unlock()
	if n == nil {
		return fault.New(fault.Invalid, "no registered memory was given out in this process")
	}
	return n.FreePointer(memory)
}
