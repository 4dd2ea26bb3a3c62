package program_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/verify"
)

// Every plan of the catalogue that has windows within hosts and messages between them is right as
// streams execute it, with the same order of operands, and several operations may follow each
// other.
func TestStreamsAreProven(t *testing.T) {
	plans := 0
	for _, coll := range dtype.Collectives() {
		for _, a := range algo.Variants(coll, 2) {
			for _, shape := range []plan.Shape{{2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}, {3, 3}, {4, 4}} {
				p, err := a.Make(plan.Spec{Coll: coll, Ranks: shape[0] * shape[1], Shape: shape})
				if err != nil || p.Needs&plan.Gets == 0 || p.Needs&plan.Messages == 0 || p.Chans > 1 {
					continue
				}
				plans++
				t.Run(fmt.Sprint(coll, "=", a.Name, " on ", shape), func(t *testing.T) {
					as, err := program.Streams(p)
					require.NoError(t, err)
					before, err := verify.Plan(p, verify.Options{})
					require.NoError(t, err)
					after, err := verify.Plan(as, verify.Options{})
					require.NoError(t, err)
					require.Equal(t, before.Determinism, after.Determinism)
				})
			}
		}
	}
	require.Greater(t, plans, 100)
}

// Nothing that a step comes after may be left out, but for what a receive overwrites: around a
// ring, a chunk comes back only after it was sent.
func TestStreamsOrderNoMoreThanNeeded(t *testing.T) {
	points := 0
	for _, coll := range []dtype.Collective{dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter} {
		for _, outer := range []string{"ring", "direct"} {
			a, err := algo.Find(coll, "hierarchical.window."+outer)
			require.NoError(t, err)
			p, err := a.Make(plan.Spec{Coll: coll, Ranks: 6, Shape: plan.Shape{2, 3}})
			require.NoError(t, err)
			as, err := program.Streams(p)
			require.NoError(t, err)
			for l, lane := range as.Program(1).Lanes {
				for i := range lane {
					for k, after := range lane[i].After {
						if lane[i].Kind == plan.Recv && as.Program(1).Lanes[after.Lane][after.Step].Kind == plan.Send {
							continue
						}
						points++
						_, err := verify.Plan(without(as, 1, l, i, k), verify.Options{Brief: true})
						require.Error(t, err, "%v=%s: lane %d, step %d comes after %v", coll, outer, l, i, after)
					}
				}
			}
		}
	}
	require.Greater(t, points, 20)
}

// without returns a plan without one of the points after which a step of a rank comes.
func without(p *plan.Plan, of, lane, step, point int) *plan.Plan {
	lame := *p
	lame.Program = func(rank int) plan.Program {
		prog := p.Program(rank)
		if rank != of {
			return prog
		}
		prog.Lanes = slices.Clone(prog.Lanes)
		prog.Lanes[lane] = slices.Clone(prog.Lanes[lane])
		s := &prog.Lanes[lane][step]
		s.After = slices.Delete(slices.Clone(s.After), point, point+1)
		return prog
	}
	return &lame
}
