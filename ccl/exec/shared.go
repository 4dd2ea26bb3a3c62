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

// The memory of a window that peers read: a page with what its owner says of itself, and windowSlots slots that operations use in turn.
const (
	windowHeader = 4096
	windowSlots  = 2
)

// notice is what a rank says of the operation that uses a slot: how far it has come, and, written before the first signal, what it was called
// for.
type notice struct {
	word   atomic.Uint64 // number of the operation, from 1 (48) | signals that the rank has given in it (16)
	meta   transport.Meta
	last   uint64             // the number of its last piece, from 0, as far as this rank knows
	counts [mostCounts]uint64 // of an all_to_all: the elements of this rank's blocks
}

// mostCounts is the largest group whose all_to_all runs over windows without an exchange of lengths. It fills the page.
const mostCounts = 243

// page is the header of a window.
type page struct {
	left atomic.Uint64 // operations that the owner has left
	_    [120]byte
	each [windowSlots]notice
}

// Neither array has a length below zero only if a page has the size of the header.
var (
	_ [windowHeader - unsafe.Sizeof(page{})]byte
	_ [unsafe.Sizeof(page{}) - windowHeader]byte
)

// WindowBytes is the size of a window of which one operation may use slot bytes, a multiple of mem.Align. Longer operations run in pieces.
func WindowBytes(slot int) int { return windowHeader + windowSlots*slot }

// shared is the windows of a group whose ranks read each other's memory. An operation, or a piece of one, enters its slot when every rank
// has left the one before the last (plan.md, "Operations in sequence").
type shared struct {
	own   *mem.Window
	slot  int // bytes; 0 without windows
	begun uint64
	ranks []sharedRank
	fence park.Fence
}

type sharedRank struct {
	*page
	slots unsafe.Pointer
	known uint64 // operations that it has left, as far as this rank has seen
}

// open looks for the windows of all peers. Without an own window there are none.
func (w *shared) open(opts *Options) error {
	size := opts.Window.Size()
	if size == 0 {
		return nil
	}
	w.slot = (size - windowHeader) / windowSlots &^ (mem.Align - 1)
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
		w.ranks[r] = sharedRank{page: (*page)(unsafe.Pointer(&memory[0])), slots: unsafe.Pointer(&memory[windowHeader])}
	}
	w.own = opts.Window
	return nil
}

// slotOf is the memory of the slot that the operation under way uses, in the window of a rank.
func (w *shared) slotOf(rank int) unsafe.Pointer {
	return unsafe.Add(w.ranks[rank].slots, int(w.begun%windowSlots)*w.slot)
}

// late is a rank that has not left the operation which used the slot before, or -1. What a rank says of itself may be wrong, and then its own
// group gets wrong data; nothing else depends on it.
func (w *shared) late() int {
	for r := range w.ranks {
		each := &w.ranks[r]
		if each.known+windowSlots > w.begun {
			continue
		}
		if each.known = each.left.Load(); each.known+windowSlots <= w.begun {
			return r
		}
	}
	return -1
}

// notice is what a rank says of the operation that this rank is in.
func (w *shared) notice(rank int) *notice { return &w.ranks[rank].each[w.begun%windowSlots] }

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

