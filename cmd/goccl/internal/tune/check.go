package tune

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/tune/measured"
	"github.com/goccl/goccl/ccl/tune/predicted"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/humanize"
	"github.com/goccl/goccl/internal/netlab"
	"github.com/goccl/goccl/internal/park"
)

func check() *cobra.Command {
	c := &cobra.Command{
		Use: "check", Args: cli.Arguments(0, 0),
		Short: "measure all algorithms of collectives, and compare the times with those that the costs predict",
	}
	f := c.Flags()
	measures := insideFlag(f)
	counts := cli.Flag(f, "ranks", "RANKS", "3,4", "numbers of ranks, each a process on this host", cli.Numbers(2, 64))
	colls := cli.Flag(f, "op", "NAMES", "all_reduce,all_gather,reduce_scatter,broadcast,all_to_all", "collectives",
		parseCollectives)
	sizes, factor := cli.SizeAndFactor(f, "64K..4M", 4)
	repeat := cli.Flag(f, "repeat", "N", "5", "blocks of calls for each size and algorithm, which take turns; the median "+
		"counts", cli.Number(leastBlocks, 0))
	block := cli.Flag(f, "block", "TIME", "20ms", "time of one block", cli.Duration(1))
	lab := labFlags(f)
	file := costsFlag(f)
	from := cli.Flag(f, "from", "FILE", "", "compare what an earlier check has measured (--json) anew, and measure nothing",
		cli.Text)
	all := f.Bool("all", false, "print all rows, not the worst only")
	chosen := f.Bool("chosen", false, "measure also what the library chooses, and compare it with the best algorithm")
	asJSON := cli.JSON(f, "a row a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		costs, err := readCosts(*file)
		if err != nil {
			return err
		}
		var rows []predicted.Row
		if *from != "" {
			rows, err = readRows(*from)
		} else {
			opts, err := cli.Environment()
			if err != nil {
				return err
			}
			opts.Algo, opts.Plan, opts.Tune, opts.Determinism = "", "", "", 0
			if lab.wanted() {
				opts.SocketIfname = netlab.Interface(0)
			}
			if err := errors.Join(opts.Validate(), checkSizes(*sizes)); err != nil {
				return cli.Misuse{Err: err}
			}
			if lab.wanted() && !*measures {
				return apart(true, c.OutOrStdout(), "check", f)
			}
			prefix, err := lab.make(slices.Max(*counts))
			if err != nil {
				return err
			}
			spec := ranks.Spec{Type: dtype.F32, Op: dtype.Sum, Sizes: sizes.Each(*factor), Repeat: *repeat,
				Block: *block, Options: opts.String(), Everything: true}
			for _, n := range *counts {
				for _, coll := range *colls {
					more, err := timeAll(spec, coll, n, prefix, *chosen)
					if err != nil {
						return fmt.Errorf("%v on %d ranks: %w", coll, n, err)
					}
					rows = append(rows, more...)
				}
			}
		}
		if err == nil {
			err = predict(rows, &costs.Costs)
		}
		if err != nil {
			return err
		}
		if *asJSON {
			return cli.PrintLines(c.OutOrStdout(), rows)
		}
		return printCheck(c.OutOrStdout(), rows, *all)
	}
	return c
}

// timeAll times all algorithms of a collective. With a prefix each rank is a host.
func timeAll(spec ranks.Spec, coll dtype.Collective, n int, prefix func(int) []string,
	chosen bool) ([]predicted.Row, error) {
	hosts := 1
	if prefix != nil {
		hosts = n
	}
	on, err := measured.Group(n, hosts, measured.Slot, hosts == 1)
	if err != nil {
		return nil, err
	}
	spec.Coll, spec.Ranks = coll, n
	spec.InPlace = predicted.InPlace(coll)
	for _, c := range measured.Candidates(coll, on, hosts == 1, exec.PlanChannels) {
		spec.Candidates = append(spec.Candidates, c.Name)
	}
	if chosen {
		spec.Candidates = append(spec.Candidates, auto)
	}
	return times(spec, hosts, prefix)
}

