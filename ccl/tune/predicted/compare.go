package predicted

import (
	"cmp"
	"math"
	"slices"

	"github.com/goccl/goccl/ccl/dtype"
)

// Row is how long calls of an algorithm took, and how long they were predicted to take, in seconds.
type Row struct {
	Coll      dtype.Collective `json:"-"`
	Name      string           `json:"collective"`
	Algorithm string           `json:"algorithm"`
	Ranks     int              `json:"ranks"`
	Hosts     int              `json:"hosts"`
	Cores     int              `json:"cores"` // of the machine, on which all ranks ran; 0 if unknown
	Bytes     int64            `json:"size"`
	Calls     int              `json:"calls"`   // that followed one another in a block
	Blocks    []float64        `json:"times_s"` // of a call, in each block
	Predicted float64          `json:"predicted_s"`
}

// Measured returns the median of the blocks.
func (r *Row) Measured() float64 {
	all := slices.Sorted(slices.Values(r.Blocks))
	return all[len(all)/2]
}

// Off returns by which part of the measured time the predicted one differs.
func (r *Row) Off() float64 { return r.Predicted/r.Measured() - 1 }

// Summary is how well predictions agree with measurements.
type Summary struct {
	Rows   int     `json:"rows"`
	Median float64 `json:"median"` // of by which parts they are off, without their signs
	P90    float64 `json:"p90"`    // of the same
	Worst  float64 `json:"worst"`  // with its sign
	Mean   float64 `json:"mean"`   // with signs
	Tau    float64 `json:"tau"`    // of the orders of algorithms, in the mean; 1 if there is none to compare
}

// Summarize returns the summary of some rows.
func Summarize(rows []Row) Summary {
	s := Summary{Rows: len(rows), Tau: 1}
	if len(rows) == 0 {
		return s
	}
	all := make([]float64, len(rows))
	for i := range rows {
		off := rows[i].Off()
		all[i] = math.Abs(off)
		s.Mean += off / float64(len(rows))
		if math.Abs(off) > math.Abs(s.Worst) {
			s.Worst = off
		}
	}
	slices.Sort(all)
	s.Median, s.P90 = all[len(all)/2], all[len(all)*9/10]
	type cell struct {
		coll         dtype.Collective
		ranks, hosts int
		bytes        int64
	}
	cells := map[cell][]*Row{}
	for i := range rows {
		r := &rows[i]
		at := cell{r.Coll, r.Ranks, r.Hosts, r.Bytes}
		cells[at] = append(cells[at], r)
	}
	var sum, n float64
	for _, list := range cells {
		if tau, ok := order(list); ok {
			sum, n = sum+tau, n+1
		}
	}
	if n > 0 {
		s.Tau = sum / n
	}
	return s
}

// alike is how close two times are that count as equal.
const alike = 0.05

// order returns Kendall's τ of the measured and the predicted order of algorithms (Kendall, "A new
// measure of rank correlation", 1938): of all pairs that differ in the measurement, by more than
// 5 % and in all blocks, the part in the same order, less the part in the other one. ok is false if
// there is no such pair.
func order(rows []*Row) (tau float64, ok bool) {
	pairs := 0
	for i, a := range rows {
		for _, b := range rows[:i] {
			fast, slow := a, b
			if b.Measured() < a.Measured() {
				fast, slow = b, a
			}
			if fast.Measured()*(1+alike) > slow.Measured() || slices.Max(fast.Blocks) >= slices.Min(slow.Blocks) {
				continue
			}
			pairs++
			tau += float64(cmp.Compare(slow.Predicted, fast.Predicted))
		}
	}
	return tau / float64(max(pairs, 1)), pairs > 0
}
