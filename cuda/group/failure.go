package group

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
)

// Failure returns the error with which the group has ended, or nil.
func (g *Group) Failure() *fault.Error { return g.failure.Load() }

// Abort ends the group with an error that carries the reason.
func (g *Group) Abort(err *fault.Error) { g.fail(err) }

// fail ends the group, unless it has ended already, and returns the error that it has ended with.
// The device thread tells the Ops.
func (g *Group) fail(err error) *fault.Error {
	f := faultOf(err)
	if !g.failure.CompareAndSwap(nil, f) {
		return g.failure.Load()
	}
	g.comm.Abort(f)
	g.release(true)
	g.opts.Thread.bell.Ring()
	return f
}

// ended is the error of a call that the failure of the group has refused: its caller hears of it.
func (g *Group) ended(call *exec.Call, f *fault.Error) *fault.Error {
	g.comm.Told()
	return f.In(g.label(), call.String())
}

// explain adds to an error which rank and call it happened in.
func (o *Op) explain(err error) *fault.Error {
	return faultOf(err).In(o.g.label(), o.describe())
}

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
	if g.failure.Load() != nil {
		return
	}
	if f := g.comm.Failure(); f != nil { // which calls that are not posted yet would learn late
		g.fail(g.own(f))
		return
	}
	if g.windows != nil {
		if err := cmp.Or(g.windows.lost(), g.windows.late(now), g.windows.graphs.look(now)); err != nil {
			g.fail(err)
			return
		}
	}
	pending := g.windows != nil && g.windows.head() != nil
	for _, p := range g.used() {
		if late := p.late(now); late != nil && p.inFlight == 0 {
			g.fail(g.notCome(late))
			return
		}
		pending = pending || p.posting != nil
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
	for _, p := range g.used() {
		if o := p.posting; o != nil && p.inFlight == 0 {
			known := g.notCome(o)
			known.Cause = f
			return known
		}
	}
	return f
}

// late returns the call of the pipeline that is not posted whole, if it is past its deadline, or
// nil.
func (p *pipeline) late(now time.Time) *Op {
	if o := p.posting; o != nil && o.past(now) {
		return o
	}
	return nil
}

// past reports whether the call has a deadline that is over.
func (o *Op) past(now time.Time) bool { return !o.deadline.IsZero() && now.After(o.deadline) }

// closeLimit is how long Close waits for the streams. They end when what the callers' streams had
// before the calls has ended.
const closeLimit = 5 * time.Second

// Close leaves the group: calls that have not ended fail with Closed. It waits until the streams of
// the group have ended, so what was enqueued in the callers' streams before must be able to end. If
// they do not end in some seconds, it leaves their memory allocated and says so.
func (g *Group) Close() error {
	g.leaving.Store(true)
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	g.endBatch() // an error has ended the group, which ends anyway
	g.mu.Unlock()
	g.opts.Thread.remove(g)
	for moved := true; moved && g.failure.Load() == nil; { // what has ended did so in order
		moved, _ = g.advance()
	}
	failure := fault.New(fault.Closed, "the device group was closed")
	failed := !g.failure.CompareAndSwap(nil, failure)
	// From here to where the streams have been let go nothing calls the driver, which may wait for
	// them.
	g.comm.Abort(failure)
	g.release(failed || g.windows != nil && g.windows.head() != nil)
	err := g.leaveWindows() // while the links are there, by which this rank sees memory of the peers
	g.queries.end()
	if err != nil {
		return errors.Join(err, g.comm.Close())
	}
	err = g.comm.Close()
	g.cleanUp()
	if !g.queries.await(closeLimit) {
		return errors.Join(err, fault.New(fault.Timeout, "%s: the driver has not answered a question for %v after the "+
			"group was closed, perhaps since another thread frees memory of the device; its memory stays allocated",
			g.label(), closeLimit))
	}
	if e := g.ctx.Enter(true); e != nil { // other threads may capture
		return errors.Join(err, e)
	}
	if e := g.drain(); e != nil {
		g.ctx.Leave()
		return errors.Join(err, e)
	}
	g.using.Lock()
	g.drained = true
	g.giveBack()
	g.using.Unlock()
	g.queries.lookAfter()
	g.ctx.Leave()
	if g.windows == nil {
		return errors.Join(err, g.ctx.Release())
	}
	t := g.opts.Thread
	t.sharing.Lock()
	t.left = append(t.left, g.windows)
	t.sharing.Unlock()
	return errors.Join(err, t.giveBack())
}

// leaveWindows ends the use of memory of the peers, if there is any.
func (g *Group) leaveWindows() error {
	if g.windows == nil {
		return nil
	}
	if err := g.ends(time.Now(), func() (bool, error) { return g.releaseWindows(), nil }); err != nil {
		return err
	}
	return in(g.ctx, g.windows.leavePeers)
}

// drain waits for the streams.
func (g *Group) drain() error {
	begin := time.Now()
	for _, p := range g.used() {
		for _, h := range [2]*direction{&p.toHost, &p.toDevice} {
			if h.stream == nil {
				continue
			}
			if err := g.ends(begin, h.stream.Done); err != nil {
				return err
			}
		}
	}
	return nil
}

// ends waits until a stream has ended, as done tells, for closeLimit since begin at most.
func (g *Group) ends(begin time.Time, done func() (bool, error)) error {
	for {
		done, err := done()
		switch waited := time.Since(begin); {
		case done || cuda.Lost(err):
			return nil
		case err != nil:
			return err
		case waited > closeLimit:
			return fault.New(fault.Timeout, "%s: a stream of the group has not ended %v after it was closed; "+
				"its memory stays allocated", g.label(), closeLimit)
		default:
			time.Sleep(nap(waited))
		}
	}
}