// times times the algorithms of a collective that a spec names.
func times(spec ranks.Spec, hosts int, prefix func(int) []string) (rows []predicted.Row, err error) {
	fmt.Fprintf(os.Stderr, "%v on %d ranks: %d algorithms, %d sizes", spec.Coll, spec.Ranks, len(spec.Candidates),
		len(spec.Sizes))
	began := time.Now()
	defer func() { fmt.Fprintf(os.Stderr, " (%.1f s)\n", time.Since(began).Seconds()) }()
	err = ranks.Start("tune", spec, prefix, func(cell measured.Cell) {
		fmt.Fprint(os.Stderr, ".")
		for i, name := range spec.Candidates {
			rows = append(rows, predicted.Row{Coll: spec.Coll, Name: spec.Coll.String(), Algorithm: name,
				Ranks: spec.Ranks, Hosts: hosts, Cores: park.Cores(), Bytes: cell.Bytes, Calls: cell.Turns[i],
				Blocks: cell.Times[i]})
		}
	})
	return rows, err
}

// mostCores is how many cores the machine of a row has at most.
const mostCores = 1 << 13

// readRows reads rows that were printed with --json.
func readRows(name string) (rows []predicted.Row, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	for {
		var r predicted.Row
		err := decoder.Decode(&r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			r.Coll, err = dtype.ParseCollective(r.Name)
		}
		if err == nil && (r.Ranks < 2 || r.Ranks > 64 || r.Hosts < 1 || r.Hosts > r.Ranks || r.Cores < 0 ||
			r.Cores > mostCores || r.Calls < 1 || r.Bytes < 4 || len(r.Blocks) == 0 || !(slices.Min(r.Blocks) > 0)) {
			err = errors.New("no row of tune check --json")
		}
		if err != nil {
			return nil, fmt.Errorf("--from %s: row %d: %w", name, len(rows)+1, err)
		}
		rows = append(rows, r)
	}
	if rows == nil {
		return nil, fmt.Errorf("--from %s: it has no rows", name)
	}
	return rows, nil
}

// predict sets what the costs predict.
func predict(rows []predicted.Row, costs *cost.Table) error {
	type group struct{ ranks, hosts, cores int }
	known := map[group]*predicted.Predictor{}
	for i := range rows {
		r := &rows[i]
		if r.Algorithm == auto {
			continue
		}
		key := group{r.Ranks, r.Hosts, cmp.Or(r.Cores, park.Cores())}
		p, ok := known[key]
		if !ok {
			on, err := measured.GroupOn(key.cores, r.Ranks, r.Hosts, measured.Slot, r.Hosts < r.Ranks)
			if err == nil && r.Hosts == 1 {
				on = on.WithSlot(on.Room())
			}
			if err == nil {
				p, err = predicted.New(on, costs)
			}
			if err != nil {
				return err
			}
			known[key] = p
		}
		seconds, err := p.Call(r.Coll, r.Algorithm, r.Bytes, elementBytes, r.Calls)
		if err != nil {
			return err
		}
		r.Predicted = seconds
	}
	return nil
}

// fewWorst is how many rows are printed of those that are most off.
const fewWorst = 10

