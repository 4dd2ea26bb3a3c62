package measured

import (
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
)

// Sample is how long messages of a size took: the median, and each block of calls.
type Sample struct {
	Bytes   int64
	Seconds float64
	Blocks  []float64
}

// Comparison compares one simulated time of an all-reduce with the measured one.
type Comparison struct {
	Algorithm string  `json:"algorithm"`
	Bytes     int64   `json:"size"`
	Measured  float64 `json:"measured_s"`
	Simulated float64 `json:"simulated_s"`
	Range     Spread  `json:"measured_range_s"` // of the blocks of calls
}

// Off returns by which part of the measured time the simulated one differs.
func (c Comparison) Off() float64 { return c.Simulated/c.Measured - 1 }

// Costs holds the costs of a network: a message of m bytes takes Alpha + Beta·m seconds, reducing
// m bytes takes Gamma·m. The ranges cover the fits of single blocks of calls.
type Costs struct {
	Alpha      float64 `json:"alpha_s"`
	Beta       float64 `json:"beta_s_per_byte"`
	Gamma      float64 `json:"gamma_s_per_byte"`
	AlphaRange Spread  `json:"alpha_range_s"`
	BetaRange  Spread  `json:"beta_range_s_per_byte"`
	GammaRange Spread  `json:"gamma_range_s_per_byte"`
	Failed     int     `json:"blocks_without_fit"` // blocks whose large messages were no slower than the small ones
}

// Spread is the smallest and the largest of some values.
type Spread [2]float64

// SpreadOf returns the spread of values.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{slices.Min(values), slices.Max(values)}
}

// width returns how far apart the values are, relative to of, the value used; 0 if of is 0.
func (s Spread) width(of float64) float64 {
	if of == 0 {
		return 0
	}
	return (s[1] - s[0]) / of
}

// wideSpread is the width above which the costs are unreliable.
const wideSpread = 0.5

// Unsteady returns what is wrong with the measurement, "" if nothing is.
func (c *Costs) Unsteady(rows []Comparison) string {
	widest, of := 0.0, "the ping-pong"
	for _, w := range []float64{c.AlphaRange.width(c.Alpha), c.BetaRange.width(c.Beta), c.GammaRange.width(c.Gamma)} {
		widest = max(widest, w)
	}
	for _, r := range rows {
		if w := r.Range.width(r.Measured); w > widest {
			widest, of = w, fmt.Sprintf("all_reduce/%s of %d B", r.Algorithm, r.Bytes)
		}
	}
	switch {
	case c.Failed > 0:
		return fmt.Sprintf("%d blocks of calls of the ping-pong gave no fit", c.Failed)
	case widest > wideSpread:
		return fmt.Sprintf("blocks of calls of %s differ by %.0f %%", of, 100*widest)
	}
	return ""
}

// Fit fits the medians, and then the blocks one by one: the first of each size, the second of
// each size, and so on.
func Fit(samples []Sample) (costs Costs, err error) {
	sizes, times := make([]float64, len(samples)), make([]float64, len(samples))
	blocks := len(samples[0].Blocks)
	for i, r := range samples {
		sizes[i], times[i] = float64(r.Bytes), r.Seconds
		blocks = min(blocks, len(r.Blocks))
	}
	if costs.Alpha, costs.Beta, err = fitLine(sizes, times); err != nil {
		return costs, err
	}
	var alphas, betas []float64
	for b := range blocks {
		for i, r := range samples {
			times[i] = r.Blocks[b]
		}
		alpha, beta, err := fitLine(sizes, times)
		if err != nil {
			costs.Failed++
			continue
		}
		alphas, betas = append(alphas, alpha), append(betas, beta)
	}
	costs.AlphaRange, costs.BetaRange = SpreadOf(alphas), SpreadOf(betas)
	return costs, nil
}

// Smallest is the size up to which a message measures α and not β.
const Smallest = 1 << 10

// fitLine takes the mean time of small messages as α, and then finds the β that brings α + β·m
// closest to the times of the large ones, by least squares of relative errors. One line through all
// sizes would be wrong: the sizes in between fit into buffers and are faster.
func fitLine(sizes, times []float64) (alpha, beta float64, err error) {
	var small, large, top, bottom float64
	for i, x := range sizes {
		if times[i] <= 0 {
			return 0, 0, fmt.Errorf("a message of %.0f bytes took no time", x)
		}
		if x <= Smallest {
			alpha += times[i]
			small++
		}
	}
	alpha /= max(small, 1)
	for i, x := range sizes {
		if x > Smallest { // minimise Σ (1 - (α + βx)/y)²
			y := times[i]
			top += (x / y) * (1 - alpha/y)
			bottom += (x / y) * (x / y)
			large++
		}
	}
	if small == 0 || large == 0 {
		return 0, 0, fmt.Errorf("%.0f small and %.0f large sizes were measured, the fit needs both", small, large)
	}
	if top <= 0 {
		return 0, 0, fmt.Errorf(
			"large messages were no slower than small ones (%.1f µs), there is no bandwidth to find; measure larger ones",
			alpha*1e6)
	}
	return alpha, top / bottom, nil
}

// Gamma returns the time to add one byte of float32 to another, with both operands in the
// second-level cache, as fragments are: the shortest of all runs, and the range of the shortest
// runs of every ten.
func Gamma() (gamma float64, all Spread) {
	const bytes = 128 << 10
	mem := make([]float32, 2*bytes/4)
	a, b := unsafe.Pointer(&mem[0]), unsafe.Pointer(&mem[bytes/4])
	sum := kernel.For(dtype.F32, dtype.Sum)
	var shortest []float64
	for range 5 {
		best := math.Inf(1)
		for range 10 {
			start := time.Now()
			sum(a, a, b, bytes/4)
			best = math.Min(best, time.Since(start).Seconds())
		}
		shortest = append(shortest, best/bytes)
	}
	all = SpreadOf(shortest)
	return all[0], all
}

// Simulate returns the time of one all-reduce over a network with the costs.
func (c *Costs) Simulate(algorithm string, ranks int, bytes int64) (float64, error) {
	a, err := algo.Find(dtype.AllReduce, algorithm)
	if err != nil {
		return 0, err
	}
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks})
	if err != nil {
		return 0, err
	}
	wire := network.Wire{Alpha: c.Alpha, Bandwidth: 1 / c.Beta}
	result, err := sim.Run(p, network.Uniform(ranks, wire),
		sim.Options{Elements: int(bytes / 4), ElementBytes: 4, Gamma: c.Gamma})
	if err != nil {
		return 0, err
	}
	return result.Makespan, nil
}
