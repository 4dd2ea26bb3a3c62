package algo

import "github.com/goccl/goccl/ccl/plan"

// reduceScatterPairwise is an exchange in rounds: in round k, rank r sends block r+k directly to
// its owner and adds the block that comes from r-k to its own. A rank sends its message of round
// k+1 after it has received the message of round k, so only one rank at a time sends to a rank,
// even if some ranks are late.
//
//	steps   n-1
//	bytes   a rank sends m·(n-1), m to each other rank
//	time    (n-1)·(α + m·β + m·γ)
//	wins    large blocks on a network with full bisection, and where memory for Tmp is scarce: it
//	        needs none
//	order   the block's own rank r, then r-1, r-2, …, so the order differs between blocks; the same
//	        bits in every run
//	source  Thakur, Rabenseifner, Gropp (2005)
//
// In place: Out is the rank's own block of In, which it does not send.
func reduceScatterPairwise(s plan.Spec) design {
	return design{alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		next, last := wrap(rank+1, n), wrap(rank-1, n)
		around := plan.Stride{By: 1, Mod: n}
		again := send(in(wrap(rank+2, n)), wrap(rank+2, n), afterRecv(0))
		again.By = &plan.Advance{Src: []plan.Stride{around}, Peer: around, After: []int{1}}
		sends := append([]plan.Step{send(in(next), next)}, loop(n-2, []plan.Step{again})...)

		first := merge(rank, out(0), in(rank), last)
		first.Final = n == 2
		recvs := []plan.Step{first}
		if n > 2 {
			add := recvReduce(out(0), out(0), wrap(rank-2, n))
			add.By = &plan.Advance{Peer: plan.Stride{By: -1, Mod: n}}
			recvs = append(recvs, loop(n-3, []plan.Step{add})...)
			end := recvReduce(out(0), out(0), next)
			end.Final = true
			recvs = append(recvs, end)
		}
		return program(sends, recvs)
	}}
}
