package exec

import (
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/mem"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/transport"
)

// uneven is the announced length of blocks that differ.
const uneven = low48

// evenCount is the elements of each block, or uneven.
func evenCount(blocks []Block) uint64 {
	for _, b := range blocks {
		if b.Count != blocks[0].Count {
			return uneven
		}
	}
	return uint64(blocks[0].Count)
}

// inline is the bytes of a chunk if all of a window fit a record, else 0.
func (low *lowered) inline(count uint64, size int) int {
	if low.split > 1 || count > window.InlineBytes || low.window*int(count)*size > window.InlineBytes {
		return 0
	}
	return int(count) * size
}

// announceMore writes what a record says besides the call. In a plan in which every rank hears from
// every other before it takes anything blocks may have lengths that only two ranks know: such a
// plan announces lengths, and in place of what nobody could compare the fingerprint has the number
// of the rank's last piece, and the elements of its blocks, or uneven.
func (c *Comm) announceMore(n *window.Record, call *Call) {
	if low := c.frame.prog.low; low.announces && c.frame.fingerprint[2]&low48 == uneven {
		for i := range call.In {
			n.Counts[i] = uint64(call.In[i].Count)
		}
	}
	n.Expose(&c.frame.Exposure)
}

// examine compares what a peer has announced of the operation under way with what this rank knows.
func (c *Comm) examine(f *frame, peer int, n *window.Record, call *Call) error {
	low, heard := f.prog.low, n.Call
	if low.announces {
		heard[1] &^= low48
		heard[2] &^= low48
	}
	if heard != f.meta(0) {
		return c.mismatch(peer, n.Call, 0)
	}
	f.dynamic = true
	if !low.announces {
		return nil
	}
	f.last = max(f.last, int(n.Call[1]&low48))
	count := n.Call[2] & low48
	if count == uneven {
		count = n.Counts[c.rank]
	}
	return sameCount(peer, count, call.Out[peer].Count, "the block from it")
}

// ring wakes the peers that sleep and should see what was said.
func (c *Comm) ring() {
	c.fence.Pass()
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
	c.windows.Leave(called)
	c.notifyAll()
	c.windows.Settle(c.rank)
}

// fits refuses a plan whose windows this group does not have, or for which they have no room. All
// ranks refuse alike.
func fits(w *window.Set, p *plan.Plan, prog *plan.Program) error {
	switch {
	case p.Needs&plan.Gets == 0:
	case w.Slot == 0:
		return fault.New(fault.NotSupported,
			"plan %s reads windows of peers%s: it needs ranks that all share memory, on one host and not by TCP; choose another algorithm",
			p.Name, firstGet(prog))
	case p.Win > w.Slot/mem.Align:
		return fault.New(fault.NotSupported, "plan %s needs %d chunks of a window, this group has room for %d", p.Name, p.Win, w.Slot/mem.Align)
	}
	return nil
}
