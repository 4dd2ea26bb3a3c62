package algo

import "github.com/goccl/goccl/ccl/plan"

// merge is the step dst = own ⊕ message or dst = message ⊕ own, with the contributions of the lower
// rank first. So with two ranks every algorithm reduces in rank order, and both sides of an
// exchange do the same arithmetic.
func merge(rank int, dst, own plan.Ref, from int, after ...plan.Point) plan.Step {
	if rank < from {
		return recvReduce(dst, own, from, after...)
	}
	return msgReduce(dst, own, from, after...)
}
