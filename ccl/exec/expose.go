package exec

import (
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// A call's buffers may lie in memory that the peers have mapped (mem.Arena). Where the plan allows
// it (plan.Lend, proven by package verify), a chunk of the window that would be a copy of such a
// buffer then is that buffer: the copy is onto itself and skipped, and the record of the operation
// says for each chunk whether it is exposed, and where in the arena it is. Each rank decides for
// itself, for each chunk; the others look.
//
// The caller may write its buffers again when the call returns, so who has exposed waits at the end
// until all ranks have left the operation.
//
// What PREMUL_SUM copies into a window is multiplied by then, so such calls expose nothing.

const (
	// So many bytes are worth the waiting at the end. Below, a copy takes less: of an all_reduce,
	// whose result is exposed too, far longer, since its lines then go to and fro between the
	// ranks, where those of a window are written over.
	leastExposed        = 32 << 10
	leastExposedReduced = 640 << 10
)

// exposingHash marks the calls of a group that exposes: a rank that would not look for what is
// exposed is found, and reads nothing wrong.
const exposingHash = 0x1e4d

// exposure is what this rank exposes in the operation under way.
type exposure struct {
	exposing        bool                       // it may
	window.Exposure                            // in the piece under way
	exposed         [window.MaxExposed]address // where, for those
}

// exposableRefs is what chunks of the window may stand for, nil where the plan, or the group,
// exposes nothing.
func exposableRefs(w *window.Set, p *plan.Plan, prog *plan.Program, low *lowered) []plan.Ref {
	if !w.Exposes() || p.Alias&plan.Lend == 0 || !low.words || low.counts || p.Win > window.MaxExposed {
		return nil
	}
	return prog.Lent()
}

// mayExpose reports whether enough of a call lies where peers can read it.
func (c *Comm) mayExpose(low *lowered, call *Call) bool {
	if !low.exposes || call.Coll.Reduces() && call.Op == dtype.PremulSum {
		return false
	}
	bytes := 0
	for _, r := range low.exposable {
		if r.N == 0 {
			continue
		}
		blocks := call.In
		if r.Buf == plan.Out {
			blocks = call.Out
		}
		b := &blocks[r.At/low.split]
		if _, ok := c.windows.Place(b.Ptr, 0); ok {
			bytes += b.Count * call.Type.Size() / low.split
		}
	}
	return bytes >= worthExposing(call.Coll)
}

func worthExposing(coll dtype.Collective) int {
	if coll == dtype.AllReduce {
		return leastExposedReduced
	}
	return leastExposed
}

// expose decides what chunks of this rank's window stand for in the piece that begins.
func (c *Comm) expose(p *program, call *Call) {
	f := &c.frame
	if f.Mask = 0; p.piece == 0 {
		f.exposing = c.mayExpose(p.low, call)
	}
	if !f.exposing {
		return
	}
	for i, r := range p.low.exposable {
		if r.N == 0 {
			continue
		}
		source := &p.chunks[r.Buf][r.At]
		if source.bytes == 0 {
			continue
		}
		ptr := source.in(f, call)
		at, ok := c.windows.Place(ptr, source.bytes)
		if !ok {
			continue
		}
		f.Mask |= 1 << i
		f.Places[i], f.exposed[i] = uint64(at), ptr
		f.dynamic = true
	}
}

// outOfRange is the error for a place outside of a peer's arena.
func (c *Comm) outOfRange(peer int) error {
	return fault.Peer(fault.Internal, peer, "says that its buffer lies outside of its registered memory")
}

// lateRank is the rank that keeps the operation from using the windows, or from ending, and why; -1
// if there is none.
func (c *Comm) lateRank() (rank int, why string) {
	switch f := &c.frame; {
	case f.entering():
		return c.windows.FirstBehind(f.prog.depth), "has not ended the operation over windows before the last one"
	case f.draining():
		return c.windows.FirstBehind(1), "has not read the registered memory that this rank lends"
	}
	return -1, ""
}

// Lent is the number of collectives for which this rank exposed registered memory to its peers.
func (c *Comm) Lent() uint64 { return c.exposed.Load() }

// waitsForAll reports whether a lane waits for each rank before it reads the window of that.
func waitsForAll(lane []step, rank int) bool {
	var heard []int
	for i := range lane {
		s := &lane[i]
		if s.kind == plan.Wait {
			heard = append(heard, s.peer)
		}
		for _, from := range s.from {
			if from != rank && !slices.Contains(heard, from) {
				return false
			}
		}
	}
	return true
}
