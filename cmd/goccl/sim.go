package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/internal/humanize"
)

const simGCPercent = 400

// simRow is one algorithm at one size. Bytes is the size of the larger buffer, as in goccl bench.
type simRow struct {
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

const simHelp = `
A topology is a file or one of
  %s
Sizes are %s;
MIN..MAX is every power of two times MIN.
The column peers is the most ranks with which one communicates.
`

func simVerb(args []string, out io.Writer) error {
	set := flags("sim", out)
	topo := set.String("topo", "uniform,alpha=1us,bw=25GB", "topology: a file, or KIND:SIZE,alpha=TIME,bw=BANDWIDTH")
	coll := set.String("coll", "all_reduce", "collective")
	names := set.String("algo", "all", "algorithms: all, or names and plan files with commas;\n"+
		"files are verified first, and say for which collective, ranks, root and shape they are")
	sizes := set.String("size", "1K,64K,1M,64M", "sizes: numbers with commas, or MIN..MAX")
	ranks := set.Int("ranks", 0, "number of ranks; 0: those of the plan file, all of the topology, or 8")
	root := set.Int("root", 0, "root of rooted collectives")
	shape := set.String("shape", "",
		"shape of the ranks for algorithms that know one: AxB or AxBxC, the innermost first")
	element := set.Int("element", 4, "bytes of an element")
	var gamma, copying perByte
	set.Var(&gamma, "gamma", "`time` that arithmetic takes for each byte, as 0.008ns; in seconds without a unit")
	set.Var(&copying, "copy", "`time` that a copy takes for each byte")
	trace := set.String("trace", "",
		"write a trace of one algorithm at one size to this file, for ui.perfetto.dev; - prints it instead of the table")
	asJSON := set.Bool("json", false, "print JSON")
	usage := set.Usage
	set.Usage = func() {
		if usage(); set.Output() == out {
			fmt.Fprintf(out, simHelp, strings.Join(network.Kinds(), "\n  "), humanize.SizeForm)
		}
	}
	if err := set.Parse(args); err != nil {
		return err
	}
	if err := noArguments(set); err != nil {
		return err
	}
	if *element < 1 {
		return fmt.Errorf("--element %d: want 1 or more", *element)
	}
	spec := plan.Spec{Ranks: *ranks, Root: *root}
	var err error
	if spec.Coll, err = parseCollective(*coll); err != nil {
		return err
	}
	if spec.Shape, err = parseShape(*shape); err != nil {
		return err
	}
	bytes, err := parseSimSizes(*sizes)
	if err != nil {
		return err
	}
	files, err := simFiles(*names)
	if err != nil {
		return err
	}
	if spec, err = files.spec(spec, set); err != nil {
		return err
	}
	topology, err := openTopology(*topo, spec.Ranks)
	if err != nil {
		return err
	}
	if spec.Ranks == 0 {
		spec.Ranks = topology.Ranks()
	}
	if err := spec.Validate(); err != nil {
		return err
	}
	plans, err := simPlans(spec, *names, files)
	if err != nil {
		return err
	}
	if *trace != "" && (len(plans) != 1 || len(bytes) != 1) {
		return errors.New("--trace needs one algorithm (--algo NAME) and one size")
	}
	// Programs are short-lived. With few of them alive, frequent garbage collection takes half of
	// the time of a large simulation.
	defer debug.SetGCPercent(debug.SetGCPercent(simGCPercent))
	simulator, err := sim.New(topology)
	if err != nil {
		return err
	}
	o := sim.Options{ElementBytes: *element, Gamma: float64(gamma), Copy: float64(copying), Timeline: *trace != ""}
	uniform := uniformCost(topology, float64(gamma))
	var rows []simRow
	for _, size := range bytes {
		first := len(rows)
		for _, p := range plans {
			row, result, err := simulateOne(simulator, p, o, size, uniform)
			if err != nil {
				return err
			}
			rows = append(rows, row)
			if *trace == "-" {
				return result.WriteTrace(out)
			}
			if *trace != "" {
				if err := writeTrace(*trace, result); err != nil {
					return err
				}
			}
		}
		best := slices.MinFunc(rows[first:], func(a, b simRow) int { return compareTimes(a.Seconds, b.Seconds) })
		for i := first; i < len(rows); i++ {
			rows[i].Wins = compareTimes(rows[i].Seconds, best.Seconds) == 0
		}
	}
	if *asJSON {
		encoder := json.NewEncoder(out)
		for _, row := range rows {
			if err := encoder.Encode(row); err != nil {
				return err
			}
		}
		return nil
	}
	return printSim(out, topology, spec, rows)
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

func openTopology(name string, ranks int) (*network.Topology, error) {
	if ranks < 0 {
		return nil, fmt.Errorf("--ranks %d: want 0 or more", ranks)
	}
	if ranks == 0 {
		ranks = 8
	}
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		if kind, _, _ := strings.Cut(name, ","); strings.ContainsAny(kind, "./") {
			return nil, fmt.Errorf(
				"--topo %s: there is no such file; see goccl help sim for topologies without one", name)
		}
		return network.Parse(name, ranks)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := network.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// parseSimSizes parses "1K,1.6GB" or "1K..1G".
func parseSimSizes(s string) ([]int64, error) {
	var sizes []int64
	for _, word := range strings.Split(s, ",") {
		lo, hi, isRange := strings.Cut(word, "..")
		from, err := humanize.ParseSize(strings.TrimSpace(lo))
		if err != nil {
			return nil, err
		}
		to := from
		if isRange {
			if to, err = humanize.ParseSize(strings.TrimSpace(hi)); err != nil {
				return nil, err
			}
			if from < 1 || to < from {
				return nil, fmt.Errorf("--size %s: %d to %d is no range", word, from, to)
			}
		}
		for size := from; size <= to; size *= 2 {
			sizes = append(sizes, size)
			if size == 0 {
				break
			}
		}
	}
	return sizes, nil
}

// uniformCost returns the cost model of the closed formulas, nil unless the topology is uniform.
func uniformCost(t *network.Topology, gamma float64) *sim.Cost {
	if !strings.HasPrefix(t.Name, "uniform-") || len(t.Classes) != 1 {
		return nil
	}
	return &sim.Cost{Alpha: t.Startup, Beta: 1 / t.Classes[0].Bandwidth, Gamma: gamma}
}

func simulateOne(s *sim.Simulator, p *plan.Plan, o sim.Options, size int64,
	uniform *sim.Cost) (simRow, *sim.Result, error) {
	coll, n := p.Spec.Coll, p.Spec.Ranks
	count := size / int64(o.ElementBytes)
	switch coll {
	case dtype.AllGather, dtype.ReduceScatter, dtype.AllToAll, dtype.Gather, dtype.Scatter:
		count /= int64(n)
		size = count * int64(n) * int64(o.ElementBytes)
	case dtype.Barrier:
		count, size = 0, 0
	default:
		size = count * int64(o.ElementBytes)
	}
	o.Elements = int(count)
	r, err := s.Run(p, o)
	if err != nil {
		return simRow{}, nil, err
	}
	row := simRow{Bytes: size, Algorithm: p.Name, Seconds: r.Makespan, Messages: r.Messages, Peers: r.Peers}
	if r.Makespan > 0 {
		row.AlgBW = float64(size) / r.Makespan / 1e9
		row.BusBW = row.AlgBW * busFactor(coll, n)
	}
	if f, ok := sim.FormulaOf(coll, p.Name); ok && uniform != nil && f.Exact(n) {
		row.Formula = f.Time(*uniform, n, float64(size))
	}
	return row, r, nil
}

func writeTrace(name string, r *sim.Result) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := r.WriteTrace(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func printSim(out io.Writer, t *network.Topology, spec plan.Spec, rows []simRow) error {
	fmt.Fprintf(out, "# %v, topology %s; * is the fastest at its size\n", spec, t.Name)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "size (B)\talgorithm\ttime (us)\talgbw (GB/s)\tbusbw (GB/s)\tmessages\tpeers\t\t")
	for i, row := range rows {
		if i > 0 && rows[i-1].Bytes != row.Bytes {
			fmt.Fprintln(table, "\t\t\t\t\t\t\t\t")
		}
		mark := ""
		if row.Wins {
			mark = "*"
		}
		fmt.Fprintf(table, "%d\t%s\t%.3f\t%.3f\t%.3f\t%d\t%d\t%s\t\n",
			row.Bytes, row.Algorithm, row.Seconds*1e6, row.AlgBW, row.BusBW, row.Messages, row.Peers, mark)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if !slices.ContainsFunc(rows, func(r simRow) bool { return r.Algorithm != rows[0].Algorithm }) {
		return nil // there was no choice
	}
	ranges := winners(rows)
	fmt.Fprintln(out, "\nwhich wins where:")
	table = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, r := range ranges {
		sizes := humanize.FormatSize(r.low) + " to " + humanize.FormatSize(r.high)
		switch {
		case len(ranges) == 1:
			sizes = "at all sizes"
		case i == 0:
			sizes = "up to " + humanize.FormatSize(r.high)
		case i == len(ranges)-1:
			sizes = "from " + humanize.FormatSize(r.low)
		}
		fmt.Fprintf(table, "  %s\t%s\n", sizes, strings.Join(r.algorithms, ", "))
	}
	return table.Flush()
}

// sizeRange is a run of neighbouring sizes at which the same algorithms are the fastest.
type sizeRange struct {
	low, high  int64
	algorithms []string
}

// winners returns the ranges of the sizes in rows, from the smallest. Of algorithms that are
// equally fast at one size, it keeps those that win at more of the following sizes.
func winners(rows []simRow) []sizeRange {
	fastest := map[int64][]string{}
	for _, row := range rows {
		if row.Wins && !slices.Contains(fastest[row.Bytes], row.Algorithm) {
			fastest[row.Bytes] = append(fastest[row.Bytes], row.Algorithm)
		}
	}
	var ranges []sizeRange
	for _, size := range slices.Sorted(maps.Keys(fastest)) {
		if len(ranges) > 0 {
			last := &ranges[len(ranges)-1]
			var still []string
			for _, name := range last.algorithms {
				if slices.Contains(fastest[size], name) {
					still = append(still, name)
				}
			}
			if still != nil {
				last.high, last.algorithms = size, still
				continue
			}
		}
		ranges = append(ranges, sizeRange{size, size, fastest[size]})
	}
	return ranges
}
