package tune

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/topo/probe"
	"github.com/goccl/goccl/ccl/tune/measured"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/netlab"
	"github.com/goccl/goccl/internal/park"
)

const fitHelp = `Two ranks exchange messages and reduce vectors. The costs of the parts of a
call are those with which a simulation of what runs takes the time that was
measured: those of the ranks of this host, or with --launched of the network
between two. They are kept for this user and host, and groups between hosts
choose algorithms by them; with other GOCCL_SITE on the two, they are those of
the network between sites. With --rate or --delay the network is made, and a
file has its costs, which GOCCL_COSTS and goccl tune check read.

  goccl run -n 1 --hosts 2 --host 0 --address 10.0.0.1 --port 29400 -- \
      goccl tune fit --launched`

func fit() *cobra.Command {
	c := &cobra.Command{
		Use: "fit", Args: cli.Arguments(0, 0),
		Short: "measure what the parts of calls cost, which predictions are made of",
		Long:  fitHelp,
	}
	f := c.Flags()
	lab := labFlags(f)
	sizes, factor := cli.SizeAndFactor(f, "64..4M", 4)
	repeat := cli.Flag(f, "repeat", "N", "5", "blocks of calls a size; the median counts", cli.Number(leastBlocks, 0))
	block := cli.Flag(f, "block", "TIME", "20ms", "time of one block", cli.Duration(1))
	force := f.Bool("force", false, "measure although other processes use the cores")
	file := costsFlag(f)
	output := cli.Flag(f, "o,output", "FILE", "", "write the costs to this file, and keep none", cli.Text)
	asJSON := cli.JSON(f, "what is kept")
	measures := insideFlag(f)
	launched := f.Bool("launched", false, "this process is one of two ranks that a launcher has started on two hosts: "+
		"measure the network between them")
	c.MarkFlagsMutuallyExclusive("launched", "rate")
	c.MarkFlagsMutuallyExclusive("launched", "delay")
	c.RunE = func(c *cobra.Command, _ []string) error {
		opts, err := cli.Environment()
		if err != nil {
			return err
		}
		opts.Plan, opts.Tune, opts.Algo = "", "", ""
		opts.Transport = "auto"
		if lab.wanted() {
			opts.Transport, opts.SocketIfname = "tcp", netlab.Interface(0)
		}
		if err := checkSizes(*sizes); err != nil {
			return cli.Misuse{Err: err}
		}
		if lab.wanted() && *output == "" {
			return cli.Misused("--output: with --rate or --delay, name a file: the costs are not those of this machine's network")
		}
		all := sizes.Each(*factor)
		if slices.Min(all) > measured.Smallest || slices.Max(all) < measured.Largest {
			return cli.Misused("--size: a fit needs sizes from %d bytes or less to %d or more", measured.Smallest,
				measured.Largest)
		}
		spec := ranks.Spec{Ranks: 2, Type: dtype.F32, Op: dtype.Sum, Sizes: all, Repeat: *repeat,
			Block: *block, Options: opts.String(), Everything: true}
		before, err := readCosts(*file)
		if err != nil {
			return err
		}
		at := cmp.Or(*output, cost.Kept())
		write := func(made *cost.File) error {
			if err := writeCosts(at, made); err != nil {
				return err
			}
			if *asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(made)
			}
			return printCosts(c.OutOrStdout(), made, at)
		}
		if *launched {
			return fitLaunched(spec, opts, before, write)
		}
		if !*measures {
			if err := quiet(*force); err != nil {
				return err
			}
			return apart(lab.wanted(), c.OutOrStdout(), "fit", f)
		}
		samples, err := sample(spec, lab, opts)
		if err != nil {
			return err
		}
		if !lab.wanted() {
			measured.Kernels(&before.Costs)
		}
		made, err := fitted(samples, lab.wanted(), lab.String(), before)
		if err != nil {
			return err
		}
		return write(made)
	}
	return c
}

// lab says in which network ranks are measured.
type lab struct {
	rate  *string
	delay *time.Duration
}

