package exec

import (
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec/window"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
)

// A call's buffers may lie in memory that the peers have mapped (mem.Arena). If the plan allows it
// (plan.Lend, proven by package verify), a window chunk that would be a copy of such a buffer is
// that buffer itself. The copy then has the same source and destination, and is skipped. The record
// of the operation shows for each chunk whether it is exposed, and where in the arena it is. Each
// rank decides for itself, for each chunk; its peers read the record.
//
// The caller may write its buffers again when the call returns. So a rank that exposes memory waits
// at the end until all ranks have left the operation.
//
// For PREMUL_SUM, the data that is copied into a window is multiplied on the way, so such calls
// expose nothing.

const (
	// leastExposed is the number of bytes from which on it pays to expose memory, in spite of the
	// wait at the end. With fewer bytes a copy takes less time. For an all_reduce, copying is
	// faster up to a much larger size, leastExposedReduced: the result is exposed too, so its cache
	// lines go to and fro between the ranks, whereas the lines of a window are overwritten.
	leastExposed        = 32 << 10
	leastExposedReduced = 640 << 10
)

// exposure describes what this rank exposes in the operation in flight.
type exposure struct {
	exposing        bool                        // this rank may expose memory
	window.Exposure                             // in the piece in flight
	exposed         [program.MaxExposed]address // addresses of the exposed chunks
}

// mayExpose reports whether enough bytes of a call lie in memory that peers can read. The program
// must be one that exposes (compiled.exposes).
func (r *runner) mayExpose(low *program.Lowered, call *Call) bool {
	bytes := 0
	for _, ref := range low.Exposable {
		if ref.N == 0 {
			continue
		}
		blocks := call.In
		if ref.Buf == plan.Out {
			blocks = call.Out
		}
		b := &blocks[ref.At/low.Split]
		if _, ok := r.windows.Place(b.Ptr, 0); ok {
			bytes += b.Count * call.Type.Size() / low.Split
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

// expose decides, for the piece that begins, which chunks of this rank's window are replaced by
// buffers of the call.
func (r *runner) expose(p *compiled, call *Call) {
	f := &r.frame
	if f.Mask = 0; p.Piece == 0 {
		f.exposing = r.mayExpose(p.Low, call)
	}
	if !f.exposing {
		return
	}
	for i, ref := range p.Low.Exposable {
		if ref.N == 0 {
			continue
		}
		source := &p.Chunks[ref.Buf][ref.At]
		if source.Bytes == 0 {
			continue
		}
		ptr := f.in(&source.Operand, call)
		at, ok := r.windows.Place(ptr, source.Bytes)
		if !ok {
			continue
		}
		f.Mask |= 1 << i
		f.Places[i], f.exposed[i] = uint64(at), ptr
		f.dynamic = true
	}
}

// outOfRange returns the error for a place outside of a peer's arena.
func (r *runner) outOfRange(peer int) error {
	return fault.Peer(fault.Internal, peer, "says that its buffer lies outside of its registered memory")
}

// lateRank returns the rank that keeps the operation from using the windows, or from ending, and
// the reason; -1 if there is none.
func (r *runner) lateRank() (rank int, why string) {
	switch f := &r.frame; {
	case f.entering():
		return r.windows.FirstBehind(f.prog.Depth), "has not ended an earlier call"
	case f.draining():
		return r.windows.FirstBehind(1), "has not read the data of this rank"
	}
	return -1, ""
}

// Exposed returns the number of collectives in which this rank exposed registered memory to its
// peers.
func (c *Comm) Exposed() uint64 { return c.run.exposed.Load() }
