package exec

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/park"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

// The memory of a window that peers read: pages with what its owner says of itself, and plan.WindowSlots slots that
// operations use in turn. Every operation has one of plan.WindowNotices notices in the page: one that needs no slot
// may be as many ahead of the slowest rank.
const windowHeader = 8192

// notice is what a rank says of the operation that uses a slot: how far it has come, and, written before the first signal, what it was called
// for. The chunks of its window are here too if they are tiny: then one cache line travels, and not two.
type notice struct {
	word   atomic.Uint64  // number of the operation, from 1 (48) | signals that the rank has given in it (16)
	meta   transport.Meta // as fingerprint.meta makes it; of told plans see announceMore
	tiny   [tinyBytes]byte
	counts [mostCounts]uint64 // told plans: the elements of this rank's blocks, where they differ
	mask   uint64             // by chunk of the window: it is lent, and lies at
	lent   [mostLent]uint64   // this place of the rank's arena
}

const (
	tinyBytes  = 32
	mostCounts = 48 // the largest group whose all_to_all runs over windows without an exchange of lengths
	uneven     = low48
)

// page is the header of a window.
type page struct {
	left atomic.Uint64 // operations that the owner has left
	_    [56]byte
	seat atomic.Uint64 // where the owner ran (settle)
	_    [56]byte
	each [plan.WindowNotices]notice
}

// A page fits the header, and notices begin a cache line: no array may have a length below zero.
var (
	_ [windowHeader - unsafe.Sizeof(page{})]byte
	_ [-(unsafe.Sizeof(notice{}) % 64)]byte
)

// WindowBytes is the size of a window of which one operation may use slot bytes, a multiple of mem.Align. Longer operations run in pieces.
func WindowBytes(slot int) int { return windowHeader + plan.WindowSlots*slot }

// shared is the windows of a group whose ranks read each other's memory. An operation, or a piece of one, enters its slot when every rank
// has left the one before the last (plan.md, "Operations in sequence").
type shared struct {
	own   *mem.Window
	slot  int // bytes; 0 without windows
	begun uint64
	least uint64 // operations that every rank has left, as far as this rank has seen
	ranks []sharedRank
	page  *page // of this rank, and its notices
	each  noticePointers
	fence park.Fence
	seats *park.Seats // nil where there are cores for all ranks
	// All ranks have said where they run, and those are on the core of this one.
	seated bool
	mates  []int
	vain   int // waits since then for which the peer was too late

	// What this rank called, by turn: peers that have called another thing may have said so only then.
	past [plan.WindowNotices]transport.Meta

	arena  *mem.Arena // registered memory of this process, where all ranks have such
	arenas [][]byte   // that of each peer
}

// noticePointers are the notices of a page. Each has a pointer of its own because Go, asked for one of
// the page's by its number, would first read the page's first byte, to fail if the page is nil. That is
// in the line that the owner writes in every operation.
type noticePointers [plan.WindowNotices]*notice

type sharedRank struct {
	page  *page
	each  noticePointers
	slots unsafe.Pointer
	known uint64 // operations that it has left, as far as this rank has seen
}

func windowOf(p *page, slots unsafe.Pointer) sharedRank {
	r := sharedRank{page: p, slots: slots}
	for turn := range p.each {
		r.each[turn] = &p.each[turn]
	}
	return r
}

// open looks for the windows of all peers. Without an own window there are none.
func (w *shared) open(opts *Options) error {
	size := opts.Window.Size()
	if size == 0 {
		return nil
	}
	w.slot = (size - windowHeader) / plan.WindowSlots &^ (mem.Align - 1)
	if w.slot <= 0 {
		return fault.New(fault.Invalid, "a window of %d bytes; the least is %d", size, WindowBytes(mem.Align))
	}
	w.ranks = make([]sharedRank, len(opts.Links))
	for r, link := range opts.Links {
		memory := opts.Window.Bytes()
		if link != nil {
			memory = link.Window()
		}
		if len(memory) != size {
			return fault.Peer(fault.Internal, r, "its window has %d bytes, that of rank %d has %d", len(memory), opts.Rank, size)
		}
		w.ranks[r] = windowOf((*page)(unsafe.Pointer(&memory[0])), unsafe.Pointer(&memory[windowHeader]))
	}
	w.page, w.each = w.ranks[opts.Rank].page, w.ranks[opts.Rank].each
	w.own, w.seats = opts.Window, park.NewSeats(len(w.ranks))
	w.openArenas(opts)
	return nil
}

// evenCount is the elements of each block, or uneven.
func evenCount(blocks []Block) uint64 {
	for _, b := range blocks {
		if b.Count != blocks[0].Count {
			return uneven
		}
	}
	return uint64(blocks[0].Count)
}

// tiny is the bytes of a chunk if all of a window fit a notice, else 0.
func (low *lowered) tiny(count uint64, size int) int {
	if low.split > 1 || count > tinyBytes || low.window*int(count)*size > tinyBytes {
		return 0
	}
	return int(count) * size
}

// slotOf is the memory of the slot that the operation under way uses, in the window of a rank.
func (w *shared) slotOf(rank int) unsafe.Pointer {
	return unsafe.Add(w.ranks[rank].slots, int(w.begun%plan.WindowSlots)*w.slot)
}

