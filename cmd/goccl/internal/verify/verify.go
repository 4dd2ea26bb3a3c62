// Package verify is goccl verify: it proves plans, of a file or all of the catalogue.
package verify

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/cmd/goccl/internal/plans"
)

// row is a line of the table, and the cases that it is about.
type row struct {
	coll, name string
	algorithms int
	cases      int
}

// wanted selects the cases of verify --all.
type wanted struct {
	ranks []int
	form  string // of ranks
	coll  dtype.Collective
	name  string
	shape plan.Shape
}

// Command returns the command.
func Command() *cobra.Command {
	c := &cobra.Command{
		Use:   "verify FILE | --all",
		Short: "prove that plans are right: that of a file (- is standard input), or all of the catalogue",
	}
	f := c.Flags()
	all := f.Bool("all", false, "verify the algorithms of the catalogue")
	ranks := cli.Flag(f, "ranks", "RANKS", "1-64", "numbers of ranks", cli.Numbers(1, plan.MaxRanks))
	coll := cli.Flag(f, "op", "NAME", "", "only this collective", cli.ParseCollective)
	name := cli.Flag(f, "algo", "NAME", "",
		"only the algorithms with this name, or hierarchical ones with this beginning", cli.Text)
	shape := cli.Shape(f)
	jobs := cli.Flag(f, "jobs", "N", fmt.Sprint(runtime.GOMAXPROCS(0)), "how many plans to verify at a time",
		cli.Number(1, 0))
	level := cli.Flag(f, "determinism", "LEVEL", "", "of a FILE: the level that a group asks for (GOCCL_DETERMINISM), "+
		"0, 2, 3 or 4; 0 accepts results that differ between ranks; left out, what the environment says, or 2", parseLevel)
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case *all == (len(args) > 0) || len(args) > 1:
			return cli.Misused("usage: goccl %s; see goccl help verify", c.Use)
		case *all:
			w := wanted{*ranks, f.Lookup("ranks").Value.String(), *coll, *name, *shape}
			return catalogue(w, *jobs, c.OutOrStdout())
		case !f.Changed("determinism"):
			opts, err := cli.Environment()
			if err != nil {
				return err
			}
			*level = cmp.Or(opts.Determinism, ccl.DefaultDeterminism)
		}
		return own(args[0], *level, c.OutOrStdout())
	}
	return c
}

func parseLevel(text string) (int, error) {
	level, err := cli.Number(0, 4)(text)
	if err != nil || level == 1 {
		err = errors.New("want 0, 2, 3 or 4")
	}
	return level, err
}

// own verifies the plan of a file for groups with a level of determinism.
func own(path string, determinism int, out io.Writer) error {
	err := file(path, determinism, out)
	var bad *verify.Counterexample
	if errors.As(err, &bad) && bad.Reason == verify.Bits {
		return fmt.Errorf(
			"%w\ngroups refuse this plan as GOCCL_PLAN; --determinism verifies it for another level, 0 for any", err)
	}
	return err
}

// file proves that groups of a level of determinism can use a plan, and prints a summary of
// it.
func file(path string, determinism int, out io.Writer) error {
	p, err := plans.Load(path)
	if err != nil {
		return err
	}
	opts, err := cli.Environment()
	if err != nil {
		return err
	}
	limits := opts.FileProof()
	report, err := verify.Accept(p, determinism, limits)
	if err == nil {
		err = ccl.ProveAsRun(p, determinism, limits.Work)
	}
	if err != nil {
		return err
	}
	var sent, reduced, tmp int
	for _, l := range report.Ranks {
		sent, reduced, tmp = max(sent, l.Sent), max(reduced, l.Reduced), max(tmp, l.Tmp)
	}
	fmt.Fprintf(out, "%s: %v\n%s\n", p.Name, p.Spec, plans.Verified(report))
	fmt.Fprintf(out, "needs %v; %d chunks a block; a rank sends up to %d chunks, reduces %d, keeps %d in tmp\n",
		p.Needs, p.Split, sent, reduced, tmp)
	return nil
}

