package algo

import "github.com/goccl/goccl/ccl/plan"

// barrierFlags has every rank signal all others and wait for their signals.
//
//	steps   1
//	bytes   none; a rank sends n-1 signals
//	time    α
//	wins    shared memory, where one word is the signal to all ranks
//	source  the barrier of mscclpp and of PyTorch's symmetric memory
func barrierFlags(s plan.Spec) design {
	return design{alias: plan.InPlace, needs: plan.Puts, flags: 1, program: func(rank int) plan.Program {
		return plan.Program{Lanes: [][]plan.Step{meet(s.Ranks, rank)}}
	}}
}
