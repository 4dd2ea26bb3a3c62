package plans

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/cmd/goccl/internal/cli"
	"github.com/goccl/goccl/internal/humanize"
)

// Form says how a plan is named.
const Form = "PLAN is COLLECTIVE/ALGORITHM, COLLECTIVE (its first algorithm), or a FILE (- is standard input). Files are " +
	"in the text form or in JSON. A file comes before a collective of the same name."

// Choice is what a command line says of the plan that it is about.
type Choice struct {
	FromFile bool // set by Plan
	flags    *pflag.FlagSet
	ranks    *int
	root     *int
	shape    *plan.Shape
}

// Choose adds the flags that choose a plan to a command with one argument.
func Choose(c *cobra.Command) *Choice {
	c.Args, c.Long = cli.Arguments(1, 1), Form
	c.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var all []string
		for _, a := range algo.All() {
			all = append(all, a.Coll.String()+"/"+a.Name)
		}
		return all, cobra.ShellCompDirectiveDefault // or a file
	}
	f := c.Flags()
	return &Choice{flags: f, ranks: cli.Flag(f, "ranks", "N", "4", "number of ranks", cli.Number(1, plan.MaxRanks)),
		root: cli.RootRank(f), shape: cli.Shape(f)}
}

// Plan returns the plan that the argument names, and the description of its algorithm.
func (c *Choice) Plan(name string) (p *plan.Plan, doc string, err error) {
	info, failed := os.Stat(name)
	if name == "-" || failed == nil && !info.IsDir() {
		for _, flag := range []string{"ranks", "root", "shape"} {
			if c.flags.Changed(flag) {
				return nil, "", cli.Misused("%s says that itself; leave --%s out", name, flag)
			}
		}
		c.FromFile = true
		p, err := Load(name)
		return p, "plan " + name, err
	}
	coll, algorithm, named := strings.Cut(name, "/")
	spec := plan.Spec{Ranks: *c.ranks, Root: *c.root, Shape: *c.shape}
	if spec.Coll, err = cli.ParseCollective(coll); err != nil {
		return nil, "", cli.Misuse{Err: noSuchPlan(name, failed, err)}
	}
	if err := spec.Validate(); err != nil {
		return nil, "", cli.Misuse{Err: err}
	}
	if !named {
		algorithm = algo.Names(spec.Coll)[0]
	}
	a, err := Find(spec.Coll, algorithm)
	if err != nil {
		return nil, "", cli.Misuse{Err: err}
	}
	doc = a.Doc
	if a.Grid != nil {
		doc += "\n" + gridText(a.Grid(spec), spec)
	}
	p, err = a.Make(spec)
	return p, doc, err
}

// gridText describes the grid in which an algorithm has arranged the ranks.
func gridText(levels []int, spec plan.Spec) string {
	words := make([]string, len(levels))
	for i, n := range levels {
		words[i] = strconv.Itoa(n)
	}
	text := "grid " + strings.Join(words, "x") + ", the innermost level first"
	chosen := spec.Shape == (plan.Shape{})
	switch {
	case len(levels) == 1 && chosen:
		return fmt.Sprintf("no grid: %d ranks have none, so all are in one level", spec.Ranks)
	case len(levels) == 1:
		return fmt.Sprintf("no grid: all ranks are in one level of %v", spec.Shape)
	case chosen:
		text += "; --shape sets another"
	}
	return text
}

// noSuchPlan returns the error for an argument that names no plan. stat is the reason why it is not
// a file, nil for a folder; wrong is the reason why it is not a collective.
func noSuchPlan(argument string, stat, wrong error) error {
	switch {
	case stat == nil:
		return fmt.Errorf("%s is a folder; a plan is COLLECTIVE/ALGORITHM, COLLECTIVE or a FILE", argument)
	case !errors.Is(stat, os.ErrNotExist):
		return stat
	case LooksLikeFile(argument):
		return fmt.Errorf("there is no file %s", argument)
	}
	return fmt.Errorf("there is no file %s, and it is no plan of the catalogue: %w", argument, wrong)
}

// LooksLikeFile reports whether an argument that names nothing was meant as a file: it has a path
// or an extension, and does not begin like a collective.
func LooksLikeFile(argument string) bool {
	first, _, path := strings.Cut(argument, "/")
	return (path || strings.Contains(argument, ".")) && humanize.Nearest(first, cli.Collectives()) == ""
}

// Find finds an algorithm of the catalogue.
func Find(coll dtype.Collective, name string) (algo.Algorithm, error) {
	a, err := algo.Find(coll, name)
	if err != nil {
		return a, fmt.Errorf("%w%s", err, humanize.DidYouMean(name, algo.Names(coll)))
	}
	return a, nil
}
