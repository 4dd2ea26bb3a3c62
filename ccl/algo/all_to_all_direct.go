package algo

import "github.com/goccl/goccl/ccl/plan"

// allToAllDirect has every rank send block p of In to rank p and receive block p of Out from it. Rank r sends to r+1, r+2,
// … and receives from r-1, r-2, …, so that in every step each rank is sent to by one other. A fast rank may run ahead.
//
//	steps   n-1, which do not depend on each other
//	bytes   a rank sends m·(n-1), m to each other rank
//	time    (n-1)·(α + m·β)
//	wins    few ranks, and ragged blocks: nobody waits for a round of others. A rank needs to know only its own lengths
//	source  Thakur, Rabenseifner, Gropp (2005), §4.4
//
// It does not run in place: a block would be overwritten before it was sent.
func allToAllDirect(s plan.Spec) design {
	return design{program: func(rank int) plan.Program {
		sends, recvs := allToAllExchange(s.Ranks, rank)
		return program(append(sends, copyStep(out(rank), in(rank))), recvs)
	}}
}

// allToAllExchange is one message to and one from each other rank, in rotated order.
func allToAllExchange(n, rank int) (sends, recvs []plan.Step) {
	for k := 1; k < n; k++ {
		to, from := wrap(rank+k, n), wrap(rank-k, n)
		sends = append(sends, send(in(to), to))
		recvs = append(recvs, recv(out(from), from))
	}
	return sends, recvs
}
