package park

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// BellSize is the memory of one Bell: a cache line of its own.
const BellSize = 64

// Bell wakes threads that sleep for an event, in this process or in one that maps the same memory.
// Only two words are used: a count of rings and a count of sleepers. The protocol that loses no
// ring:
//
//	sleeper                         ringer
//	t := b.Prepare()                publish the event
//	look for the event once more    b.Ring()
//	b.Sleep(t, d), or b.Cancel()
//
// Prepare announces the sleeper before the last look, Ring looks for sleepers after the event is
// published; both are sequentially consistent, so one of them sees the other.
type Bell struct{ rings, sleepers *atomic.Uint32 }

// NewBell makes a bell for threads of this process.
func NewBell() *Bell { return BellAt(make([]byte, BellSize)) }

// BellAt makes a bell over BellSize bytes of memory, aligned to 4. Several Bells over the same
// memory are one bell.
func BellAt(mem []byte) *Bell {
	_ = mem[BellSize-1]
	return &Bell{(*atomic.Uint32)(unsafe.Pointer(&mem[0])), (*atomic.Uint32)(unsafe.Pointer(&mem[4]))}
}

// Ring wakes whoever sleeps on b. It costs two loads when nobody does.
func (b *Bell) Ring() {
	if b.sleepers.Load() != 0 {
		b.rings.Add(1)
		Wake(b.rings, 1<<30)
	}
}

// RingOne is Ring for one sleeper, and reports whether anybody slept.
func (b *Bell) RingOne() bool {
	if b.sleepers.Load() == 0 {
		return false
	}
	b.rings.Add(1)
	Wake(b.rings, 1)
	return true
}

// Prepare announces that the caller is about to sleep. Sleep or Cancel must follow.
func (b *Bell) Prepare() (ticket uint32) {
	b.sleepers.Add(1)
	return b.rings.Load()
}

// Sleep waits until b has been rung since Prepare, or for d (for ever if negative). It may also
// return early.
func (b *Bell) Sleep(ticket uint32, d time.Duration) {
	Wait(b.rings, ticket, d)
	b.Cancel()
}

// Cancel takes Prepare back. A count that a broken peer has set to nonsense never goes below zero.
func (b *Bell) Cancel() {
	for {
		n := b.sleepers.Load()
		if n == 0 || b.sleepers.CompareAndSwap(n, n-1) {
			return
		}
	}
}
