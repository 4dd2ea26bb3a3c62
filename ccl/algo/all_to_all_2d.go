package algo

import "github.com/goccl/goccl/ccl/plan"

// allToAll2D arranges the ranks in rows of a and columns of b. A rank first sends each rank of its
// row all blocks for that rank's column, in one message of b blocks. Then it sends each rank of its
// column all blocks that its row has for that rank, in one message of a blocks. The grid is the
// Shape if this has two levels, else the most square grid.
//
//	steps   (a-1) + (b-1), about 2·√n
//	bytes   a rank sends m·(a-1)·b + m·a·(b-1), about twice as much as with a message to every rank
//	time    (a+b-2)·α + m·(2n-a-b)·β, and up to two copies of In to pack the messages
//	wins    small blocks that are too long for the copies and bytes of Bruck; sizes between Bruck
//	        and pairwise
//	memory  up to 3n blocks of Tmp. A rank forwards blocks of others, so lengths are exchanged first
//	source  Bokhari, Berryman, "Complete exchange on a circuit switched mesh" (1992); Thakur,
//	        Choudhary (1994)
//
// It does not run in place: Out would be written before In was sent. With a prime number of ranks
// it is allToAllLinear.
func allToAll2D(s plan.Spec) design {
	sizes := grid(s)
	a, b := sizes[0], sizes[1]
	if a == 1 || b == 1 {
		return allToAllLinear(s)
	}
	return design{needs: plan.Messages | plan.Counts, program: func(rank int) plan.Program {
		groups := digits(rank, sizes)
		row, column := groups[0], groups[1]
		var sends, recvs []plan.Step
		var lengths []plan.Extent
		have := make([]plan.Ref, a*b) // [h·a+k]: the block from rank k of this row to the rank of this column in row h
		for k := 1; k < a; k++ {
			to, from := wrap(row.pos+k, a), wrap(row.pos-k, a)
			packed := plan.Ref{Buf: plan.Tmp, At: len(lengths), N: b}
			arrived := plan.Ref{Buf: plan.Tmp, At: len(lengths) + b, N: b}
			for h := range b {
				lengths = append(lengths, plan.Extent{From: rank, To: h*a + to})
				sends = append(sends, copyStep(chunksOf(packed)[h], in(h*a+to)))
			}
			for h, ref := range chunksOf(arrived) {
				lengths = append(lengths, plan.Extent{From: row.rank(from), To: column.rank(h)})
				have[h*a+from] = ref
			}
			sends = append(sends, send(packed, row.rank(to)))
			recvs = append(recvs, recv(arrived, row.rank(from)))
		}
		for h := range b {
			have[h*a+row.pos] = in(column.rank(h))
		}
		for q := 1; q < b; q++ {
			to, from := wrap(column.pos+q, b), wrap(column.pos-q, b)
			packed := plan.Ref{Buf: plan.Tmp, At: len(lengths), N: a}
			for k := range a {
				lengths = append(lengths, plan.Extent{From: row.rank(k), To: column.rank(to)})
			}
			packs := copies(chunksOf(packed), have[to*a:to*a+a])
			if q == 1 {
				packs[0].After = []plan.Point{afterRecv(a - 2)} // the last message from the row
			}
			sends = append(append(sends, packs...), send(packed, column.rank(to)))
			recvs = append(recvs, recv(plan.Ref{Buf: plan.Out, At: from * a, N: a}, column.rank(from)))
		}
		own := column.pos * a
		recvs = append(recvs, copies(chunksOf(plan.Ref{Buf: plan.Out, At: own, N: a}), have[own:own+a])...)
		return program(sends, recvs, lengths...)
	}}
}
