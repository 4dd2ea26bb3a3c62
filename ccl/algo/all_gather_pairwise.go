package algo

import "github.com/goccl/goccl/ccl/plan"

// allGatherPairwise is allGatherDirect in rounds: a rank sends its message of round k+1 after it
// has received the message of round k. So only one rank at a time sends to a rank, even if some
// ranks are late.
//
//	steps   n-1
//	bytes   a rank sends m·(n-1), m to each other rank
//	time    (n-1)·(α + m·β)
//	wins    large blocks on a network with full bisection, where several senders to one receiver
//	        would fill a switch's buffers; a late rank delays the others less than in a ring
//	source  Thakur, Rabenseifner, Gropp (2005), for all-to-all
//
// In place: In is the rank's own block of Out, which no receive writes.
func allGatherPairwise(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		around := plan.Stride{By: 1, Mod: n}
		again := send(in(0), wrap(rank+2, n), afterRecv(0))
		again.By = &plan.Advance{Peer: around, After: []int{1}}
		sends := append([]plan.Step{send(in(0), wrap(rank+1, n))}, loop(n-2, []plan.Step{again})...)
		back := plan.Stride{By: -1, Mod: n}
		take := recv(out(wrap(rank-1, n)), wrap(rank-1, n))
		take.By = &plan.Advance{Dst: back, Peer: back}
		return program(append(sends, copyStep(out(rank), in(0))), loop(n-1, []plan.Step{take}))
	}}
}
