package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/kernel"
)

// fitted holds the costs of a network: a message of m bytes takes Alpha + Beta·m seconds, reducing
// m bytes takes Gamma·m. The ranges cover the fits of single blocks of calls.
type fitted struct {
	Alpha      float64 `json:"alpha_s"`
	Beta       float64 `json:"beta_s_per_byte"`
	Gamma      float64 `json:"gamma_s_per_byte"`
	AlphaRange spread  `json:"alpha_range_s"`
	BetaRange  spread  `json:"beta_range_s_per_byte"`
	GammaRange spread  `json:"gamma_range_s_per_byte"`
	Failed     int     `json:"blocks_without_fit"` // blocks whose large messages were no slower than the small ones
}

// spread is the smallest and the largest of some values.
type spread [2]float64

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	return spread{slices.Min(values), slices.Max(values)}
}

// width returns how far apart the values are, relative to of, the value used; 0 if of is 0.
func (s spread) width(of float64) float64 {
	if of == 0 {
		return 0
	}
	return (s[1] - s[0]) / of
}

// wideSpread is the width above which the costs are unreliable.
const wideSpread = 0.5

// unsteady returns what is wrong with the measurement, "" if nothing is.
func (c *fitted) unsteady(rows []fitRow) string {
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

func (c *fitted) print(out io.Writer) {
	fmt.Fprintf(out, "α = %.1f µs (%.1f to %.1f)\n", c.Alpha*1e6, c.AlphaRange[0]*1e6, c.AlphaRange[1]*1e6)
	fmt.Fprintf(out, "β = %.4f ns/B (%.4f to %.4f), which is %.3f GB/s\n", c.Beta*1e9, c.BetaRange[0]*1e9,
		c.BetaRange[1]*1e9, 1e-9/c.Beta)
	fmt.Fprintf(out, "γ = %.4f ns/B (%.4f to %.4f)\n", c.Gamma*1e9, c.GammaRange[0]*1e9, c.GammaRange[1]*1e9)
	fmt.Fprintf(out, "goccl sim --topo uniform,alpha=%.2fus,bw=%.3fGB --gamma %.4fns has this network\n\n", c.Alpha*1e6,
		1e-9/c.Beta, c.Gamma*1e9)
}

// fitNetwork measures a ping-pong, of small messages and of the sizes at which all-reduces are
// compared. Only its two ranks run, because others would take their processors.
func fitNetwork(spec benchSpec, prefix func(int) []string) (fitted, error) {
	spec.Ranks, spec.EachBlock = 2, true
	var rows []benchRow
	collect := func(r benchRow) { rows = append(rows, r) }
	small := spec
	small.Min, small.Max = 64, smallest
	if err := measureRanks(small, prefix, collect); err != nil {
		return fitted{}, err
	}
	if err := measureRanks(spec, prefix, collect); err != nil {
		return fitted{}, err
	}
	costs, err := fitRows(rows)
	costs.Gamma, costs.GammaRange = measureGamma()
	return costs, err
}

// fitRows fits the medians, and then the blocks one by one: the first of each size, the second of
// each size, and so on.
func fitRows(rows []benchRow) (costs fitted, err error) {
	sizes, times := make([]float64, len(rows)), make([]float64, len(rows))
	blocks := len(rows[0].Blocks)
	for i, r := range rows {
		sizes[i], times[i] = float64(r.Bytes), r.Micros/1e6
		blocks = min(blocks, len(r.Blocks))
	}
	if costs.Alpha, costs.Beta, err = fitLine(sizes, times); err != nil {
		return costs, err
	}
	var alphas, betas []float64
	for b := range blocks {
		for i, r := range rows {
			times[i] = r.Blocks[b] / 1e6
		}
		alpha, beta, err := fitLine(sizes, times)
		if err != nil {
			costs.Failed++
			continue
		}
		alphas, betas = append(alphas, alpha), append(betas, beta)
	}
	costs.AlphaRange, costs.BetaRange = spreadOf(alphas), spreadOf(betas)
	return costs, nil
}

// smallest is the size up to which a message measures α and not β.
const smallest = 1 << 10

// fitLine takes the mean time of small messages as α, and then finds the β that brings α + β·m
// closest to the times of the large ones, by least squares of relative errors. One line through all
// sizes would be wrong: the sizes in between fit into buffers and are faster.
func fitLine(sizes, times []float64) (alpha, beta float64, err error) {
	var small, large, top, bottom float64
	for i, x := range sizes {
		if times[i] <= 0 {
			return 0, 0, fmt.Errorf("a message of %.0f bytes took no time", x)
		}
		if x <= smallest {
			alpha += times[i]
			small++
		}
	}
	alpha /= max(small, 1)
	for i, x := range sizes {
		if x > smallest { // minimise Σ (1 - (α + βx)/y)²
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
			"large messages were no slower than small ones (%.1f µs), there is no bandwidth to find; try a larger --max",
			alpha*1e6)
	}
	return alpha, top / bottom, nil
}

// measureGamma returns the time to add one byte of float32 to another, with both operands in the
// second-level cache, as fragments are: the shortest of all runs, and the range of the shortest
// runs of every ten.
func measureGamma() (gamma float64, all spread) {
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
	all = spreadOf(shortest)
	return all[0], all
}
