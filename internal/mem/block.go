package mem

import (
	"sync"

	"github.com/goccl/goccl/ccl/fault"
)

// Block is memory private to this process, zeroed and aligned to Align.
type Block struct {
	mu     sync.Mutex
	memory []byte
}

// Alloc makes a block. Pages are taken from the system when they are first written.
func Alloc(bytes int) (*Block, error) {
	if bytes <= 0 {
		return nil, fault.New(fault.Invalid, "a memory block of %d bytes was asked for", bytes)
	}
	memory, err := mapBlock(bytes)
	if err != nil {
		return nil, fault.Wrap(fault.System, err, "no memory for a block of %d bytes", bytes)
	}
	inUse.Add(int64(bytes))
	return &Block{memory: memory}, nil
}

// Bytes returns the memory, nil after Free.
func (b *Block) Bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.memory
}

// Free releases the memory. A second Free does nothing.
func (b *Block) Free() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.memory == nil {
		return nil
	}
	inUse.Add(-int64(len(b.memory)))
	err := unmapBlock(b.memory)
	b.memory = nil
	if err != nil {
		return fault.Wrap(fault.System, err, "a memory block could not be unmapped")
	}
	return nil
}
