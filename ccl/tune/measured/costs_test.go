package measured

import (
	"math"
	"testing"
)

func TestFitLine(t *testing.T) {
	var sizes, exact []float64
	for m := 64.0; m <= 64<<20; m *= 4 {
		sizes, exact = append(sizes, m), append(exact, 25e-6+m*8e-9)
	}
	alpha, beta, err := fitLine(sizes, exact)
	if err != nil || math.Abs(alpha/25e-6-1) > 0.2 || math.Abs(beta/8e-9-1) > 0.01 {
		t.Errorf("times on a line: α %v, β %v, %v", alpha, beta, err)
	}
	for i := range exact {
		exact[i] *= 1 + 0.05*float64(1-2*(i%2)) // each is off by 5 %
	}
	alpha, beta, err = fitLine(sizes, exact)
	if err != nil || math.Abs(alpha/25e-6-1) > 0.2 || math.Abs(beta/8e-9-1) > 0.1 {
		t.Errorf("noisy times: α %v, β %v, %v", alpha, beta, err)
	}
	if _, _, err := fitLine(sizes[:2], exact[:2]); err == nil {
		t.Error("a fit without a large message")
	}
	if _, _, err := fitLine([]float64{64, 2048}, []float64{5e-6, 4e-6}); err == nil {
		t.Error("a large message that is faster than a small one")
	}
	if _, _, err := fitLine([]float64{1, 2048}, []float64{1, 0}); err == nil {
		t.Error("a message that takes no time")
	}
}

// The range of a fit covers the fits of single blocks of calls, and a wide range causes a warning.
func TestFitRows(t *testing.T) {
	samples := func(blocks ...float64) (all []Sample) { // blocks: by what factor each is slower than it should be
		for m := int64(64); m <= 64<<20; m *= 4 {
			exact := 25e-6 + float64(m)*8e-9
			s := Sample{Bytes: m, Seconds: exact}
			for _, b := range blocks {
				s.Blocks = append(s.Blocks, b*exact)
			}
			all = append(all, s)
		}
		return all
	}
	costs, err := Fit(samples(1, 1.2, 1.1))
	if err != nil || math.Abs(costs.BetaRange.width(costs.Beta)/0.2-1) > 0.01 || costs.Unsteady(nil) != "" {
		t.Errorf("%+v, %v: %s", costs, err, costs.Unsteady(nil))
	}
	steady := Comparison{Measured: 1, Range: Spread{0.9, 1.2}}
	slow := Comparison{Algorithm: "ring", Bytes: 64, Measured: 1, Range: Spread{0.9, 1.8}}
	if got := costs.Unsteady([]Comparison{steady, slow}); got !=
		"blocks of calls of all_reduce/ring of 64 B differ by 90 %" {
		t.Error(got)
	}
	costs, err = Fit(samples(1, 1.9, 1.1))
	if err != nil || costs.Unsteady(nil) != "blocks of calls of the ping-pong differ by 90 %" {
		t.Errorf("%+v, %v: %s", costs, err, costs.Unsteady(nil))
	}
	noisy := samples(1, 1, 1)
	for i := range noisy {
		if noisy[i].Bytes > Smallest {
			noisy[i].Blocks[1] = 1e-6 // as if a large message took nothing
		}
	}
	costs, err = Fit(noisy)
	if err != nil || costs.Failed != 1 || costs.Unsteady(nil) != "1 blocks of calls of the ping-pong gave no fit" {
		t.Errorf("%+v, %v: %s", costs, err, costs.Unsteady(nil))
	}
}

func TestMeasureGamma(t *testing.T) {
	if g, all := Gamma(); g <= 0 || g > 1e-6 || all[0] != g || all[1] < g {
		t.Errorf("γ = %v s/B, %v", g, all)
	}
}
