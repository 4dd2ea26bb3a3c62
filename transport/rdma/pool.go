package rdma

import (
	"errors"
	"sync"

	"github.com/goccl/goccl/internal/mem"
	"github.com/goccl/goccl/transport/rdma/verbs"
)

// pool is registered memory in long slots, which channels take and give back. Behind them is room
// for what a trial of a connection writes.
type pool struct {
	memory *registered
	region verbs.Region
	mu     sync.Mutex
	free   []uint32
	all    int
}

func newPool(a *adapter, slots int, remote bool) (*pool, error) {
	memory, err := newRegistered(slots*longBytes+headBytes, remote)
	if err != nil {
		return nil, err
	}
	region, err := memory.with(a)
	if err != nil {
		return nil, errors.Join(err, memory.close())
	}
	p := &pool{memory: memory, region: region, all: slots, free: make([]uint32, slots)}
	for i := range p.free {
		p.free[i] = uint32(slots - 1 - i)
	}
	return p, nil
}

// take returns a slot; ok is false if there is none.
func (p *pool) take() (slot uint32, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return 0, false
	}
	slot = p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	return slot, true
}

// spare is take while there is plenty: half of the slots are for those that turn out to need them.
func (p *pool) spare() (slot uint32, ok bool) {
	p.mu.Lock()
	plenty := len(p.free) > p.all/2
	p.mu.Unlock()
	if !plenty {
		return 0, false
	}
	return p.take()
}

func (p *pool) put(slot uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, slot)
}

// trial returns the memory behind the slots.
func (p *pool) trial() []byte { return p.memory.bytes[p.all*longBytes:] }

// slot returns the memory of a slot.
func (p *pool) slot(i uint32) []byte {
	return p.memory.bytes[int(i)*longBytes : int(i+1)*longBytes]
}

// registered is memory of this process that adapters reach.
type registered struct {
	block   *mem.Block
	bytes   []byte
	at      uint64 // its address
	remote  bool   // peers write to it
	regions [MostPorts]verbs.Region
}

func newRegistered(bytes int, remote bool) (*registered, error) {
	block, err := mem.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return &registered{block: block, bytes: block.Bytes(), at: address(block.Bytes()), remote: remote}, nil
}

// with returns the registration with an adapter, which it makes if there is none.
func (r *registered) with(a *adapter) (region verbs.Region, err error) {
	if region = r.regions[a.number]; region == nil {
		if region, err = a.context.Register(r.bytes, r.remote); err == nil {
			r.regions[a.number] = region
		}
	}
	return region, err
}

// close gives the memory back. If an adapter does not let it go, it stays.
func (r *registered) close() error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, region := range r.regions {
		if region != nil {
			errs = append(errs, region.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.block.Free()
}
