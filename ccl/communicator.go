package ccl

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/exec/p2p"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/internal/record"
	"github.com/goccl/goccl/transport"
)

// AnySource is the source of a Recv that accepts a message from every rank.
const AnySource = p2p.AnySource

// These are names of the packages below, so that callers need this package only.
type (
	Call  = exec.Call
	Block = exec.Block
	Op    = dtype.Op
	Type  = dtype.Type
	// Record is an operation as Communicator.Records returns it.
	Record = record.Record
	// Pace is how many operations there were lately, and which have not ended.
	Pace = record.Pace
	// Standing is what a rank is doing.
	Standing = exec.Standing
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

// Communicator is one rank of one group. Any goroutine may call its methods. The order of the calls
// must be the same on every rank, so goroutines that share a Communicator must order their calls.
type Communicator struct {
	node  *Node
	comm  *exec.Comm
	leave func() // called when the group's ranks no longer share the host's cores
	links []transport.Link
	paths []Path // by rank
	group *topo.Group

	origin  *origin
	number  uint64 // in the order in which the Communicators of this process were made
	about   atomic.Pointer[about]
	planner *planner                    // used by the driver of comm
	device  atomic.Pointer[DeviceGroup] // nil for none
	records records
}

var communicators atomic.Uint64 // of this process so far

func (n *Node) register(c *Communicator) (*Communicator, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		c.leave()
		c.comm.Close()
		return nil, fault.New(fault.Closed, "the node is closed")
	}
	c.number = communicators.Add(1)
	n.comms[c] = true
	return c, nil
}

// Rank returns this rank's number in the group.
func (c *Communicator) Rank() int { return c.comm.Rank() }

// Size returns the number of ranks of the group.
func (c *Communicator) Size() int { return c.comm.Size() }

// Node returns this process's part of the group, which further groups can share.
func (c *Communicator) Node() *Node { return c.node }

// Seq returns the number of collectives that this rank has called so far.
func (c *Communicator) Seq() uint64 {
	if d := c.Device(); d != nil {
		collectives, _ := d.Counts()
		return collectives
	}
	return c.comm.Seq()
}

// Exposed returns the number of collectives for which this rank exposed registered memory
// (Node.Alloc) to its peers instead of copying.
func (c *Communicator) Exposed() uint64 {
	if d := c.Device(); d != nil {
		return d.Exposed()
	}
	return c.comm.Exposed()
}

// Records returns the last operations of this rank, oldest first; none without Options.Recorder.
func (c *Communicator) Records() []Record {
	if ring := c.comm.Recorded(); ring != nil {
		return ring.Records()
	}
	return nil
}

// Pace sums up the records of the last while; false without Options.Recorder.
func (c *Communicator) Pace(span time.Duration) (Pace, bool) {
	if ring := c.comm.Recorded(); ring != nil {
		return ring.Pace(span), true
	}
	return Pace{}, false
}

// Standing tells what this rank is doing, and whom it waits for, within about d. Any goroutine may
// ask at any time.
func (c *Communicator) Standing(d time.Duration) Standing { return c.comm.Standing(d) }

// Messages returns the number of sends and receives that this rank has called so far.
func (c *Communicator) Messages() uint64 {
	if d := c.Device(); d != nil {
		_, messages := d.Counts()
		return messages
	}
	return c.comm.Messages()
}

// Failure returns the error with which the group has ended, or nil.
func (c *Communicator) Failure() *Error {
	if d := c.Device(); d != nil {
		if f := d.Failure(); f != nil {
			return f
		}
	}
	return c.comm.Failure()
}

// EndBatch says that no more operations with this Call.Batch will come, and adds to the records
// that they were issued as one. Messages of a DeviceGroup go into their streams.
func (c *Communicator) EndBatch(batch uint32) error {
	if ring := c.comm.Recorded(); ring != nil {
		ring.NoteBatch(batch)
	}
	if d := c.Device(); d != nil {
		return d.EndBatch(batch)
	}
	return nil
}

// SetTimeout changes the timeout of later calls that have none of their own; 0 for none.
func (c *Communicator) SetTimeout(d time.Duration) { c.comm.SetTimeout(d) }

// Do makes a call and returns when it has ended on this rank. The deadline of ctx is one of the
// call (Call.Timeout): what it says when it has passed, and what the other ranks are told, is who
// was late. If ctx is cancelled, the Communicator is aborted.
func (c *Communicator) Do(ctx context.Context, call *Call) error {
	if ctx.Done() == nil {
		if err := c.comm.Run(call); err != nil {
			return told(c.comm, err)
		}
		return nil
	}
	work, err := c.within(ctx, call)
	if err != nil {
		return err
	}
	work.Free()
	return nil
}

