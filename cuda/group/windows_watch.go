package group

import (
	"cmp"
	"slices"
	"time"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/cuda/group/page"
)

// hand gives an Op to the device thread.
func (w *windows) hand(o *Op) {
	w.op++
	o.first = w.op
	w.queue.push(o)
}

// advance ends the Ops that the device has ended, and looks at what the peers have called.
func (w *windows) advance() (moved, pending bool) {
	for more := true; more && w.g.Failure() == nil; {
		more, pending = w.endOne()
		moved = moved || more
	}
	return moved, pending
}

func (w *windows) endOne() (moved, pending bool) {
	// First whether the device has ended it, then the prints: those of peers that it has waited for
	// are there by then, so a call that differs fails and does not end.
	o := w.queue.head()
	ended := o != nil && o.messages.Load() == 0 && w.page.Reached(w.layout.Ended(), page.At(o.first+1, 0, 0))
	if err := w.compare(); err != nil {
		w.g.fail(err)
		return true, true
	}
	if !ended || w.failed() {
		return false, o != nil
	}
	w.queue.pop()
	o.finish(nil)
	return true, w.queue.head() != nil
}

func (w *windows) look(now time.Time) (pending bool, err error) {
	return w.queue.head() != nil, cmp.Or(w.lost(), w.late(now))
}

// lost returns why the oldest call cannot end, or nil: a peer has gone before it has done its part.
func (w *windows) lost() error {
	o := w.queue.head()
	if o == nil {
		return nil
	}
	if err := w.g.comm.Check(); err != nil {
		return err
	}
	for _, peer := range w.peers {
		// What the peer wrote before it went is there when its end is known.
		gone := w.gone(peer)
		if gone != nil && (w.failedOf(w.page.Host(), peer).Load() != 0 ||
			!w.page.Reached(w.layout.Of(peer, page.Signal), page.At(o.first+1, 0, 0))) {
			return gone
		}
	}
	return nil
}

// fail ends all Ops after a failure.
func (w *windows) fail(failure *fault.Error) (any bool) {
	for o := w.queue.head(); o != nil; o = w.queue.head() {
		w.queue.pop()
		o.finish(failure)
		any, w.stopped = true, true
	}
	return any
}

// late returns the error of a call that is past its deadline, or nil.
func (w *windows) late(now time.Time) error {
	late := w.queue.head()
	if late == nil || !late.past(now) {
		w.lateSince = time.Time{}
		return nil
	}
	why, doubt := w.blame(late)
	if w.lateSince.IsZero() {
		w.lateSince = now
	}
	if now.Sub(w.lateSince) < time.Duration(doubt)*grace {
		return nil
	}
	return why.In(w.g.label(), late.describe())
}

// grace is how long a rank waits before it blames another, which may know better, for each doubt
// that it has. Where messages come from other hosts, a rank of this one that does not go on may
// wait for such a message, and the sender of that for a rank of its own host, which that host
// knows.
const grace = 200 * time.Millisecond

// blame says whom the oldest call waits for, and how doubtful that is.
func (w *windows) blame(o *Op) (why *fault.Error, doubt int) {
	if !w.page.Reached(w.layout.Begun(), page.At(o.first, 0, 0)) {
		return fault.Peer(fault.Timeout, w.g.rank, "the stream of this rank has not come to the call on device %d; what "+
			"was enqueued before it has not ended", w.g.ctx.Info().Index), 0
	}
	behind, least := w.g.rank, uint64(1<<63)
	for _, peer := range w.peers {
		come := max(w.page.Load(w.layout.Of(peer, page.Offer)), w.page.Load(w.layout.Of(peer, page.Signal)))
		if come < least {
			behind, least = peer, come
		}
	}
	missing, awaited := -1, -1 // on another host, and on this one
	for _, f := range w.forms {
		switch rank := f.awaits(o); {
		case slices.Contains(w.peers, rank):
			awaited, behind, least = rank, rank, w.page.Load(w.layout.Of(rank, page.Signal))
		case rank >= 0:
			missing = rank
		}
	}
	_, called, since := page.ReadPrint(w.pages[behind].Host, w.layout.Print(o.seq), o.seq)
	switch {
	case page.OpOf(least) <= o.first && behind != w.g.rank && !called && !since:
		return fault.Peer(fault.Timeout, behind, "rank %d is in no call since seq %d", behind, w.compared[behind]), 1
	case missing >= 0:
		return fault.Peer(fault.Timeout, missing, "rank %d, on another host, has not come as far in the call", missing), 2
	case behind == w.g.rank || page.OpOf(least) > o.first:
		return fault.Peer(fault.Timeout, w.g.rank, "device %d has not ended the call, although no rank is behind",
			w.g.ctx.Info().Index), 0
	case awaited >= 0:
		return fault.Peer(fault.Timeout, behind, "rank %d has not come as far in the call", behind), 1
	case w.g.route.Hosts > 1:
		return fault.Peer(fault.Timeout, behind, "the stream of rank %d does not go on in the call", behind), 3
	case least <= page.At(o.first, 0, 0):
		return fault.Peer(fault.Timeout, behind, "the stream of rank %d has not come to the call", behind), 1
	}
	return fault.Peer(fault.Timeout, behind, "the stream of rank %d has begun the call and does not go on", behind), 1
}
