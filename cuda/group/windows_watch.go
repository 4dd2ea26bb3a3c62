package group

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
)

// hand gives an Op to the device thread.
func (w *windows) hand(o *Op) {
	w.op++
	o.first = w.op
	w.handing.Lock()
	defer w.handing.Unlock()
	w.handed = append(w.handed, o)
}

// head returns the oldest Op that has not ended, or nil.
func (w *windows) head() *Op {
	w.handing.Lock()
	defer w.handing.Unlock()
	if len(w.handed) == 0 {
		return nil
	}
	return w.handed[0]
}

// pop takes the oldest Op out of the list.
func (w *windows) pop() {
	w.handing.Lock()
	defer w.handing.Unlock()
	w.handed = slices.Delete(w.handed, 0, 1)
}

// advance ends the Ops that the device has ended, and looks at what the peers have called.
func (w *windows) advance() (moved, pending bool) {
	if w == nil {
		return false, false
	}
	// First whether the device has ended it, then the prints: those of peers that it has waited for
	// are there by then, so a call that differs fails and does not end.
	o := w.head()
	ended := o != nil && o.messages.Load() == 0 && w.page.Reached(w.layout.ended(), at(o.first+1, 0, 0))
	if err := w.compare(); err != nil {
		w.g.fail(err)
		return true, true
	}
	if !ended || w.failed() {
		return false, o != nil
	}
	w.pop()
	o.finish(nil)
	return true, w.head() != nil
}

// failed reports whether a peer has failed, and perhaps written words for something that it has not
// waited for. This rank is about to be told why.
func (w *windows) failed() bool {
	for _, peer := range w.peers {
		if w.flagOf(w.page.Host(), peer).Load() != 0 {
			return true
		}
	}
	return false
}

// flagOf returns the word in a page in which the host of a peer says that it has failed.
func (w *windows) flagOf(page []byte, peer int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(wordAt(page, w.layout.of(peer, wordFailed))))
}

// announce writes the print of a call, over windows or not.
func (w *windows) announce(o *Op) {
	if w != nil && o.call.Coll.Valid() {
		writePrint(w.page.Host(), w.layout.print(o.seq), o.seq, exec.Print(&o.call, o.seq))
	}
}

// compare compares the prints of calls with those of the peers, as far as these have come. The
// device does not: it reads no more than this rank's lengths, whatever the peers have called.
func (w *windows) compare() error {
	mine := w.page.Host()
	for _, peer := range w.peers {
		for seq := w.compared[peer] + 1; ; seq++ {
			offset := w.layout.print(seq)
			own, there, forgotten := readPrint(mine, offset, seq)
			if !there && !forgotten {
				break
			}
			other, there, passed := readPrint(w.pages[peer].host, offset, seq)
			if !there && !passed {
				break
			}
			w.compared[peer] = seq
			if there && !forgotten && own != other {
				return fault.Peer(fault.Mismatch, peer, "rank %d called %s, and rank %d called %s", w.g.rank,
					exec.DescribePrint(own), peer, exec.DescribePrint(other))
			}
		}
	}
	return nil
}

// lost returns why the oldest call cannot end, or nil: a peer has gone before it has done its part.
func (w *windows) lost() error {
	o := w.head()
	if o == nil {
		return nil
	}
	if err := w.g.comm.Check(); err != nil {
		return err
	}
	for _, peer := range w.peers {
		// What the peer wrote before it went is there when its end is known.
		gone := w.gone(peer)
		if gone != nil && (w.flagOf(w.page.Host(), peer).Load() != 0 ||
			!w.page.Reached(w.layout.of(peer, wordSignal), at(o.first+1, 0, 0))) {
			return gone
		}
	}
	return nil
}

// gone returns why a peer has gone, or nil: what it has said before it went, if anything. Who
// drives the control group at this moment may be about to read that, so it has goneSpan. If the
// peer has died, the control group settles first who else has.
func (w *windows) gone(peer int) *fault.Error {
	gone := w.g.comm.Gone(peer)
	if gone == nil {
		return nil
	}
	if failure := w.g.comm.Check(); failure != nil {
		return failure
	}
	now := time.Now().UnixNano()
	if w.goneAt[peer].CompareAndSwap(0, now) || now-w.goneAt[peer].Load() < int64(goneSpan) {
		return nil
	}
	if gone.Code == fault.PeerLost {
		return w.g.comm.Mourn()
	}
	return gone
}

