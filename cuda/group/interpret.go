package group

import (
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/cuda"
	"github.com/goccl/goccl/cuda/group/emit"
	"github.com/goccl/goccl/cuda/group/page"
	"github.com/goccl/goccl/cuda/group/route"
	"github.com/goccl/goccl/cuda/group/share"
	"github.com/goccl/goccl/cuda/kernel"
	"github.com/goccl/goccl/internal/mem"
)

// interpreter executes short calls over windows: a call is one kernel, which interprets the program
// of the call as a table of steps (kernel.Table). The stream has nothing to do in between, and
// peers signal each other in the memory of their devices.
//
// The kernel waits for those of the peers. So it may only be used where these are executed
// meanwhile: by default where each rank has a device of its own, with a few blocks, which are all
// executed at once. When nothing else helps, the host lets it go (release); then it writes nothing
// more.
//
// The shortest calls do without signals (interpret_packets.go). A kernel that waits long tells its
// host for whom.
//
// Each rank's window has slots for such calls, which they use in turn, and flags: a word for each
// rank and block that writes it. A flag holds a position, as the words of pages do: that of the
// last signal in a call, or behind it, when the block has left the slots of all ranks. So a block
// waits for the block of the same number at its peers, which has the same part of every chunk. Only
// before it writes a slot again, whose last call may have had other parts, it waits for all blocks.
type interpreter struct {
	w            *windows
	emit.Emitter // its places are the slots, and its stream is steps
	steps        steps
	fits         map[*program.Lowered]bool
	folds        map[*program.Lowered]bool // see foldsOnce
	first        uint64                    // operation that is being enqueued,
	blocks       int                       // and its blocks
	turn         int                       // calls so far, but for those in packets
	put          uint64                    // calls in packets so far
	packets      []cuda.Ptr                // by rank: where they are
	operands     [kernel.MostRanks]uint64  // of a call in packets
	freeAt       [plan.WindowSlots]usedSlot
}

// usedSlot says where the peers are when they have left a slot.
type usedSlot struct {
	left   uint64
	blocks int // that each of them has then
}

// clearFlags clears the flags of this rank's window in the memory of its device, and the packets
// behind them.
func (o *setup) clearFlags() error {
	at, host, from := o.scratch(0)
	ended := o.access(at, true)
	clear(host)
	ended()
	flags := o.places[route.OnDevice][o.g.rank] + cuda.Ptr(o.windowRoom().RunsAt(o.slotOf(route.OnDevice)))
	for done, all := 0, share.RunsBytes(o.g.size); done < all; done += len(host) {
		if err := o.Stream.Copy(flags+cuda.Ptr(done), from, min(len(host), all-done)); err != nil {
			return err
		}
	}
	return o.Stream.Synchronize()
}

func newInterpreter(w *windows) *interpreter {
	ranks := len(w.Places)
	n := &interpreter{w: w, packets: make([]cuda.Ptr, ranks),
		fits: map[*program.Lowered]bool{}, folds: map[*program.Lowered]bool{},
		Emitter: emit.Emitter{Program: new(program.Program), Room: w.Room, Processors: 1,
			Functions: map[*kernel.Function]cuda.Function{}, Places: make([]cuda.Ptr, ranks)}}
	n.Room.Slot, n.Room.Piece = share.RunSlot, 0
	n.steps.table.Rank = uint32(w.g.rank)
	n.steps.table.Released = uint64(w.pages[w.g.rank].Device) + uint64(w.layout.Released())
	n.steps.table.Awaited = uint64(w.pages[w.g.rank].Device) + uint64(w.layout.Awaited(0))
	for rank, at := range w.Places {
		flags := at + cuda.Ptr(w.windowRoom().RunsAt(w.Room.Slot))
		n.steps.table.Flags[rank], n.Places[rank] = uint64(flags), flags+page.Align
		n.packets[rank] = n.Places[rank] + plan.WindowSlots*share.RunSlot
	}
	for _, f := range kernel.Functions() {
		n.Functions[f] = stepOf(f)
	}
	n.Stream = &n.steps
	return n
}

// learn notes whether calls with a plan can be tables: they cannot where any rank has too much
// to do. All ranks answer alike.
func (n *interpreter) learn(p *plan.Plan, low *program.Lowered) {
	n.fits[low] = fits(p)
	n.folds[low] = n.fits[low] && foldsOnce(p)
}

