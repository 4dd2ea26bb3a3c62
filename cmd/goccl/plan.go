package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
	"github.com/goccl/goccl/internal/humanize"
)

const choiceArgs = "[--ranks N] [--root R] [--shape 4x2] "

// planVerbs returns the subcommands of goccl plan.
func planVerbs() []verb {
	return []verb{
		{"list", "[--json] [COLLECTIVE]", "the algorithms of the catalogue", planList},
		{"show", choiceArgs + "[--rank R] PLAN", "verify a plan and print it", planShow},
		{
			"draw", choiceArgs + "[--rank R] [-o FILE] PLAN",
			"draw a plan as SVG; the drawing of a wrong one says what is wrong and what never happens", planDraw,
		},
		{
			"export", choiceArgs + "[--format text|json] [-o FILE] PLAN",
			"write a plan to a file; one from a file is verified before", planExport,
		},
	}
}

const planHelp = `PLAN is COLLECTIVE/ALGORITHM, COLLECTIVE (its first algorithm), or a FILE (- is standard input). Files are in the text
form or in JSON. A file comes before a collective of the same name.`

func planVerb(args []string, out io.Writer) error {
	if len(args) == 0 {
		var usage strings.Builder
		planUsage(&usage)
		return misuse{errors.New(strings.TrimSpace(usage.String()))}
	}
	if wantsHelp(args[0]) {
		planUsage(out)
		return nil
	}
	err := runVerb("verb of plan", planVerbs(), args, out)
	if i := slices.IndexFunc(topVerbs(), func(v verb) bool {
		return v.name == args[0]
	}); i >= 0 && errors.As(err, new(misuse)) {
		return misuse{fmt.Errorf("%s is no verb of plan: it is goccl %s", args[0], args[0])}
	}
	return err
}

func planUsage(out io.Writer) {
	fmt.Fprintln(out, "usage: goccl plan list|show|draw|export …      goccl help plan VERB for its flags")
	printVerbs(out, planVerbs())
	fmt.Fprintln(out, planHelp)
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
		return misuse{fmt.Errorf("plan list takes one collective at most, got %q", rest)}
	}
	if len(rest) > 0 {
		if wanted, err = parseCollective(rest[0]); err != nil {
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
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n",
			r.Collective, r.Algorithm, r.Level, strings.Join(r.Needs, ","), r.Doc)
	}
	return table.Flush()
}

// needs returns the names of the features that a plan needs.
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

// choice holds the flags that choose a plan, from the catalogue or from a file.
type choice struct {
	set   *flag.FlagSet
	ranks *int
	root  *int
	shape *string

	fromFile bool // set by plan
}

func choiceFlags(name string, out io.Writer) *choice {
	set := flags(name, out)
	usage := set.Usage
	set.Usage = func() {
		if usage(); set.Output() == out {
			fmt.Fprintln(out, planHelp)
		}
	}
	return &choice{
		set: set, ranks: set.Int("ranks", 4, "number of ranks"), root: set.Int("root", 0, "root of rooted collectives"),
		shape: set.String("shape", "", "grid of the ranks, innermost level first, as 4x2"),
	}
}

