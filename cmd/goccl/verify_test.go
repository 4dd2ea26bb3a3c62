package main

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// TestVerifyTriples verifies all algorithms made of three others that there are, and counts them in the table.
func TestVerifyTriples(t *testing.T) {
	cases, algorithms := 0, 0
	out, err := run(t, "verify", "--all", "--ranks", "8", "--algo", "hierarchical")
	require.NoError(t, err)
	for _, c := range dtype.Collectives() {
		n := len(algo.Variants(c, 3))
		if n == 0 {
			continue
		}
		require.Regexp(t, fmt.Sprintf(`%v +hierarchical\.\*\.\*\.\* \(all %d\) +%d `, c, n, n), out)
		algorithms += n
	}
	require.GreaterOrEqual(t, algorithms, 900)
	for _, n := range regexp.MustCompile(`(?m)(\d+) +\d(?:–\d)? +\d+\.\d+s$`).FindAllStringSubmatch(out, -1) {
		k, err := strconv.Atoi(n[1])
		require.NoError(t, err)
		cases += k
	}
	require.Contains(t, out, fmt.Sprintf("\n%d cases of ", cases), "the rows add up")
	require.Contains(t, out, "2x2x2 for each triple")

	out, err = run(t, "verify", "--all", "--ranks", "8-12", "--algo", "hierarchical.ring", "--coll", "all_gather", "--shape", "2x3x2")
	require.NoError(t, err)
	require.Regexp(t, `hierarchical\.ring\.\*\.\* \(all 36\) +36 `, out)
	require.Contains(t, out, "grid 2x3x2 only")
	_, err = run(t, "verify", "--all", "--ranks", "7", "--algo", "hierarchical.ring", "--shape", "2x3x2")
	require.ErrorContains(t, err, "no algorithm fits")
}

// TestVerifyTriplesOfAnyCollective keeps the table in step with the catalogue: what has pairs has triples.
func TestVerifyTriplesOfAnyCollective(t *testing.T) {
	for _, c := range dtype.Collectives() {
		require.Equal(t, len(algo.Variants(c, 2)) > 0, len(algo.Variants(c, 3)) > 0, c)
	}
}

// TestVerifyStops reports the first wrong case in the order of the table, and verifies no more.
func TestVerifyStops(t *testing.T) {
	wrong, err := algo.Find(dtype.AllGather, "ring")
	require.NoError(t, err)
	made := wrong.Make
	wrong.Make = func(s plan.Spec) (*plan.Plan, error) {
		if s.Ranks > 1 {
			return nil, fault.New(fault.Invalid, "not for %d ranks", s.Ranks)
		}
		return made(s)
	}
	var cases []verifyCase
	for n := 1; n <= 3; n++ {
		cases = append(cases, verifyCase{0, wrong, plan.Spec{Coll: dtype.AllGather, Ranks: n}})
	}
	require.ErrorContains(t, verifyCases(cases, make([]verifyRow, 1), 1), "not for 3 ranks")

	wrong.Make, wrong.Level = made, 4
	wrong.Coll = dtype.AllReduce
	low, err := algo.Find(dtype.AllReduce, "ring")
	require.NoError(t, err)
	low.Level = 4
	_, err = verifyOne(&verifyCase{0, low, plan.Spec{Coll: dtype.AllReduce, Ranks: 3}})
	require.ErrorContains(t, err, "determinism is level 2, but the algorithm declares level 4")
}
