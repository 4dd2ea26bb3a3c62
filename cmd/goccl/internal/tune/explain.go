package tune

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/ccl/tune"
	"github.com/goccl/goccl/ccl/tune/measured"
	"github.com/goccl/goccl/ccl/tune/predicted"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
)

const explainHelp = `For each collective and size: the algorithm that a group would use, what has
decided (GOCCL_ALGO, a row of GOCCL_TUNE, a row of the library that was measured,
the costs of the network, a rule), how long a call is predicted to take, and the
next best prediction. What GOCCL_TUNE=online finds only its group knows.`

func explain() *cobra.Command {
	c := &cobra.Command{
		Use: "explain", Args: cli.Arguments(0, 0),
		Short: "which algorithm a group uses for which size, and why",
		Long:  explainHelp,
	}
	f := c.Flags()
	count := cli.Flag(f, "ranks", "N", "4", "number of ranks", cli.Number(2, 64))
	hosts := cli.Flag(f, "hosts", "N", "1", "number of hosts over which they are spread", cli.Number(1, 64))
	colls := cli.Flag(f, "op", "NAMES", "", "collectives, as all_reduce,broadcast; all if left out", parseCollectives)
	sizes, factor := cli.SizeAndFactor(f, "1K..16M", 16)
	file := costsFlag(f)
	asJSON := cli.JSON(f, "an object a line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		opts, err := cli.Environment()
		if err != nil {
			return err
		}
		if *hosts > *count {
			return cli.Misused("--hosts %d: more than --ranks %d", *hosts, *count)
		}
		if len(*colls) == 0 {
			*colls = dtype.Collectives()
		}
		costs, err := readCosts(cmp.Or(*file, opts.Costs))
		if err != nil {
			return err
		}
		if name := opts.Topo; name != "" && name != network.Off && *file == "" && opts.Costs == "" {
			if err := describe(costs, name, *count, *hosts); err != nil {
				return cli.Misuse{Err: fmt.Errorf("GOCCL_TOPO: %w", err)}
			}
		}
		wishes := tune.Wishes{Determinism: opts.Determinism}
		if wishes.Override, err = tune.ParseOverride(opts.Algo); err != nil {
			return cli.Misuse{Err: err}
		}
		tables, trials := opts.Tuning()
		if tables != "" {
			text, err := os.ReadFile(tables)
			if err == nil {
				wishes.Table, err = tune.ParseTable(text)
			}
			if err != nil {
				return fmt.Errorf("GOCCL_TUNE: %w", err)
			}
		}
		on, err := measured.Group(*count, *hosts, measured.Slot, true)
		if err == nil && *hosts == 1 {
			on = on.WithSlot(on.Room())
		}
		if err != nil {
			return err
		}
		if between, far := costs.Paths(); between != nil {
			wishes.Among = predicted.NewChooser(on, between, far, exec.PlanChannels).Choose
		}
		var rows []explained
		for _, coll := range *colls {
			each := sizes.Each(*factor)
			if coll == dtype.Barrier {
				each = []int64{0}
			}
			for _, size := range each {
				row, err := explainOne(tune.Call{Coll: coll, Bytes: size}, on, &wishes, costs)
				if err != nil {
					return err
				}
				rows = append(rows, row)
			}
		}
		if *asJSON {
			return cli.PrintLines(c.OutOrStdout(), rows)
		}
		if trials {
			fmt.Fprintln(c.OutOrStdout(), triesOthers)
		}
		return printExplained(c.OutOrStdout(), rows, on, costs)
	}
	return c
}

// describe puts what a network says into costs, as groups do it.
func describe(costs *cost.File, name string, ranks, hosts int) error {
	t, err := network.Open(name, ranks)
	if err != nil {
		return err
	}
	d, err := t.Describe(ranks)
	if err != nil {
		return err
	}
	if d.Hosts != 0 && d.Hosts < hosts {
		return fmt.Errorf("the network has %d ranks, --hosts is %d", d.Hosts, hosts)
	}
	path, err := d.Path(costs.Costs.Network)
	if path != nil {
		costs.Costs.Network, costs.Network = *path, &cost.Part{Of: "GOCCL_TOPO=" + name}
	}
	return err
}

// triesOthers is what there is to say of trials, of which only the ranks know what they come to.
const triesOthers = "GOCCL_TUNE=online: a group tries others, too, and keeps what is 1.1 times as fast; GOCCL_DEBUG=INFO says what"

// explained is one choice. Times are in seconds, 0 where there is no prediction.
type explained struct {
	Coll      string  `json:"collective"`
	Bytes     int64   `json:"size"`
	Algorithm string  `json:"algorithm"`
	Why       string  `json:"why"`
	Predicted float64 `json:"predicted_s"`
	Next      string  `json:"next,omitempty"`
	NextTime  float64 `json:"next_s"`
}

// explainOne chooses, and predicts what that takes, and what the best of all others would.
func explainOne(call tune.Call, on *topo.Group, wishes *tune.Wishes, costs *cost.File) (explained, error) {
	asked := call
	if !tune.Sized(call.Coll) {
		asked.Bytes = 0 // no rank knows it
	}
	name, why := tune.Explain(asked, on, wishes)
	row := explained{Coll: call.Coll.String(), Bytes: call.Bytes, Algorithm: name, Why: why.String()}
	p, err := predicted.New(on, &costs.Costs)
	if err != nil {
		return row, err
	}
	best := math.Inf(1)
	all := append(measured.Candidates(call.Coll, on, true, exec.PlanChannels), measured.Candidate{Name: name})
	for _, each := range all {
		seconds, err := p.Alone(call.Coll, each.Name, call.Bytes, elementBytes)
		switch {
		case err != nil: // the group cannot run it
		case each.Name == name:
			row.Predicted = seconds
		case seconds < best:
			best, row.Next, row.NextTime = seconds, each.Name, seconds
		}
	}
	return row, nil
}

// elementBytes is the size of the elements of predicted calls.
const elementBytes = 4

func printExplained(out io.Writer, rows []explained, on *topo.Group, costs *cost.File) error {
	for _, part := range []struct {
		of string
		*cost.Part
	}{{"network", costs.Network}, {"host", costs.Host}} {
		if part.Part == nil {
			fmt.Fprintf(out, "costs of the %s: nobody has measured them (goccl tune fit); the usual ones\n", part.of)
			continue
		}
		when := ""
		if !part.Measured.IsZero() {
			when = part.Measured.Format(", 2006-01-02 15:04")
		}
		fmt.Fprintf(out, "costs of the %s: of %s%s\n", part.of, part.Of, when)
	}
	fmt.Fprintf(out, "\n%d ranks, hosts of %s\n", on.Size(), on.Sizes())
	table := cli.Table(out)
	fmt.Fprintln(table, "collective\tsize (B)\talgorithm\twhy\tpredicted (µs)\tnext\tof that")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t", r.Coll, r.Bytes, r.Algorithm, r.Why)
		if r.Predicted == 0 {
			fmt.Fprint(table, "-\t-\t-\n")
			continue
		}
		fmt.Fprintf(table, "%.1f\t%s\t%.2f ×\n", r.Predicted*1e6, r.Next, r.NextTime/r.Predicted)
	}
	return table.Flush()
}
