package group

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/page"
)

// A group ends once, by a failure or by Close, and always in the same order. Nothing new is
// enqueued. Streams that wait for this rank's host are let go (unblock), and until then nothing
// calls the driver, which may wait for them. Streams that wait for peers are let go, again and
// again, until they have ended (stop); the links are still there, by which this rank sees memory of
// the peers. Then Close gives back what this rank has of other processes, closes the Comm, ends all
// Ops, and gives back what is the group's own. What ranks of this process may still use is left to
// the Thread, until all of them have left.

// ending is how far a group is with it.
type ending struct {
	leaving   atomic.Bool // Close was called, and may wait for Enqueue
	closed    bool        // guarded by Group.mu
	failure   atomic.Pointer[fault.Error]
	storing   sync.Mutex   // of words
	unblocked bool         // guarded by storing
	using     sync.RWMutex // held for writing while streams and events are given back
	drained   bool         // they are
}

// closeLimit is how long Close waits for the streams. They end when what the callers' streams had
// before the calls has ended.
const closeLimit = 5 * time.Second

// Close leaves the group: calls that have not ended fail with Closed. It waits until the streams of
// the group have ended, so what was enqueued in the callers' streams before must be able to end. If
// they do not end in some seconds, it leaves their memory allocated and says so.
func (g *Group) Close() error {
	g.ending.leaving.Store(true)
	g.mu.Lock()
	if g.ending.closed {
		g.mu.Unlock()
		return nil
	}
	g.ending.closed = true
	g.endBatch() // an error has ended the group, which ends anyway
	g.mu.Unlock()
	g.opts.Thread.remove(g)
	for moved := true; moved && g.Failure() == nil; { // what has ended did so in order
		moved, _ = g.advance()
	}
	failure := fault.New(fault.Closed, "the device group was closed")
	failed := !g.ending.failure.CompareAndSwap(nil, failure)
	g.comm.Abort(failure)
	g.unblock(failed)
	err := g.ends(time.Now(), func() (bool, error) { return g.stop(), nil })
	if err == nil {
		err = g.shared.leave()
	}
	g.queries.end()
	if err != nil {
		return errors.Join(err, g.comm.Close())
	}
	err = g.comm.Close()
	g.failOps()
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
	g.ending.using.Lock()
	g.ending.drained = true
	g.free()
	g.ending.using.Unlock()
	g.queries.lookAfter()
	g.ctx.Leave()
	if len(g.shared.cleanups) == 0 {
		return errors.Join(err, g.ctx.Release())
	}
	t := g.opts.Thread
	t.sharing.Lock()
	t.left = append(t.left, g.shared)
	t.sharing.Unlock()
	return errors.Join(err, t.release())
}

// advance reports whether anything has moved, and whether calls are pending. Only the device thread
// calls it, and Close when that has left the group.
func (g *Group) advance() (moved, pending bool) {
	if g.Failure() != nil {
		over := g.stop()
		return g.failOps(), !over
	}
	for _, w := range g.ways {
		moves, waits := w.advance()
		moved, pending = moved || moves, pending || waits
	}
	return moved, pending
}

// unblock lets the streams go, once, that wait for this rank's host.
func (g *Group) unblock(failed bool) {
	g.ending.storing.Lock()
	defer g.ending.storing.Unlock()
	if g.ending.unblocked {
		return
	}
	g.ending.unblocked = true
	for _, w := range g.ways {
		w.unblock(failed)
	}
}

// stop lets the streams go that wait for peers, and reports whether they have ended.
func (g *Group) stop() bool {
	over := true
	for _, w := range g.ways {
		over = w.stop() && over
	}
	return over
}

// failOps ends all Ops, and reports whether there were any.
func (g *Group) failOps() (any bool) {
	failure := g.Failure()
	for _, w := range g.ways {
		any = w.fail(failure) || any
	}
	return any
}

