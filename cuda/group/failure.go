package group

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
)

// Failure returns the error with which the group has ended, or nil.
func (g *Group) Failure() *fault.Error { return g.ending.failure.Load() }

// Abort ends the group with an error that carries the reason.
func (g *Group) Abort(err *fault.Error) { g.fail(err) }

// fail ends the group, unless it has ended already, and returns the error that it has ended with.
// The device thread tells the Ops.
func (g *Group) fail(err error) *fault.Error {
	f := faultOf(err)
	if !g.ending.failure.CompareAndSwap(nil, f) {
		return g.Failure()
	}
	g.comm.Abort(f)
	g.unblock(true)
	g.opts.Thread.bell.Ring()
	return f
}

// ended is the error of a call that the failure of the group has refused: its caller hears of it.
func (g *Group) ended(call *exec.Call, f *fault.Error) *fault.Error {
	g.comm.Told()
	return f.In(g.label(), call.String())
}

// explain adds to an error which rank and call it happened in.
func (o *Op) explain(err error) *fault.Error { return faultOf(err).In(o.g.label(), o.describe()) }

// faultOf returns the fault.Error in an error, or makes one.
func faultOf(err error) *fault.Error {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.Wrap(fault.Internal, err, "device group")
	}
	return f
}

// describe names the call in errors.
func (o *Op) describe() string {
	if o.of != nil {
		return o.of.describe()
	}
	return o.call.String() + ", seq " + strconv.FormatUint(o.seq, 10)
}

// look checks the deadlines of calls that the device has not come to, and has the device asked for
// errors. Only the device thread calls it.
func (g *Group) look(now time.Time) {
	if g.Failure() != nil {
		return
	}
	if f := g.comm.Failure(); f != nil { // which calls that are not posted yet would learn late
		g.fail(g.own(f))
		return
	}
	pending := false
	for _, w := range g.ways {
		waits, err := w.look(now)
		if err != nil {
			g.fail(err)
			return
		}
		pending = pending || waits
	}
	if pending {
		g.queries.ask(&g.queries.health)
	}
}

// notCome returns the error of a call whose next piece waits for the stream of this rank.
func (g *Group) notCome(o *Op) *fault.Error {
	return fault.Peer(fault.Timeout, g.rank, "piece %d of %d: the stream of this rank has not come to the call on "+
		"device %d; what was enqueued before it has not ended", o.posted+1, o.cut.pieces, g.ctx.Info().Index).
		In(g.label(), o.describe())
}

// own returns the error of a group that has failed. Where the others blame this rank because they
// have waited for it, it knows better than they what it has waited for.
func (g *Group) own(f *fault.Error) *fault.Error {
	if f.Code != fault.Timeout || !slices.Contains(f.Culprits(), g.rank) {
		return f
	}
	for _, p := range g.staged.used() {
		if o := p.queue.head(); o != nil && p.inFlight == 0 {
			known := g.notCome(o)
			known.Cause = f
			return known
		}
	}
	return f
}

// past reports whether the call has a deadline that is over.
func (o *Op) past(now time.Time) bool { return !o.deadline.IsZero() && now.After(o.deadline) }
