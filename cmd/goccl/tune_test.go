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
	if _, _, err := fitLine([]float64{64, 2048}, []float64{5e-6, 4e-6}); err == nil {
		t.Error("a large message that is faster than a small one")
	}
	if _, _, err := fitLine([]float64{1, 2048}, []float64{1, 0}); err == nil {
		t.Error("a message that takes no time")
	}
}

// The range of a fit covers the fits of single blocks of calls, and a wide range causes a warning.
func TestFitRows(t *testing.T) {
	rows := func(blocks ...float64) (rows []benchRow) { // blocks: by what factor each is slower than it should be
		for m := int64(64); m <= 64<<20; m *= 4 {
			exact := 25 + float64(m)*8e-3
			row := benchRow{Bytes: m, Micros: exact}
			for _, b := range blocks {
				row.Blocks = append(row.Blocks, b*exact)
			}
			rows = append(rows, row)
		}
		return rows
	}
	costs, err := fitRows(rows(1, 1.2, 1.1))
	if err != nil || math.Abs(costs.BetaRange.width(costs.Beta)/0.2-1) > 0.01 || costs.unsteady(nil) != "" {
		t.Errorf("%+v, %v: %s", costs, err, costs.unsteady(nil))
	}
	steady := fitRow{Measured: 1, Range: spread{0.9, 1.2}}
	slow := fitRow{Algorithm: "ring", Bytes: 64, Measured: 1, Range: spread{0.9, 1.8}}
	if got := costs.unsteady([]fitRow{steady, slow}); got !=
		"blocks of calls of all_reduce/ring of 64 B differ by 90 %" {
		t.Error(got)
	}
	costs, err = fitRows(rows(1, 1.9, 1.1))
	if err != nil || costs.unsteady(nil) != "blocks of calls of the ping-pong differ by 90 %" {
		t.Errorf("%+v, %v: %s", costs, err, costs.unsteady(nil))
	}
	noisy := rows(1, 1, 1)
	for i := range noisy {
		if noisy[i].Bytes > smallest {
			noisy[i].Blocks[1] = 1 // µs: as if a large message took nothing
		}
	}
	costs, err = fitRows(noisy)
	if err != nil || costs.Failed != 1 || costs.unsteady(nil) != "1 blocks of calls of the ping-pong gave no fit" {
		t.Errorf("%+v, %v: %s", costs, err, costs.unsteady(nil))
	}
	var out bytes.Buffer
	if costs.Gamma = 8.25e-12; printFit(&out, costs, nil, false) != nil {
		t.Fatal()
	}
	for _, want := range []string{
		"α = 28.6 µs (28.6 to 28.6)\nβ = 7.9271 ns/B (7.9271 to 7.9271), which is 0.126 GB/s\n",
		"warning: 1 blocks of calls of the ping-pong gave no fit: ",
		"goccl sim --topo uniform,alpha=28.58us,bw=0.126GB --gamma 0.0083ns has this network\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, &out)
		}
	}
}

func TestMeasureGamma(t *testing.T) {
	if g, all := measureGamma(); g <= 0 || g > 1e-6 || all[0] != g || all[1] < g {
		t.Errorf("γ = %v s/B, %v", g, all)
	}
}

func TestTuneRefuses(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"", "usage: goccl tune --fit"},
		{"--rate 1gbit", "usage: goccl tune --fit"},
		{"--fit more", "usage"},
		{"--fit --ranks 0", "--ranks 0: want 2 to 64"},
		{"--fit --ranks 1", "--ranks 1: want 2 to 64"},
		{"--fit --ranks 65", "--ranks 65: want 2 to 64"},
		{"--fit --ranks two", "invalid value \"two\""},
		{"--fit --min 2M --max 1M", "not a range"},
		{"--fit --min 2", "not a range"},
		{"--fit --min -1", "size \"-1\""},
		{"--fit --min 1.5MM", "size \"1.5MM\""},
		{"--fit --max 7Q", "size \"7Q\""},
		{"--fit --max 2G", "--max 2G: want 1G or less"},
		{"--fit --min 64 --max 1K", "largest size measured would be 1024 bytes"},
		{"--fit --min 1K --max 2K --factor 3", "largest size measured would be 1024 bytes"},
		{"--fit --factor 1", "--factor"},
		{"--fit --repeat 0", "--repeat"},
		{"--fit --rate nonsense", "--rate nonsense: want a number and a unit"},
		{"--fit --rate 1000", "--rate 1000: want"},
		{"--fit --rate 0gbit", "--rate 0gbit: want"},
		{"--fit --rate -1gbit", "--rate -1gbit: want"},
		{"fit-process", "for goccl tune's own use"},
		{"fit-process {", "for goccl tune's own use"},
	} {
		err := tuneVerb(strings.Fields(test.args), &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("tune %s: got %v, want %q", test.args, err, test.want)
		}
	}
}

func TestRateForm(t *testing.T) {
	for _, rate := range []string{"", "1gbit", "100Mbit", "2.5gbit", "0.5gbit", "12.5mbps", "10gibit", "800bit"} {
		if !rateForm.MatchString(rate) {
			t.Errorf("%q is a rate of tc", rate)
		}
	}
	for _, rate := range []string{"0.0gbit", "gbit", "1 gbit", "1gbit burst 1kb", "1.gbit", "1gb", "1e9bit"} {
		if rateForm.MatchString(rate) {
			t.Errorf("%q is no rate", rate)
		}
	}
}