// plan returns the plan that the arguments name, and the description of its algorithm.
func (c *choice) plan(args []string) (p *plan.Plan, doc string, err error) {
	rest, err := parseMixed(c.set, args)
	if err != nil {
		return nil, "", err
	}
	if len(rest) != 1 {
		return nil, "", misuse{fmt.Errorf(
			"%s needs one COLLECTIVE, COLLECTIVE/ALGORITHM or FILE, got %d; see goccl plan list",
			strings.TrimPrefix(c.set.Name(), "goccl "), len(rest))}
	}
	info, failed := os.Stat(rest[0])
	if rest[0] == "-" || failed == nil && !info.IsDir() {
		var given []string
		c.set.Visit(func(f *flag.Flag) {
			if f.Name == "ranks" || f.Name == "root" || f.Name == "shape" {
				given = append(given, "--"+f.Name)
			}
		})
		if given != nil {
			return nil, "", fmt.Errorf("%s of a plan from a file is what the file says; leave %s out",
				rest[0], strings.Join(given, ", "))
		}
		c.fromFile = true
		p, err := loadPlan(rest[0])
		return p, "plan " + rest[0], err
	}
	coll, name, named := strings.Cut(rest[0], "/")
	spec := plan.Spec{Ranks: *c.ranks, Root: *c.root}
	if spec.Coll, err = parseCollective(coll); err != nil {
		return nil, "", noSuchPlan(rest[0], failed, err)
	}
	if spec.Shape, err = parseShape(*c.shape); err != nil {
		return nil, "", err
	}
	if err := spec.Validate(); err != nil {
		return nil, "", err
	}
	if !named {
		name = algo.Names(spec.Coll)[0]
	}
	a, err := findAlgorithm(spec.Coll, name)
	if err != nil {
		return nil, "", err
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
	case looksLikeFile(argument):
		return fmt.Errorf("there is no file %s", argument)
	}
	return fmt.Errorf("there is no file %s, and it is no plan of the catalogue: %w", argument, wrong)
}

// looksLikeFile reports whether an argument that names nothing was meant as a file: it has a path
// or an extension, and does not begin like a collective.
func looksLikeFile(argument string) bool {
	first, _, path := strings.Cut(argument, "/")
	return (path || strings.Contains(argument, ".")) && humanize.Nearest(first, collectiveNames()) == ""
}

// parseShape parses a shape such as 4x2; the empty text is no shape.
func parseShape(text string) (plan.Shape, error) {
	var shape plan.Shape
	if text == "" {
		return shape, nil
	}
	words := strings.Split(text, "x")
	for i, word := range words {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > plan.MaxRanks || len(words) > plan.MaxLevels {
			return plan.Shape{}, fmt.Errorf("--shape %s: want up to %d numbers, innermost level first, as 4x2",
				text, plan.MaxLevels)
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
	said := "not verified here: it is too large"
	report, err := verify.Plan(p, verify.Options{Work: verify.DefaultWork / 64})
	switch {
	case err == nil:
		said = verified(report)
	case !errors.Is(err, fault.NotSupported):
		return err
	}
	fmt.Fprintf(out, "# %s\n", strings.ReplaceAll(strings.TrimSpace(doc), "\n", "\n# "))
	fmt.Fprintf(out, "# %s\n\n", said)
	if *only >= 0 {
		_, err = io.WriteString(out, p.Text(*only))
		return err
	}
	return writeText(out, p)
}

// verified returns the text of a successful report.
func verified(r *verify.Report) string {
	return fmt.Sprintf(
		"verified: right result, no deadlock, no race, nothing left over; determinism %v; %d messages, %d rounds",
		r.Determinism, r.Messages, r.Rounds)
}

// parseCollective parses the name of a collective that has plans.
func parseCollective(name string) (dtype.Collective, error) {
	coll, err := dtype.ParseCollective(name)
	if err == nil {
		if !coll.Valid() {
			return coll, fmt.Errorf("%v has no plans; these have: %v", coll, dtype.Collectives())
		}
		return coll, nil
	}
	var having []string
	for _, c := range dtype.Collectives() {
		if _, failed := algo.Find(c, name); failed == nil {
			having = append(having, c.String()+"/"+name)
		}
	}
	if having != nil {
		return coll, fmt.Errorf("%w; %s is an algorithm: %s", err, name, strings.Join(having, ", "))
	}
	return coll, fmt.Errorf("%w%s", err, humanize.DidYouMean(name, collectiveNames()))
}

// collectiveNames returns the names of the collectives that have plans.
func collectiveNames() []string {
	var names []string
	for _, c := range dtype.Collectives() {
		names = append(names, c.String())
	}
	return names
}

func findAlgorithm(coll dtype.Collective, name string) (algo.Algorithm, error) {
	a, err := algo.Find(coll, name)
	if err != nil {
		return a, fmt.Errorf("%w%s", err, humanize.DidYouMean(name, algo.Names(coll)))
	}
	return a, nil
}