const goneSpan = 50 * time.Millisecond

// release lets the stream go, whatever it waits for. The caller holds the lock of words. A peer
// whose stream still goes on may write a word again, so this is repeated until the stream has
// ended.
func (w *windows) release() {
	w.warn()
	for _, peer := range w.peers {
		for k, word := range [3]int{wordOffer, wordSignal, wordLeft} {
			offset, l := w.layout.of(peer, word), &w.let[peer][k]
			if come := w.page.Load(offset); !l.stored || come != l.value {
				*l = let{true, come + out}
				w.page.Store(offset, l.value)
			}
		}
	}
	w.runs.release()
	w.graphs.release()
}

// warn tells the hosts of the peers that this rank has failed, before its stream is let go.
func (w *windows) warn() {
	for _, peer := range w.peers {
		w.flagOf(w.pages[peer].host, w.g.rank).Store(1)
	}
}

// askStreams asks the driver whether the streams have ended, after the group has failed. It does
// not wait for a call that is being enqueued, but then there is more to come; later calls are
// refused.
func (w *windows) askStreams() {
	if !w.g.mu.TryLock() {
		return
	}
	w.g.mu.Unlock()
	if err := w.g.ctx.Enter(true); err != nil {
		w.over.Store(true)
		return
	}
	defer w.g.ctx.Leave()
	done, err := w.stream.Done()
	if done {
		done, err = w.ahead.Done()
	}
	if done || err != nil {
		w.over.Store(true)
	}
}

// cleanUp ends all Ops after a failure.
func (w *windows) cleanUp(failure *fault.Error) (any bool) {
	if w == nil {
		return false
	}
	for o := w.head(); o != nil; o = w.head() {
		w.pop()
		o.finish(failure)
		any, w.stopped = true, true
	}
	return any
}

// late returns the error of a call that is past its deadline, or nil.
func (w *windows) late(now time.Time) error {
	w.handing.Lock()
	var late *Op
	if len(w.handed) > 0 && w.handed[0].past(now) {
		late = w.handed[0]
	}
	w.handing.Unlock()
	if late == nil {
		w.lateSince = time.Time{}
		return nil
	}
	why, doubt := w.blame(w.head())
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
	if !w.page.Reached(w.layout.begun(), at(o.first, 0, 0)) {
		return fault.Peer(fault.Timeout, w.g.rank, "the stream of this rank has not come to the call on device %d; what "+
			"was enqueued before it has not ended", w.g.ctx.Info().Index), 0
	}
	behind, least := w.g.rank, uint64(1<<63)
	for _, peer := range w.peers {
		come := max(w.page.Load(w.layout.of(peer, wordOffer)), w.page.Load(w.layout.of(peer, wordSignal)))
		if come < least {
			behind, least = peer, come
		}
	}
	missing := w.rails.missing(o)
	awaited := w.runs.awaited()
	if awaited >= 0 {
		behind, least = awaited, w.page.Load(w.layout.of(awaited, wordSignal))
	}
	_, called, since := readPrint(w.pages[behind].host, w.layout.print(o.seq), o.seq)
	switch {
	case opOf(least) <= o.first && behind != w.g.rank && !called && !since:
		return fault.Peer(fault.Timeout, behind, "rank %d is in no call since seq %d", behind, w.compared[behind]), 1
	case missing >= 0:
		return fault.Peer(fault.Timeout, missing, "rank %d, on another host, has not come as far in the call", missing), 2
	case behind == w.g.rank || opOf(least) > o.first:
		return fault.Peer(fault.Timeout, w.g.rank, "device %d has not ended the call, although no rank is behind",
			w.g.ctx.Info().Index), 0
	case awaited >= 0:
		return fault.Peer(fault.Timeout, behind, "rank %d has not come as far in the call", behind), 1
	case w.rails != nil:
		return fault.Peer(fault.Timeout, behind, "the stream of rank %d does not go on in the call", behind), 3
	case least <= at(o.first, 0, 0):
		return fault.Peer(fault.Timeout, behind, "the stream of rank %d has not come to the call", behind), 1
	}
	return fault.Peer(fault.Timeout, behind, "the stream of rank %d has begun the call and does not go on", behind), 1
}
