package exec

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
)

const (
	opPending uint32 = iota
	opDone
	opFailed
)

const (
	opCalm uint32 = iota
	opExpedited
	opOver
)

// Op is one posted operation. Only one thread at a time may wait for it, and Free gives it back.
type Op struct {
	comm     *Comm
	call     Call // In and Out point to the Op's own arrays
	in, out  []Block
	note     uint64       // number of its record; 0 for none
	seq      uint64       // position among the collectives or among the point-to-point operations of the Comm, from 1
	timeout  int64        // nanoseconds, 0 for none
	deadline atomic.Int64 // monotonic nanoseconds; 0 before the first call of due, or for none
	slot     int          // index in Comm.p2pOps
	req      p2p.Request
	keyed    *keyed // nil for other calls

	state   atomic.Uint32
	urgency atomic.Uint32 // opCalm, opExpedited or opOver
	err     error         // set before state
	source  int

	// The caller and the Comm both hold an Op; the last one to release it puts it into the pool.
	holders atomic.Int32
	notify  bool // count its end in Completions
	next    *Op  // in the Comm's lists
}

var ops = sync.Pool{New: func() any { return new(Op) }}

func newOp(c *Comm, call *Call, note uint64) *Op {
	op := ops.Get().(*Op)
	op.set(c, call, note, c.number(call))
	return op
}

// number returns the next number in the sequence of collectives, or of messages.
func (c *Comm) number(call *Call) uint64 {
	if call.Coll.Valid() {
		return c.colls.Add(1)
	}
	return c.messages.Add(1)
}

// over makes op an operation that has ended without error. Atomic stores are expensive, and an Op
// from the pool mostly has the right values already.
func (op *Op) over(c *Comm, seq uint64) {
	op.comm, op.seq, op.source, op.err, op.notify, op.next, op.timeout = c, seq, -1, nil, true, nil, 0
	if op.state.Load() != opDone { // model: none: nobody else has this Op yet
		op.state.Store(opDone) // model: none: as above
	}
	if op.urgency.Load() != opOver { // model: none: as above
		op.urgency.Store(opOver) // model: none: as above
	}
	if op.deadline.Load() != 0 {
		op.deadline.Store(0)
	}
	op.holders.Store(1)
}

// set makes op the operation of a call, which is pending from then on.
func (op *Op) set(c *Comm, call *Call, note, seq uint64) {
	op.comm = c
	op.in = append(op.in[:0], call.In...)
	op.out = append(op.out[:0], call.Out...)
	op.call = *call
	op.call.In, op.call.Out = op.in, op.out
	op.err, op.source, op.notify, op.next = nil, -1, false, nil
	op.state.Store(opPending) // model: none: nobody else has this Op yet
	op.urgency.Store(opCalm)  // model: none: as above
	op.holders.Store(2)
	op.note, op.seq = note, seq
	timeout := call.Timeout
	if timeout == 0 {
		timeout = time.Duration(c.timeout.Load())
	}
	op.deadline.Store(0)
	op.timeout = int64(timeout)
	c.pending.Add(1) // model: pend
}

// forget drops op's pointers to the caller's memory.
func (op *Op) forget() {
	clear(op.in)
	clear(op.out)
	op.req.Data = nil
}

func (op *Op) release() {
	if op.holders.Add(-1) == 0 {
		// The pool must not keep the caller's memory alive.
		op.forget()
		op.call, op.keyed = Call{}, nil
		ops.Put(op)
	}
}

// Free gives the Op back. An operation that has not ended continues; its memory must stay valid
// until it ends, which only Done and Completions report.
func (op *Op) Free() { op.release() }

// due returns the deadline, 0 for none. The timeout starts when a driver first calls due: most
// operations end before that, and reading the clock would take a considerable part of their time.
func (op *Op) due() int64 {
	if d := op.deadline.Load(); d != 0 || op.timeout == 0 {
		return d
	}
	op.deadline.CompareAndSwap(0, now()+op.timeout)
	return op.deadline.Load()
}

// Done reports whether the operation has ended, and how. It never waits.
func (op *Op) Done() (bool, error) {
	switch op.state.Load() { // model: none: it only reports
	case opPending:
		return false, nil
	case opFailed:
		return true, op.err
	}
	return true, nil
}

// Comm returns the Comm on which the operation was posted.
func (op *Op) Comm() *Comm { return op.comm }

// Seq returns the operation's position among the collectives (or the sends and receives) of its
// Comm, from 1.
func (op *Op) Seq() uint64 { return op.seq }

// Source returns the rank that a finished receive came from, else -1.
func (op *Op) Source() int { return op.source }

// describe names the operation in errors.
func (op *Op) describe() string {
	if op.keyed != nil {
		return op.call.String() + op.keyed.where()
	}
	return op.call.String() + ", seq " + strconv.FormatUint(op.seq, 10)
}

// explain adds to an error which rank and operation it happened in.
func (op *Op) explain(err error) *fault.Error {
	f, ok := err.(*fault.Error)
	if !ok {
		f = fault.Wrap(fault.Internal, err, "")
	}
	return f.In(op.comm.label(), op.describe())
}

var start = time.Now()

// now returns monotonic nanoseconds, never 0.
func now() int64 { return int64(time.Since(start)) + 1 }
