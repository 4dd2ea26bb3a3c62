package sim

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/topo/network"
)

// Row is one algorithm at one size. Bytes is the size of the larger buffer, as nccl-tests count it.
type Row struct {
	Bytes     int64   `json:"size"`
	Algorithm string  `json:"algorithm"`
	Seconds   float64 `json:"seconds"`
	AlgBW     float64 `json:"algbw_gbs"`
	BusBW     float64 `json:"busbw_gbs"`
	Messages  int64   `json:"messages"`
	Peers     int     `json:"peers"`                     // the most ranks with which one communicates
	Formula   float64 `json:"formula_seconds,omitempty"` // on a uniform network, if the formula is exact
	Wins      bool    `json:"wins"`
}

// Compare simulates plans at some sizes, and says which are the fastest at each. every, if given,
// gets each result.
func (s *Simulator) Compare(plans []*plan.Plan, sizes []int64, o Options, every func(*Result) error) ([]Row, error) {
	uniform := uniformCost(s.topology, o.Gamma)
	var rows []Row
	for _, size := range sizes {
		first := len(rows)
		for _, p := range plans {
			row, result, err := s.at(p, o, size, uniform)
			if err == nil && every != nil {
				err = every(result)
			}
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
		best := slices.MinFunc(rows[first:], func(a, b Row) int { return compareTimes(a.Seconds, b.Seconds) })
		for i := first; i < len(rows); i++ {
			rows[i].Wins = compareTimes(rows[i].Seconds, best.Seconds) == 0
		}
	}
	return rows, nil
}

// compareTimes compares two times and ignores differences by rounding.
func compareTimes(a, b float64) int {
	switch {
	case math.Abs(a-b) <= 1e-9*max(a, b):
		return 0
	case a < b:
		return -1
	}
	return 1
}

// uniformCost returns the cost model of the closed formulas, nil unless the topology is uniform.
func uniformCost(t *network.Topology, gamma float64) *Cost {
	if !strings.HasPrefix(t.Name, "uniform-") || len(t.Classes) != 1 {
		return nil
	}
	return &Cost{Alpha: t.Startup, Beta: 1 / t.Classes[0].Bandwidth, Gamma: gamma}
}

// at simulates a plan at a size.
func (s *Simulator) at(p *plan.Plan, o Options, size int64, uniform *Cost) (Row, *Result, error) {
	coll, n := p.Spec.Coll, p.Spec.Ranks
	count := size / int64(o.ElementBytes)
	switch {
	case coll.PerRank():
		count /= int64(n)
		size = count * int64(n) * int64(o.ElementBytes)
	case coll == dtype.Barrier:
		count, size = 0, 0
	default:
		size = count * int64(o.ElementBytes)
	}
	o.Elements = int(count)
	r, err := s.Run(p, o)
	if err != nil {
		return Row{}, nil, err
	}
	row := Row{Bytes: size, Algorithm: p.Name, Seconds: r.Makespan, Messages: r.Messages, Peers: r.Peers}
	if r.Makespan > 0 {
		row.AlgBW = float64(size) / r.Makespan / 1e9
		row.BusBW = row.AlgBW * coll.BusFactor(n)
	}
	if f, ok := FormulaOf(coll, p.Name); ok && uniform != nil && f.Exact(n) {
		row.Formula = f.Time(*uniform, n, float64(size))
	}
	return row, r, nil
}

// Range is a run of neighbouring sizes at which the same algorithms are the fastest.
type Range struct {
	Low, High  int64
	Algorithms []string
}

// Winners returns the ranges of the sizes in rows, from the smallest. Of algorithms that are
// equally fast at one size, it keeps those that win at more of the following sizes.
func Winners(rows []Row) []Range {
	fastest := map[int64][]string{}
	for _, row := range rows {
		if row.Wins && !slices.Contains(fastest[row.Bytes], row.Algorithm) {
			fastest[row.Bytes] = append(fastest[row.Bytes], row.Algorithm)
		}
	}
	var ranges []Range
	for _, size := range slices.Sorted(maps.Keys(fastest)) {
		if len(ranges) > 0 {
			last := &ranges[len(ranges)-1]
			var still []string
			for _, name := range last.Algorithms {
				if slices.Contains(fastest[size], name) {
					still = append(still, name)
				}
			}
			if still != nil {
				last.High, last.Algorithms = size, still
				continue
			}
		}
		ranges = append(ranges, Range{size, size, fastest[size]})
	}
	return ranges
}
