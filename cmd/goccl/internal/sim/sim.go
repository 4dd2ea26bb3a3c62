// Package sim is goccl sim: how long algorithms and plans take on a network.
package sim

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/internal/humanize"
)

const gcPercent = 400

const help = `A topology is a file, of goccl's, NCCL's or hwloc's form, or one of
  %s
Sizes are %s; in MIN..MAX each is --factor times the one before.
The column peers is the most ranks with which one communicates.`

// wanted is what the command line asks for.
type wanted struct {
	topo, algo string
	spec       plan.Spec // as far as flags say
	sizes      []int64
	options    sim.Options
	trace      string
	json       bool
}

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use: "sim", Args: cli.Arguments(0, 0),
		Short: "how long algorithms take on a network, and which wins where",
		Long:  fmt.Sprintf(help, strings.Join(network.Kinds(), "\n  "), humanize.SizeForm),
	}
	f := c.Flags()
	topo := cli.Flag(f, "topo", "TOPOLOGY", "uniform,alpha=1us,bw=25GB",
		"a file, or KIND:SIZE,alpha=TIME,bw=BANDWIDTH", cli.Text)
	coll := cli.Flag(f, "op", "NAME", "all_reduce", "collective", cli.ParseCollective)
	algo := cli.Flag(f, "algo", "NAMES", "all", "algorithms: all, or names and plan files with commas; "+
		"files are verified first, and say for which collective, ranks, root and shape they are", cli.Text)
	sizes, factor := cli.SizeAndFactor(f, "1K,64K,1M,64M", 2)
	ranks := cli.Flag(f, "ranks", "N", "0", "number of ranks; 0: those of the plan file, all of the topology, or 8",
		cli.Number(0, 0))
	root, shape := cli.RootRank(f), cli.Shape(f)
	element := cli.Flag(f, "element", "BYTES", "4", "bytes of an element", cli.Number(1, 0))
	gamma := cli.Flag(f, "gamma", "TIME", "", "time that arithmetic takes for each byte, as 0.008ns; in seconds without a unit",
		network.ParseTime)
	copying := cli.Flag(f, "copy", "TIME", "", "time that a copy takes for each byte", network.ParseTime)
	trace := cli.Flag(f, "trace", "FILE", "", "write a trace of one algorithm at one size to this file, for "+
		"ui.perfetto.dev; - prints it instead of the table", cli.Text)
	asJSON := cli.JSON(f, "an object a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		w := wanted{topo: *topo, algo: *algo, sizes: sizes.Each(*factor), trace: *trace, json: *asJSON,
			spec:    plan.Spec{Coll: *coll, Ranks: *ranks, Root: *root, Shape: *shape},
			options: sim.Options{ElementBytes: *element, Gamma: *gamma, Copy: *copying, Timeline: *trace != ""}}
		return w.simulate(c)
	}
	return c
}

// simulate reads files, makes the plans and prints what becomes of them.
func (w *wanted) simulate(c *cobra.Command) error {
	out := c.OutOrStdout()
	files, err := readFiles(w.algo)
	if err != nil {
		return err
	}
	if w.spec, err = files.spec(w.spec, c.Flags()); err != nil {
		return cli.Misuse{Err: err}
	}
	topology, err := cli.OpenTopology(w.topo, w.spec.Ranks)
	if err != nil {
		return cli.Misuse{Err: err}
	}
	if w.spec.Ranks == 0 {
		w.spec.Ranks = topology.Ranks()
	}
	if err := w.spec.Validate(); err != nil {
		return cli.Misuse{Err: err}
	}
	plans, err := makePlans(w.spec, w.algo, files)
	if err != nil {
		return cli.Misuse{Err: err}
	}
	if w.trace != "" && (len(plans) != 1 || len(w.sizes) != 1) {
		return cli.Misused("--trace needs one algorithm (--algo NAME) and one size")
	}
	// Programs are short-lived. With few of them alive, frequent garbage collection takes half of
	// the time of a large simulation.
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	simulator, err := sim.New(topology)
	if err != nil {
		return err
	}
	rows, err := simulator.Compare(plans, w.sizes, w.options, func(r *sim.Result) error {
		if w.trace == "" {
			return nil
		}
		return writeTrace(w.trace, r, out)
	})
	switch {
	case err != nil || w.trace == "-":
		return err
	case w.json:
		return cli.PrintLines(out, rows)
	}
	return printRows(out, topology, w.spec, rows)
}

func writeTrace(name string, r *sim.Result, out io.Writer) error {
	if name == "-" {
		return r.WriteTrace(out)
	}
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

func printRows(out io.Writer, t *network.Topology, spec plan.Spec, rows []sim.Row) error {
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
	if !slices.ContainsFunc(rows, func(r sim.Row) bool { return r.Algorithm != rows[0].Algorithm }) {
		return nil // there was no choice
	}
	ranges := sim.Winners(rows)
	fmt.Fprintln(out, "\nwhich wins where:")
	table = cli.Table(out)
	for i, r := range ranges {
		sizes := humanize.FormatSize(r.Low) + " to " + humanize.FormatSize(r.High)
		switch {
		case len(ranges) == 1:
			sizes = "at all sizes"
		case i == 0:
			sizes = "up to " + humanize.FormatSize(r.High)
		case i == len(ranges)-1:
			sizes = "from " + humanize.FormatSize(r.Low)
		}
		fmt.Fprintf(table, "  %s\t%s\n", sizes, strings.Join(r.Algorithms, ", "))
	}
	return table.Flush()
}
