package verify

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Execute(cli.Root(Command()), args, &out)
	return out.String(), err
}

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
		"--algo", "hierarchical.ring", "--op", "all_gather", "--shape", "2x3x2")
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
	plans := filepath.Join("..", "..", "..", "..", "ccl", "verify", "testdata")
	differing, err := filepath.Glob(filepath.Join(plans, "bits", "*.plan"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(differing), 10)
	for _, path := range differing {
		out, err := run(t, "verify", path)
		require.ErrorContains(t, err, "different bits: out[", path)
		require.Empty(t, out)
		require.False(t, errors.As(err, new(cli.Misuse)), "the exit status is 1")
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
	require.ErrorAs(t, err, new(cli.Misuse))
	t.Setenv("GOCCL_DETERMINISM", "7")
	_, err = run(t, "verify", pairs)
	require.ErrorContains(t, err, "GOCCL_DETERMINISM")
}

func TestVerifyAll(t *testing.T) {
	out, err := run(t, "verify", "--all", "--ranks", "1-5", "--op", "broadcast", "--jobs", "2")
	require.NoError(t, err)
	require.Contains(t, out, "binomial")
	require.Contains(t, out, "  15  ", "every root of 1 to 5 ranks")
	require.Contains(t, out, "algorithms verified, all right")
	out, err = run(t, "verify", "--all", "--ranks", "8",
		"--algo", "hierarchical", "--op", "all_gather", "--shape", "4x2")
	require.NoError(t, err)
	require.Contains(t, out, "hierarchical.ring.ring")
	out, err = run(t, "verify", "--all", "--ranks", "8", "--algo", "hierarchical.ring.ring.ring")
	require.NoError(t, err)
	require.Contains(t, out, "hierarchical.ring.ring.ring")
}

func TestWrongUse(t *testing.T) {
	for args, words := range map[string]string{
		"verify":                                          "usage: goccl verify FILE | --all",
		"verify --all x":                                  "usage: goccl verify FILE | --all",
		"verify --all --ranks 0":                          "--ranks 0: want",
		"verify --all --ranks 4-2":                        "--ranks 4-2: want",
		"verify --all --jobs 0":                           "--jobs 0: want 1 or more",
		"verify --all --op dance":                         `unknown collective "dance"`,
		"verify --all --algo dance":                       "no algorithm fits",
		"verify --all --shape x":                          "--shape x",
		"verify --all --ranks 4 --algo ring --shape 9x9x": "--shape 9x9x",
	} {
		_, err := run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, words, args)
	}
}
