package program_test

import (
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo/algotest"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/plan/reference"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/verify"
)

// The programs that run are right: those of every plan of the catalogue, for each root, in groups
// with windows and without, with short and with long blocks.
func TestCatalogueAsRun(t *testing.T) {
	most := 8
	if testing.Short() {
		most = 4
	}
	proven := 0
	for ranks := 1; ranks <= most; ranks++ {
		all, _ := algotest.Subjects(ranks)
		for _, s := range all {
			for root := range ranks {
				if root > 0 && !s.Coll.Rooted() {
					break
				}
				p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: ranks, Root: root, Shape: s.Shape})
				require.NoError(t, err)
				for _, windows := range []bool{false, true} {
					if s.Gets && !windows {
						continue
					}
					what := fmt.Sprintf("%v/%s %v on %d ranks, root %d, windows %v",
						s.Coll, s.Name, s.Shape, ranks, root, windows)
					short, long, err := program.AsRun(p, windows)
					require.NoError(t, err, what)
					for _, made := range []*plan.Plan{short.Plan, long.Plan} {
						for rank := range ranks {
							require.NoError(t, made.Validate(rank), what)
						}
						_, err = verify.Plan(made, verify.Options{})
						require.NoError(t, err, "%s\n%s", what, made.Text())
						proven++
					}
				}
			}
		}
	}
	t.Logf("%d plans as they run", proven)
}

// What devices execute of the plans of the catalogue is right, too, also four times in a row: of
// all that read windows and have signals in words, and of those with messages between hosts, whose
// lanes are others then.
func TestCatalogueAsEnqueued(t *testing.T) {
	most := 8
	if testing.Short() {
		most = 4
	}
	proven, mixed := 0, 0
	for ranks := 1; ranks <= most; ranks++ {
		all, _ := algotest.Subjects(ranks)
		for _, s := range all {
			p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: ranks, Shape: s.Shape})
			require.NoError(t, err)
			what := fmt.Sprintf("%v/%s %v on %d ranks", s.Coll, s.Name, s.Shape, ranks)
			short, long, err := program.AsEnqueued(p)
			if errors.Is(err, fault.NotSupported) {
				require.True(t, p.Needs&plan.Gets == 0 || p.Needs&plan.Messages != 0 || p.Needs&plan.Puts == 0, what)
				continue
			}
			require.NoError(t, err, what)
			if p.Needs&plan.Messages != 0 && ranks > 1 {
				mixed++
			}
			for _, op := range []verify.Operation{short, long} {
				_, err = verify.Plan(op.Plan, verify.Options{Brief: true})
				require.NoError(t, err, "%s\n%s", what, op.Plan.Text())
				if op.Slots > 0 {
					four := []verify.Operation{op, op, op, op}
					require.NoError(t, verify.Sequence(four, verify.Options{Brief: true}), what)
				}
				proven++
			}
		}
	}
	t.Logf("%d plans as devices execute them, %d of them between hosts", proven, mixed)
	require.Greater(t, proven, 50)
	require.Positive(t, mixed)
}

// Programs with a mistake are refused, or have the same results as their plan in random orders of
// the ranks.
func TestMutantsOfPrograms(t *testing.T) {
	ranks := []int{2, 3, 4}
	if testing.Short() {
		ranks = ranks[:2]
	}
	dice := rand.New(rand.NewSource(1))
	killed, total, harmless := 0, 0, map[string]int{}
	for _, n := range ranks {
		all, _ := algotest.Subjects(n)
		for _, s := range all {
			p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: n, Shape: s.Shape})
			require.NoError(t, err)
			for rank := range n {
				long := rank%2 == 1
				require.NoError(t, program.Mutants(p, true, long, rank, func(what string, mutant *plan.Plan) {
					total++
					if _, err := verify.Plan(mutant, verify.Options{Brief: true}); err != nil {
						killed++
						return
					}
					harmless[what[strings.Index(what, ")")+2:]]++
					for range 10 {
						require.NoError(t, likeThePlan(p, mutant, dice), "%v/%s %v on %d ranks, %s\n%s\n%s",
							s.Coll, s.Name, s.Shape, n, what, p.Text(), mutant.Text())
					}
				}))
			}
		}
	}
	t.Logf("%d of %d killed; %d do the same as before: %v", killed, total, total-killed, harmless)
	require.Greater(t, killed, total/2)
}

// likeThePlan compares the results of a mutant, in a random order, with those of its plan.
func likeThePlan(p, mutant *plan.Plan, dice *rand.Rand) error {
	length := func(e plan.Extent) int { return 4 * p.Split }
	in := reference.RandomBlocks(p, dice)
	want, err := reference.Run(p, dtype.Sum, 1, in, length)
	if err != nil {
		return err
	}
	got, err := reference.Scheduled(mutant, dtype.Sum, 1, in, length, dice)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}
