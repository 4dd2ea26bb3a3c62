package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
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
		case "draw":
			return planDraw(args[1:], out)
		case "export":
			return planExport(args[1:], out)
		case "import":
			return planImport(args[1:], out)
		}
	}
	return errors.New("usage: goccl plan list [--json] [COLLECTIVE], goccl plan import FILE,\n" +
		"or goccl plan show|draw|export [--ranks N] [--root R] [--shape 4x2] [-o FILE] COLLECTIVE[/ALGORITHM]|FILE")
}

// parseMixed parses flags before, between and after the arguments, and returns the arguments.
func parseMixed(set *flag.FlagSet, args []string) ([]string, error) {
	var rest []string
	for {
		if err := set.Parse(args); err != nil {
			return nil, err
		}
		if set.NArg() == 0 {
			return rest, nil
		}
		rest, args = append(rest, set.Arg(0)), set.Args()[1:]
	}
}

// listed is a line of plan list.
type listed struct {
	Collective string   `json:"collective"`
	Algorithm  string   `json:"algorithm"`
	Level      int      `json:"level"`
	Needs      []string `json:"needs"`
	Doc        string   `json:"doc"`
}

func planList(args []string, out io.Writer) error {
	set := flags("plan list", out)
	asJSON := set.Bool("json", false, "print JSON")
	rest, err := parseMixed(set, args)
	if err != nil {
		return err
	}
	wanted := dtype.NoCollective
	if len(rest) > 1 {
		return fmt.Errorf("plan list takes one collective at most, got %q", rest)
	}
	if len(rest) > 0 {
		if wanted, err = dtype.ParseCollective(rest[0]); err != nil {
			return err
		}
	}
	var rows []listed
	for _, a := range algo.All() {
		if wanted != dtype.NoCollective && a.Coll != wanted {
			continue
		}
		p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: 4})
		if err != nil {
			return err
		}
		rows = append(rows, listed{a.Coll.String(), a.Name, a.Level, needs(p.Needs), a.Doc})
	}
	if *asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(rows)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COLLECTIVE\tALGORITHM\tLEVEL\tNEEDS\tWHAT IT DOES")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", r.Collective, r.Algorithm, r.Level, strings.Join(r.Needs, ","), r.Doc)
	}
	return table.Flush()
}

// needs names what a plan needs.
func needs(n plan.Need) []string {
	names := []string{}
	for _, each := range []struct {
		need plan.Need
		name string
	}{{plan.Messages, "messages"}, {plan.Puts, "puts"}, {plan.Gets, "gets"}, {plan.Counts, "counts"}} {
		if n&each.need != 0 {
			names = append(names, each.name)
		}
	}
	return names
}

// choice is the flags that choose a plan: of the catalogue, or from a file.
type choice struct {
	set   *flag.FlagSet
	ranks *int
	root  *int
	shape *string
}

func choiceFlags(name string, out io.Writer) choice {
	set := flags(name, out)
	return choice{set, set.Int("ranks", 4, "number of ranks"), set.Int("root", 0, "root of rooted collectives"),
		set.String("shape", "", "grid of the ranks, innermost level first, as 4x2")}
}

// plan is the plan that the arguments name, and what its algorithm says of itself.
func (c choice) plan(args []string) (p *plan.Plan, doc string, err error) {
	rest, err := parseMixed(c.set, args)
	if err != nil {
		return nil, "", err
	}
	if len(rest) != 1 {
		return nil, "", fmt.Errorf("%s needs one COLLECTIVE, COLLECTIVE/ALGORITHM or FILE; see goccl plan list",
			strings.TrimPrefix(c.set.Name(), "goccl "))
	}
	if info, failed := os.Stat(rest[0]); failed == nil && info.Mode().IsRegular() {
		var given []string
		c.set.Visit(func(f *flag.Flag) {
			if f.Name == "ranks" || f.Name == "root" || f.Name == "shape" {
				given = append(given, "--"+f.Name)
			}
		})
		if given != nil {
			return nil, "", fmt.Errorf("%s of a plan from a file is what the file says; leave %s out", rest[0], strings.Join(given, ", "))
		}
		p, err := loadPlan(rest[0])
		return p, "plan " + rest[0], err
	}
	coll, name, _ := strings.Cut(rest[0], "/")
	spec := plan.Spec{Ranks: *c.ranks, Root: *c.root}
	if spec.Coll, err = dtype.ParseCollective(coll); err != nil {
		if strings.ContainsAny(rest[0], "./") {
			return nil, "", fmt.Errorf("%w; and there is no file %s", err, rest[0])
		}
		return nil, "", err
	}
	if spec.Shape, err = parseShape(*c.shape); err != nil {
		return nil, "", err
	}
	if err := spec.Validate(); err != nil {
		return nil, "", err
	}
	a, err := findAlgorithm(spec.Coll, name)
	if err != nil {
		return nil, "", err
	}
	p, err = a.Make(spec)
	return p, a.Doc, err
}

// parseShape reads 4x2; the empty text is no shape.
func parseShape(text string) (plan.Shape, error) {
	var shape plan.Shape
	if text == "" {
		return shape, nil
	}
	words := strings.Split(text, "x")
	for i, word := range words {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > plan.MaxRanks || len(words) > plan.MaxLevels {
			return plan.Shape{}, fmt.Errorf("--shape %s: want up to %d numbers, innermost level first, as 4x2", text, plan.MaxLevels)
		}
		shape[i] = n
	}
	return shape, nil
}

func planShow(args []string, out io.Writer) error {
	c := choiceFlags("plan show", out)
	only := c.set.Int("rank", -1, "only this rank's program")
	p, doc, err := c.plan(args)
	if err != nil {
		return err
	}
	if *only >= p.Spec.Ranks || *only < -1 {
		return fmt.Errorf("--rank %d of %d ranks", *only, p.Spec.Ranks)
	}
	report, err := verify.Plan(p, verify.Options{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# %s\n", strings.ReplaceAll(strings.TrimSpace(doc), "\n", "\n# "))
	fmt.Fprintf(out, "# %s\n\n", verified(report))
	if *only >= 0 {
		_, err = io.WriteString(out, p.Text(*only))
	} else {
		_, err = io.WriteString(out, p.Text())
	}
	return err
}

// verified says what a report says.
func verified(r *verify.Report) string {
	return fmt.Sprintf("verified: right result, no deadlock, no race, nothing left over; determinism %v; %d messages, %d rounds",
		r.Determinism, r.Messages, r.Rounds)
}

func findAlgorithm(coll dtype.Collective, name string) (algo.Algorithm, error) {
	if name == "" {
		return algo.Find(coll, algo.Names(coll)[0])
	}
	return algo.Find(coll, name)
}
