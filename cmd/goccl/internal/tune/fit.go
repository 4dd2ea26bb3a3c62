// Package tune is goccl tune: what the network costs, and which algorithm is fastest where.
package tune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/tune/measured"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/netlab"
)

// Command returns the command.
func Command() *cobra.Command {
	return cli.Group("tune", "measure what the network costs, or which algorithm is fastest where", fit(), measure(),
		cli.Internal(ranks.Process, func(args []string, _ io.Writer) error { return ranks.Play(args, compareAll) }))
}

// inside is the flag of the process that measures.
const inside = "inside"

func fit() *cobra.Command {
	c := &cobra.Command{
		Use: "fit", Args: cli.Arguments(0, 0),
		Short: "measure α, β and γ of the network, and compare simulated all-reduces with measured ones",
	}
	f := c.Flags()
	count := cli.Flag(f, "ranks", "N", "2", "number of ranks, each a process on this host", cli.Number(2, 64))
	rate := rateFlag(f, "", "put each rank into a network namespace of its own, behind a switch port of this rate")
	sizes, factor := cli.SizeAndFactor(f, "1M..64M", 4)
	repeat := cli.Flag(f, "repeat", "N", "5", "blocks of calls a size; the median counts", cli.Number(1, 0))
	asJSON := cli.JSON(f, "an object a line")
	measures := insideFlag(f)
	c.RunE = func(c *cobra.Command, _ []string) error {
		opts, err := cli.Environment()
		if err != nil {
			return err
		}
		opts.Transport, opts.Plan, opts.Tune = "tcp", "", ""
		if *rate != "" {
			opts.SocketIfname = netlab.Interface(0)
		}
		if err := checkSizes(*sizes); err != nil {
			return cli.Misuse{Err: err}
		}
		spec := ranks.Spec{Ranks: *count, Coll: dtype.Send, Type: dtype.F32, Op: dtype.Sum, Sizes: sizes.Each(*factor),
			Warmup: 1, Repeat: *repeat, Block: 20 * time.Millisecond, Options: opts.String()}
		if largest := slices.Max(spec.Sizes); largest < 2*measured.Smallest {
			return cli.Misused("the largest size measured would be %d bytes: the fit needs one of 2K or more, set --size", largest)
		}
		if !*measures {
			return apart(*rate != "", c.OutOrStdout(), "fit", f)
		}
		small, err := cli.ParseSizes(fmt.Sprintf("64..%d", measured.Smallest))
		if err != nil {
			return err
		}
		costs, rows, err := fitted(spec, small.Each(*factor), *rate, opts)
		if err != nil {
			return err
		}
		return printFit(c.OutOrStdout(), costs, rows, *asJSON)
	}
	return c
}

// insideFlag adds the flag.
func insideFlag(f *pflag.FlagSet) *bool {
	defer f.MarkHidden(inside)
	return f.Bool(inside, false, "for goccl's own use")
}

// checkSizes refuses sizes that cannot be measured.
func checkSizes(sizes cli.Sizes) error {
	switch least, most := sizes.Ends(); {
	case least < 4:
		return fmt.Errorf("--size: want 4 bytes or more, got %d", least)
	case most > 1<<30:
		return fmt.Errorf("--size: want 1G or less, every rank holds two vectors of that size")
	}
	return nil
}

// rateFlag adds the flag for the rate of the ports of a network.
func rateFlag(f *pflag.FlagSet, byDefault, usage string) *string {
	return cli.Flag(f, "rate", "RATE", byDefault, usage+", as 1gbit or 100mbit; needs ip and tc, and to be root or allowed "+
		"user namespaces", func(text string) (string, error) {
		if !rateForm.MatchString(text) {
			return "", errors.New("want a number and a unit of tc, as 1gbit, 100mbit or 12.5mbps (bytes)")
		}
		return text, nil
	})
}

// rateForm matches a rate above zero that tc understands.
var rateForm = regexp.MustCompile(
	`(?i)^(([0-9]*[1-9][0-9]*(\.[0-9]+)?|[0-9]+\.[0-9]*[1-9][0-9]*)([kmgt]i?)?(bit|bps))$`)

// fitAlgorithms are the algorithms on which the fitted network is tried.
var fitAlgorithms = []string{"ring", "recursive_doubling", "rabenseifner"}

// apart measures in a process of its own, with the same flags, so that an interrupt ends that
// process with all of its ranks. If it makes a network, it gets namespaces, which end with it.
func apart(network bool, out io.Writer, command string, f *pflag.FlagSet) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	attributes := ranks.OwnGroup()
	if network {
		if attributes, err = netlab.Attributes(); err != nil {
			return fmt.Errorf("--rate: %w", err)
		}
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(interrupted, self, append([]string{"tune", command, "--" + inside}, given(f)...)...)
	cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = attributes, out, os.Stderr
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	runtime.LockOSThread() // the child ends with the thread that started it
	defer runtime.UnlockOSThread()
	err = cmd.Run()
	exit := (*exec.ExitError)(nil)
	switch {
	case interrupted.Err() != nil:
		return fmt.Errorf("interrupted: %v; the ranks are ended", context.Cause(interrupted))
	case cmd.Process == nil && network:
		return fmt.Errorf("--rate: %v: %s", err, netlab.Hint)
	case errors.As(err, &exit) && exit.Exited():
		return cli.Reported{}
	case err != nil:
		return fmt.Errorf("the process that measures ended: %w", err)
	}
	return nil
}

