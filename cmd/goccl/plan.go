package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

func planVerb(args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "list":
			return planList(args[1:], out)
		case "show":
			return planShow(args[1:], out)
		}
	}
	return errors.New("usage: goccl plan list, or goccl plan show [--ranks N] [--root R] [--rank I] COLLECTIVE[/ALGORITHM]")
}

func planList(args []string, out io.Writer) error {
	set := flags("plan list", out)
	if err := set.Parse(args); err != nil {
		return err
	}
	wanted := dtype.NoCollective
	if set.NArg() > 0 {
		var err error
		if wanted, err = dtype.ParseCollective(set.Arg(0)); err != nil {
			return err
		}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COLLECTIVE\tALGORITHM\tWHAT IT DOES")
	for _, a := range algo.All() {
		if wanted == dtype.NoCollective || a.Coll == wanted {
			fmt.Fprintf(table, "%v\t%s\t%s\n", a.Coll, a.Name, firstSentence(a.Doc))
		}
	}
	return table.Flush()
}

func firstSentence(doc string) string {
	doc = strings.Join(strings.Fields(doc), " ")
	if i := strings.Index(doc, ". "); i >= 0 {
		doc = doc[:i+1]
	}
	return doc
}

func planShow(args []string, out io.Writer) error {
	set := flags("plan show", out)
	ranks := set.Int("ranks", 4, "number of ranks")
	root := set.Int("root", 0, "root of rooted collectives")
	only := set.Int("rank", -1, "only this rank's program")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() != 1 {
		return errors.New("plan show needs one COLLECTIVE or COLLECTIVE/ALGORITHM; see goccl plan list")
	}
	coll, name, _ := strings.Cut(set.Arg(0), "/")
	spec := plan.Spec{Ranks: *ranks, Root: *root}
	var err error
	if spec.Coll, err = dtype.ParseCollective(coll); err != nil {
		return err
	}
	if err := spec.Validate(); err != nil {
		return err
	}
	a, err := findAlgorithm(spec.Coll, name)
	if err != nil {
		return err
	}
	p, err := a.Make(spec)
	if err != nil {
		return err
	}
	if *only >= spec.Ranks {
		return fmt.Errorf("--rank %d of %d ranks", *only, spec.Ranks)
	}
	fmt.Fprintf(out, "# %s\n", strings.ReplaceAll(strings.TrimSpace(a.Doc), "\n", "\n# "))
	report, err := verify.Plan(p, verify.Options{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# verified: right result, no deadlock, no race, nothing left over; determinism %v; %d messages, %d rounds\n\n",
		report.Determinism, report.Messages, report.Rounds)
	if *only >= 0 {
		_, err = io.WriteString(out, p.Text(*only))
	} else {
		_, err = io.WriteString(out, p.Text())
	}
	return err
}

func findAlgorithm(coll dtype.Collective, name string) (algo.Algorithm, error) {
	of := algo.For(coll)
	if name == "" && len(of) > 0 {
		return of[0], nil
	}
	var names []string
	for _, a := range of {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return algo.Algorithm{}, fmt.Errorf("%v has no algorithm %q; it has %s", coll, name, strings.Join(names, ", "))
}
