package algo

import "github.com/goccl/goccl/ccl/plan"

// broadcastChain passes the block along a chain from the root to the rank before it, cut into S = 8
// segments. A rank passes on a segment while it receives the next.
//
//	steps   n-2+S; one with two ranks, since no rank passes anything on
//	bytes   a rank sends m, the last rank nothing
//	time    (n-2+S)·(α + m/S·β); for large blocks (1 + (n-2)/S)·m·β, and close to m·β where the
//	        transport passes fragments on while they arrive
//	wins    large blocks, few ranks; no rank sends the block more than once
//	source  Open MPI coll/base "pipeline"; Barnett, Littlefield, Payne, van de Geijn, "Global
//	        combine on mesh architectures with wormhole routing" (1993)
//
// In place: the root's copy does nothing, and no other rank has an In.
func broadcastChain(s plan.Spec) design {
	if s.Ranks == 2 {
		return broadcastFlat(s)
	}
	return design{split: segments, alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		v := wrap(rank-s.Root, n)
		forward := plan.Stride{By: 1}
		if v == 0 {
			step := send(in(0), wrap(rank+1, n))
			step.By = &plan.Advance{Src: []plan.Stride{forward}}
			block := piece{0, segments}
			return program(append(loop(segments, []plan.Step{step}),
				copyStep(block.of(plan.Out), block.of(plan.In))), nil)
		}
		take := recv(out(0), wrap(rank-1, n))
		take.By = &plan.Advance{Dst: forward}
		recvs := loop(segments, []plan.Step{take})
		if v == n-1 {
			return program(nil, recvs)
		}
		pass := send(out(0), wrap(rank+1, n), afterRecv(0))
		pass.By = &plan.Advance{Src: []plan.Stride{forward}, After: []int{1}}
		return program(loop(segments, []plan.Step{pass}), recvs)
	}}
}
