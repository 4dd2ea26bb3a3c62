package plan

import "github.com/goccl/goccl/ccl/dtype"

// Extent names the length of a chunk: chunks with equal Extents have equal lengths in every call, others may differ.
//
// From and To are the ranks whose pair the block belongs to. Where blocks belong to one rank both are that rank; where all
// ranks have the same block both are 0. Part is the part of the block.
type Extent struct{ From, To, Part int }

// Extent is the length of a chunk of a rank's buffer; tmp is the Tmp of its program. The chunk must exist.
func (p *Plan) Extent(rank int, tmp []Ref, buf Buffer, chunk int) Extent {
	if buf == Tmp {
		buf, chunk = tmp[chunk].Buf, tmp[chunk].At
	}
	block, part := chunk/p.Split, chunk%p.Split
	switch p.Spec.Coll {
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
