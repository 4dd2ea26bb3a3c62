package algo

import "github.com/goccl/goccl/ccl/plan"

// allToAllHierarchical uses rails. Rank i of a host of a ranks first collects, from the other ranks
// of its host, all the host's blocks for the ranks i of the other b-1 hosts. Then it sends each of
// these ranks its blocks, in one message of a blocks, and receives a blocks from it directly in
// Out. Blocks for ranks of the same host are sent directly. The innermost level of the Shape is the
// host.
//
//	steps   (a-1)·b small ones within the host, b-1 across
//	bytes   a rank sends m·(a-1)·b within its host and m·a·(b-1) across, in b-1 messages instead of
//	        a·(b-1)
//	time    (a-1)·b·α₀ + (b-1)·α₁ + m·(a-1)·b·β₀ + m·a·(b-1)·β₁
//	wins    small and medium blocks over many hosts (experts of a mixture): a times fewer messages
//	        across, each a times as long, and each over the links of its own rail
//	memory  a·(b-1) blocks of Tmp. A rank forwards blocks of others, so lengths are exchanged first
//	source  NCCL PXN, "Doubling all2all performance with NCCL 2.12" (2022); Tutel's 2DH all-to-all,
//	        Hwang et al. (2023)
//
// It does not run in place: Out would be written before In was sent.
func allToAllHierarchical(s plan.Spec) design {
	sizes := hosts(s)
	if len(sizes) == 1 {
		return allToAllLinear(s) // a single host, or no grid
	}
	a, b := sizes[0], sizes[1]
	return design{needs: plan.Messages | plan.Counts, program: func(rank int) plan.Program {
		groups := digits(rank, []int{a, b})
		host, rail := groups[0], groups[1]
		var sends, recvs []plan.Step
		var lengths []plan.Extent
		// Distance q means the host q places further. The blocks for it are at (q-1)·a of Tmp; the
		// blocks for this host go to Out.
		for q := 1; q <= b; q++ {
			first := wrap(rail.pos+q, b) * a // rank 0 of that host
			at := plan.Ref{Buf: plan.Tmp, At: (q - 1) * a, N: a}
			if q == b {
				at = plan.Ref{Buf: plan.Out, At: first, N: a}
			} else {
				for k := range a {
					lengths = append(lengths, plan.Extent{From: host.rank(k), To: first + host.pos})
				}
			}
			places := chunksOf(at)
			sends = append(sends, copyStep(places[host.pos], in(first+host.pos)))
			for k := 1; k < a; k++ {
				to, from := wrap(host.pos+k, a), wrap(host.pos-k, a)
				sends = append(sends, send(in(first+to), host.rank(to)))
				recvs = append(recvs, recv(places[from], host.rank(from)))
			}
		}
		for q := 1; q < b; q++ {
			from := wrap(rail.pos-q, b)
			sends = append(sends, send(plan.Ref{Buf: plan.Tmp, At: (q - 1) * a, N: a}, rail.rank(rail.pos+q),
				afterRecv(q*(a-1)-1)))
			recvs = append(recvs, recv(plan.Ref{Buf: plan.Out, At: from * a, N: a}, rail.rank(from)))
		}
		return program(sends, recvs, lengths...)
	}}
}

// hosts returns the number of ranks of a host and the number of hosts: the innermost level of s,
// and all other levels together. It returns one level if there is a single host.
func hosts(s plan.Spec) []int {
	sizes := levels(s, 2)
	if a := sizes[0]; len(sizes) > 1 {
		return []int{a, s.Ranks / a}
	}
	return sizes
}