func labFlags(f *pflag.FlagSet) *lab {
	return &lab{
		rateFlag(f, "", "put each rank into a network namespace of its own, behind a switch port of this rate"),
		cli.Flag(f, "delay", "TIME", "0s", "round trip of the network, which is made like that of --rate", cli.Duration(0)),
	}
}

func (l *lab) wanted() bool { return *l.rate != "" || *l.delay > 0 }

// make makes the network for some hosts, and returns what comes before the command of a rank.
func (l *lab) make(hosts int) (prefix func(int) []string, err error) {
	if !l.wanted() {
		return nil, nil
	}
	made := netlab.Network{Hosts: hosts, Wires: []netlab.Wire{{Rate: *l.rate, Delay: *l.delay}}}
	if err := made.Make(); err != nil {
		return nil, fmt.Errorf("--rate, --delay: %w", err)
	}
	return netlab.In, nil
}

func (l *lab) String() string {
	switch {
	case !l.wanted():
		return "the ranks of this host"
	case *l.rate == "":
		return fmt.Sprintf("namespaces with round trips of %v", *l.delay)
	case *l.delay == 0:
		return "namespaces with ports of " + *l.rate
	}
	return fmt.Sprintf("namespaces with ports of %s and round trips of %v", *l.rate, *l.delay)
}

// The algorithms of which costs are made: together they do all that programs of two ranks do.
var (
	networkSamples = []string{"direct", "ring", "recursive_doubling", "rabenseifner"}
	hostSamples    = []string{"direct", "ring", "recursive_doubling", "one_shot_window", "two_shot_window"}
)

// sample measures ping-pongs and all-reduces of two ranks.
func sample(spec ranks.Spec, lab *lab, opts ccl.Options) (samples []measured.Sample, err error) {
	prefix, err := lab.make(2)
	if err != nil {
		return nil, err
	}
	between := prefix != nil
	err = ranks.Start("bench", pings(spec), prefix, func(r ranks.Row) { samples = append(samples, pingSample(r)) })
	if err != nil {
		return nil, err
	}
	spec.Coll, spec.InPlace, spec.Candidates = dtype.AllReduce, true, networkSamples
	if !between {
		spec.Candidates = hostSamples
	}
	reduce := func(crowded bool) error {
		rows, err := times(spec, 1, prefix)
		for _, r := range rows {
			samples = append(samples, measured.Sample{Coll: r.Coll, Algorithm: r.Algorithm, Bytes: r.Bytes,
				Calls: r.Calls, Blocks: r.Blocks, Crowded: crowded})
		}
		return err
	}
	if err := reduce(false); err != nil {
		return samples, err
	}
	return samples, park.OnOneCore(func() error { return reduce(true) })
}

// pings is the ping-pong that is measured with a spec.
func pings(spec ranks.Spec) ranks.Spec {
	spec.Coll, spec.EachBlock, spec.Warmup = dtype.Send, true, 1
	return spec
}

// pingSample returns what a row of a ping-pong says.
func pingSample(r ranks.Row) measured.Sample {
	return measured.Sample{Coll: dtype.Send, Bytes: r.Bytes, Calls: r.Calls, Blocks: seconds(r.Blocks)}
}

// fitted makes the costs of samples.
func fitted(samples []measured.Sample, between bool, of string, before *cost.File) (*cost.File, error) {
	table, misfit, err := measured.Fit(samples, between, before.Costs)
	if err != nil {
		return nil, err
	}
	made := *before
	made.Costs = table
	part := &cost.Part{Measured: time.Now().UTC().Truncate(time.Second), Of: of, Misfit: misfit,
		Spread: measured.Spread(samples)}
	if between {
		made.Network = part
	} else {
		made.Host = part
	}
	return &made, nil
}

func seconds(micros []float64) (all []float64) {
	for _, t := range micros {
		all = append(all, t/1e6)
	}
	return all
}

