package algo

import "github.com/goccl/goccl/ccl/plan"

// group is a set of ranks at equal distances: a row or a column of a grid, or the ranks that differ
// in one digit of their number. The rank whose program is made is at pos. Where extra ranks are
// folded, the distances are between seats; see fold.
type group struct {
	first, stride, size, pos int
	fold                     fold
}

// rank returns member i; i wraps around.
func (g group) rank(i int) int { return g.fold.odd(g.first + wrap(i, g.size)*g.stride) }

// digits returns, for each level of a grid of ranks or seats, the group of ranks that differ from
// rank in this level only. The innermost level is first; levels of one rank are left out.
func digits(rank int, sizes []int) []group {
	var groups []group
	stride := 1
	for _, size := range sizes {
		if size > 1 {
			pos := rank / stride % size
			groups = append(groups, group{first: rank - pos*stride, stride: stride, size: size, pos: pos})
		}
		stride *= size
	}
	return groups
}

// factors returns the prime factors of n, the smallest first.
func factors(n int) []int {
	var primes []int
	for f := 2; f*f <= n; f++ {
		for ; n%f == 0; n /= f {
			primes = append(primes, f)
		}
	}
	if n > 1 {
		primes = append(primes, n)
	}
	return primes
}

// grid returns the columns (the innermost level, so neighbouring ranks share a row) and rows of a
// spec: its shape if this has two levels, else the most square shape of its ranks, with at least as
// many columns as rows.
func grid(s plan.Spec) []int {
	if s.Shape.Levels() == 2 {
		return s.Shape[:2]
	}
	rows := 1
	for f := 2; f*f <= s.Ranks; f++ {
		if s.Ranks%f == 0 {
			rows = f
		}
	}
	return []int{s.Ranks / rows, rows}
}

// piece is the chunks [at, at+n) of a buffer.
type piece struct{ at, n int }

func (p piece) of(buf plan.Buffer) plan.Ref { return plan.Ref{Buf: buf, At: p.at, N: p.n} }

// part returns part i of p cut into equal parts; i wraps around.
func (p piece) part(i, parts int) piece {
	n := p.n / parts
	return piece{p.at + wrap(i, parts)*n, n}
}

// lengths returns the length of each chunk of p, where all ranks have the same block.
func (p piece) lengths() []plan.Extent {
	var all []plan.Extent
	for i := range p.n {
		all = append(all, plan.Extent{Part: p.at + i})
	}
	return all
}