// late is a rank that has not left the operation so many turns ago, whose memory the one under way uses again, or -1. What a rank says of itself
// may be wrong, and then its own group gets wrong data; nothing else depends on it.
func (w *shared) late(turns uint64) int {
	if w.least+turns > w.begun {
		return -1
	}
	least := w.begun
	for r := range w.ranks {
		each := &w.ranks[r]
		if each.known+turns <= w.begun {
			if each.known = each.page.left.Load(); each.known+turns <= w.begun {
				return r
			}
		}
		least = min(least, each.known)
	}
	w.least = least
	return -1
}

// notice is what a rank says of the operation that this rank is in.
func (w *shared) notice(rank int) *notice { return w.ranks[rank].each[w.begun%plan.WindowNotices] }

// word is a notice's word after so many signals.
func (w *shared) word(signals int) uint64 { return (w.begun+1)<<16 | uint64(signals) }

// heard reports whether a rank has given so many signals in the operation that this rank is in.
func (w *shared) heard(rank, signals int) bool {
	if w.notice(rank).word.Load() < w.word(signals) {
		return false
	}
	w.ranks[rank].known = max(w.ranks[rank].known, w.begun) // it has entered this operation, so it has left those before
	return true
}

// announceMore writes what a notice says besides the call. In a plan in which every rank hears from every other before it takes anything blocks may have
// lengths that only two ranks know: such a plan is told, and in place of what nobody could compare said has the number of the rank's last piece,
// and the elements of its blocks, or uneven.
func (c *Comm) announceMore(n *notice, call *Call) {
	if low := c.frame.prog.low; low.told && c.frame.said[2]&low48 == uneven {
		for i := range call.In {
			n.counts[i] = uint64(call.In[i].Count)
		}
	}
	c.frame.exposure.tell(n)
}

// differs reports whether a rank has announced something that has to be looked at: another call, other lengths, or memory that it exposes.
func (n *notice) differs(said *transport.Meta, lends bool) bool {
	return n.meta[0] != said[0] || n.meta[1] != said[1] || n.meta[2] != said[2] || lends && n.mask != 0
}

// examine compares what a peer has announced of the operation under way with what this rank knows.
func (c *Comm) examine(f *frame, peer int, n *notice, call *Call) error {
	low, heard := f.prog.low, n.meta
	if low.told {
		heard[1] &^= low48
		heard[2] &^= low48
	}
	if heard != f.meta(0) {
		return c.mismatch(peer, n.meta, 0)
	}
	f.dynamic = true
	if !low.told {
		return nil
	}
	f.last = max(f.last, int(n.meta[1]&low48))
	count := n.meta[2] & low48
	if count == uneven {
		count = n.counts[c.rank]
	}
	return sameCount(peer, count, call.Out[peer].Count, "the block from it")
}

// ring wakes the peers that sleep and should see what was said.
func (c *Comm) ring() {
	c.windows.fence.Pass()
	c.notifyAll()
}

// notifyAll wakes the peers that sleep.
func (c *Comm) notifyAll() {
	for _, link := range c.opts.Links {
		if link != nil {
			link.Notify()
		}
	}
}

// leaveSlot tells the peers that this rank has left the operation that it called so.
func (c *Comm) leaveSlot(called *transport.Meta) {
	w := &c.windows
	past := &w.past[w.begun%plan.WindowNotices]
	past[0], past[1], past[2] = called[0], called[1], called[2] // one by one, as runLane
	w.begun++
	w.page.left.Store(w.begun) // a fence, after which nobody who sleeps is missed
	c.notifyAll()
	if w.seats != nil && w.begun%(seatEvery/2) == 0 {
		w.settle(c.rank)
	}
}

// parted is the last operation over windows of which this rank and a peer have said different things, if neither has forgotten it.
func (c *Comm) parted(peer int) (mine, theirs transport.Meta, found bool) {
	w := &c.windows
	if w.slot == 0 {
		return mine, theirs, false
	}
	for back := uint64(1); back < plan.WindowNotices && back <= w.begun; back++ {
		at := w.begun - back
		n := w.ranks[peer].each[at%plan.WindowNotices]
		mine, theirs = w.past[at%plan.WindowNotices], n.meta
		if n.word.Load()>>16 == at+1 && differ(mine, theirs) {
			return mine, theirs, true
		}
	}
	return mine, theirs, false
}

// fits refuses a plan whose windows this group does not have, or for which they have no room. All ranks refuse alike.
func (w *shared) fits(p *plan.Plan, prog *plan.Program) error {
	switch {
	case p.Needs&plan.Gets == 0:
	case w.slot == 0:
		return fault.New(fault.NotSupported,
			"plan %s reads windows of peers%s: it needs ranks that all share memory, on one host and not by TCP; choose another algorithm",
			p.Name, firstGet(prog))
	case p.Win > w.slot/mem.Align:
		return fault.New(fault.NotSupported, "plan %s needs %d chunks of a window, this group has room for %d", p.Name, p.Win, w.slot/mem.Align)
	}
	return nil
}
