package group

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/internal/record"
)

const (
	opPending uint32 = iota
	opDone
	opFailed
)

// Op is one enqueued call. Free gives it back.
type Op struct {
	g        *Group
	call     exec.Call // In and Out point to the Op's own arrays; their addresses are the device's
	in, out  []exec.Block
	cut      cut
	first    uint64 // number of its first piece on its pipeline
	seq      uint64 // position among the collectives or among the messages of the group, from 1
	deadline time.Time
	recorded uint64           // number of its record; 0 for none
	end      cuda.Event       // behind the last piece
	pipeline *pipeline        // if it is staged
	low      *program.Lowered // its plan, if it goes over windows
	capture  uint64           // of a graph that it is part of: it has ended when a stream has joined it; else 0
	of       *Op              // of a message of a program: the call; else nil
	messages atomic.Int32     // of the call, that have not ended
	joined   atomic.Bool
	held     atomic.Bool // back, in a batch

	// Used only by the device thread.
	posted, ended int // pieces
	pieces        int // of all ranks; -1 until they have agreed

	state   atomic.Uint32
	err     *fault.Error // set before state
	source  atomic.Int32
	holders atomic.Int32 // the caller and the group
}

// Join makes a stream wait until the device has finished with the call and its memory. It never
// waits itself. If the call is known to have failed, it returns the error; the stream waits all the
// same.
func (o *Op) Join(s cuda.Stream) error {
	if err := o.join(s); err != nil {
		return o.explain(err)
	}
	return o.failed()
}

func (o *Op) join(s cuda.Stream) error {
	o.issue()
	o.g.ending.using.RLock()
	defer o.g.ending.using.RUnlock()
	if o.g.ending.drained {
		return nil
	}
	if err := o.g.ctx.Enter(false); err != nil {
		return err
	}
	defer o.g.ctx.Leave()
	if err := s.Wait(o.end); err != nil {
		return err
	}
	o.joined.Store(true)
	return nil
}

// Done reports whether the call has ended on the device, and how. It never waits. A call in a graph
// counts as ended once it was joined, and one that is held back has not ended.
func (o *Op) Done() (bool, error) {
	if err := o.failed(); err != nil {
		return true, err
	}
	if o.state.Load() == opPending || o.held.Load() {
		return false, nil
	}
	o.g.ending.using.RLock()
	defer o.g.ending.using.RUnlock()
	if o.g.ending.drained {
		return true, nil
	}
	if o.capture != 0 {
		return o.joined.Load(), nil
	}
	if err := o.g.ctx.Enter(true); err != nil {
		return true, o.explain(err)
	}
	defer o.g.ctx.Leave()
	done, err := o.end.Done()
	if err != nil {
		return true, o.explain(err)
	}
	return done, nil
}

// Wait blocks the thread until the call has ended on the device, for d at most, or as long as it
// takes if d is 0. It reports whether the call has ended, and how. It does not wait for a call in a
// graph, which no device has begun.
func (o *Op) Wait(d time.Duration) (bool, error) {
	if o.capture != 0 {
		return true, o.failed()
	}
	o.issue()
	begin := time.Now()
	for {
		done, err := o.Done()
		waited := time.Since(begin)
		if done || err != nil || d > 0 && waited >= d {
			return done, err
		}
		time.Sleep(nap(waited))
	}
}

// failed returns the error of a call that is known to have failed.
func (o *Op) failed() error {
	switch o.state.Load() {
	case opFailed:
		o.g.comm.Told()
		return o.err
	case opPending:
		if f := o.g.Failure(); f != nil {
			o.g.comm.Told()
			return o.explain(f)
		}
	}
	return nil
}

// Unended returns the error of a wait that the call has outlasted.
func (o *Op) Unended() error { return o.explain(fault.Unended()) }

// timeout returns how long the call may take; 0 for ever.
func (o *Op) timeout() time.Duration { return cmp.Or(o.call.Timeout, o.g.comm.Timeout()) }

// Group returns the group of the call.
func (o *Op) Group() *Group { return o.g }

// Seq returns the position of the call among the collectives (or the messages) of this rank, from
// 1.
func (o *Op) Seq() uint64 { return o.seq }

// Source returns the rank that a finished receive came from, else -1.
func (o *Op) Source() int { return int(o.source.Load()) }

// Free gives the Op back, which must not be used afterwards. A call that has not ended goes on; its
// memory must stay valid until it has.
func (o *Op) Free() { o.drop() }

func (o *Op) drop() {
	if o.holders.Add(-1) == 0 {
		o.g.ops.keep(o)
	}
}

// finish ends an Op; only the device thread calls it.
func (o *Op) finish(err *fault.Error) {
	if of := o.of; of != nil {
		of.messages.Add(-1)
		of.drop()
		o.drop()
		return
	}
	if err != nil {
		o.err = o.explain(err)
		o.state.Store(opFailed)
	} else {
		o.state.Store(opDone)
	}
	o.noteEnd(err)
	o.g.ops.unended(o).Add(-1)
	o.drop()
}

// note records that a call was enqueued.
func (o *Op) note() {
	call := &o.call
	if r := o.g.opts.Record; r != nil {
		o.recorded = r.Begin(&record.Operation{
			Seq: o.seq, In: program.Elements(call.In), Out: program.Elements(call.Out),
			Coll: call.Coll, Type: call.Type, Op: call.Op, Root: int32(call.Root), Tag: call.Tag, Batch: call.Batch,
		})
	}
}

// noteEnd records how a call has ended, and that it has ended now: the device may still be copying
// the last piece of the result.
func (o *Op) noteEnd(err *fault.Error) {
	if o.recorded == 0 {
		return
	}
	code := fault.OK
	if err != nil {
		code = err.Code
	}
	o.g.opts.Record.End(o.recorded, code, true)
}
