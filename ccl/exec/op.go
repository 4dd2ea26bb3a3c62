package exec

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/internal/park"
)

const (
	opPending uint32 = iota
	opWatched        // pending, and OnEnd was called
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
	comm    *Comm
	call    Call // In and Out point to the Op's own arrays
	in, out []Block
	note    uint64 // number of its record; 0 for none
	seq     uint64 // position among the collectives or among the point-to-point operations of the Comm, from 1
	timeout int64  // nanoseconds, 0 for none
	looked  uint64 // deadlines.looks when it was queued
	line    *line  // of a message, or of a keyed operation
	seen    int64  // in the line
	req     p2p.Request
	keyed   *keyed // nil for other calls

	state   atomic.Uint32
	watch   sync.Mutex    // of onEnd
	onEnd   []func()      // to be called at the end
	urgency atomic.Uint32 // opCalm, opExpedited or opOver
	err     error         // set before state; without the operation's name, which explain adds
	source  int

	// The caller and the Comm both hold an Op; the last one to release it puts it into the pool.
	holders atomic.Int32
	notify  bool // count its end in Completions
	next    *Op  // in the Comm's lists
	prev    *Op  // in a line
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
	return c.messages.called.Add(1)
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

// Done reports whether the operation has ended, and how. It never waits.
func (op *Op) Done() (bool, error) {
	switch op.state.Load() { // model: none: it only reports
	case opPending, opWatched:
		return false, nil
	case opFailed:
		return true, op.explain(op.err)
	}
	return true, nil
}

// pending reports whether state is that of an operation that has not ended.
func pending(state uint32) bool { return state <= opWatched }

// OnEnd has f called when the operation ends, by the thread that ends it, which holds the lock: f
// must not wait, nor call the Comm. If the operation has ended already, OnEnd reports false, and f
// is never called.
func (op *Op) OnEnd(f func()) bool {
	op.watch.Lock()
	defer op.watch.Unlock()
	if !op.state.CompareAndSwap(opPending, opWatched) && // model: none: the end sees it
		!pending(op.state.Load()) { // model: none: or it sees the end
		return false
	}
	op.onEnd = append(op.onEnd, f)
	return true
}

// tell calls the functions of OnEnd.
func (op *Op) tell() {
	op.watch.Lock()
	defer op.watch.Unlock()
	for i, f := range op.onEnd {
		op.onEnd[i] = nil
		f()
	}
	op.onEnd = op.onEnd[:0]
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

// ordered reports whether the operation is a collective that the ranks match by its number.
func (op *Op) ordered() bool { return op.keyed == nil && op.call.Coll.Valid() }

// Unended returns the error of a wait that the operation has outlasted. It says what the operation
// waits for, unless another thread goes on driving.
func (op *Op) Unended() *fault.Error {
	e, c := fault.Unended(), op.comm
	mine := c.lock.CompareAndSwap(0, 1) // model: none: as a driver that finds nothing to do
	var pace park.Spinner
	for until := now() + int64(20*time.Millisecond); !mine && now() < until; {
		pace.Relax()
		mine = c.lock.CompareAndSwap(0, 1) // model: none: as above
	}
	if mine {
		if c.broken == nil && pending(op.state.Load()) { // model: none: as above
			e.Text += ". So far " + op.timedOut().Text
		}
		c.unlock()
		c.handOver()
	}
	return op.explain(e)
}

var start = time.Now()

// now returns monotonic nanoseconds, never 0.
func now() int64 { return int64(time.Since(start)) + 1 }
