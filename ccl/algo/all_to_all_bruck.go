package algo

import "github.com/goccl/goccl/ccl/plan"

// allToAllBruck moves blocks by the binary digits of their distance. In round k, rank r sends rank
// r+2^k one message with every block that it has and whose distance from origin to target has bit k
// set. So a block takes one hop for each 1 in its distance.
//
//	steps   ⌈log₂ n⌉
//	bytes   a rank sends m·(n/2)·log₂ n where n is a power of two, at most m·(n/2)·⌈log₂ n⌉
//	        elsewhere
//	time    ⌈log₂ n⌉·(α + m·(n/2)·β), and the copies that pack the messages
//	wins    small blocks, many ranks: no algorithm in which a rank sends one message per round has
//	        fewer rounds
//	memory  up to n·⌈log₂ n⌉ blocks of Tmp: the messages sent and received in each round, since
//	        every block has a length of its own. A rank forwards blocks of others, so lengths are
//	        exchanged first
//	source  Bruck et al., "Efficient algorithms for all-to-all communications in multiport
//	        message-passing systems" (1997)
//
// It does not run in place: Out would be written before In was sent.
func allToAllBruck(s plan.Spec) design {
	return design{needs: plan.Messages | plan.Counts, program: func(rank int) plan.Program {
		n := s.Ranks
		var sends, recvs []plan.Step
		var lengths []plan.Extent
		where := make([]plan.Ref, n) // where the block for each distance is
		for j := range n {
			where[j] = in(wrap(rank+j, n))
		}
		for k := range ceilLog2(n) {
			var packed, ends, arrived []plan.Ref
			var sent, received []plan.Extent
			for j := range n {
				if j>>k&1 == 0 {
					continue
				}
				origin := rank - j&(1<<k-1)
				sent = append(sent, plan.Extent{From: wrap(origin, n), To: wrap(origin+j, n)})
				origin -= 1 << k
				received = append(received, plan.Extent{From: wrap(origin, n), To: wrap(origin+j, n)})
				packed = append(packed, where[j])
				ends = append(ends, out(wrap(rank-j, n)))
			}
			var after []plan.Point
			if k > 0 {
				after = append(after, afterRecv(k-1))
			}
			msg, ok := adjoin(packed)
			if !ok {
				msg = plan.Ref{Buf: plan.Tmp, At: len(lengths), N: len(packed)}
				lengths = append(lengths, sent...)
				packs := copies(chunksOf(msg), packed)
				packs[0].After = after
				sends, after = append(sends, packs...), nil
			}
			sends = append(sends, send(msg, wrap(rank+1<<k, n), after...))
			if msg, ok = adjoin(ends); !ok || 1<<(k+1) < n {
				msg = plan.Ref{Buf: plan.Tmp, At: len(lengths), N: len(ends)}
				lengths = append(lengths, received...)
			}
			recvs = append(recvs, recv(msg, wrap(rank-1<<k, n)))
			arrived = chunksOf(msg)
			for j := range n {
				if j>>k&1 == 1 {
					where[j], arrived = arrived[0], arrived[1:]
				}
			}
		}
		sends = append(sends, copyStep(out(rank), in(rank)))
		var targets, blocks []plan.Ref
		for j := 1; j < n; j++ {
			if to := out(wrap(rank-j, n)); where[j] != to {
				targets, blocks = append(targets, to), append(blocks, where[j])
			}
		}
		return program(sends, append(recvs, copies(targets, blocks)...), lengths...)
	}}
}

// chunksOf returns the chunks of r as Refs of one chunk each.
func chunksOf(r plan.Ref) []plan.Ref {
	refs := make([]plan.Ref, r.N)
	for i := range refs {
		refs[i] = plan.Ref{Buf: r.Buf, At: r.At + i, N: 1}
	}
	return refs
}

// adjoin returns refs as a single Ref, if they are adjacent in this order.
func adjoin(refs []plan.Ref) (plan.Ref, bool) {
	all := refs[0]
	for _, r := range refs[1:] {
		if r.Buf != all.Buf || r.At != all.At+all.N {
			return plan.Ref{}, false
		}
		all.N += r.N
	}
	return all, true
}

// copies copies each src to the dst at the same index, adjacent ones in one step.
func copies(dst, src []plan.Ref) []plan.Step {
	var steps []plan.Step
	for i := range dst {
		if len(steps) > 0 {
			last := &steps[len(steps)-1]
			to, okTo := adjoin([]plan.Ref{last.Dst, dst[i]})
			from, okFrom := adjoin([]plan.Ref{last.Src[0], src[i]})
			if okTo && okFrom {
				last.Dst, last.Src[0] = to, from
				continue
			}
		}
		steps = append(steps, copyStep(dst[i], src[i]))
	}
	return steps
}
