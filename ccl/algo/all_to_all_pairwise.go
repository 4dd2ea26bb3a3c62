package algo

import "github.com/goccl/goccl/ccl/plan"

// allToAllPairwise is allToAllLinear in rounds: a rank sends its message of round k+1 after it has
// received the message of round k. So only one rank at a time sends to a rank, even if some ranks
// are late.
//
//	steps   n-1
//	bytes   a rank sends m·(n-1), m to each other rank
//	time    (n-1)·(α + m·β)
//	wins    many ranks with large blocks on a network, where several senders to one receiver would
//	        fill a switch's buffers. A rank needs to know only its own lengths
//	source  Thakur, Rabenseifner, Gropp (2005), for any rank count
//
// It does not run in place: blocks would be overwritten before they were sent.
func allToAllPairwise(s plan.Spec) design {
	return design{program: func(rank int) plan.Program {
		sends, recvs := allToAllExchange(s.Ranks, rank, true)
		return program(append(sends, copyStep(out(rank), in(rank))), recvs)
	}}
}
