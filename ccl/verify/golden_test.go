package verify_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

// planFiles returns the plans of a folder of testdata, by name.
func planFiles(t *testing.T, folder string) (names []string, plans map[string]*plan.Plan) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", folder, "*.plan"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	plans = map[string]*plan.Plan{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		name := strings.TrimSuffix(filepath.Base(path), ".plan")
		names = append(names, name)
		plans[name], err = plan.Load(data)
		require.NoError(t, err, path)
		require.Equal(t, name, plans[name].Name)
	}
	return names, plans
}

// TestVerdicts compares the verdicts on the plans in testdata with the golden file: plans in right
// are accepted, plans in wrong and bits are refused with the reason.
func TestVerdicts(t *testing.T) {
	var got strings.Builder
	for _, folder := range []string{"right", "bits", "wrong"} {
		names, plans := planFiles(t, folder)
		for _, name := range names {
			report, err := verify.Accept(plans[name], int(verify.EveryRun), verify.Options{})
			require.Equal(t, folder == "right", err == nil, "%s/%s: %v", folder, name, err)
			if err == nil {
				fmt.Fprintf(&got, "%s/%s: right, %v\n\n", folder, name, report.Determinism)
			} else {
				fmt.Fprintf(&got, "%s/%s: %v\n\n", folder, name, err)
			}
		}
	}
	const golden = "testdata/verdicts.txt"
	if *rewrite {
		require.NoError(t, os.WriteFile(golden, []byte(got.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String(), "go test ./ccl/verify -rewrite writes it anew")
}

// TestRightPlansRun executes the right plans in thousands of schedules, and likewise the plans
// whose results depend on the rank: the interpreter adds integers, so their sums are right, too.
func TestRightPlansRun(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, folder := range []string{"right", "bits"} {
		names, plans := planFiles(t, folder)
		for _, name := range names {
			require.NoError(t, concrete(plans[name], rng, 400), name)
		}
	}
}

// TestWrongPlansGoWrong finds for each of the wrong plans a schedule in which it fails.
func TestWrongPlansGoWrong(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	names, plans := planFiles(t, "wrong")
	for _, name := range names {
		require.Error(t, concrete(plans[name], rng, 2000), name)
	}
}

// TestMutantsOfRightPlans changes the right plans at random, once or twice: mutants that are still
// accepted are right in hundreds of schedules.
func TestMutantsOfRightPlans(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	names, plans := planFiles(t, "right")
	accepted := 0
	for _, name := range names {
		for range mutantsEach() {
			mutant, what := mutate(plans[name], rng)
			if mutant == nil {
				continue
			}
			if again, more := mutate(mutant, rng); again != nil && rng.IntN(2) == 0 {
				mutant, what = again, what+", "+more
			}
			if _, err := verify.Plan(mutant, verify.Options{Brief: true}); err != nil {
				continue
			}
			accepted++
			require.NoError(t, concrete(mutant, rng, 50), "%s: %s was accepted\n%s", name, what, mutant.Text())
		}
	}
	require.Greater(t, accepted, len(names), "mutants that are right")
}
