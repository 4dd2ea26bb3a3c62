package pgbackend

import (
	"sync"
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
	at := unsafe.Pointer(unsafe.SliceData(memory))
	lent.Lock()
	defer lent.Unlock()
	lent.blocks[at] = uint64(bytes)
	lent.bytes += uint64(bytes)
	lent.peak = max(lent.peak, lent.bytes)
	return at, nil
}

// lent is what Alloc gave out and Free has not got back.
var lent = struct {
	sync.Mutex
	blocks      map[unsafe.Pointer]uint64
	bytes, peak uint64
}{blocks: map[unsafe.Pointer]uint64{}}

// Lent tells how many bytes of registered memory are given out, in how many blocks, and how many bytes at the most were.
func Lent() (bytes, peak uint64, blocks int) {
	lent.Lock()
	defer lent.Unlock()
	return lent.bytes, lent.peak, len(lent.blocks)
}

// Free gives back what Alloc gave out.
func Free(memory unsafe.Pointer) error {
	process.Lock()
	n := process.node
	process.Unlock()
	if n == nil {
		return fault.New(fault.Invalid, "no registered memory was given out in this process")
	}
	lent.Lock() // until it is free: another thread may get the same place at once
	defer lent.Unlock()
	err := n.FreePointer(memory)
	if err == nil {
		lent.bytes -= lent.blocks[memory]
		delete(lent.blocks, memory)
	}
	return err
}
