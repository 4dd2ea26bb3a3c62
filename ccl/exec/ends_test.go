package exec

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/plan"
)

// A program that enters its slot late, leaves it early or does not drain what it exposes is found, in every place.
func TestWrongEnds(t *testing.T) {
	caught := 0
	for _, a := range algo.All() {
		p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: 4})
		if err != nil {
			continue // not for four ranks
		}
		programs, err := compileAll(p, true)
		require.NoError(t, err)
		for rank := range programs {
			prog := &programs[rank]
			require.Empty(t, prog.wrongEnds())
			lanes := prog.lanes
			for l, lane := range lanes {
				for i := range lane {
					if lane[i].step != nil {
						continue
					}
					mutants := [][]instr{slices.Delete(slices.Clone(lane), i, i+1)}
					for k := range lane {
						if moved := slices.Insert(slices.Delete(slices.Clone(lane), i, i+1), k, lane[i]); k != i {
							mutants = append(mutants, moved)
						}
					}
					for _, mutant := range mutants {
						prog.lanes = slices.Clone(lanes)
						if prog.lanes[l] = mutant; len(mutant) == 0 || len(lanes) > 1 && lane[i].op == opEnter && len(lane) == 1 {
							continue // an empty lane uses nothing
						}
						require.NotEmpty(t, prog.wrongEnds(), "%v/%s, rank %d, lane %d: %v", a.Coll, a.Name, rank, l, opcodes(mutant))
						caught++
					}
				}
			}
			prog.lanes = lanes
		}
	}
	t.Logf("%d wrong programs found", caught)
	require.Positive(t, caught)
}

func opcodes(lane []instr) (ops []opcode) {
	for i := range lane {
		ops = append(ops, lane[i].op)
	}
	return ops
}
