package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceOneShot has every rank put its block into the window of every other rank, in packets
// that carry their own flag. Each rank then reduces the blocks in its own window, in rank order.
// All ranks do the same arithmetic and get the same bits.
//
//	steps   1: n-1 packets, which do not depend on each other, and one reduction of n operands
//	bytes   a rank writes m·(n-1)
//	time    α + (n-1)·m·(β+γ)
//	wins    the smallest blocks in shared memory: no rank waits twice, and data and flag share a
//	        cache line
//	order   x₀ + x₁ + … from left to right, for every element: level 4
//	memory  n-1 blocks of the window
//	source  "one-shot" of TensorRT-LLM's custom all-reduce; LL protocol of NCCL; mscclpp all-pairs
//	        packet
//
// In place: Out is written last, after In has been put into all windows.
func allReduceOneShot(s plan.Spec) design {
	n := s.Ranks
	return design{alias: plan.InPlace, needs: plan.Puts, flags: 1, win: n - 1, program: func(rank int) plan.Program {
		var steps []plan.Step
		for k := 1; k < n; k++ {
			to := wrap(rank+k, n)
			steps = append(steps, plan.Step{
				Kind: plan.Packet, Dst: win(oneShotSlot(to, rank)), Src: []plan.Ref{in(0)}, Peer: to,
			})
		}
		for k := 1; k < n; k++ {
			steps = append(steps, wait(wrap(rank-k, n)))
		}
		sum := plan.Step{Kind: plan.Reduce, Dst: out(0), Final: true}
		for r := range n {
			if r == rank {
				sum.Src = append(sum.Src, in(0))
			} else {
				sum.Src = append(sum.Src, win(oneShotSlot(rank, r)))
			}
		}
		return plan.Program{Win: make([]plan.Extent, n-1), Lanes: [][]plan.Step{append(steps, sum)}}
	}}
}

// oneShotSlot returns the chunk of the window of rank owner that rank from writes.
func oneShotSlot(owner, from int) int {
	if from > owner {
		return from - 1
	}
	return from
}