// What others may use of the cores while costs are measured, and for how long that is looked at.
const (
	mostBusy = 0.1
	busySpan = 300 * time.Millisecond
)

// quiet refuses to measure on a machine that is busy.
func quiet(force bool) error {
	if busy := probe.Busy(busySpan); busy > mostBusy && !force {
		return fmt.Errorf("other processes use %.0f %% of the cores, so the costs would be wrong: measure when they do not, or "+
			"with --force", 100*busy)
	}
	return nil
}

// costsFlag adds the flag for the file of costs.
func costsFlag(f *pflag.FlagSet) *string {
	return cli.Flag(f, "costs", "FILE", "", "costs that goccl tune fit has written; those that are kept for this machine "+
		"if left out", cli.Text)
}

// readCosts reads a file, or what is kept, or returns the usual costs where nothing is.
func readCosts(name string) (*cost.File, error) {
	usual := &cost.File{Format: cost.Format, Costs: *cost.Usual()}
	switch name {
	case cost.Off:
		return usual, nil
	case "":
		made, err := cost.Read(cost.Kept())
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			return usual, nil
		}
		return made, err
	}
	return cost.Read(name)
}

func writeCosts(name string, made *cost.File) error {
	text, err := json.MarshalIndent(made, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o755)
	}
	if err != nil {
		return err
	}
	file, err := newTableFile(name)
	if err != nil {
		return err
	}
	defer file.remove()
	return file.write(string(text) + "\n")
}

func printCosts(out io.Writer, f *cost.File, at string) error {
	c := &f.Costs
	for _, part := range []*cost.Part{f.Network, f.Far, f.Host} {
		if part != nil {
			fmt.Fprintf(out, "%s, measured %s: predictions miss the calls that the costs were made of by %.1f %% "+
				"in the middle;\nblocks of these calls differ by %.1f %%\n", part.Of, part.Measured.Format(time.DateTime),
				100*part.Misfit, 100*part.Spread)
		}
	}
	fmt.Fprintln(out)
	table := cli.Table(out)
	fmt.Fprintln(table, "messages\tlatency (µs)\tbandwidth (GB/s)\tburst (B)")
	fmt.Fprintf(table, "between hosts\t%.3f\t%.4g\t%.0f\n", c.Network.Latency*1e6, c.Network.Bandwidth/1e9,
		c.Network.Burst)
	if f.Far != nil {
		fmt.Fprintf(table, "between sites\t%.3f\t%.4g\t%.0f\n", c.Far.Latency*1e6, c.Far.Bandwidth/1e9, c.Far.Burst)
	}
	fmt.Fprintf(table, "in a host\t%.3f\n", c.Memory.Latency*1e6)
	table.Flush()
	fmt.Fprintf(out, "\na core's cache: %.0f KiB\n\n", c.Cache/1024)
	table = cli.Table(out)
	fmt.Fprintln(table, "a rank\t(µs)\t(ns/B)\tfar\tmiss")
	for _, w := range []struct {
		name string
		cost.Work
	}{
		{"sends a fragment to another host", c.Network.Send}, {"takes one", c.Network.Receive},
		{"sends a fragment in the host", c.Memory.Send}, {"takes one", c.Memory.Receive},
		{"copies", c.Copy}, {"reduces an operand", c.Reduce}, {"reads a window", c.Windows.Read},
		{"gives a signal", cost.Work{Each: c.Windows.Signal}},
		{"which arrives after", cost.Work{Each: c.Windows.Latency}},
		{"finds one", cost.Work{Each: c.Windows.Wait}}, {"makes a call", cost.Work{Each: c.Call}},
		{"takes over a core between hosts", cost.Work{Each: c.Network.Switch}},
		{"takes over a core in a host", cost.Work{Each: c.Memory.Switch}},
	} {
		fmt.Fprintf(table, "%s\t%.3f\t%.4f\t%.4f\t%.4f\n", w.name, w.Each*1e6, w.Byte*1e9, w.Far*1e9, w.Miss*1e9)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s has them\n", at)
	return err
}