// fitted measures the costs, and compares what they predict with what is measured. Sizes are those
// of the all-reduces; small are sizes of messages that measure α. With a rate it makes a network.
func fitted(spec ranks.Spec, small []int64, rate string, opts ccl.Options) (costs measured.Costs,
	rows []measured.Comparison, err error) {
	var prefix func(int) []string
	if rate != "" {
		prefix = netlab.In
		made := netlab.Network{Hosts: spec.Ranks, Wires: []netlab.Wire{{Rate: rate}}}
		if err := made.Make(); err != nil {
			return costs, nil, fmt.Errorf("--rate: %w", err)
		}
	}
	if costs, err = fitNetwork(spec, small, prefix); err != nil {
		return costs, nil, err
	}
	rows, err = compareFit(spec, opts, prefix, costs)
	return costs, rows, err
}

// compareFit measures the all-reduces and simulates them with the fitted costs.
func compareFit(spec ranks.Spec, opts ccl.Options, prefix func(int) []string,
	costs measured.Costs) (rows []measured.Comparison, err error) {
	spec.Coll, spec.InPlace, spec.EachBlock = dtype.AllReduce, true, true
	for _, name := range fitAlgorithms {
		opts.Algo = "all_reduce=" + name
		spec.Options = opts.String()
		err := ranks.Start("bench", spec, prefix, func(r ranks.Row) {
			rows = append(rows, measured.Comparison{Algorithm: name, Bytes: r.Bytes, Measured: r.Micros / 1e6,
				Range: measured.SpreadOf(seconds(r.Blocks))})
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for i := range rows {
		r := &rows[i]
		if r.Simulated, err = costs.Simulate(r.Algorithm, spec.Ranks, r.Bytes); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// fitNetwork measures a ping-pong, of small messages and of the sizes at which all-reduces are
// compared. Only its two ranks run, because others would take their processors.
func fitNetwork(spec ranks.Spec, small []int64, prefix func(int) []string) (measured.Costs, error) {
	spec.Ranks, spec.EachBlock = 2, true
	var samples []measured.Sample
	collect := func(r ranks.Row) {
		samples = append(samples, measured.Sample{Bytes: r.Bytes, Seconds: r.Micros / 1e6, Blocks: seconds(r.Blocks)})
	}
	for _, sizes := range [][]int64{small, spec.Sizes} {
		spec.Sizes = sizes
		if err := ranks.Start("bench", spec, prefix, collect); err != nil {
			return measured.Costs{}, err
		}
	}
	costs, err := measured.Fit(samples)
	costs.Gamma, costs.GammaRange = measured.Gamma()
	return costs, err
}

func seconds(micros []float64) (all []float64) {
	for _, t := range micros {
		all = append(all, t/1e6)
	}
	return all
}

func printFit(out io.Writer, costs measured.Costs, rows []measured.Comparison, asJSON bool) error {
	if asJSON {
		if err := json.NewEncoder(out).Encode(costs); err != nil {
			return err
		}
		return cli.PrintLines(out, rows)
	}
	printCosts(out, costs)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "all_reduce\tsize (B)\tmeasured (ms)\tfrom\tto\tsimulated (ms)\toff by\t")
	worst := 0.0
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%+.1f %%\t\n", r.Algorithm, r.Bytes,
			r.Measured*1e3, r.Range[0]*1e3, r.Range[1]*1e3, r.Simulated*1e3, 100*r.Off())
		worst = math.Max(worst, math.Abs(r.Off()))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nlargest difference %.1f %%\n", 100*worst)
	if why := costs.Unsteady(rows); why != "" {
		_, err = fmt.Fprintf(out, "warning: %s: the machine or the network is busy; measure again when it is not, "+
			"or with a larger --repeat\n", why)
	}
	return err
}

func printCosts(out io.Writer, c measured.Costs) {
	fmt.Fprintf(out, "α = %.1f µs (%.1f to %.1f)\n", c.Alpha*1e6, c.AlphaRange[0]*1e6, c.AlphaRange[1]*1e6)
	fmt.Fprintf(out, "β = %.4f ns/B (%.4f to %.4f), which is %.3f GB/s\n", c.Beta*1e9, c.BetaRange[0]*1e9,
		c.BetaRange[1]*1e9, 1e-9/c.Beta)
	fmt.Fprintf(out, "γ = %.4f ns/B (%.4f to %.4f)\n", c.Gamma*1e9, c.GammaRange[0]*1e9, c.GammaRange[1]*1e9)
	fmt.Fprintf(out, "goccl sim --topo uniform,alpha=%.2fus,bw=%.3fGB --gamma %.4fns has this network\n\n", c.Alpha*1e6,
		1e-9/c.Beta, c.Gamma*1e9)
}