// drain waits for the streams of pipelines.
func (g *Group) drain() error {
	begin := time.Now()
	for _, p := range g.staged.used() {
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

// free gives back what the group has for itself, as far as it was made.
func (g *Group) free() {
	for _, p := range g.staged.pipelines {
		p.close()
	}
	for _, o := range g.ops.all {
		o.end.Destroy()
	}
	if g.callers.at != nil {
		g.callers.at.Destroy()
	}
	if g.staged.free != nil && g.queues.tried() { // or it stays allocated
		g.staged.free()
	}
}

// unblock lets the streams of all pipelines go.
func (st *staged) unblock(bool) {
	for _, p := range st.pipelines {
		st.memory.Store(p.done, st.memory.Load(p.done)+out)
	}
}

// unblock tells the peers that their calls may not end well, before the streams of messages go on,
// for which that of the windows waits.
func (w *windows) unblock(failed bool) {
	if w.g.route.Hosts > 1 && (failed || w.queue.head() != nil) {
		w.warn()
	}
}

// stop lets the streams of the windows go, as far as they may wait for something.
func (w *windows) stop() bool {
	if w.over.Load() {
		return true
	}
	if w.stopped = w.stopped || w.queue.head() != nil; w.stopped {
		w.g.ending.storing.Lock()
		w.release()
		w.g.ending.storing.Unlock()
	}
	w.g.queries.ask(&w.g.queries.streams)
	return false
}

// release lets the stream go, whatever it waits for, and its kernels. A peer whose stream still
// goes on may write a word again, so this is repeated until the stream has ended.
func (w *windows) release() {
	w.warn()
	for _, peer := range w.peers {
		for k, word := range [3]int{page.Offer, page.Signal, page.Left} {
			offset, r := w.layout.Of(peer, word), &w.released[peer][k]
			if come := w.page.Load(offset); *r == 0 || come != *r {
				*r = come + out
				w.page.Store(offset, *r)
			}
		}
	}
	w.page.Store(w.layout.Released(), out)
}

// askStreams asks the driver whether the streams have ended, after the group has failed. It does
// not wait for a call that is being enqueued, but then there is more to come; later calls are
// refused.
func (w *windows) askStreams() {
	if !w.g.mu.TryLock() {
		return
	}
	w.g.mu.Unlock()
	done := false
	err := cuda.WithContext(w.g.ctx, func() (err error) {
		if done, err = w.Stream.Done(); done {
			done, err = w.ahead.Done()
		}
		return err
	})
	w.over.Store(done || err != nil)
}

// leave gives back what this rank has of other processes, whose ranks have mappings of their own,
// unless there are graphs. The streams have ended.
func (s *shared) leave() error {
	t := s.g.opts.Thread
	t.sharing.Lock()
	defer t.sharing.Unlock()
	if s.left || slices.ContainsFunc(s.g.ways, way.outlives) {
		return nil
	}
	s.left = true
	return s.freeIn(s.owned)
}

// free calls what gives things back, last first, and keeps the first n of them.
func (s *shared) free(n int) error {
	var errs []error
	for _, free := range slices.Backward(s.cleanups[n:]) {
		errs = append(errs, free())
	}
	s.cleanups = s.cleanups[:n]
	return errors.Join(errs...)
}

// freeIn is free in the context of the group.
func (s *shared) freeIn(n int) error {
	if len(s.cleanups) == n {
		return nil
	}
	return cuda.WithContext(s.g.ctx, func() error { return s.free(n) })
}

// release gives back the memory and contexts of groups that were closed, if nobody uses them any
// more. A graph that was destroyed later than its group has let them stay until then.
func (t *Thread) release() error {
	t.releasing.Lock()
	defer t.releasing.Unlock()
	t.sharing.Lock()
	closed := slices.Clone(t.left)
	t.sharing.Unlock()
	var errs []error
	for _, s := range closed {
		errs = append(errs, s.leave())
	}
	t.sharing.Lock()
	defer t.sharing.Unlock()
	unused := slices.DeleteFunc(slices.Clone(t.left), t.uses)
	t.left = slices.DeleteFunc(t.left, func(s *shared) bool { return !t.uses(s) })
	for _, s := range unused {
		delete(t.present, s.member())
		errs = append(errs, s.freeIn(0), s.g.ctx.Release())
	}
	return errors.Join(errs...)
}

// uses reports whether a rank of this process still uses the memory. The caller holds t.sharing.
func (t *Thread) uses(s *shared) bool {
	for rank := range s.pages {
		if peer := t.present[member{s.g.opts.Peers.Group, rank}]; peer != nil && !peer.left {
			return true
		}
	}
	return false
}
