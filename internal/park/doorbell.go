package park

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// DoorbellSize is the size of the memory of one Doorbell: a cache line of its own.
const DoorbellSize = 64

// Doorbell wakes threads that sleep until an event, in this process or in one that maps the same
// memory. It uses only two words: a count of rings and a count of sleepers. This protocol loses no
// ring:
//
//	sleeper                          ringer
//	t := b.Prepare()                 publish the event
//	check for the event once more    b.Ring()
//	b.Sleep(t, d), or b.Cancel()
//
// Prepare announces the sleeper before its last check, and Ring checks for sleepers after the event
// is published. Both are sequentially consistent, so one of them sees the other.
type Doorbell struct{ rings, sleepers *atomic.Uint32 }

// NewDoorbell returns a doorbell for threads of this process.
func NewDoorbell() *Doorbell { return DoorbellAt(make([]byte, DoorbellSize)) }

// DoorbellAt returns a doorbell over DoorbellSize bytes of memory, aligned to 4. Several Doorbells
// over the same memory are one doorbell.
func DoorbellAt(mem []byte) *Doorbell {
	_ = mem[DoorbellSize-1]
	return &Doorbell{(*atomic.Uint32)(unsafe.Pointer(&mem[0])), (*atomic.Uint32)(unsafe.Pointer(&mem[4]))}
}

// Ring wakes the threads that sleep on b. It costs two loads when none does.
func (b *Doorbell) Ring() {
	if b.sleepers.Load() != 0 {
		b.rings.Add(1)
		Wake(b.rings, 1<<30)
	}
}

// RingOne is Ring for one sleeper. It reports whether any thread slept.
func (b *Doorbell) RingOne() bool {
	if b.sleepers.Load() == 0 {
		return false
	}
	b.rings.Add(1)
	Wake(b.rings, 1)
	return true
}

// Prepare announces that the caller is about to sleep. Sleep or Cancel must follow.
func (b *Doorbell) Prepare() (ticket uint32) {
	b.sleepers.Add(1)
	return b.rings.Load()
}

// Sleep waits until b has been rung since Prepare, or for d (for ever if negative). It may also
// return early.
func (b *Doorbell) Sleep(ticket uint32, d time.Duration) {
	Wait(b.rings, ticket, d)
	b.Cancel()
}

// Cancel undoes Prepare. Even if a broken peer has overwritten the count, it never goes below zero.
func (b *Doorbell) Cancel() {
	for {
		n := b.sleepers.Load()
		if n == 0 || b.sleepers.CompareAndSwap(n, n-1) {
			return
		}
	}
}
