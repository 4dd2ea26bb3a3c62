package ring

import (
	"sync/atomic"

	"github.com/goccl/goccl/internal/park"
)

// Pool lends the large slots of one process to all its channels. The slot that came back last is
// lent first, because it is still in the caches. The bookkeeping is private memory; peers see only
// the slots themselves.
type Pool struct {
	lock   atomic.Uint32 // held for about ten instructions, or for one scan
	misses int           // calls of take that found no free slot since the last scan
	free   []int32
	leases []lease
	memory []byte
}

// lease records which channel has a slot, and for which fragment. No other channel can take a slot
// that is being filled, whatever the peer's counter is. A slot whose fragment was released may be
// filled again by its owner, without the lock, or taken by any thread that scans: state decides.
type lease struct {
	owner *Channel // guarded by the lock
	// state is fragment << 32 | generation << 1 | committed. The generation changes when the slot
	// goes back to the pool.
	state atomic.Uint64
}

const generationMask = 1<<32 - 2

// scanEvery is the number of failed takes between two scans for slots that other channels have not
// reclaimed.
const scanEvery = 16

// NewPool returns a pool of as many slots as fit into memory.
func NewPool(memory []byte) *Pool {
	n := len(memory) / LeaseBytes
	p := &Pool{memory: memory, leases: make([]lease, n), free: make([]int32, n), misses: scanEvery}
	for i := range p.free {
		p.free[i] = int32(n - 1 - i)
	}
	return p
}

// Free returns the number of slots that are neither lent nor kept by a channel for its next
// fragments.
func (p *Pool) Free() int {
	p.acquire()
	defer p.release()
	return len(p.free)
}

func (p *Pool) acquire() {
	if p.lock.CompareAndSwap(0, 1) {
		return
	}
	var s park.Spinner
	for !p.lock.CompareAndSwap(0, 1) {
		s.Relax()
	}
}

func (p *Pool) release() { p.lock.Store(0) }

// take lends owner a slot to be filled; it returns -1 if there is none.
func (p *Pool) take(owner *Channel) int32 {
	p.acquire()
	if len(p.free) == 0 {
		if p.misses++; p.misses >= scanEvery {
			p.misses = 0
			p.scan()
		}
		if len(p.free) == 0 {
			p.release()
			return -1
		}
	}
	slot := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	p.leases[slot].owner = owner
	p.release()
	return slot
}

// commit records that a slot has been filled up to the given fragment, and returns its state.
func (p *Pool) commit(slot int32, fragment uint32) uint64 {
	l := &p.leases[slot]
	state := uint64(fragment)<<32 | l.state.Load()&generationMask | 1
	park.Publish(&l.state, state) // from here on a scan may find it
	return state
}

// retake lets the owner of a slot fill it again after its fragment was released, unless a scan has
// taken it away. It reports whether the owner has the slot.
func (p *Pool) retake(slot int32, state uint64) bool {
	return p.leases[slot].state.CompareAndSwap(state, state&generationMask)
}

// reclaim takes back a slot whose fragment was released, unless a scan has already done so.
func (p *Pool) reclaim(slot int32, state uint64) {
	p.acquire()
	p.reclaimLocked(slot, state)
	p.release()
}

// drop takes back a slot that was not committed.
func (p *Pool) drop(slot int32) { p.reclaim(slot, p.leases[slot].state.Load()) }

// reclaimLocked frees a slot if it is still in the given state.
func (p *Pool) reclaimLocked(slot int32, state uint64) {
	l := &p.leases[slot]
	if l.state.CompareAndSwap(state, (state+2)&generationMask) {
		l.owner = nil
		p.free = append(p.free, slot)
	}
}

// scan takes back slots that receivers have released but whose senders, idle since, have not
// reclaimed or keep for themselves. A peer with a false counter spoils only what is sent to that
// peer.
func (p *Pool) scan() {
	for i := range p.leases {
		l := &p.leases[i]
		if state := l.state.Load(); l.owner != nil && state&1 != 0 &&
			int32(uint32(l.owner.back.Load())-uint32(state>>32)) > 0 {
			p.reclaimLocked(int32(i), state)
		}
	}
}

// forget takes back all slots of owner, once its peer no longer reads them.
func (p *Pool) forget(owner *Channel) {
	p.acquire()
	for i := range p.leases {
		if l := &p.leases[i]; l.owner == owner {
			p.reclaimLocked(int32(i), l.state.Load())
		}
	}
	p.release()
}

func (p *Pool) slot(i int32) []byte { return p.memory[int(i)*LeaseBytes : (int(i)+1)*LeaseBytes] }