// say tells all peers how many signals this rank has given: the first time with the call, and of an all_to_all with the lengths of the blocks. Before
// this rank waits, it must ring.
func (c *Comm) say(s *step, meta *transport.Meta, in []Block, last int) {
	n := c.windows.notice(c.rank)
	if s.first {
		n.meta, n.last = *meta, uint64(last)
		if s.counts {
			for i := range in {
				n.counts[i] = uint64(in[i].Count)
			}
		}
	}
	park.Publish(&n.word, c.windows.word(s.nth))
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

// hear takes the signal that a wait asks for, if it was given.
func (c *Comm) hear(s *step) (done bool, err error) {
	w := &c.windows
	if !w.heard(s.peer, s.nth) {
		if err := c.opts.Links[s.peer].Err(); err != nil && !w.heard(s.peer, s.nth) {
			return false, c.named(s.peer, err)
		}
		return false, nil
	}
	if !s.first {
		return true, nil
	}
	n := w.notice(s.peer)
	if n.meta != c.cur.print.meta(0) {
		return false, c.mismatch(s.peer, n.meta, 0)
	}
	c.cur.last = max(c.cur.last, int(n.last))
	if s.counts {
		return true, sameCount(s.peer, n.counts[c.rank], c.cur.op.out[s.peer].Count, "the block from it")
	}
	return true, nil
}

// asExpected reports whether a peer that was heard does the same as this rank, in one piece.
func (w *shared) asExpected(s *step, meta *transport.Meta, rank int, out []Block) bool {
	if !s.first {
		return true
	}
	n := w.notice(s.peer)
	return n.meta == *meta && n.last == 0 && (!s.counts || n.counts[rank] == uint64(out[s.peer].Count))
}

// leave tells the peers that this rank has left the operation. They may sleep.
func (w *shared) leave(rank int) {
	w.begun++
	w.ranks[rank].left.Store(w.begun)
}

// enter reports whether the operation may use its slot.
func (c *Comm) enter() (bool, error) {
	late := c.windows.late()
	if late < 0 {
		c.cur.entering = false
		return true, nil
	}
	if late != c.rank {
		if err := c.opts.Links[late].Err(); err != nil && c.windows.late() == late {
			return false, c.named(late, err)
		}
	}
	return false, nil
}

// leave ends a piece of an operation: this rank reads no window of a peer any more. It reports whether the operation has another piece, which
// is bound then.
func (c *Comm) leave() (again bool, err error) {
	cur := &c.cur
	if !cur.low.slots {
		return false, nil
	}
	c.windows.leave(c.rank)
	c.notifyAll()
	if cur.piece == cur.last {
		return false, nil
	}
	cur.piece++
	return true, c.bind(cur.op, cur.low)
}

// pieces cuts an operation whose plan reads windows, so that every chunk of a window fits its cell of the slot. All ranks find the same,
// because the lengths of all blocks are known to all of them, by the collective or by the exchange, or because each waits in every
// piece for all others and hears from them how many they need.
type pieces struct {
	entering    bool // the slot of the piece is not free yet
	piece, last int
	reach       int // elements of each block in one piece; 0: all
	cell        int // bytes of a chunk of a window
}

// cutPieces is called before the first piece is bound.
func (c *Comm) cutPieces(low *lowered, in, out []Block, size int) {
	cur := &c.cur
	cur.piece, cur.last, cur.reach = 0, 0, 0
	if !low.slots || low.window == 0 {
		return
	}
	cur.cell = c.windows.slot / low.window &^ (mem.Align - 1)
	cur.reach = cur.cell / max(size, 1) * low.split
	longest := 0
	if low.counts {
		for _, n := range cur.matrix {
			longest = max(longest, int(n))
		}
	}
	for _, blocks := range [2][]Block{in, out} {
		for _, b := range blocks {
			longest = max(longest, b.Count)
		}
	}
	cur.last = max(0, longest-1) / cur.reach
}

// share is the part of a block of so many elements that the piece has: n elements from element at.
func (p *pieces) share(count int) (at, n int) {
	if p.reach == 0 {
		return 0, count
	}
	at = min(p.piece*p.reach, count)
	return at, min(p.reach, count-at)
}

// source is chunk i of the kth source of a step: in memory of this rank, or in the window of a peer.
func (c *Comm) source(s *step, k, i int) unsafe.Pointer {
	r := s.src[k]
	if s.from == nil || s.from[k] == c.rank {
		return c.cur.bufs[r.Buf][r.At+i].ptr
	}
	return unsafe.Add(c.windows.slotOf(s.from[k]), (r.At+i)*c.cur.cell)
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