// expirySpan is how long a call may take, after the deadline of its context, to find out who is
// late. Only one that waits behind others takes as long.
const expirySpan = time.Second

// within makes a call, and returns it when it has ended well.
func (c *Communicator) within(ctx context.Context, call *Call) (*Work, error) {
	if ctx.Err() != nil {
		return nil, c.tooLate(call, ctx.Err())
	}
	timed, wait := *call, ctx
	ends, limited := ctx.Deadline()
	if limited {
		left := time.Until(ends)
		if left <= 0 {
			return nil, c.tooLate(call, context.DeadlineExceeded)
		}
		if timed.Timeout == 0 {
			timed.Timeout = c.comm.Timeout()
		}
		if timed.Timeout == 0 || left < timed.Timeout {
			timed.Timeout = left
		}
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadline(context.WithoutCancel(ctx), ends.Add(expirySpan))
		defer cancel()
		defer context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.Canceled) {
				cancel()
			}
		})()
	}
	work, err := c.Start(&timed)
	if err != nil {
		return nil, err
	}
	err = work.Wait(wait)
	if ended, _ := work.Done(); !ended {
		c.comm.Abort(fault.Wrap(fault.Aborted, context.Cause(ctx), "the context of %v ended", call.Coll))
		_, err = work.Done() // with what it waited for
	}
	if err == nil {
		return work, nil
	}
	work.Free()
	f := (*fault.Error)(nil)
	if limited && !time.Now().Before(ends) && errors.As(err, &f) && f.Code == fault.Timeout && f.Cause == nil {
		of := *f
		of.Cause = context.DeadlineExceeded // for errors.Is
		err = &of
	}
	return nil, err
}

// tooLate is the error of a call that is not made since its context has ended: the group goes on.
func (c *Communicator) tooLate(call *Call, why error) error {
	code := fault.Aborted
	if errors.Is(why, context.DeadlineExceeded) {
		code = fault.Timeout
	}
	return c.origin.endpoint.in(call.Coll.String(), fault.Wrap(code, why, "its context had ended before the call was made"))
}

