package algo

import "github.com/goccl/goccl/ccl/plan"

// inRankOrder returns the steps that receive one message from each other rank and reduce the
// messages with the rank's own contribution, from left to right in rank order: out[0] = x₀ + x₁ + …
// + xₙ₋₁, where own is this rank's contribution. The result is Final.
//
// Out may be the memory of own, so it is not written before own has been read; until then the sum
// is in tmp[0].
func inRankOrder(ranks, rank int, own plan.Ref) []plan.Step {
	var steps []plan.Step
	sum := tmp(0)
	for from := range ranks {
		switch {
		case rank == 0 && from == 0:
			continue // the message of rank 1 is added to own
		case rank == 0 && from == 1:
			steps = append(steps, recvReduce(out(0), own, from))
		case rank == 1 && from == 0:
			steps = append(steps, msgReduce(out(0), own, from))
		case rank == 1 && from == 1:
			continue
		case from == 0:
			steps = append(steps, recv(sum, from))
		case from == rank:
			steps = append(steps, reduce(out(0), sum, own))
		case from < rank:
			steps = append(steps, recvReduce(sum, sum, from))
		default:
			steps = append(steps, recvReduce(out(0), out(0), from))
		}
	}
	steps[len(steps)-1].Final = true
	return steps
}

// tmpInRankOrder returns the Tmp that inRankOrder needs.
func tmpInRankOrder(s plan.Spec, rank int, own plan.Ref) []plan.Extent {
	if rank < 2 {
		return nil
	}
	return like(s, 1, rank, own)
}
