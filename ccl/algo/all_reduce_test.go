package algo_test

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

func TestAllReduce(t *testing.T) {
	perFactor := func(f func(factor int) int) func(n, root int) int {
		return func(n, _ int) int {
			sum := 0
			for _, p := range primes(n) {
				sum += f(p)
			}
			return sum
		}
	}
	times := func(k int, f func(n, root int) int) func(n, root int) int {
		return func(n, root int) int { return k * f(n, root) }
	}
	ceilLog := func(n, _ int) int { return bits.Len(uint(n - 1)) }
	floorLog := func(n int) int { return bits.Len(uint(n)) - 1 }
	beyondPower := func(more int) func(n, root int) int { // ⌊log₂ n⌋, plus more where n is not a power of two
		return func(n, _ int) int {
			if n == 1<<floorLog(n) {
				return floorLog(n)
			}
			return floorLog(n) + more
		}
	}
	others := func(n, _ int) int { return n - 1 }
	none := func(int, int) int { return 0 }
	treeRounds := func(n, _ int) int { return 4*floorLog(n) + 6 }
	testClaims(t, dtype.AllReduce, []claim{
		{"direct", func(n, _ int) int { return max(2*n-3, 2) }, false, others, func(n, _ int) int { return 1 }},
		{"ring", times(2, others), false, times(2, others), none},
		{"bidirectional_ring", times(2, others), false, times(4, others), none},
		{"segmented_ring", times(8, others), false, times(8, others), none},
		{"naive", times(2, ceilLog), false, ceilLog, none},
		{"recursive_doubling", beyondPower(2), false, beyondPower(1), func(n, _ int) int {
			if n < 5 {
				return 1
			}
			return 2
		}},
		{"butterfly", func(n, root int) int {
			if n == 2 {
				return 2
			}
			return perFactor(func(f int) int { return 2*f - 3 })(n, root)
		}, false, perFactor(func(f int) int { return f - 1 }),
			func(n, _ int) int { return max(1, min(len(primes(n))-1, 2)) }},
		{"rabenseifner", func(n, root int) int {
			return floorLog(n) + beyondPower(2)(n, root)
		}, false, func(n, _ int) int {
			p := 1 << floorLog(n)
			if n == p {
				return 2 * (p - 1)
			}
			return 2*(p-1) + p
		}, none},
		{"binary_tree", treeRounds, true, func(n, _ int) int { return 4 * min(n-1, 3) }, none},
		{"double_binary_tree", treeRounds, true, func(n, _ int) int { return 4 * min(n, 4) }, none},
		{"bcube", perFactor(func(f int) int { return 3*f - 4 }), false, times(2, others), func(n, _ int) int {
			for _, f := range primes(n) {
				if n /= f; f > 2 {
					return n
				}
			}
			return 0
		}},
		{"torus_2d", func(n, _ int) int {
			columns, rows := square(n)
			return 2 * (columns + rows - 2)
		}, false, times(2, others), none},
		{"mesh_2d", func(n, _ int) int {
			columns, rows := square(n)
			return lineRounds(columns) + lineRounds(rows)
		}, false, func(n, _ int) int {
			columns, rows := square(n)
			return lineSent(columns)*rows + lineSent(rows)
		}, none},
		{"two_shot", func(n, _ int) int { return 3*n - 4 }, false, times(2, others), func(n, _ int) int {
			if n == 2 {
				return 0
			}
			return 1
		}},
	})
}

func primes(n int) []int {
	var all []int
	for f := 2; n > 1; f++ {
		for ; n%f == 0; n /= f {
			all = append(all, f)
		}
	}
	return all
}

func square(n int) (columns, rows int) {
	for columns = 1; columns*columns < n || n%columns != 0; columns++ {
	}
	return columns, n / columns
}

func lineRounds(n int) int {
	if n < 3 {
		return 2 * (n - 1)
	}
	return 2*n - 1
}

// lineSent returns how many parts of the block an inner rank of a line sends.
func lineSent(n int) int {
	if n < 3 {
		return 2 * (n - 1)
	}
	return 2 * n
}

// TestGridShapes verifies the algorithms on grids for every shape of two levels.
func TestGridShapes(t *testing.T) {
	for _, name := range []string{"torus_2d", "mesh_2d"} {
		a, err := algo.Find(dtype.AllReduce, name)
		if err != nil {
			t.Fatal(err)
		}
		for n := 2; n <= 16; n++ {
			for columns := 1; columns <= n; columns++ {
				if n%columns != 0 {
					continue
				}
				p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: n, Shape: plan.Shape{columns, n / columns}})
				if err != nil {
					t.Fatal(err)
				}
				r, err := verify.Plan(p, verify.Options{})
				if err != nil {
					t.Fatal(err)
				}
				rows := n / columns
				want := 2 * (columns + rows - 2)
				if name == "mesh_2d" {
					want = lineRounds(columns) + lineRounds(rows)
				}
				if r.Rounds != want {
					t.Errorf("%s, %v: %d rounds, want %d", name, p.Spec, r.Rounds, want)
				}
			}
		}
	}
}

// TestRingPrograms checks that the programs of rings have the same length for any number of ranks.
func TestRingPrograms(t *testing.T) {
	for name, most := range map[string]int{"ring": 5, "bidirectional_ring": 10, "segmented_ring": 11} {
		a, err := algo.Find(dtype.AllReduce, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{4, 4096, plan.MaxRanks} {
			p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: n})
			if err != nil {
				t.Fatal(err)
			}
			steps, messages := 0, 0
			for _, lane := range p.Program(n - 1).Lanes {
				steps += len(lane)
				messages += plan.Len(lane)
			}
			if steps > most || messages != 4*(n-1)*p.Split/n {
				t.Errorf("%s on %d ranks: %d steps, want at most %d; %d messages, want %d",
					name, n, steps, most, messages, 4*(n-1)*p.Split/n)
			}
		}
	}
}

// TestTreesComplement checks that a rank with children in one of the two trees has none in the
// other.
func TestTreesComplement(t *testing.T) {
	a, err := algo.Find(dtype.AllReduce, "double_binary_tree")
	if err != nil {
		t.Fatal(err)
	}
	for n := 2; n <= 40; n++ {
		p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: n})
		if err != nil {
			t.Fatal(err)
		}
		for rank := range n {
			var inner []int // the channels on which the rank reduces
			for _, lane := range p.Program(rank).Lanes {
				for _, s := range lane {
					if s.Kind == plan.RecvReduce && !slices.Contains(inner, s.Chan) {
						inner = append(inner, s.Chan)
					}
				}
			}
			if len(inner) > 1 {
				t.Errorf("%d ranks: rank %d has children in both trees", n, rank)
			}
		}
	}
}