func printCheck(out io.Writer, rows []predicted.Row, all bool) error {
	rows, choices := apartFrom(rows)
	table := cli.Table(out)
	fmt.Fprintln(table, "\tcells\tmedian off\tp90\tworst\tmean\tτ")
	line := func(name string, rows []predicted.Row) {
		s := predicted.Summarize(rows)
		fmt.Fprintf(table, "%s\t%d\t%.1f %%\t%.1f %%\t%+.1f %%\t%+.1f %%\t%.2f\n", name, s.Rows, 100*s.Median, 100*s.P90,
			100*s.Worst, 100*s.Mean, s.Tau)
	}
	line("all", rows)
	for _, by := range []func(r *predicted.Row) string{
		func(r *predicted.Row) string { return r.Name },
		func(r *predicted.Row) string { return fmt.Sprintf("%d ranks", r.Ranks) },
		func(r *predicted.Row) string { return "about " + humanize.FormatSize(rounded(r.Bytes)) },
	} {
		var names []string
		parts := map[string][]predicted.Row{}
		for i := range rows {
			name := by(&rows[i])
			if parts[name] == nil {
				names = append(names, name)
			}
			parts[name] = append(parts[name], rows[i])
		}
		for _, name := range names {
			line(name, parts[name])
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(choices) > 0 {
		printChoices(out, rows, choices, all)
	}
	shown := slices.Clone(rows)
	if !all {
		slices.SortStableFunc(shown, func(a, b predicted.Row) int {
			return cmp.Compare(math.Abs(b.Off()), math.Abs(a.Off()))
		})
		shown = shown[:min(len(shown), fewWorst)]
	}
	fmt.Fprintln(out)
	table = cli.Table(out)
	fmt.Fprintln(table, "collective\tranks\talgorithm\tsize (B)\tmeasured (µs)\tfrom\tto\tpredicted (µs)\toff by")
	for i := range shown {
		r := &shown[i]
		fmt.Fprintf(table, "%s\t%d\t%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%+.1f %%\n", r.Name, r.Ranks, r.Algorithm, r.Bytes,
			r.Measured()*1e6, slices.Min(r.Blocks)*1e6, slices.Max(r.Blocks)*1e6, r.Predicted*1e6, 100*r.Off())
	}
	return table.Flush()
}

// apartFrom parts the rows of algorithms from those of what the library chooses.
func apartFrom(rows []predicted.Row) (each, choices []predicted.Row) {
	for _, r := range rows {
		if r.Algorithm == auto {
			choices = append(choices, r)
		} else {
			each = append(each, r)
		}
	}
	return each, choices
}

// A choice that takes so many times as long as the best algorithm is printed.
const poor = 1.1

// printChoices compares what the library chooses with the best algorithm of each cell, which the
// same run has measured: of algorithms that are alike, one is the best by chance.
func printChoices(out io.Writer, rows, choices []predicted.Row, all bool) {
	type choice struct {
		*predicted.Row
		best  *predicted.Row
		ratio float64
	}
	var list []choice
	over := 0
	for i := range choices {
		c := choice{Row: &choices[i]}
		for k := range rows {
			r := &rows[k]
			if r.Coll == c.Coll && r.Ranks == c.Ranks && r.Hosts == c.Hosts && r.Bytes == c.Bytes &&
				(c.best == nil || r.Measured() < c.best.Measured()) {
				c.best = r
			}
		}
		if c.best == nil {
			continue
		}
		if c.ratio = c.Measured() / c.best.Measured(); c.ratio > poor {
			over++
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b choice) int { return cmp.Compare(b.ratio, a.ratio) })
	fmt.Fprintf(out, "\nwhat the library chooses takes %.3f times as long as the best algorithm in the middle of %d cells, "+
		"%.2f at worst; more than %.1f in %d\n", list[len(list)/2].ratio, len(list), list[0].ratio, poor, over)
	table := cli.Table(out)
	fmt.Fprintln(table, "collective\tranks\tsize (B)\tchosen (µs)\tbest (µs)\tby\ttimes")
	for _, c := range list {
		if all || c.ratio > poor {
			fmt.Fprintf(table, "%s\t%d\t%d\t%.1f\t%.1f\t%s\t%.2f\n", c.Name, c.Ranks, c.Bytes, c.Measured()*1e6,
				c.best.Measured()*1e6, c.best.Algorithm, c.ratio)
		}
	}
	table.Flush()
}

// rounded returns the power of two next to a size: those of collectives with blocks are cut to
// whole blocks.
func rounded(bytes int64) int64 {
	return 1 << int(math.Round(math.Log2(float64(bytes))))
}