func fits(p *plan.Plan) bool {
	if p.Spec.Ranks > kernel.MostRanks || p.Win > share.RunSlot/mem.Align {
		return false
	}
	for rank := range p.Spec.Ranks {
		prog := p.Program(rank)
		flat := prog.Flat()
		steps := 2 // to enter and to leave
		for _, lane := range flat.Lanes {
			for i := range lane {
				s, does := &lane[i], lane[i].Kind.Traits()
				switch {
				case does.OnlySignals() && i > 0 && lane[i-1].Kind == s.Kind: // one for all
				case does.Flagged() && !does.Puts:
					steps++
				case len(s.Src) > kernel.MostSources:
					return false
				case len(s.Src) > 1:
					steps += 2 * s.Dst.N // an operand may be scaled before
				default:
					steps += s.Dst.N
				}
			}
		}
		if steps > kernel.MostSteps {
			return false
		}
	}
	return true
}

// suits reports whether a call is interpreted, and compiles its program then. All ranks answer
// alike: where a rank does not know the lengths of the others, nothing is interpreted.
func (n *interpreter) suits(o *Op) (bool, error) {
	call := &o.call
	if !n.fits[o.low] || !call.Coll.LengthsKnown() || call.Bytes() > tune.MostInterpreted {
		return false, nil
	}
	if err := n.Compile(call, o.low, 0); err != nil {
		return false, err
	}
	return n.Program.Last == 0, nil
}

// enqueue enqueues the kernel of a call, which suits has compiled.
func (n *interpreter) enqueue(o *Op) error {
	w := n.w
	o.cut.pieces = 1
	if err := w.Flush(); err != nil {
		return err
	}
	run, blocks := kernel.RunCopies(), blocksOf(&o.call)
	if o.call.Coll.Reduces() {
		run, _ = kernel.RunOf(o.call.Type, o.call.Op)
	}
	if n.inPackets(&o.call) {
		n.packetTable(o)
	} else if err := n.tableOf(o, blocks); err != nil {
		return err
	}
	if n.steps.full {
		return fault.New(fault.Internal, "plan %s has more steps than it seemed to have", n.Program.Low.Name)
	}
	err := w.Stream.Launch(w.Functions[run.Function], blocks, kernel.BlockSize, n.steps.table.Bytes())
	if err != nil {
		return err
	}
	return w.end(o, page.Signal)
}

// blocksOf returns how many blocks a call has, alike on all ranks.
func blocksOf(call *exec.Call) int {
	return min(kernel.Copy().Blocks(int(call.Bytes()), 1<<10), mostRunBlocks)
}

// mostRunBlocks is so small that the kernels of all ranks of a process find room on one device.
const mostRunBlocks = tune.MostInterpreted >> 14

// tableOf makes the table of a call.
func (n *interpreter) tableOf(o *Op, blocks int) error {
	n.steps.table.Count, n.steps.full = 0, false
	n.first, n.blocks, n.Slot = o.first, blocks, n.turn%plan.WindowSlots
	n.turn++
	return n.Emit(n.Program.Lanes[0], n)
}

// Enter has the kernel wait until all peers have left the slot. One that has come to a later call
// has left it: its kernels come one after the other.
func (n *interpreter) Enter() {
	if !n.Signals() {
		return
	}
	slot := &n.freeAt[n.Slot]
	for _, peer := range n.w.peers {
		if page.Before(n.w.seenAt[peer], slot.left) {
			n.await(peer, slot.left, slot.blocks)
			n.w.seenAt[peer] = slot.left
		}
	}
}

func (n *interpreter) Signal(nth int) { n.tell(page.At(n.first, 0, nth)) }

func (n *interpreter) Wait(peer, nth int) {
	n.w.seenAt[peer] = page.At(n.first, 0, 0)
	n.await(peer, page.At(n.first, 0, nth), 0)
}

func (n *interpreter) Leave() {
	left := page.At(n.first, 1, 0)
	if n.Signals() {
		n.freeAt[n.Slot] = usedSlot{left, n.blocks}
	}
	n.tell(left)
}

// await has the kernel wait for a position of a peer: that of its block with the same number, or of
// so many blocks.
func (n *interpreter) await(peer int, value uint64, blocks int) {
	n.steps.keep(n.steps.table.Wait(1<<peer, value, blocks))
}

// tell has the kernel write a position to all peers.
func (n *interpreter) tell(value uint64) {
	peers := uint32(0)
	for _, peer := range n.w.peers {
		peers |= 1 << peer
	}
	n.steps.keep(n.steps.table.Signal(peers, value))
}

// awaits returns the rank that a kernel has waited for long, or -1.
func (n *interpreter) awaits(*Op) int {
	for _, peer := range n.w.peers {
		if n.w.page.Load(n.w.layout.Awaited(peer)) != 0 {
			return peer
		}
	}
	return -1
}
