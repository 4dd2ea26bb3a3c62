package exec

import (
	"sync/atomic"
	"unsafe"

	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/plan"
)

// The memory of a window that peers read: a page with the word that says how many operations its owner has left, and
// windowSlots slots that operations use in turn.
const (
	windowHeader = 4096
	windowSlots  = 2
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
}

type sharedRank struct {
	left  *atomic.Uint64
	slots unsafe.Pointer
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
		w.ranks[r] = sharedRank{(*atomic.Uint64)(unsafe.Pointer(&memory[0])), unsafe.Pointer(&memory[windowHeader])}
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
		if w.ranks[r].left.Load()+windowSlots <= w.begun {
			return r
		}
	}
	return -1
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
	if !cur.low.gets {
		return false, nil
	}
	w := &c.windows
	w.begun++
	w.ranks[c.rank].left.Store(w.begun)
	for _, link := range c.opts.Links {
		if link != nil {
			link.Notify()
		}
	}
	if cur.piece == cur.last {
		return false, nil
	}
	cur.piece++
	return true, c.bind(cur.op, cur.low)
}

// pieces cuts an operation whose plan reads windows, so that every chunk of a window fits its cell of the slot. All ranks find the same,
// because the lengths of all blocks are known to all of them, by the collective or by the exchange.
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
	if !low.gets || low.window == 0 {
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
