package algo

import "github.com/goccl/goccl/ccl/plan"

// allReduceTwoShot cuts the block into n chunks. Every rank sends chunk c to rank c, which reduces
// the chunks that it receives in rank order, and sends the sum to all others.
//
//	steps   n-1 sends and n-1 receives, twice; 3n-4 in the longest chain, as all ranks wait for rank
//	        0 first, then for rank 1, …
//	bytes   a rank sends 2·m·(n-1)/n, the least possible, 2·m/n to each other rank
//	time    2(n-1)·α + 2·m·(n-1)/n·β + m·(n-1)/n·γ while messages fit into the transport's buffers,
//	        up to (3n-4)·(α + m/n·(β+γ)) when they do not; close to 2α + … where a rank can send to
//	        all others at once
//	wins    medium and large blocks where every pair of ranks has a path of its own (shared memory,
//	        NVSwitch); large blocks that must be reduced in rank order
//	order   x₀ + x₁ + … from left to right, for every element: level 4
//	memory  m/n of Tmp; none with two ranks
//	source  "two-shot" of TensorRT-LLM's custom all-reduce; all-pairs of mscclpp
//
// Receivers take the messages in rank order. No order of sends can deadlock with that, since every
// rank takes the message of rank 0 first, then the message of rank 1, and so on.
//
// In place: in each half, the chunks that a rank receives are not the chunks that it sends.
func allReduceTwoShot(s plan.Spec) design {
	return design{split: s.Ranks, alias: plan.InPlace, program: func(rank int) plan.Program {
		return exchange.allReduce(digits(rank, []int{s.Ranks}), s.Ranks)
	}}
}
