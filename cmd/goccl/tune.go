package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"
	"unsafe"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/kernel"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
)

// fitted is what a network costs: a message of m bytes takes Alpha + Beta·m seconds, reducing m bytes takes Gamma·m.
type fitted struct {
	Alpha float64 `json:"alpha_s"`
	Beta  float64 `json:"beta_s_per_byte"`
	Gamma float64 `json:"gamma_s_per_byte"`
}

// fitRow compares one simulated time with the measured one.
type fitRow struct {
	Algorithm string  `json:"algorithm"`
	Bytes     int64   `json:"size"`
	Measured  float64 `json:"measured_s"`
	Simulated float64 `json:"simulated_s"`
}

func (r fitRow) off() float64 { return r.Simulated/r.Measured - 1 }

// fitAlgorithms are what the fitted network is tried on.
var fitAlgorithms = []string{"ring", "recursive_doubling", "rabenseifner"}

func tuneVerb(args []string, out io.Writer) error {
	opts, err := environment()
	if err != nil {
		return err
	}
	set := flags("tune", out)
	fit := set.Bool("fit", false, "measure α, β and γ of the network, and compare simulated all-reduces with measured ones")
	ranks := set.Int("ranks", 2, "number of ranks, each a process on this host")
	rate := set.String("rate", "", "put each rank into a network namespace of its own, behind a switch port of this rate (1gbit); needs root")
	lo := set.String("min", "1M", "smallest all-reduce in bytes, with K, M or G")
	hi := set.String("max", "64M", "largest all-reduce")
	factor := set.Int64("factor", 4, "each size is so many times the one before")
	repeat := set.Int("repeat", 5, "blocks of calls a size; the median counts")
	asJSON := set.Bool("json", false, "print one JSON object a line")
	if err := set.Parse(args); err != nil {
		return err
	}
	if !*fit || set.NArg() > 0 {
		return errors.New("usage: goccl tune --fit [flags]; see goccl tune --help")
	}
	opts.Transport, opts.Plan = "tcp", ""
	spec := benchSpec{Ranks: *ranks, Coll: dtype.Send, Type: dtype.F32, Op: dtype.Sum, Factor: *factor, Warmup: 1, Repeat: *repeat,
		Block: 20 * time.Millisecond}
	if spec.Min, err = parseSize(*lo); err != nil {
		return err
	}
	if spec.Max, err = parseSize(*hi); err != nil {
		return err
	}
	switch {
	case spec.Ranks < 2 || spec.Ranks > 64:
		return fmt.Errorf("--ranks %d: want 2 to 64", spec.Ranks)
	case spec.Min < 4 || spec.Max < spec.Min:
		return fmt.Errorf("--min %s and --max %s are not a range", *lo, *hi)
	case spec.Factor < 2 || spec.Repeat < 1:
		return errors.New("--factor must be 2 or more, --repeat 1 or more")
	}
	var prefix func(int) []string
	if *rate != "" {
		network, err := newShapedNetwork(spec.Ranks, *rate)
		if err != nil {
			return err
		}
		defer network.close()
		prefix = network.prefix
	}
	costs, err := fitNetwork(spec, opts, prefix)
	if err != nil {
		return err
	}
	rows, err := compareFit(spec, opts, prefix, costs)
	if err != nil {
		return err
	}
	return printFit(out, costs, rows, *asJSON)
}

// fitNetwork measures a ping-pong: of small messages, and of the sizes that all-reduces are compared at.
func fitNetwork(spec benchSpec, opts ccl.Options, prefix func(int) []string) (fitted, error) {
	spec.Options = opts.String()
	var sizes, times []float64
	collect := func(r benchRow) { sizes, times = append(sizes, float64(r.Bytes)), append(times, r.Micros/1e6) }
	small := spec
	small.Min, small.Max = 64, smallest
	if err := measureRanks(small, prefix, collect); err != nil {
		return fitted{}, err
	}
	if err := measureRanks(spec, prefix, collect); err != nil {
		return fitted{}, err
	}
	costs := fitted{Gamma: measureGamma()}
	var err error
	costs.Alpha, costs.Beta, err = fitLine(sizes, times)
	return costs, err
}

// smallest is up to what size a message tells of α and not of β.
const smallest = 1 << 10

// fitLine finds α as the mean time of small messages, and then the β that makes α + β·m closest to the times of the large ones, by the
// least squares of relative errors. One line through all sizes would be wrong: what is between fits into buffers, and is faster.
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
	return alpha, max(top/bottom, 0), nil
}

// measureGamma is the time to add one byte of float32 to another, with both in the second-level cache as fragments are.
func measureGamma() float64 {
	const bytes = 128 << 10
	mem := make([]float32, 2*bytes/4)
	a, b := unsafe.Pointer(&mem[0]), unsafe.Pointer(&mem[bytes/4])
	sum := kernel.For(dtype.F32, dtype.Sum)
	best := math.Inf(1)
	for range 50 {
		start := time.Now()
		sum(a, a, b, bytes/4)
		best = math.Min(best, time.Since(start).Seconds())
	}
	return best / bytes
}

// compareFit measures the all-reduces and simulates them with the fitted costs.
func compareFit(spec benchSpec, opts ccl.Options, prefix func(int) []string, costs fitted) ([]fitRow, error) {
	spec.Coll, spec.InPlace = dtype.AllReduce, true
	var rows []fitRow
	for _, name := range fitAlgorithms {
		opts.Algo = "all_reduce=" + name
		spec.Options = opts.String()
		err := measureRanks(spec, prefix, func(r benchRow) {
			rows = append(rows, fitRow{Algorithm: name, Bytes: r.Bytes, Measured: r.Micros / 1e6})
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for i := range rows {
		var err error
		if rows[i].Simulated, err = simulateFit(rows[i], spec.Ranks, costs); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// simulateFit is the time of one all-reduce over a network of the fitted costs.
func simulateFit(r fitRow, ranks int, costs fitted) (float64, error) {
	a, err := algo.Find(dtype.AllReduce, r.Algorithm)
	if err != nil {
		return 0, err
	}
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks})
	if err != nil {
		return 0, err
	}
	wire := network.Wire{Alpha: costs.Alpha, Bandwidth: 1 / costs.Beta}
	result, err := sim.Run(p, network.Uniform(ranks, wire), sim.Options{Elements: int(r.Bytes / 4), ElementBytes: 4, Gamma: costs.Gamma})
	if err != nil {
		return 0, err
	}
	return result.Makespan, nil
}

func printFit(out io.Writer, costs fitted, rows []fitRow, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.Encode(costs)
		for _, r := range rows {
			encoder.Encode(r)
		}
		return nil
	}
	fmt.Fprintf(out, "α = %.1f µs, β = %.4f ns/B (%.3f GB/s), γ = %.4f ns/B\n\n", costs.Alpha*1e6, costs.Beta*1e9, 1e-9/costs.Beta, costs.Gamma*1e9)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "all_reduce\tsize (B)\tmeasured (ms)\tsimulated (ms)\toff by\t")
	worst := 0.0
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%d\t%.3f\t%.3f\t%+.1f %%\t\n", r.Algorithm, r.Bytes, r.Measured*1e3, r.Simulated*1e3, 100*r.off())
		worst = math.Max(worst, math.Abs(r.off()))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nlargest difference %.1f %%\n", 100*worst)
	return err
}
