// Package bench is goccl bench: how long a collective takes over ranks of this host.
package bench

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/humanize"
)

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "bench", Short: "time a collective over ranks that it starts itself", Args: cli.Arguments(0, 0)}
	f := c.Flags()
	spec := ranks.Spec{Warmup: 2}
	op := cli.Flag(f, "op", "NAME", "all_reduce", "collective, or send for a ping-pong of rank 0 and 1", parseOp)
	count := cli.Flag(f, "ranks", "N", "2", "number of ranks, each a process on this host", cli.Number(1, 256))
	typ := cli.Flag(f, "dtype", "TYPE", "float32", "element type", dtype.ParseType)
	redop := cli.Flag(f, "redop", "NAME", "sum", "reduction operator", dtype.ParseOp)
	sizes, factor := cli.SizeAndFactor(f, "8..64M", 4)
	root := cli.RootRank(f)
	f.BoolVar(&spec.InPlace, "in-place", false, "input and output are the same memory, where the collective allows it")
	f.BoolVar(&spec.Registered, "registered", false,
		"buffers are in registered memory, as of goccl.empty, which ranks of one host read where it lies")
	transport := cli.Transport(f, "")
	algorithm := cli.Flag(f, "algo", "CHOICE", "", "as in GOCCL_ALGO", cli.Text)
	repeat := cli.Flag(f, "repeat", "N", "7", "blocks of calls a size; the median counts", cli.Number(1, 0))
	block := cli.Flag(f, "block", "TIME", "20ms", "time of one block", cli.Duration(1))
	asJSON := cli.JSON(f, "an object a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		opts, err := cli.Environment()
		if err != nil {
			return err
		}
		opts.Transport, opts.Algo = cmp.Or(*transport, opts.Transport), cmp.Or(*algorithm, opts.Algo)
		if err := opts.Validate(); err != nil {
			return cli.Misuse{Err: err}
		}
		spec.Coll, spec.Ranks, spec.Type, spec.Op, spec.Root = *op, *count, *typ, *redop, *root
		spec.Sizes, spec.Repeat, spec.Block, spec.Options = sizes.Each(*factor), *repeat, *block, opts.String()
		if err := check(&spec); err != nil {
			return cli.Misuse{Err: err}
		}
		return measure(spec, *asJSON, c.OutOrStdout())
	}
	c.AddCommand(cli.Internal(ranks.Process, func(args []string, _ io.Writer) error {
		return ranks.Play(args, ranks.Measure)
	}))
	return c
}

// parseOp parses the name of a collective, or send.
func parseOp(name string) (dtype.Collective, error) {
	coll, err := dtype.ParseCollective(name)
	if err != nil {
		return coll, fmt.Errorf("%w%s", err, humanize.DidYouMean(name, cli.Collectives()))
	}
	if coll == dtype.Recv {
		coll = dtype.Send
	}
	return coll, nil
}

// check refuses values that do not go together.
func check(spec *ranks.Spec) error {
	switch {
	case spec.Coll == dtype.Send && spec.Ranks < 2:
		return fmt.Errorf("--ranks %d: --op send needs 2", spec.Ranks)
	case spec.Root < 0 || spec.Root >= spec.Ranks:
		return fmt.Errorf("--root %d of %d ranks", spec.Root, spec.Ranks)
	case spec.Coll.Reduces():
		return dtype.Reducible(spec.Type, spec.Op)
	}
	return nil
}

func measure(spec ranks.Spec, asJSON bool, out io.Writer) error {
	printer := newPrinter(spec, asJSON, out)
	if err := ranks.Start("bench", spec, nil, printer.row); err != nil {
		return err
	}
	return printer.end()
}

type printer struct {
	json  bool
	out   io.Writer
	rows  int
	wrong int64
}

func newPrinter(spec ranks.Spec, asJSON bool, out io.Writer) *printer {
	if !asJSON {
		opts, _ := ccl.ParseOptions(spec.Options)
		opts.EnsureDefaults()
		fmt.Fprintf(out,
			"# %v on %d ranks, transport %s, in place: %v; time is the median of %d blocks, slowest rank\n",
			spec.Coll, spec.Ranks, opts.Transport, spec.InPlace, spec.Repeat)
		fmt.Fprintf(out, "%12s %12s %8s %8s %12s %12s %12s %8s\n",
			"size (B)", "count", "type", "redop", "time (us)", "algbw (GB/s)", "busbw (GB/s)", "#wrong")
	}
	return &printer{json: asJSON, out: out}
}

func (p *printer) row(r ranks.Row) {
	p.rows++
	p.wrong += r.Wrong
	if p.json {
		text, _ := json.Marshal(r)
		fmt.Fprintf(p.out, "%s\n", text)
		return
	}
	fmt.Fprintf(p.out, "%12d %12d %8s %8s %12.2f %12.3f %12.3f %8d\n",
		r.Bytes, r.Count, r.Type, r.Op, r.Micros, r.AlgBW, r.BusBW, r.Wrong)
}

func (p *printer) end() error {
	if p.wrong > 0 {
		return fmt.Errorf("%d elements were wrong", p.wrong)
	}
	if p.rows == 0 {
		return errors.New("nothing was measured")
	}
	return nil
}
