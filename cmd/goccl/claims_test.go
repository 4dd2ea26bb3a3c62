package main

import (
	"math/big"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// group holds the variables of the formulas: n ranks, in b hosts, rows or lines of a ranks each; a
// is n and b is 1 if n is prime.
type group struct{ n, a, b int }

// figure is a number that a doc comment of package algo claims, and its text there. Amounts of data
// are in blocks.
type figure struct {
	text   string // in the comment
	of     func(g group) *big.Rat
	atMost bool
}

func whole(text string, of func(g group) int) figure {
	return figure{text, func(g group) *big.Rat { return big.NewRat(int64(of(g)), 1) }, false}
}

// part returns the figure of of(g)/over(g) blocks.
func part(text string, of, over func(g group) int) figure {
	return figure{text, func(g group) *big.Rat { return big.NewRat(int64(of(g)), int64(over(g))) }, false}
}

func atMost(f figure) figure {
	f.atMost = true
	return f
}

func ceilLog(g group) int     { return bits.Len(uint(g.n - 1)) }
func floorLog(g group) int    { return bits.Len(uint(g.n)) - 1 }
func powerOfTwo(g group) bool { return g.n&(g.n-1) == 0 }
func others(g group) int      { return g.n - 1 }
func ranksOf(g group) int     { return g.n }

// primes returns Σ of(f) over the prime factors f of n.
func primes(n int, of func(f int) int) int {
	sum := 0
	for f := 2; n > 1; f++ {
		for ; n%f == 0; n /= f {
			sum += of(f)
		}
	}
	return sum
}

// folded returns log₂ n for each pass, plus more if n is not a power of two and ranks have to be
// folded.
func folded(passes, more int) func(g group) int {
	return func(g group) int {
		if powerOfTwo(g) {
			return passes * floorLog(g)
		}
		return passes*floorLog(g) + more
	}
}

// pipelined returns of(g), but 1 for two ranks.
func pipelined(of func(g group) int) func(g group) int {
	return func(g group) int {
		if g.n == 2 {
			return 1
		}
		return of(g)
	}
}

func inLine(size int) int { // the steps along a line of the mesh in one direction and back
	switch {
	case size == 1:
		return 0
	case size == 2:
		return 2
	}
	return 2*(size-1) + 1
}

// popcounts returns the blocks that Bruck's all-to-all sends: one for each bit of each distance.
func popcounts(g group) int {
	sum := 0
	for d := range g.n {
		sum += bits.OnesCount(uint(d))
	}
	return sum
}

var (
	log         = whole("⌈log₂ n⌉", ceilLog)
	oneEach     = whole("n-1", others)
	allOthers   = whole("m·(n-1)", others)
	oneBlock    = whole("m", func(group) int { return 1 })
	nothing     = whole("none", func(group) int { return 0 })
	twoRings    = whole("2(n-1)", func(g group) int { return 2 * (g.n - 1) })
	leastBytes  = part("2·m·(n-1)/n", func(g group) int { return 2 * (g.n - 1) }, ranksOf)
	inRankOrder = whole("2n-3", func(g group) int { return 2*g.n - 3 })
)

// claims holds the steps of each algorithm with root 0, and the bytes of the rank that sends most.
// The steps of plans with windows are the rounds of their drawings.
var claims = map[string]struct{ steps, bytes figure }{
	"broadcast/binomial": {log, whole("m·⌈log₂ n⌉", ceilLog)},
	"broadcast/flat":     {oneEach, allOthers},
	"broadcast/chain":    {whole("n-2+S", pipelined(func(g group) int { return g.n - 2 + 8 })), oneBlock},
	"broadcast/double_binary_tree": {
		atMost(whole("2(⌈log₂ n⌉ + S)", pipelined(func(g group) int { return 2 * (ceilLog(g) + 8) }))),
		atMost(oneBlock),
	},
	"broadcast/scatter_allgather": {
		whole("⌈log₂ n⌉ + n-1", func(g group) int { return ceilLog(g) + g.n - 1 }),
		part("2·m·(n-1)/n", func(g group) int { return 2 * (g.n - 1) }, ranksOf),
	},
	"broadcast/window": {whole("1: n-1 signals", func(group) int { return 2 }), whole("m", others)},
	"scatter/linear":   {oneEach, allOthers},
	"scatter/binomial": {log, allOthers},
	"scatter/window":   {whole("1: n-1 signals", func(group) int { return 2 }), allOthers},
	"gather/linear":    {oneEach, oneBlock},
	"gather/binomial": {
		log,
		atMost(whole("m for itself and for each rank below it", func(g group) int { return 1 << (ceilLog(g) - 1) })),
	},
	"gather/window": {whole("1: all ranks signal the root", ranksOf), oneBlock},

	"all_gather/direct":   {oneEach, allOthers},
	"all_gather/ring":     {oneEach, allOthers},
	"all_gather/pairwise": {oneEach, allOthers},
	"all_gather/recursive_doubling": {
		whole("⌊log₂ n⌋ + 2", folded(1, 2)),
		atMost(part("7/3·m·n", func(g group) int {
			if powerOfTwo(g) {
				return 3 * (g.n - 1)
			}
			return 7 * g.n
		}, func(group) int { return 3 })),
	},
	"all_gather/bruck":  {log, allOthers},
	"all_gather/pat":    {log, allOthers},
	"all_gather/window": {whole("1: a rank signals all others", ranksOf), allOthers},
	"all_gather/hierarchical": {
		whole("G(b) + G(a)·b", func(g group) int { return g.b - 1 + (g.a-1)*g.b }),
		whole("m·(b-1) across and m·b·(a-1) within", func(g group) int { return g.b - 1 + g.b*(g.a-1) }),
	},

	"reduce/binomial": {log, oneBlock},
	"reduce/flat":     {oneEach, oneBlock},
	"reduce/chain":    {whole("n-1+S", pipelined(func(g group) int { return g.n - 1 + 8 })), oneBlock},
	"reduce/double_binary_tree": {
		atMost(whole("2(⌈log₂ n⌉ + S)", pipelined(func(g group) int { return 2 * (ceilLog(g) + 8) }))),
		oneBlock,
	},
	"reduce/reduce_scatter_gather": {
		whole("2·⌊log₂ n⌋ + 1", folded(2, 1)),
		atMost(part("m·(p-1)/p to reduce and at most m/2",
			func(g group) int { p := 1 << floorLog(g); return 2*(p-1) + p },
			func(g group) int { return 2 << floorLog(g) })),
	},
	"reduce/window": {whole("1: all ranks signal the root", func(group) int { return 2 }), oneBlock},

	"reduce_scatter/direct":   {inRankOrder, allOthers},
	"reduce_scatter/ring":     {oneEach, allOthers},
	"reduce_scatter/pairwise": {oneEach, allOthers},
	"reduce_scatter/recursive_halving": {whole("⌊log₂ n⌋ + 2", folded(1, 2)), whole("m·n", func(g group) int {
		if powerOfTwo(g) {
			return g.n - 1
		}
		return g.n
	})},
	"reduce_scatter/bruck":  {log, allOthers},
	"reduce_scatter/pat":    {log, allOthers},
	"reduce_scatter/window": {whole("1: a rank signals all others", func(group) int { return 2 }), allOthers},
	"reduce_scatter/hierarchical": {whole("R(a)·b + R(b)", func(g group) int {
		if g.b == 1 {
			return g.n - 1
		}
		return (2*g.a-3)*g.b + g.b - 1
	}), whole("m·b·(a-1) within its host and m·(b-1) across", func(g group) int { return g.b*(g.a-1) + g.b - 1 })},

	"all_reduce/direct":             {whole("2n-3", func(g group) int { return max(2*g.n-3, 2) }), allOthers},
	"all_reduce/ring":               {twoRings, leastBytes},
	"all_reduce/bidirectional_ring": {twoRings, leastBytes},
	"all_reduce/segmented_ring":     {whole("2(n-1) of S", func(g group) int { return 2 * (g.n - 1) * 4 }), leastBytes},
	"all_reduce/naive": {
		whole("2⌈log₂ n⌉", func(g group) int { return 2 * ceilLog(g) }),
		whole("m·⌈log₂ n⌉", ceilLog),
	},
	"all_reduce/recursive_doubling": {
		whole("⌊log₂ n⌋, and 2 more", folded(1, 2)),
		whole("m·⌊log₂ n⌋", folded(1, 1)),
	},
	"all_reduce/butterfly": {whole("Σ(2fₖ-3)", func(g group) int {
		if g.n == 2 {
			return 2 // it is direct
		}
		return primes(g.n, func(f int) int { return 2*f - 3 })
	}), whole("m·Σ(fₖ-1)", func(g group) int { return primes(g.n, func(f int) int { return f - 1 }) })},
	"all_reduce/rabenseifner": {
		whole("2⌊log₂ n⌋, and 2 more", folded(2, 2)),
		part("2·m·(p-1)/p", func(g group) int {
			p := 1 << floorLog(g)
			return 2*(p-1) + p*min(g.n-p, 1)
		}, func(g group) int { return 1 << floorLog(g) }),
	},
	"all_reduce/binary_tree": {
		atMost(whole("4⌊log₂ n⌋ + 2(S-1)", func(g group) int { return 4*floorLog(g) + 2*3 })),
		atMost(whole("m to its parent and m to each of its children", func(group) int { return 3 })),
	},
	"all_reduce/double_binary_tree": {
		atMost(whole("4⌊log₂ n⌋ + 2(S-1)", func(g group) int { return 4*floorLog(g) + 2*3 })),
		atMost(whole("2·m", func(group) int { return 2 })),
	},
	"all_reduce/bcube": {
		whole("Σ(3fₖ-4)", func(g group) int { return primes(g.n, func(f int) int { return 3*f - 4 }) }),
		leastBytes,
	},
	"all_reduce/torus_2d": {
		whole("2(C-1) + 2(R-1)", func(g group) int { return 2*(g.a-1) + 2*(g.b-1) }), leastBytes,
	},
	"all_reduce/mesh_2d": {
		whole("2(C-1) + 2(R-1)", func(g group) int { return inLine(g.a) + inLine(g.b) }),
		atMost(part("2m + 2·m/C", func(g group) int { return 2*g.a + 2 }, func(g group) int { return g.a })),
	},
	"all_reduce/two_shot":        {whole("3n-4", func(g group) int { return 3*g.n - 4 }), leastBytes},
	"all_reduce/one_shot":        {whole("n-1 packets", others), allOthers},
	"all_reduce/one_shot_window": {whole("1: a rank signals all others", func(group) int { return 2 }), allOthers},
	"all_reduce/two_shot_window": {
		whole("2, in each of which a rank signals all others", func(g group) int { return g.n + 2 }),
		part("m·(n-1)/n to reduce and m·(n-1)/n", func(g group) int { return 2 * (g.n - 1) }, ranksOf),
	},
	"all_reduce/hierarchical": {whole("R(a) + A(b) + G(a)", func(g group) int {
		if g.b == 1 {
			return 2 * (g.n - 1)
		}
		return 2*g.a - 3 + 2*(g.b-1) + g.a - 1
	}), part("2·m·(a-1)/a within its host, and 2·m/a·(b-1)/b across",
		func(g group) int { return 2 * (g.n - 1) }, ranksOf)},

	"all_to_all/linear":   {oneEach, allOthers},
	"all_to_all/pairwise": {oneEach, allOthers},
	"all_to_all/bruck":    {log, whole("m·(n/2)·log₂ n", popcounts)},
	"all_to_all/hierarchical": {
		whole("(a-1)·b small ones within the host, b-1 across",
			func(g group) int { return (g.a-1)*g.b + g.b - 1 }),
		whole("m·(a-1)·b within its host and m·a·(b-1) across",
			func(g group) int { return (g.a-1)*g.b + g.a*(g.b-1) }),
	},
	"all_to_all/2d": {
		whole("(a-1) + (b-1)", func(g group) int { return g.a - 1 + g.b - 1 }),
		whole("m·(a-1)·b + m·a·(b-1)", func(g group) int { return (g.a-1)*g.b + g.a*(g.b-1) }),
	},
	"all_to_all/window":     {whole("1: a rank signals all others", ranksOf), allOthers},
	"barrier/dissemination": {log, nothing},
	"barrier/flags":         {whole("1", func(group) int { return 1 }), nothing},
	"barrier/tree":          {whole("2·⌈log₂ n⌉", func(g group) int { return 2 * ceilLog(g) }), nothing},
}

// check compares a figure with the counted number.
func (f figure) check(t *testing.T, g group, counted *big.Rat, what, name string) {
	t.Helper()
	claimed := f.of(g)
	if c := counted.Cmp(claimed); c > 0 || c < 0 && !f.atMost {
		t.Errorf("%s on %d ranks (%d·%d): %s: %s is claimed, which is %s; there are %s",
			name, g.n, g.a, g.b, what, f.text, claimed.RatString(), counted.RatString())
	}
}

// The steps and bytes that doc comments claim, and with them docs/catalogue.md, match those that
// package verify counts; the comment of a plan that needs Tmp or a window states how much.
func TestClaims(t *testing.T) {
	known, _ := comments(t)
	for _, a := range algo.All() {
		name := a.Coll.String() + "/" + a.Name
		claim, ok := claims[name]
		require.True(t, ok, "no claims are checked for %s", name)
		require.Contains(t, known[name].fact("steps"), claim.steps.text, "%s: steps", name)
		require.Contains(t, known[name].fact("bytes"), claim.bytes.text, "%s: bytes", name)
		for _, n := range []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 24, 31, 32, 33, 48} {
			g := group{n, n, 1}
			for d := 2; d*d <= n; d++ {
				if n%d == 0 {
					g.a, g.b = n/d, d
				}
			}
			spec := plan.Spec{Coll: a.Coll, Ranks: n}
			if g.b > 1 {
				spec.Shape = plan.Shape{g.a, g.b}
			}
			p, err := a.Make(spec)
			require.NoError(t, err)
			report, err := verify.Plan(p, verify.Options{})
			require.NoError(t, err)
			rounds, sent, memory := report.Rounds, 0, 0
			if p.Needs&(plan.Puts|plan.Gets) != 0 {
				trace, err := draw.Run(p)
				require.NoError(t, err)
				rounds = trace.Rounds
			}
			for _, load := range report.Ranks {
				sent, memory = max(sent, load.Sent), max(memory, load.Tmp, load.Win)
			}
			claim.steps.check(t, g, big.NewRat(int64(rounds), 1), "steps", name)
			claim.bytes.check(t, g, big.NewRat(int64(sent), int64(p.Split)), "bytes", name)
			require.True(t, memory == 0 || known[name].fact("memory") != "",
				"%s needs Tmp or a window and does not say how much", name)
		}
	}
	require.Len(t, claims, len(algo.All()))
}