// catalogue verifies plans of the catalogue.
func catalogue(w wanted, jobs int, out io.Writer) error {
	cases, rows, err := w.list()
	if err != nil {
		return cli.Misuse{Err: err}
	}
	start := time.Now()
	if err := verify.Many(cases, jobs); err != nil {
		return err
	}
	table := cli.Table(out)
	fmt.Fprintln(table, "COLLECTIVE\tALGORITHM\tCASES\tLEVEL\tTIME")
	algorithms, done := 0, 0
	for _, r := range rows {
		mine := cases[done : done+r.cases]
		low, high, took := mine[0].Level, mine[0].Level, time.Duration(0)
		for _, c := range mine {
			low, high, took = min(low, c.Level), max(high, c.Level), took+c.Time
		}
		level := fmt.Sprint(uint8(low))
		if high > low {
			level += fmt.Sprintf("–%d", uint8(high))
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%.2fs\n", r.coll, r.name, r.cases, level, took.Seconds())
		algorithms, done = algorithms+r.algorithms, done+r.cases
	}
	if err := table.Flush(); err != nil {
		return err
	}
	w.coverage(out)
	fmt.Fprintf(out, "%d cases of %d algorithms verified, all right, in %.1fs\n",
		len(cases), algorithms, time.Since(start).Seconds())
	return nil
}

// coverage prints which cases are covered.
func (w wanted) coverage(out io.Writer) {
	fmt.Fprintf(out, "ranks %s; all roots of up to 16 ranks, then the first, the second and the last\n", w.form)
	if w.shape != (plan.Shape{}) {
		fmt.Fprintf(out, "grid %v only\n", w.shape)
		return
	}
	var triples []string
	for _, s := range w.triples() {
		triples = append(triples, s.String())
	}
	fmt.Fprint(out,
		"grids: every one of two levels for 2d, hierarchical and each of its pairs; of three levels every one for hierarchical")
	if len(triples) > 0 {
		fmt.Fprintf(out, ", %s for each triple", strings.Join(triples, ", "))
	}
	fmt.Fprintln(out)
}

// list returns the cases, and a row for each algorithm.
func (w wanted) list() (cases []verify.Case, rows []row, err error) {
	var candidates []algo.Algorithm
	for _, a := range algo.All() {
		candidates = append(candidates, a)
		if a.Name == "hierarchical" {
			candidates = append(candidates, algo.Variants(a.Coll, 2)...)
		}
	}
	if dotted := strings.Count(w.name, "."); dotted > 2 { // three levels are verified one choice at a time
		candidates = nil
		for _, c := range dtype.Collectives() {
			if a, err := algo.Find(c, w.name); err == nil {
				candidates = append(candidates, a)
			}
		}
	}
	add := func(a algo.Algorithm, s plan.Spec) {
		if w.shape == (plan.Shape{}) || s.Shape == w.shape {
			cases = append(cases, verify.Case{Spec: s, Make: a.Make, Name: a.Name, Declared: a.Level})
		}
	}
	fits := func(a algo.Algorithm) bool {
		variant := strings.Contains(a.Name, ".")
		return (w.coll == dtype.NoCollective || a.Coll == w.coll) &&
			(w.name == "" || a.Name == w.name || variant && strings.HasPrefix(a.Name, w.name+"."))
	}
	for _, a := range candidates {
		if !fits(a) {
			continue
		}
		before := len(cases)
		for _, n := range w.ranks {
			for _, shape := range a.Grids(n) {
				for _, root := range verify.Roots(a.Coll, n) {
					add(a, plan.Spec{Coll: a.Coll, Ranks: n, Root: root, Shape: shape})
				}
			}
		}
		if n := len(cases) - before; n > 0 {
			rows = append(rows, row{a.Coll.String(), a.Name, 1, n})
		}
	}
	for _, c := range dtype.Collectives() { // one row for all triples of a collective: there are hundreds
		r := row{coll: c.String()}
		before := len(cases)
		for _, a := range algo.Variants(c, 3) {
			if !fits(a) || a.Name == w.name {
				continue
			}
			r.algorithms++
			for _, s := range w.triples() {
				add(a, plan.Spec{Coll: c, Ranks: s[0] * s[1] * s[2], Shape: s})
			}
		}
		if r.cases = len(cases) - before; r.cases > 0 {
			begin := cmp.Or(w.name, "hierarchical")
			r.name = fmt.Sprintf("%s%s (all %d)",
				begin, strings.Repeat(".*", 3-strings.Count(begin, ".")), r.algorithms)
			rows = append(rows, r)
		}
	}
	if len(cases) == 0 {
		return nil, nil, errors.New("no algorithm fits --op, --algo, --ranks and --shape; see goccl plan list")
	}
	return cases, rows, nil
}

// triples returns the grids on which algorithms made of three others are verified.
func (w wanted) triples() []plan.Shape {
	return slices.DeleteFunc(algo.Triples(), func(s plan.Shape) bool {
		return !slices.Contains(w.ranks, s[0]*s[1]*s[2]) || w.shape != (plan.Shape{}) && s != w.shape
	})
}
