package exec

import (
	"slices"

	"github.com/goccl/goccl/ccl/exec/fingerprint"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/program"
)

// announceMore writes the parts of this rank's record other than the call: the lengths of its
// blocks, and what it exposes.
//
// In a plan in which every rank waits for every other, blocks may have lengths that only two ranks
// know. Such a plan announces lengths. The parts of the fingerprint that other ranks could not
// compare then hold the number of this rank's last piece, and the number of elements in each of its
// blocks, or program.Uneven if the blocks differ.
func (r *runner) announceMore(n *window.Record, call *Call) {
	if low := r.frame.prog.Low; low.Announces && r.frame.fingerprint[2]&fingerprint.Low48 == program.Uneven {
		for i := range call.In {
			n.Counts[i] = uint64(call.In[i].Count)
		}
	}
	n.Expose(&r.frame.Exposure)
}

// examine compares what a peer has announced of the operation in flight with what this rank knows.
func (r *runner) examine(f *frame, peer int, n *window.Record, call *Call) error {
	low, heard := f.prog.Low, n.Call
	if low.Announces {
		heard[1] &^= fingerprint.Low48
		heard[2] &^= fingerprint.Low48
	}
	if heard != f.meta(0) {
		return r.mismatch(peer, n.Call, 0)
	}
	f.dynamic = true
	if !low.Announces {
		return nil
	}
	if last := int(n.Call[1] & fingerprint.Low48); last > f.last {
		f.last, f.farthest = last, peer
	}
	count := n.Call[2] & fingerprint.Low48
	longest := count
	if count == program.Uneven {
		count = n.Counts[r.links.Rank]
		longest = slices.Max(n.Counts[:r.links.Size()])
	}
	f.longest = max(f.longest, longest)
	return r.sameCount(peer, count, call.Out[peer].Count, "the block from it")
}

// plausible refuses a number of pieces that follows from no block that this rank has or the others
// announce: otherwise a rank that is wrong could keep the others busy for ever. In the piece that
// has just ended this rank has heard from all others.
func (f *frame) plausible() error {
	if f.last <= f.prog.Last || f.last <= f.prog.LastOf(f.longest) {
		return nil
	}
	return fault.Peer(fault.Internal, f.farthest, "announces piece %d of an operation whose blocks end with piece %d",
		f.last, max(f.prog.Last, f.prog.LastOf(f.longest)))
}

// ring wakes sleeping peers so that they see what this rank has published.
func (r *runner) ring() {
	r.fence.Pass()
	r.links.Notify()
}

// leaveSlot announces to the peers that this rank has left the operation.
func (r *runner) leaveSlot() {
	r.windows.Leave()
	r.links.Notify()
	r.windows.Settle(r.links.Rank)
}
