package algo

import "github.com/goccl/goccl/ccl/plan"

// allToAllLinear has every rank send block p of In to rank p and receive block p of Out from it.
// Rank r sends to r+1, r+2, … and receives from r-1, r-2, …, so that in every step each rank
// receives from one other rank. A fast rank may run ahead.
//
//	steps   n-1, which do not depend on each other
//	bytes   a rank sends m·(n-1), m to each other rank
//	time    (n-1)·(α + m·β)
//	wins    few ranks, and ragged blocks: no rank waits for a round of other ranks. A rank needs to
//	        know only its own lengths
//	source  Thakur, Rabenseifner, Gropp (2005)
//
// It does not run in place: blocks would be overwritten before they were sent.
func allToAllLinear(s plan.Spec) design {
	return design{program: func(rank int) plan.Program {
		sends, recvs := allToAllExchange(s.Ranks, rank, false)
		return program(append(sends, copyStep(out(rank), in(rank))), recvs)
	}}
}

// allToAllExchange returns the steps that send one message to and receive one message from each
// other rank, in rotated order, as loops. In rounds, a rank sends a message after it has received
// the message of the round before.
func allToAllExchange(n, rank int, rounds bool) (sends, recvs []plan.Step) {
	up, down := plan.Stride{By: 1, Mod: n}, plan.Stride{By: -1, Mod: n}
	to, from := wrap(rank+1, n), wrap(rank-1, n)
	take := recv(out(from), from)
	take.By = &plan.Advance{Dst: down, Peer: down}
	recvs = loop(n-1, []plan.Step{take})
	give := send(in(to), to)
	give.By = &plan.Advance{Src: []plan.Stride{up}, Peer: up}
	if !rounds {
		return loop(n-1, []plan.Step{give}), recvs
	}
	next := send(in(wrap(rank+2, n)), wrap(rank+2, n), afterRecv(0))
	next.By = &plan.Advance{Src: []plan.Stride{up}, Peer: up, After: []int{1}}
	give.By = nil
	return append([]plan.Step{give}, loop(n-2, []plan.Step{next})...), recvs
}
