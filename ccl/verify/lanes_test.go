package verify_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// shuffled returns a plan with the lanes of each rank in another order, which has the same meaning.
func shuffled(p *plan.Plan, rng *rand.Rand) *plan.Plan {
	for r := range p.Spec.Ranks {
		p = edit(p, r, func(prog *plan.Program) {
			to := rng.Perm(len(prog.Lanes))
			lanes := make([][]plan.Step, len(to))
			for l, lane := range prog.Lanes {
				for i := range lane {
					for k := range lane[i].After {
						lane[i].After[k].Lane = to[lane[i].After[k].Lane]
					}
				}
				lanes[to[l]] = lane
			}
			prog.Lanes = lanes
		})
	}
	return p
}

// TestVerdictsOfShuffledLanes: whether a plan is right does not depend on the order of its lanes.
// It tests the plans in testdata, one-sided plans, mutants of both, and random messages.
func TestVerdictsOfShuffledLanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	var all []*plan.Plan
	for _, folder := range []string{"right", "wrong", "bits"} {
		names, plans := planFiles(t, folder)
		for _, name := range names {
			all = append(all, plans[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(oneSided)) {
		all = append(all, oneSided[name](3))
	}
	for _, p := range slices.Clone(all) {
		for range mutantsEach() / 4 {
			if mutant, _ := mutate(p, rng); mutant != nil {
				all = append(all, mutant)
			}
		}
	}
	for range mutantsEach() * 10 {
		all = append(all, relay(rng))
	}
	right := 0
	for _, p := range all {
		_, err := verify.Plan(p, verify.Options{Brief: true})
		for range 4 {
			other := shuffled(p, rng)
			_, otherErr := verify.Plan(other, verify.Options{Brief: true})
			require.Equal(t, err == nil, otherErr == nil, "%v\n%v\n%s\n%s", err, otherErr, p.Text(), other.Text())
		}
		if err == nil {
			right++
		}
	}
	require.Greater(t, right, len(all)/10)
	require.Less(t, right, len(all)-len(all)/10)
}

// TestRemedies removes after points from right plans. Adding the after points that a counterexample
// recommends makes them right again.
func TestRemedies(t *testing.T) {
	cured := 0
	for _, name := range []string{"ring", "direct", "recursive_doubling", "two_shot", "binary_tree"} {
		a, err := algo.Find(dtype.AllReduce, name)
		require.NoError(t, err)
		p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 4})
		require.NoError(t, err)
		for r := range p.Spec.Ranks {
			prog := unrolled(p.Program(r))
			for l, lane := range prog.Lanes {
				for i := range lane {
					if len(lane[i].After) == 0 {
						continue
					}
					worse := edit(p, r, change(l, i, free))
					_, err := verify.Plan(worse, verify.Options{})
					var bad *verify.Counterexample
					if !errors.As(err, &bad) || bad.Reason != verify.Race && bad.Reason != verify.Unordered {
						continue
					}
					require.NotEmpty(t, bad.Remedy, "%s, rank %d, lane %d, step %d: %v", name, r, l, i, err)
					require.Contains(t, err.Error(), "; add `after ")
					_, err = verify.Plan(remedied(t, worse, bad.Remedy), verify.Options{})
					require.NoError(t, err, "%s\n%s", bad.Remedy, worse.Text())
					cured++
				}
			}
		}
	}
	require.Greater(t, cured, 20)
}

// remedied returns a plan with the after points that a counterexample recommends.
func remedied(t *testing.T, p *plan.Plan, remedy string) *plan.Plan {
	edges := regexp.MustCompile("`after (\\d+)\\.(\\d+)` to step (\\d+)\\.(\\d+) of rank (\\d+)").
		FindAllString(remedy, -1)
	require.Equal(t, "add "+strings.Join(edges, " and "), remedy)
	for _, text := range edges {
		var before plan.Point
		var lane, step, rank int
		_, err := fmt.Sscanf(text, "`after %d.%d` to step %d.%d of rank %d",
			&before.Lane, &before.Step, &lane, &step, &rank)
		require.NoError(t, err)
		p = edit(p, rank, change(lane, step, func(s *plan.Step) { s.After = append(s.After, before) }))
	}
	return p
}