// DoSlice is Do for a part of the time, for callers that have something else to look at now and
// then: it returns after about d at the latest, unless d is 0. If the call has not ended by then,
// DoSlice returns its Work, as if it had been started; otherwise the Work is nil.
func (c *Communicator) DoSlice(call *Call, d time.Duration) (*Work, error) {
	op, err := c.comm.RunSlice(call, d)
	if err != nil {
		err = told(c.comm, err)
	}
	return (*Work)(op), err
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

// Abort ends every operation with an error that carries the reason, and refuses later operations.
func (c *Communicator) Abort(reason string) { c.fail(fault.New(fault.Aborted, "%s", reason)) }

func (c *Communicator) fail(err *fault.Error) {
	if d := c.Device(); d != nil {
		d.Abort(err)
		return
	}
	c.comm.Abort(err)
}

// Ended returns about how many operations of the group have ended on this rank.
func (c *Communicator) Ended() uint64 { return c.comm.Ended() }

// Drain works until all operations that were started have ended, for d at most, and reports whether
// there is nothing left to wait for. It waits for receives only as long as receives, because a peer
// may never send their messages. After doubt it asks the ranks that it waits for, and gives up on
// those that do not answer within 0.7 s: they are stopped, or their host is silent.
func (c *Communicator) Drain(d, receives, doubt time.Duration) bool {
	if device := c.Device(); device != nil {
		return device.drain(d, receives, doubt)
	}
	return c.comm.Drain(d, receives, doubt, nil)
}

// Timeout returns the timeout that SetTimeout, or the options of the group, set.
func (c *Communicator) Timeout() time.Duration { return c.comm.Timeout() }

// Lost returns an error with PeerLost for each other rank that is known to have died or cannot be
// reached any more: its link has ended, another rank has said so, or the group has failed because
// of it. It never waits. A group that has failed learns of no further deaths.
func (c *Communicator) Lost() []*Error {
	why := make([]*Error, len(c.links))
	if failure := c.comm.Failure(); failure != nil && failure.Code == fault.PeerLost {
		for _, rank := range failure.Culprits() {
			why[rank] = failure
		}
	}
	for _, loss := range c.comm.Losses() {
		why[loss.Peer] = loss
	}
	for rank, link := range c.links {
		if link == nil {
			continue
		}
		if f := (&Error{}); errors.As(link.Err(), &f) && f.Code == fault.PeerLost {
			why[rank] = f
		}
	}
	var lost []*Error
	for rank, err := range why {
		if err != nil {
			one := *err
			one.Peer, one.Ranks = rank, nil
			lost = append(lost, &one)
		}
	}
	return lost
}

// Close leaves the group: operations that are not done fail with Closed. Data that was sent still
// arrives. If the last call could end on this rank before it had heard from all others, and others
// have called something else (another root, say), Close returns that mismatch; for this it waits
// until the peers have answered, for 0.3 s at most. Call Drain before to wait for late peers, too.
func (c *Communicator) Close() error {
	return errors.Join(c.comm.ConfirmNow(), c.leaveGroup(), c.node.closeUnused())
}

// Confirm compares the calls of this rank with those of its peers, as Close does, where its last
// one could end without them. It returns a mismatch that no call has told of yet.
func (c *Communicator) Confirm() error { return c.comm.ConfirmNow() }

func (c *Communicator) leaveGroup() error {
	if d := c.Device(); d != nil {
		return d.Close()
	}
	return c.close()
}

func (c *Communicator) close() error {
	c.node.mu.Lock()
	delete(c.node.comms, c)
	unended := c.origin.unended
	c.origin.unended = nil
	c.node.mu.Unlock()
	if unended != nil {
		unended.end()
	}
	c.leave()
	return c.comm.Close()
}

// Work is an operation that was started.
type Work exec.Op

func (w *Work) op() *exec.Op { return (*exec.Op)(w) }

// Wait works until the operation is done and returns its error, or ctx's error if ctx ends first.
// The end of ctx is that of the wait alone: the operation goes on, its memory must stay valid, and
// a later Wait gets its end. Only the timeout of the call, or of the group, ends the operation.
func (w *Work) Wait(ctx context.Context) error {
	comm := w.op().Comm() // the function may run late, when the Work is already free
	if ctx.Done() == nil {
		if err := w.op().Wait(nil); err != nil {
			return told(comm, err)
		}
		return nil
	}
	var cancel exec.Cancel
	stop := context.AfterFunc(ctx, func() {
		cancel.Fire()
		comm.Nudge()
	})
	err := w.op().Wait(&cancel)
	stop()
	switch err {
	case nil:
		return nil
	case exec.ErrCancelled:
		return ctx.Err()
	}
	return told(comm, err)
}

// WaitSlice works until the operation is done, but for about d at most unless d is 0. It reports
// whether the operation is done, and how it ended; if it is not done, it goes on.
func (w *Work) WaitSlice(d time.Duration) (bool, error) {
	ended, err := w.op().WaitSlice(d)
	if err != nil {
		err = told(w.op().Comm(), err)
	}
	return ended, err
}

// Unended returns the error of a wait that the operation has outlasted. It changes nothing.
func (w *Work) Unended() error { return w.op().Unended() }

// Done reports whether the operation has ended, and how. It never waits.
func (w *Work) Done() (bool, error) {
	ended, err := w.op().Done()
	if err != nil {
		err = told(w.op().Comm(), err)
	}
	return ended, err
}

// Poll is Done, after it has advanced the operation if no other thread does so. It never waits.
func (w *Work) Poll() (bool, error) {
	ended, err := w.op().Poll()
	if err != nil {
		err = told(w.op().Comm(), err)
	}
	return ended, err
}

// Expedite has the operation done without delay although no thread is inside Wait. Most operations
// are soon waited for, so without Expedite the Node's own thread takes up to some milliseconds
// before it drives one. It is for callers that learn of the end in another way than by Wait or
// Poll.
func (w *Work) Expedite() { w.op().Expedite() }

// OnEnd has f called when the operation ends, by the thread that ends it. f must not wait, nor call
// the Communicator. If the operation has ended already, OnEnd reports false, and f is never called.
func (w *Work) OnEnd(f func()) bool { return w.op().OnEnd(f) }

// Seq returns the operation's position among the collectives (or messages) of this rank, from 1.
func (w *Work) Seq() uint64 { return w.op().Seq() }

// Source returns the rank that a finished receive came from, otherwise -1.
func (w *Work) Source() int { return w.op().Source() }

// Free gives the Work back, which must not be used afterwards. An operation that is not done goes
// on.
func (w *Work) Free() { w.op().Free() }

// CompletionCount returns the number of Works of this process that have ended, modulo 2³².
func CompletionCount() uint32 { return exec.Completions.Count() }

// WaitCompletions sleeps until CompletionCount differs from seen, for d at most (for ever if d is
// negative). It may return early.
func WaitCompletions(seen uint32, d time.Duration) { exec.Completions.Wait(seen, d) }
