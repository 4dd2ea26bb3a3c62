package main

import (
	"bytes"
	"math"
	"strings"
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
	if _, _, err := fitLine([]float64{1, 2048}, []float64{1, 0}); err == nil {
		t.Error("a message that takes no time")
	}
}

func TestMeasureGamma(t *testing.T) {
	if g := measureGamma(); g <= 0 || g > 1e-6 {
		t.Errorf("γ = %v s/B", g)
	}
}

func TestTuneRefuses(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "usage: goccl tune --fit"},
		{"--fit more", "usage"},
		{"--fit --ranks 1", "--ranks 1"},
		{"--fit --min 2M --max 1M", "not a range"},
		{"--fit --factor 1", "--factor"},
		{"--fit --max 7Q", "size \"7Q\""},
	} {
		err := tuneVerb(strings.Fields(test.args), &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("tune %s: got %v, want %q", test.args, err, test.want)
		}
	}
}
