package program

import (
	"math"

	"github.com/goccl/goccl/ccl/dtype"
)

// Shape is what calls that differ only in the addresses of their buffers have in common.
type Shape struct {
	call   Call     // without buffers
	blocks []region // of In, then of Out
}

// region is a block without its pointer, which would keep the caller's memory alive.
type region struct {
	at    uintptr
	count int
}

// Compare reports whether a call has this shape, and whether its blocks are at the addresses that s
// remembers.
func (s *Shape) Compare(call *Call) (is, same bool) {
	if s.call.Coll != call.Coll || s.call.Type != call.Type || s.call.Op != call.Op || s.call.Root != call.Root ||
		s.call.Factor != call.Factor || s.call.Whole != call.Whole || len(s.blocks) != len(call.In)+len(call.Out) {
		return false, false
	}
	blocks, moved := s.blocks, uintptr(0)
	for i := range call.In {
		if blocks[i].count != call.In[i].Count {
			return false, false
		}
		moved |= blocks[i].at ^ uintptr(call.In[i].Ptr)
	}
	blocks = blocks[len(call.In):]
	for i := range call.Out {
		if blocks[i].count != call.Out[i].Count {
			return false, false
		}
		moved |= blocks[i].at ^ uintptr(call.Out[i].Ptr)
	}
	return true, moved == 0
}

// Take makes s the shape of a call.
func (s *Shape) Take(call *Call) {
	s.call = *call
	s.call.In, s.call.Out = nil, nil
	s.TakeBlocks(call)
}

// TakeBlocks remembers the addresses of the blocks of a call of this shape.
func (s *Shape) TakeBlocks(call *Call) {
	s.blocks = s.blocks[:0]
	for _, blocks := range [2][]Block{call.In, call.Out} {
		for _, b := range blocks {
			s.blocks = append(s.blocks, region{uintptr(b.Ptr), b.Count})
		}
	}
}

// Coll returns the collective of the shape's calls.
func (s *Shape) Coll() dtype.Collective { return s.call.Coll }

// Key returns a hash of the call's shape, never 0. Calls of one shape have the same key; calls of
// different shapes may have it too.
func (c *Call) Key() uint64 {
	const prime = 0x9e3779b97f4a7c15
	h := uint64(c.Coll) | uint64(c.Type)<<8 | uint64(c.Op)<<16 | uint64(uint32(c.Root))<<32
	h = (h ^ math.Float64bits(c.Factor) ^ uint64(c.Whole)) * prime
	for i := range c.In {
		h = (h ^ h>>32 ^ uint64(c.In[i].Count)) * prime
	}
	for i := range c.Out {
		h = (h ^ h>>32 ^ uint64(c.Out[i].Count)) * prime
	}
	return h | 1
}
