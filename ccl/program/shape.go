package program

import "github.com/goccl/goccl/ccl/dtype"

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

// Is reports whether a call has this shape.
func (s *Shape) Is(call *Call) bool {
	is, _ := s.Compare(call)
	return is
}

// Compare reports whether a call has this shape, and whether its blocks are at the addresses that s
// remembers.
func (s *Shape) Compare(call *Call) (is, same bool) {
	if s.call.Coll != call.Coll || s.call.Type != call.Type || s.call.Op != call.Op || s.call.Root != call.Root ||
		s.call.Factor != call.Factor || len(s.blocks) != len(call.In)+len(call.Out) {
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

// Forget makes s the shape of no call.
func (s *Shape) Forget() { s.call.Coll = dtype.NoCollective }
