// Package bench is goccl bench: how long a collective takes, over ranks of this host that it starts
// itself, or as one of the ranks that a launcher has started, on this host and others.
package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/ranks"
	"github.com/goccl/goccl/internal/humanize"
)

const mostSingles = 1000 // calls that are timed one by one

const long = `Time a collective over ranks that it starts itself, or with --launched as one of
the ranks that a launcher has started, as goccl run, torchrun, srun or mpirun do,
on one host or several: rank 0 prints.

A time is that of the slowest rank. "time" is of one call in the median of some
blocks of calls, "min" in the fastest one; "p99" is of calls that are timed one by
one. algbw and busbw are those of nccl-tests.`

const example = `  goccl bench --op all_reduce --ranks 4 --size 8..1M
  goccl run -n 2 --hosts 2 --host 0 --address 10.0.0.1 --port 29500 -- \
      goccl bench --launched
  torchrun --nproc-per-node 4 --no-python goccl bench --launched
  goccl bench --go > new.txt && benchstat old.txt new.txt`

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use: "bench", Short: "time a collective", Long: long, Example: example, Args: cli.Arguments(0, 0),
	}
	f := c.Flags()
	spec := ranks.Spec{Warmup: 2, Singles: mostSingles}
	launched := f.Bool("launched", false, "this process is a rank of a job whose launcher sets RANK, WORLD_SIZE, MASTER_ADDR "+
		"and MASTER_PORT")
	op := cli.Flag(f, "op", "NAME", "all_reduce", "collective, or send for a ping-pong of rank 0 and 1", parseOp)
	count := cli.Flag(f, "ranks", "N", "2", "number of ranks, each a process on this host", cli.Number(1, 256))
	typ := cli.Flag(f, "dtype", "TYPE", "float32", "element type", dtype.ParseType)
	redop := cli.Flag(f, "redop", "NAME", "sum", "reduction operator", dtype.ParseOp)
	sizes, factor := cli.SizeAndFactor(f, "8..64M", 2)
	root := cli.RootRank(f)
	inPlace := f.Bool("in-place", false, "only with input and output in the same memory")
	outOfPlace := f.Bool("out-of-place", false, "only with input and output apart")
	f.BoolVar(&spec.Registered, "registered", false,
		"buffers are in registered memory, as of goccl.empty, which ranks of one host read where it lies")
	transport := cli.Transport(f, "")
	algorithm := cli.Flag(f, "algo", "CHOICE", "", "as in GOCCL_ALGO", cli.Text)
	repeat := cli.Flag(f, "repeat", "N", "7", "blocks of calls a size; the median counts", cli.Number(1, 0))
	block := cli.Flag(f, "block", "TIME", "20ms", "time of one block", cli.Duration(1))
	asJSON := cli.JSON(f, "an object a line")
	asCSV := f.Bool("csv", false, "print comma-separated values")
	asGo := f.Bool("go", false, "print what go test -bench prints, a line for each block of calls, for benchstat")
	c.MarkFlagsMutuallyExclusive("json", "csv", "go")
	c.MarkFlagsMutuallyExclusive("in-place", "out-of-place")
	c.MarkFlagsMutuallyExclusive("launched", "ranks")
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
		spec.InPlace = *inPlace
		spec.BothPlaces = !*inPlace && !*outOfPlace && hasPlaces(spec.Coll)
		spec.EachBlock = *asGo
		form := formOf(*asJSON, *asCSV, *asGo)
		if *launched {
			return asRank(spec, opts, form, c.OutOrStdout())
		}
		if rank, set := os.LookupEnv("RANK"); set {
			return cli.Misused("RANK=%s is set, so a launcher has started this process: with --launched it is a rank of "+
				"that job; unset RANK to have it start ranks itself", rank)
		}
		if err := check(&spec); err != nil {
			return cli.Misuse{Err: err}
		}
		printer := newPrinter(spec, 1, form, c.OutOrStdout())
		return cmp.Or(ranks.Start("bench", spec, nil, printer.row), printer.end())
	}
	c.AddCommand(cli.Internal(ranks.Process, func(args []string, _ io.Writer) error {
		return ranks.Play(args, ranks.Bench)
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

// hasPlaces reports whether a collective can be called in place and out of place.
func hasPlaces(coll dtype.Collective) bool {
	return coll != dtype.AllToAll && coll != dtype.Barrier && coll != dtype.Send
}

// check refuses values that do not go together.
func check(spec *ranks.Spec) error {
	switch {
	case spec.Coll == dtype.Send && spec.Ranks < 2:
		return fmt.Errorf("--ranks %d: --op send needs 2", spec.Ranks)
	case spec.Root < 0 || spec.Root >= spec.Ranks:
		return fmt.Errorf("--root %d of %d ranks", spec.Root, spec.Ranks)
	case spec.InPlace && !hasPlaces(spec.Coll):
		return fmt.Errorf("--in-place: %v has no in-place form", spec.Coll)
	case spec.Coll.Reduces():
		return dtype.Reducible(spec.Type, spec.Op)
	}
	return nil
}

// asRank measures as one of the ranks of a launcher's job.
func asRank(spec ranks.Spec, opts ccl.Options, form form, out io.Writer) error {
	opts.Timeout = cmp.Or(opts.Timeout, time.Minute)
	comm, err := ccl.Init(context.Background(), opts)
	if errors.Is(err, ccl.Invalid) { // no launcher has started this process
		return cli.Misuse{Err: err}
	} else if err != nil {
		return err
	}
	defer comm.Close()
	spec.Ranks = comm.Size()
	if err := check(&spec); err != nil {
		return cli.Misuse{Err: err}
	}
	if err := sameFlags(comm, spec); err != nil {
		return err
	}
	spec.Rank = comm.Rank()
	if spec.Rank != 0 {
		return ranks.Measure(comm, &spec, nil)
	}
	printer := newPrinter(spec, len(comm.Group().Hosts()), form, out)
	return cmp.Or(ranks.Measure(comm, &spec, printer.row), printer.end())
}

// sameFlags refuses ranks that would measure different things: they would wait for each other.
// Options that have to be the same were compared when they joined.
func sameFlags(comm *ccl.Communicator, spec ranks.Spec) error {
	spec.Options = ""
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	own := sha256.Sum256(text)
	all := make([]byte, comm.Size()*len(own))
	if err := ccl.AllGather(context.Background(), comm, own[:], all); err != nil {
		return err
	}
	first := all[:len(own)]
	for rank := range comm.Size() {
		if !slices.Equal(first, all[rank*len(own):(rank+1)*len(own)]) {
			return cli.Misused("rank %d has other flags than rank 0", rank)
		}
	}
	return nil
}
