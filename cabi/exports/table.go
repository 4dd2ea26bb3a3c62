package exports

import (
	"sync"
	"sync/atomic"
)

// table maps pointers to numbers that C may keep. A handle is a generation and an index, so a
// handle that was given back is recognized as stale. A lookup takes no lock.
type table[T any] struct {
	mu    sync.Mutex
	free  []uint32
	slots atomic.Pointer[[]*slot[T]]
}

type slot[T any] struct {
	generation atomic.Uint32
	value      atomic.Pointer[T]
}

func (t *table[T]) put(v *T) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		t.grow()
	}
	at := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	s := (*t.slots.Load())[at]
	s.value.Store(v)
	return uint64(s.generation.Load())<<32 | uint64(at+1)
}

func (t *table[T]) grow() {
	var slots []*slot[T]
	if old := t.slots.Load(); old != nil {
		slots = *old
	}
	grown := make([]*slot[T], max(16, 2*len(slots)))
	copy(grown, slots)
	for at := len(grown) - 1; at >= len(slots); at-- {
		grown[at] = &slot[T]{}
		t.free = append(t.free, uint32(at))
	}
	t.slots.Store(&grown)
}

func (t *table[T]) find(handle uint64) (*slot[T], uint32) {
	slots := t.slots.Load()
	at := uint32(handle) - 1
	if slots == nil || at >= uint32(len(*slots)) {
		return nil, 0
	}
	s := (*slots)[at]
	if s.generation.Load() != uint32(handle>>32) {
		return nil, 0
	}
	return s, at
}

// get returns nil for a handle that was never handed out or was given back.
func (t *table[T]) get(handle uint64) *T {
	if s, _ := t.find(handle); s != nil {
		return s.value.Load()
	}
	return nil
}

// take invalidates a handle and returns its pointer, nil if the handle was stale.
func (t *table[T]) take(handle uint64) *T {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, at := t.find(handle)
	if s == nil {
		return nil
	}
	v := s.value.Swap(nil)
	if v == nil {
		return nil
	}
	s.generation.Add(1)
	t.free = append(t.free, at)
	return v
}
