package ccl

import (
	"context"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/record"
)

// AnySource is the source of a Recv that accepts a message from every rank.
const AnySource = p2p.AnySource

// Names of the packages below, so that callers need this package only.
type (
	Call  = exec.Call
	Block = exec.Block
	Op    = dtype.Op
	Type  = dtype.Type
	// Record is an operation as Communicator.Records gives it.
	Record = record.Record
)

const (
	Sum  = dtype.Sum
	Avg  = dtype.Avg
	Prod = dtype.Prod
	Min  = dtype.Min
	Max  = dtype.Max
	BAnd = dtype.BAnd
	BOr  = dtype.BOr
	BXor = dtype.BXor
)

// Communicator is one rank of one group. All methods may be called by any goroutine; the order of
// the calls of several goroutines must be the same on every rank, so they need an order of their
// own.
type Communicator struct {
	node  *Node
	comm  *exec.Comm
	leave func() // the ranks of this group do not share the host's cores any more
}

func (n *Node) register(comm *exec.Comm, leave func()) (*Communicator, error) {
	c := &Communicator{n, comm, leave}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		leave()
		comm.Close()
		return nil, fault.New(fault.Closed, "the node is closed")
	}
	n.comms[c] = true
	return c, nil
}

// Rank is this rank's number in the group.
func (c *Communicator) Rank() int { return c.comm.Rank() }

// Size is the number of ranks of the group.
func (c *Communicator) Size() int { return c.comm.Size() }

// Seq is the number of collectives that this rank has called so far.
func (c *Communicator) Seq() uint64 { return c.comm.Seq() }

// Lent is the number of collectives for which this rank lent registered memory (Node.Alloc) to its
// peers instead of copying.
func (c *Communicator) Lent() uint64 { return c.comm.Lent() }

// Records are the last operations of this rank, the oldest first; none without Options.Recorder.
func (c *Communicator) Records() []Record {
	if ring := c.comm.Recorded(); ring != nil {
		return ring.Records()
	}
	return nil
}

// NoteBatch adds to the records that the operations with this Call.Batch were issued as one.
func (c *Communicator) NoteBatch(batch uint32) {
	if ring := c.comm.Recorded(); ring != nil {
		ring.NoteBatch(batch)
	}
}

// SetTimeout changes the timeout of later calls that bring none; 0 for none.
func (c *Communicator) SetTimeout(d time.Duration) { c.comm.SetTimeout(d) }

// Do makes a call and returns when it has ended on this rank. When ctx ends first, the Communicator
// is aborted.
func (c *Communicator) Do(ctx context.Context, call *Call) error {
	if ctx.Done() == nil {
		return c.comm.Run(call)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	work, err := c.Start(call)
	if err != nil {
		return err
	}
	defer work.Free()
	err = work.Wait(ctx)
	if ended, _ := work.Done(); !ended {
		cause := fault.Wrap(fault.Aborted, context.Cause(ctx), "the context of %v ended", call.Coll)
		c.comm.Abort(cause)
		return cause
	}
	return err
}

// Start makes a call and returns at once. The memory of the call must stay valid until the Work is
// done.
func (c *Communicator) Start(call *Call) (*Work, error) {
	op, err := c.comm.Post(call)
	if err != nil {
		return nil, err
	}
	return (*Work)(op), nil
}

// Abort ends every operation with an error that carries the reason, and refuses later ones.
func (c *Communicator) Abort(reason string) {
	c.comm.Abort(fault.New(fault.Aborted, "%s", reason))
}

// Drain works until what was started has ended, for d at most, and reports whether there is nothing
// more to wait for. Nobody may ever send what a receive waits for: receives are waited for as long
// as receives says.
func (c *Communicator) Drain(d, receives time.Duration) bool { return c.comm.Drain(d, receives) }

// Timeout is what SetTimeout, or the options of the group, said.
func (c *Communicator) Timeout() time.Duration { return c.comm.Timeout() }

// Close leaves the group at once: operations that are not done fail with Closed. What was sent
// still arrives.
func (c *Communicator) Close() error {
	c.node.mu.Lock()
	delete(c.node.comms, c)
	c.node.mu.Unlock()
	c.leave()
	return c.comm.Close()
}

// Work is an operation that was started.
type Work exec.Op

func (w *Work) op() *exec.Op { return (*exec.Op)(w) }

// Wait works until the operation is done and returns how it ended, or ctx's error when that ends
// first; the operation then goes on.
func (w *Work) Wait(ctx context.Context) error {
	if ctx.Done() == nil {
		return w.op().Wait(nil)
	}
	var cancel exec.Cancel
	comm := w.op().Comm() // the function may run late, when the Work is free already
	stop := context.AfterFunc(ctx, func() {
		cancel.Fire()
		comm.Nudge()
	})
	err := w.op().Wait(&cancel)
	stop()
	if err == exec.ErrCancelled {
		return ctx.Err()
	}
	return err
}

// WaitFor works until the operation is done. After d the operation fails with Timeout.
func (w *Work) WaitFor(d time.Duration) error {
	w.op().SetDeadline(d)
	return w.op().Wait(nil)
}

// Done reports whether the operation has ended, and how. It never waits.
func (w *Work) Done() (bool, error) { return w.op().Done() }

// Poll is Done, after some work if nobody else is at it. It never waits.
func (w *Work) Poll() (bool, error) { return w.op().Poll() }

// Urge has the operation done without delay although nobody is inside Wait. Most operations are
// soon waited for, so otherwise the Node's own thread goes on with one some milliseconds later at
// the most. It is for whoever learns of the end in another way than Wait or Poll.
func (w *Work) Urge() { w.op().Urge() }

// Seq is the operation's position among the collectives (or messages) of this rank, from 1.
func (w *Work) Seq() uint64 { return w.op().Seq() }

// Source is the rank that a finished receive came from, else -1.
func (w *Work) Source() int { return w.op().Source() }

// Free gives the Work back; it must not be used afterwards. An operation that is not done goes on.
func (w *Work) Free() { w.op().Free() }

// CompletionCount counts the Works of this process that have ended, modulo 2³².
func CompletionCount() uint32 { return exec.Completions.Count() }

// WaitCompletions sleeps until CompletionCount differs from seen, for d at the most (for ever if
// negative). It may return early.
func WaitCompletions(seen uint32, d time.Duration) { exec.Completions.Wait(seen, d) }

// InterruptCompletions ends the sleep of whoever is inside WaitCompletions, which has something else to look at.
func InterruptCompletions() { exec.Completions.Interrupt() }
