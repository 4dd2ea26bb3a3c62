package record

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
)

// Operation describes a call.
type Operation struct {
	Seq     uint64 // number among the collectives, or among the messages, of the group
	In, Out uint64 // elements of all input and of all output blocks
	Coll    dtype.Collective
	Type    dtype.Type
	Op      dtype.Op
	outcome uint8  // pending, or a fault.Code
	Root    int32  // root of a collective, or peer of a message
	Tag     uint32 // tag of a message
	Batch   uint32 // operations of one batch share a number; 0 for none
}

const pending = 255

// Record is an operation as the ring remembers it.
type Record struct {
	Operation
	ID    uint64 // operations of the group are counted from 1
	Begun time.Time
	Ended time.Time // zero if End did not read the clock, since the operation ended soon
	Done  bool
	Code  fault.Code // how it ended
}

// entry is one cache line.
type entry struct {
	id           atomic.Uint64 // 0 while the rest is written
	begun, ended uint64        // ticks; ended is 0 if End did not read the clock
	Operation
}

// Ring holds the last operations of one rank of one group.
type Ring struct {
	next    atomic.Uint64 // number of operations so far
	entries []entry
	clock   clock
	guard   guard
}

// New makes a ring for at least the given number of operations.
func New(operations int) *Ring {
	return &Ring{entries: make([]entry, 1<<bits.Len(uint(max(operations, 2)-1))), clock: newClock()}
}

// Begin records an operation that begins now, and returns its number.
func (r *Ring) Begin(o *Operation) uint64 {
	id := r.Reserve()
	r.Fill(id, o)
	return id
}

// Reserve returns the number of an operation that Fill is going to record soon.
func (r *Ring) Reserve() uint64 { return r.next.Add(1) }

// Fill records an operation that begins now, under a number from Reserve.
func (r *Ring) Fill(id uint64, o *Operation) {
	e := &r.entries[(id-1)&uint64(len(r.entries)-1)]
	r.guard.lock()
	park.Publish(&e.id, 0)
	e.Operation = *o
	e.outcome = pending
	e.begun, e.ended = ticks(), 0
	park.Publish(&e.id, id)
	r.guard.unlock()
}

// End records how an operation ended. It reads the clock only if timed is set. Only the first call
// for an operation counts.
func (r *Ring) End(id uint64, code fault.Code, timed bool) {
	e := &r.entries[(id-1)&uint64(len(r.entries)-1)]
	r.guard.lock()
	if e.id.Load() == id && e.outcome == pending {
		if timed {
			e.ended = ticks()
		}
		e.outcome = uint8(code)
	}
	r.guard.unlock()
}

// NoteBatch adds an entry for the operations with this Batch, which were issued as one. The Coll of
// the entry is NoCollective.
func (r *Ring) NoteBatch(batch uint32) {
	r.End(r.Begin(&Operation{Coll: dtype.NoCollective, Batch: batch}), fault.OK, false)
}

// Total returns the number of operations so far.
func (r *Ring) Total() uint64 { return r.next.Load() }

// Last returns the operation that began last, false if there is none, or it is just being written
// or only has its number.
func (r *Ring) Last() (Record, bool) { return r.read(r.next.Load(), r.clock.now()) }

// Records returns the operations that the ring remembers, the oldest first.
func (r *Ring) Records() []Record {
	now := r.clock.now()
	total := r.next.Load()
	var all []Record
	for id := total - min(total, uint64(len(r.entries))) + 1; id <= total; id++ {
		if each, ok := r.read(id, now); ok {
			all = append(all, each)
		}
	}
	return all
}

// read returns one operation, false if it is being written, or was overwritten just now.
func (r *Ring) read(id uint64, now reading) (Record, bool) {
	e := &r.entries[(id-1)&uint64(len(r.entries)-1)]
	r.guard.lock()
	before, copied := e.id.Load(), Record{Operation: e.Operation, ID: id}
	begun, ended := e.begun, e.ended
	after := e.id.Load()
	r.guard.unlock()
	if id == 0 || before != id || after != id {
		return Record{}, false
	}
	copied.Begun = now.at(begun)
	if copied.Done = copied.outcome != pending; copied.Done {
		copied.Code = fault.Code(copied.outcome)
	}
	if ended != 0 {
		copied.Ended = now.at(ended)
	}
	return copied, true
}
