package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceDoubleTree is broadcastDoubleTree run backwards: each half of the block, in S = 8 segments,
// is reduced up a binary tree of its own, and a rank that reduces one half is a leaf for the other.
// A rank receives in one lane and sends each half in a lane of its own; the root receives each half
// in a lane of its own.
//
//	steps   at most 2(⌈log₂ n⌉ + S); one with two ranks
//	bytes   a rank sends m, the root nothing
//	time    about 2(⌈log₂ n⌉ + S)·(α + m/(2S)·(β+γ)); for large blocks (1 + ⌈log₂ n⌉/S)·m·(β+γ), and
//	        closer to m·(β+γ) where the transport passes fragments on while they arrive
//	wins    large blocks, many ranks
//	order   a node's left subtree, the node itself, its right subtree, by distance from the root.
//	        The halves have different trees; the same bits in every run
//	memory  half a block of Tmp at inner nodes
//	source  Sanders, Speck, Träff (2009); NCCL tree
//
// In place: only the root has an Out, and it sends nothing.
func reduceDoubleTree(s plan.Spec) design {
	if s.Ranks == 2 {
		return reduceFlat(s)
	}
	return design{split: 2 * segments, alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		actual := func(v int) int { return wrap(v+s.Root, n) }
		forward := plan.Stride{By: 1}
		var lanes [][]plan.Step
		var lengths []plan.Extent
		for half, t := range doubleTree(wrap(rank-s.Root, n), n-1) {
			own, sum := in(half*segments), tmp(0)
			if t.parent < 0 {
				step := merge(rank, out(own.At), own, actual(t.left))
				step.Final = true
				step.By = &plan.Advance{Dst: forward, Src: []plan.Stride{forward}}
				lanes = append(lanes, loop(segments, []plan.Step{step}))
				continue
			}
			up := send(own, actual(t.parent))
			up.By = &plan.Advance{Src: []plan.Stride{forward}}
			if children := t.children(); len(children) > 0 {
				for i := range segments {
					lengths = append(lengths, plan.Extent{Part: own.At + i})
				}
				var adds []plan.Step
				have := own
				for _, child := range children {
					step := recvReduce(sum, have, actual(child))
					step.MsgFirst = child == t.left
					step.By = &plan.Advance{Dst: forward, Src: []plan.Stride{forward}}
					adds = append(adds, step)
					have = sum
				}
				up.Src[0] = sum
				up.After = []plan.Point{{Lane: len(lanes), Step: len(adds) - 1}}
				up.By.After = []int{len(adds)}
				lanes = append(lanes, loop(segments, adds))
			}
			lanes = append(lanes, loop(segments, []plan.Step{up}))
		}
		return plan.Program{Tmp: lengths, Lanes: lanes}
	}}
}
