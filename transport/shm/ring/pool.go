package ring

import (
	"sync/atomic"

	"github.com/goccl/goccl/ccl/park"
)

// Pool lends the large slots of one process to all its channels. The last slot that came back is lent first: it is still in the
// caches. The books are private memory; only the slots themselves are seen by peers.
type Pool struct {
	lock   atomic.Uint32 // held for some ten instructions, or one scan
	misses int           // takes that found nothing, since the last scan
	free   []int32
	leases []lease
	memory []byte
}

// lease is who has a slot, and for which fragment.
type lease struct {
	owner     *Channel
	fragment  uint32
	committed atomic.Bool // a slot that is being filled is nobody else's, whatever the peer's counter says
}

// scanEvery is how many vain takes go by between two scans for slots that other channels have not claimed back.
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

// Free is how many slots are not lent.
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

// take lends a slot for a fragment of owner, or returns -1.
func (p *Pool) take(owner *Channel, fragment uint32) int32 {
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
	l := &p.leases[slot]
	l.owner, l.fragment = owner, fragment
	l.committed.Store(false)
	p.release()
	return slot
}

// give takes a slot back, unless a scan has already done so.
func (p *Pool) give(slot int32, owner *Channel, fragment uint32) {
	p.acquire()
	if l := &p.leases[slot]; l.owner == owner && l.fragment == fragment {
		p.giveLocked(slot)
	}
	p.release()
}

func (p *Pool) giveLocked(slot int32) {
	p.leases[slot].owner = nil
	p.free = append(p.free, slot)
}

// scan takes back what receivers have released but the senders, idle since, have not looked for. A peer that lies about its
// counter spoils only what is sent to itself.
func (p *Pool) scan() {
	for i := range p.leases {
		l := &p.leases[i]
		if l.owner != nil && l.committed.Load() && int32(l.owner.back.Load()-l.fragment) > 0 {
			p.giveLocked(int32(i))
		}
	}
}

// forget takes back all slots of owner: its peer reads no more.
func (p *Pool) forget(owner *Channel) {
	p.acquire()
	for i := range p.leases {
		if p.leases[i].owner == owner {
			p.giveLocked(int32(i))
		}
	}
	p.release()
}

func (p *Pool) slot(i int32) []byte { return p.memory[int(i)*LeaseBytes : (int(i)+1)*LeaseBytes] }
