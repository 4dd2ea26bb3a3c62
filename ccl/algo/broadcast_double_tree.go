package algo

import "github.com/goccl/goccl/ccl/plan"

// broadcastDoubleTree sends each half of the block, in S = 8 segments, down a binary tree of its
// own. A rank that passes on one half is a leaf for the other, so all links are busy in both
// directions. The root is above both trees and sends each segment once. A rank sends in lane 0 and
// receives each half in a lane of its own, since the halves do not wait for each other.
//
//	steps   at most 2(⌈log₂ n⌉ + S); one with two ranks
//	bytes   the root sends m, another rank m/2 to each child; at most m
//	time    about 2(⌈log₂ n⌉ + S)·(α + m/(2S)·β); for large blocks (1 + ⌈log₂ n⌉/S)·m·β, and closer
//	        to m·β where the transport passes fragments on while they arrive
//	wins    large blocks, many ranks: the bandwidth of the chain with the start of a tree
//	source  Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and
//	        scan" (2009); NCCL tree
//
// In place: the root's copy does nothing, and no other rank has an In.
func broadcastDoubleTree(s plan.Spec) design {
	if s.Ranks == 2 {
		return broadcastFlat(s)
	}
	return design{split: 2 * segments, alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		forward := plan.Stride{By: 1}
		var recvs [2][]plan.Step
		trees := doubleTree(wrap(rank-s.Root, n), n-1)
		var pass []plan.Step
		for half, t := range trees {
			at := half * segments
			if t.parent >= 0 {
				take := recv(out(at), wrap(t.parent+s.Root, n))
				take.By = &plan.Advance{Dst: forward}
				recvs[half] = loop(segments, []plan.Step{take})
			}
			for _, child := range t.children() {
				step := send(in(at), wrap(child+s.Root, n))
				step.By = &plan.Advance{Src: []plan.Stride{forward}}
				if t.parent >= 0 {
					step.Src[0], step.After = out(at), []plan.Point{{Lane: 1 + half}}
					step.By.After = []int{1}
				}
				pass = append(pass, step)
			}
		}
		var sends []plan.Step
		if len(pass) > 0 {
			sends = loop(segments, pass)
		}
		if rank == s.Root {
			block := piece{0, 2 * segments}
			sends = append(sends, copyStep(block.of(plan.Out), block.of(plan.In)))
			return program(sends, nil)
		}
		if len(sends) == 0 {
			return program(recvs[0], recvs[1])
		}
		return plan.Program{Lanes: [][]plan.Step{sends, recvs[0], recvs[1]}}
	}}
}
