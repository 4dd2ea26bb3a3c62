package algo

import "github.com/goccl/goccl/ccl/plan"

// broadcastScatterAllGather is the broadcast of van de Geijn: the block is cut into n chunks, which
// are scattered down a binomial tree and then all-gathered around a ring. Ranks are numbered by
// their distance from the root, and the scatter gives chunk v to rank v. An inner rank of the tree
// already has the chunks of its subtree, so the rank before it in the ring leaves these out.
//
//	steps   ⌈log₂ n⌉ + n-1
//	bytes   the root sends 2·m·(n-1)/n, another rank less
//	time    (⌈log₂ n⌉ + n-1)·α + 2·m·(n-1)/n·β
//	wins    large blocks; no rank needs to send more than 2·m
//	source  Barnett, Shuler, van de Geijn, Gupta, Payne, Watts, "Interprocessor collective
//	        communication library (InterCom)" (1994); Thakur, Rabenseifner, Gropp (2005); Zhou,
//	        Marjanović, Niethammer, Gracia (2015) for what the ring leaves out
//
// In place: the root's copy does nothing, and no other rank has an In.
func broadcastScatterAllGather(s plan.Spec) design {
	return design{split: s.Ranks, alias: plan.InPlace, program: func(rank int) plan.Program {
		n := s.Ranks
		v := wrap(rank-s.Root, n)
		actual := func(v int) int { return wrap(v+s.Root, n) }
		mine := func(chunks piece) plan.Ref {
			if v == 0 {
				return chunks.of(plan.In)
			}
			return chunks.of(plan.Out)
		}
		var sends, recvs []plan.Step
		received := 0 // chunks that come around the ring
		if v > 0 {
			recvs = append(recvs, recv(piece{v, binomialSize(v, n)}.of(plan.Out), actual(binomialParent(v))))
			received = n - binomialSize(v, n)
		}
		children := binomialChildren(v, n)
		for i := len(children) - 1; i >= 0; i-- {
			c := children[i]
			step := send(mine(piece{c, binomialSize(c, n)}), actual(c))
			if v > 0 && len(sends) == 0 {
				step.After = []plan.Point{afterRecv(0)}
			}
			sends = append(sends, step)
		}
		if next := wrap(v+1, n); next != 0 {
			for k := range n - binomialSize(next, n) {
				step := send(mine(piece{wrap(v-k, n), 1}), actual(next))
				if v > 0 && k <= received && !(k == 0 && len(children) > 0) {
					step.After = []plan.Point{afterRecv(k)}
				}
				sends = append(sends, step)
			}
		}
		for k := range received {
			recvs = append(recvs, recv(out(wrap(v-1-k, n)), actual(v-1)))
		}
		if v == 0 {
			block := piece{0, n}
			sends = append(sends, copyStep(block.of(plan.Out), block.of(plan.In)))
		}
		return program(sends, recvs)
	}}
}
