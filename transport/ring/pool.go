package ring

import (
	"sync/atomic"

	"github.com/goccl/goccl/ccl/park"
)

// Pool lends the large slots of one process to all its channels. The last slot that came back is
// lent first: it is still in the caches. The books are private memory; only the slots themselves
// are seen by peers.
type Pool struct {
	lock   atomic.Uint32 // held for some ten instructions, or one scan
	misses int           // takes that found nothing, since the last scan
	free   []int32
	leases []lease
	memory []byte
}

// lease is who has a slot, and for which fragment. A slot that is being filled is nobody else's,
// whatever the peer's counter says. One whose fragment was released is the owner's to fill again,
// without the lock, or anybody's who scans: state decides.
type lease struct {
	owner *Channel      // with the lock
	state atomic.Uint64 // fragment << 32 | generation << 1 | committed; the generation changes when the slot goes back to the pool
}

const generationMask = 1<<32 - 2

// scanEvery is how many vain takes go by between two scans for slots that other channels have not
// claimed back.
const scanEvery = 16

// NewPool makes a pool over memory, as many slots as fit.
func NewPool(memory []byte) *Pool {
	n := len(memory) / LeaseBytes
	p := &Pool{memory: memory, leases: make([]lease, n), free: make([]int32, n), misses: scanEvery}
	for i := range p.free {
		p.free[i] = int32(n - 1 - i)
	}
	return p
}

// Free is how many slots are not lent, nor kept by a channel for its next fragments.
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

// take lends a slot to owner, to be filled, or returns -1.
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

// commit notes that a slot was filled with a fragment, and returns its state.
func (p *Pool) commit(slot int32, fragment uint32) uint64 {
	l := &p.leases[slot]
	state := uint64(fragment)<<32 | l.state.Load()&generationMask | 1
	park.Publish(&l.state, state) // who scans may find it later
	return state
}

// retake lets the owner of a slot fill it again after its fragment was released, unless a scan has
// taken it away.
func (p *Pool) retake(slot int32, state uint64) bool {
	return p.leases[slot].state.CompareAndSwap(state, state&generationMask)
}

// give takes back a slot whose fragment was released, unless a scan has already done so.
func (p *Pool) give(slot int32, state uint64) {
	p.acquire()
	p.giveLocked(slot, state)
	p.release()
}

// drop takes back a slot that was not committed.
func (p *Pool) drop(slot int32) { p.give(slot, p.leases[slot].state.Load()) }

// giveLocked frees a slot that is still in this state.
func (p *Pool) giveLocked(slot int32, state uint64) {
	l := &p.leases[slot]
	if l.state.CompareAndSwap(state, (state+2)&generationMask) {
		l.owner = nil
		p.free = append(p.free, slot)
	}
}

// scan takes back what receivers have released but the senders, idle since, have not looked for or
// keep to themselves. A peer that lies about its counter spoils only what is sent to itself.
func (p *Pool) scan() {
	for i := range p.leases {
		l := &p.leases[i]
		if state := l.state.Load(); l.owner != nil && state&1 != 0 && int32(uint32(l.owner.back.Load())-uint32(state>>32)) > 0 {
			p.giveLocked(int32(i), state)
		}
	}
}

// forget takes back all slots of owner: its peer reads no more.
func (p *Pool) forget(owner *Channel) {
	p.acquire()
	for i := range p.leases {
		if l := &p.leases[i]; l.owner == owner {
			p.giveLocked(int32(i), l.state.Load())
		}
	}
	p.release()
}

func (p *Pool) slot(i int32) []byte { return p.memory[int(i)*LeaseBytes : (int(i)+1)*LeaseBytes] }
