package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
)

// TestVerifyTriples verifies all existing algorithms that are made of three others, and counts them
// in the table.
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

	out, err = run(t, "verify", "--all", "--ranks", "8-12",
		"--algo", "hierarchical.ring", "--coll", "all_gather", "--shape", "2x3x2")
	require.NoError(t, err)
	require.Regexp(t, `hierarchical\.ring\.\*\.\* \(all 36\) +36 `, out)
	require.Contains(t, out, "grid 2x3x2 only")
	_, err = run(t, "verify", "--all", "--ranks", "7", "--algo", "hierarchical.ring", "--shape", "2x3x2")
	require.ErrorContains(t, err, "no algorithm fits")
}

// TestVerifyTriplesOfAnyCollective checks that a collective has triples if and only if it has
// pairs.
func TestVerifyTriplesOfAnyCollective(t *testing.T) {
	for _, c := range dtype.Collectives() {
		require.Equal(t, len(algo.Variants(c, 2)) > 0, len(algo.Variants(c, 3)) > 0, c)
	}
}

// TestVerifyAsGroupsDo checks that verify refuses what groups refuse: plans whose ranks end with
// different bits, and plans below the requested level.
func TestVerifyAsGroupsDo(t *testing.T) {
	t.Setenv("GOCCL_DETERMINISM", "")
	plans := filepath.Join("..", "..", "ccl", "verify", "testdata")
	differing, err := filepath.Glob(filepath.Join(plans, "bits", "*.plan"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(differing), 10)
	for _, path := range differing {
		out, err := run(t, "verify", path)
		require.ErrorContains(t, err, "different bits: out[", path)
		require.Empty(t, out)
		require.False(t, errors.As(err, new(misuse)), "the exit status is 1")
		out, err = run(t, "verify", path, "--determinism", "0")
		require.NoError(t, err)
		require.Contains(t, out, "determinism level 0")
	}
	_, err = run(t, "verify", filepath.Join(plans, "bits", "own_first.plan"))
	require.ErrorContains(t, err, "out[0] is x0 + x1 on rank 0 and x1 + x0 on rank 1, where xR is in[0] of rank R")
	require.ErrorContains(t, err, "--determinism verifies it for another level, 0 for any")

	pairs := filepath.Join(plans, "right", "halve_swap.plan")
	out, err := run(t, "verify", pairs)
	require.NoError(t, err)
	require.Contains(t, out, "determinism level 3")
	_, err = run(t, "verify", pairs, "--determinism", "4")
	require.ErrorContains(t, err, "GOCCL_DETERMINISM=4 asks for level 4")
	require.ErrorContains(t, err, "out[0] of rank 0 is (x0 + x1) + (x2 + x3), which is not the order of the ranks")
	t.Setenv("GOCCL_DETERMINISM", "3")
	_, err = run(t, "verify", pairs)
	require.ErrorContains(t, err, "GOCCL_DETERMINISM=3 asks for level 4")
	_, err = run(t, "verify", pairs, "--determinism", "1")
	require.ErrorContains(t, err, "--determinism 1: want 0, 2, 3 or 4")
	require.ErrorAs(t, err, new(misuse))
	t.Setenv("GOCCL_DETERMINISM", "7")
	_, err = run(t, "verify", pairs)
	require.ErrorContains(t, err, "GOCCL_DETERMINISM")
}

// TestVerifyStops checks that the first wrong case in the order of the table is reported, and that
// no more cases are verified.
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
