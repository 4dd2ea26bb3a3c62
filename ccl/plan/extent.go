package plan

import "github.com/goccl/goccl/ccl/dtype"

// Extent names the length of a chunk: chunks with equal Extents have equal lengths in every call;
// chunks with different Extents may have different lengths.
//
// From and To are the pair of ranks that the block belongs to. If blocks belong to one rank, both
// are that rank; if all ranks have the same block, both are 0. Part is the index of the chunk in
// the block.
type Extent struct{ From, To, Part int }

// Extent returns the length of a chunk of a rank's buffer; prog is the rank's program. The chunk
// must exist.
func (p *Plan) Extent(rank int, prog *Program, buf Buffer, chunk int) Extent {
	switch buf {
	case Tmp:
		return prog.Tmp[chunk]
	case Win:
		return prog.Win[chunk]
	}
	return p.Spec.Extent(p.Split, rank, buf, chunk)
}

// Extent returns the length of a chunk of a rank's In or Out, in a plan that cuts blocks into split
// chunks.
func (s Spec) Extent(split, rank int, buf Buffer, chunk int) Extent {
	block, part := chunk/split, chunk%split
	switch s.Coll {
	case dtype.AllToAll:
		if buf == In {
			return Extent{rank, block, part}
		}
		return Extent{block, rank, part}
	case dtype.AllGather, dtype.Gather:
		if buf == In {
			block = rank
		}
	case dtype.Scatter, dtype.ReduceScatter:
		if buf == Out {
			block = rank
		}
	}
	return Extent{block, block, part}
}

// Knows reports whether a rank can derive the length e from its own In and Out.
func (s Spec) Knows(rank int, e Extent) bool {
	switch s.Coll {
	case dtype.AllToAll:
		return e.From == rank || e.To == rank
	case dtype.Scatter, dtype.Gather:
		return rank == s.Root || e.From == rank
	}
	return true
}

// Has reports whether some rank has a block with the length e, in a plan that cuts blocks into
// split chunks.
func (s Spec) Has(split int, e Extent) bool {
	if e.Part < 0 || e.Part >= split {
		return false
	}
	switch s.Coll {
	case dtype.AllToAll:
		return e.From >= 0 && e.From < s.Ranks && e.To >= 0 && e.To < s.Ranks
	case dtype.AllGather, dtype.Gather, dtype.Scatter, dtype.ReduceScatter:
		return e.From >= 0 && e.From < s.Ranks && e.To == e.From
	case dtype.Barrier:
		return false
	}
	return e.From == 0 && e.To == 0
}
