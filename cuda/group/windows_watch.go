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
	ended := o != nil && w.page.Reached(w.layout.ended(), at(o.first+1, 0, 0))
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
	for peer := range w.pages {
		if peer != w.g.rank && w.flagOf(w.page.Host(), peer).Load() != 0 {
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
	for peer := range w.pages {
		for seq := w.compared[peer] + 1; peer != w.g.rank; seq++ {
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
	for peer := range w.pages {
		if peer == w.g.rank {
			continue
		}
		// What the peer wrote before it went is there when its end is known.
		gone := w.g.comm.Gone(peer)
		if gone != nil && (w.flagOf(w.page.Host(), peer).Load() != 0 ||
			!w.page.Reached(w.layout.of(peer, wordSignal), at(o.first+1, 0, 0))) {
			return gone
		}
	}
	return nil
}

// release lets the stream go, whatever it waits for. The caller holds the lock of words. A peer
// whose stream still goes on may write a word again, so this is repeated until the stream has
// ended.
func (w *windows) release() {
	for peer := range w.pages {
		if peer != w.g.rank {
			w.flagOf(w.pages[peer].host, w.g.rank).Store(1)
		}
	}
	for peer := range w.pages {
		if peer == w.g.rank {
			continue
		}
		for _, word := range [3]int{wordOffer, wordSignal, wordLeft} {
			offset := w.layout.of(peer, word)
			if come := w.page.Load(offset); opOf(come) < out>>32 {
				w.page.Store(offset, come+out)
			}
		}
	}
	w.graphs.release()
}

// released reports whether the stream has ended after the group has failed, and no graph waits. It
// does not wait for a call that is being enqueued, but then there is more to come; later calls are
// refused.
func (w *windows) released() bool {
	switch {
	case w == nil:
		return true
	case w.graphs.waiting():
		return false
	case w.over:
		return true
	}
	if !w.g.mu.TryLock() {
		return false
	}
	defer w.g.mu.Unlock()
	if err := w.g.ctx.Enter(true); err != nil {
		return true
	}
	defer w.g.ctx.Leave()
	done, err := w.stream.Done()
	if done {
		done, err = w.ahead.Done()
	}
	w.over = done || err != nil
	return w.over
}

// cleanUp ends all Ops after a failure.
func (w *windows) cleanUp(failure *fault.Error) (any bool) {
	if w == nil {
		return false
	}
	for o := w.head(); o != nil; o = w.head() {
		w.pop()
		o.finish(failure)
		any = true
	}
	return any
}

// late returns the error of a call that is past its deadline, or nil.
func (w *windows) late(now time.Time) error {
	since := int64(now.Sub(epoch))
	w.handing.Lock()
	var late *Op
	for i, o := range w.handed {
		limit := o.limit.Load()
		if limit != 0 && limit < since || i == 0 && !o.deadline.IsZero() && now.After(o.deadline) {
			late = o
			break
		}
	}
	w.handing.Unlock()
	if late == nil {
		w.lateSince = time.Time{}
		return nil
	}
	why := w.blame(w.head())
	if w.lateSince.IsZero() {
		w.lateSince = now
	}
	if why.Peer != w.g.rank && now.Sub(w.lateSince) < grace {
		return nil
	}
	return why.In(w.g.label(), late.describe())
}

// grace is how long a rank waits before it blames another, which may know better.
const grace = 200 * time.Millisecond

// blame says whom the oldest call waits for.
func (w *windows) blame(o *Op) *fault.Error {
	if !w.page.Reached(w.layout.begun(), at(o.first, 0, 0)) {
		return fault.Peer(fault.Timeout, w.g.rank, "the stream of this rank has not come to the call on device %d; what "+
			"was enqueued before it has not ended", w.g.ctx.Info().Index)
	}
	behind, least := w.g.rank, uint64(1<<63)
	for peer := range w.pages {
		come := max(w.page.Load(w.layout.of(peer, wordOffer)), w.page.Load(w.layout.of(peer, wordSignal)))
		if peer != w.g.rank && come < least {
			behind, least = peer, come
		}
	}
	_, called, since := readPrint(w.pages[behind].host, w.layout.print(o.seq), o.seq)
	switch {
	case behind == w.g.rank || opOf(least) > o.first:
		return fault.Peer(fault.Timeout, w.g.rank, "device %d has not ended the call, although no rank is behind",
			w.g.ctx.Info().Index)
	case !called && !since:
		return fault.Peer(fault.Timeout, behind, "rank %d is in no call since seq %d", behind, w.compared[behind])
	case least <= at(o.first, 0, 0):
		return fault.Peer(fault.Timeout, behind, "the stream of rank %d has not come to the call", behind)
	}
	return fault.Peer(fault.Timeout, behind, "the stream of rank %d has begun the call and does not go on", behind)
}
