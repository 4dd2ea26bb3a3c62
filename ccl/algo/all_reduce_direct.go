package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceDirect is all-pairs, one-shot: every rank sends its block to every other rank, and
// reduces all blocks in rank order. All ranks do the same arithmetic, operand by operand, and get
// the same bits.
//
//	steps   n-1 sends and n-1 receives; 2n-3 in the longest chain (2 with two ranks), as all ranks
//	        wait for rank 0 first, then for rank 1, …
//	bytes   a rank sends m·(n-1)
//	time    (n-1)·(α + m·(β+γ)) while messages fit into the transport's buffers, up to (2n-3)·(α +
//	        m·(β+γ)) when they do not; close to α + (n-1)·m·(β+γ) where a rank can send to all
//	        others at once
//	wins    small blocks: no send waits for a receive; in the ring this happens 2(n-1) times in a
//	        row
//	order   x₀ + x₁ + … from left to right, for every element
//	memory  one block of Tmp
//	source  "one-shot" of TensorRT-LLM's custom all-reduce; all-pairs of mscclpp
//
// A rank sends to the next higher rank first, so that not all ranks begin with rank 0. Receivers
// take the messages in rank order. No order of sends can deadlock with that, since every rank takes
// the message of rank 0 first, then the message of rank 1, and so on.
//
// In place: the sum is in Tmp until the last step writes it to Out, after all sends. On ranks below
// n-1 this step receives from rank n-1, so the sends of rank n-1 end only after the sends of all
// other ranks. On rank n-1 it receives nothing, but adds the rank's own In. So no ranks wait for
// each other in a circle, even if there are only two.
func allReduceDirect(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		var sends, recvs []plan.Step
		for k := 1; k < n; k++ {
			sends = append(sends, send(in(0), wrap(rank+k, n)))
		}
		sum := tmp(0)
		for from := range n {
			switch {
			case rank == 0 && from == 0:
				continue // the message of rank 1 is added to In
			case rank == 0 && from == 1:
				recvs = append(recvs, recvReduce(sum, in(0), from))
			case from == 0 && rank == 1 && n > 2:
				recvs = append(recvs, msgReduce(sum, in(0), from))
			case from == 1 && rank == 1 && n > 2:
				continue
			case from == 0:
				recvs = append(recvs, recv(sum, from))
			case from == rank:
				recvs = append(recvs, reduce(sum, sum, in(0)))
			default:
				recvs = append(recvs, recvReduce(sum, sum, from))
			}
		}
		last := &recvs[len(recvs)-1]
		last.Dst, last.Final, last.After = out(0), true, []plan.Point{afterSend(len(sends) - 1)}
		if len(recvs) == 1 {
			return program(sends, recvs) // directly from In and the message to Out
		}
		return program(sends, recvs, plan.Extent{})
	}}
}
