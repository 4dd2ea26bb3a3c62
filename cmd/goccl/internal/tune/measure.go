package tune

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/netlab"
)

func measure() *cobra.Command {
	c := &cobra.Command{
		Use: "measure", Args: cli.Arguments(0, 0),
		Short: "compare the algorithms of each collective, and make a table of the fastest, which GOCCL_TUNE reads",
	}
	f := c.Flags()
	measures := insideFlag(f)
	counts := cli.Flag(f, "ranks", "RANKS", "2", "numbers of ranks, each a process on this host, as 2,4,8. A row is also for "+
		"the numbers between one and the next smaller; bind the ranks (taskset) to measure how it is with fewer cores",
		cli.Numbers(2, 64))
	colls := cli.Flag(f, "op", "NAMES", "", "collectives, as all_reduce,broadcast; all if left out", parseCollectives)
	sizes, factor := cli.SizeAndFactor(f, "8..64M", 4)
	runs := cli.Flag(f, "runs", "N", "3", "how often the ranks are started anew and measure all sizes", cli.Number(1, 0))
	repeat := cli.Flag(f, "repeat", "N", "5", "blocks of calls in a run for each size and algorithm, which take turns; "+
		"the median of all runs counts", cli.Number(leastBlocks, 0))
	block := cli.Flag(f, "block", "TIME", "5ms", "time of one block", cli.Duration(1))
	transport := cli.Transport(f, "auto")
	hosts := cli.Flag(f, "hosts", "N", "1", "spread the ranks evenly over so many hosts: network namespaces, joined by a "+
		"switch with ports of --rate", cli.Number(1, 64))
	rate := rateFlag(f, "1gbit", "of each port")
	file := cli.Output(f)
	c.RunE = func(c *cobra.Command, _ []string) error {
		opts, err := cli.Environment()
		if err != nil {
			return err
		}
		if *hosts > 1 {
			opts.SocketIfname = netlab.Interface(0)
		}
		// Measure what the library would do without any other settings.
		opts.Transport, opts.Algo, opts.Plan, opts.Tune, opts.Determinism = *transport, "", "", "", 0
		if err := errors.Join(opts.Validate(), checkSizes(*sizes), spreadable(*counts, *hosts)); err != nil {
			return cli.Misuse{Err: err}
		}
		spec := ranks.Spec{Type: dtype.F32, Op: dtype.Sum, Sizes: sizes.Each(*factor), Repeat: *repeat, Block: *block,
			Options: opts.String()}
		if _, most := sizes.Ends(); slices.Max(spec.Sizes) < most {
			spec.Sizes = append(spec.Sizes, most)
		}
		if len(*colls) == 0 {
			*colls = dtype.Collectives()
		}
		if *hosts > 1 && !*measures {
			return apart(true, c.OutOrStdout(), "measure", f)
		}
		if *hosts > 1 {
			network := &netlab.Network{Hosts: *hosts, Wires: []netlab.Wire{{Rate: *rate}}}
			if err := network.Make(); err != nil {
				return fmt.Errorf("--hosts: %w", err)
			}
		}
		w := &tableWriter{out: c.OutOrStdout(), hosts: *hosts, shared: opts.Transport != "tcp", ranks: *counts,
			runs: *runs, slot: cmp.Or(opts.BuffSize, 2<<20) / plan.WindowSlots}
		return w.table(spec, *colls, *file, given(f))
	}
	return c
}

// given returns the flags that are set, as words of a command line.
func given(f *pflag.FlagSet) (words []string) {
	f.Visit(func(flag *pflag.Flag) {
		switch {
		case flag.Name == inside:
		case flag.NoOptDefVal != "":
			words = append(words, "--"+flag.Name+"="+flag.Value.String())
		default:
			words = append(words, "--"+flag.Name, flag.Value.String())
		}
	})
	return words
}

// spreadable refuses numbers of ranks that hosts cannot have equally many of.
func spreadable(counts []int, hosts int) error {
	for _, n := range counts {
		if n%hosts != 0 {
			return fmt.Errorf("--ranks: %d ranks cannot be spread evenly over --hosts %d", n, hosts)
		}
	}
	return nil
}

func parseCollectives(text string) (all []dtype.Collective, err error) {
	for part := range strings.SplitSeq(text, ",") {
		coll, err := cli.ParseCollective(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		all = append(all, coll)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
