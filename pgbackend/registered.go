package pgbackend

import (
	"sync"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/fault"
)

// Alloc allocates registered memory of this process (ccl.Node.Alloc). options count only if no
// group was made yet.
func Alloc(options string, bytes int) (unsafe.Pointer, error) {
	opts, err := ccl.ParseOptions(options)
	if err != nil {
		return nil, err
	}
	n, err := node(opts.NodeOptions)
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

// lent is the memory that Alloc handed out and Free has not taken back.
var lent = struct {
	sync.Mutex
	blocks      map[unsafe.Pointer]uint64
	bytes, peak uint64
}{blocks: map[unsafe.Pointer]uint64{}}

// Lent returns how many bytes of registered memory are handed out now and in how many blocks, and
// the peak of these bytes.
func Lent() (bytes, peak uint64, blocks int) {
	lent.Lock()
	defer lent.Unlock()
	return lent.bytes, lent.peak, len(lent.blocks)
}

// Free gives back memory from Alloc.
func Free(memory unsafe.Pointer) error {
	process.Lock()
	n := process.node
	process.Unlock()
	if n == nil {
		return fault.New(fault.Invalid, "no registered memory was given out in this process")
	}
	lent.Lock() // held until the memory is free: another thread may get the same address at once
	defer lent.Unlock()
	err := n.FreePointer(memory)
	if err == nil {
		lent.bytes -= lent.blocks[memory]
		delete(lent.blocks, memory)
	}
	return err
}
