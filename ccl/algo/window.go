package algo

import "github.com/goccl/goccl/ccl/plan"

// win is chunk i of a window: of the rank's own, or of its peer's in a step that accesses the
// peer's.
func win(i int) plan.Ref { return plan.Ref{Buf: plan.Win, At: i, N: 1} }

func signal(to int) plan.Step { return plan.Step{Kind: plan.Signal, Peer: to} }

func wait(from int) plan.Step { return plan.Step{Kind: plan.Wait, Peer: from} }

// get is the step dst = src, where src is in the window of from.
func get(dst, src plan.Ref, from int) plan.Step {
	return plan.Step{Kind: plan.Get, Dst: dst, Src: []plan.Ref{src}, Peer: from}
}

// windowReduce is the step dst = x₀ ⊕ x₁ ⊕ …, where the operand of this rank is own and the operand
// of every other rank is src in that rank's window.
func windowReduce(dst, src, own plan.Ref, ranks, rank int) plan.Step {
	s := plan.Step{Kind: plan.GetReduce, Dst: dst, Final: true}
	for r := range ranks {
		operand := src
		if r == rank {
			operand = own
		}
		s.Src, s.From = append(s.Src, operand), append(s.From, r)
	}
	return s
}

// meet returns the steps that signal each other rank and wait for each other rank, in rotated
// order. Data that a rank has written into its window before is visible to all ranks after it.
func meet(ranks, rank int) []plan.Step {
	var steps []plan.Step
	for k := 1; k < ranks; k++ {
		steps = append(steps, signal(wrap(rank+k, ranks)))
	}
	for k := 1; k < ranks; k++ {
		steps = append(steps, wait(wrap(rank-k, ranks)))
	}
	return steps
}

// offer is the program of a rank that copies its block into its window and signals the root.
func offer(s plan.Spec, rank int) plan.Program {
	return plan.Program{Win: like(s, 1, rank, in(0)), Lanes: [][]plan.Step{{copyStep(win(0), in(0)), signal(s.Root)}}}
}

// othersInto copies the blocks of In for other ranks into the window, at the same index.
func othersInto(ranks, rank int) []plan.Step {
	var dst, src []plan.Ref
	for r := range ranks {
		if r != rank {
			dst, src = append(dst, win(r)), append(src, in(r))
		}
	}
	return copies(dst, src)
}
