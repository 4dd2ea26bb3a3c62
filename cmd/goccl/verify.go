package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/goccl/goccl/ccl"
	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

const (
	verifyGCPercent = 800
	verifyMemory    = 2 << 30 // above this, garbage is collected as often as needed
)

// verifyCase is one plan to verify; row is the index of its line in the table.
type verifyCase struct {
	row       int
	algorithm algo.Algorithm
	spec      plan.Spec
}

// verifyRow is a line of the table.
type verifyRow struct {
	coll, name string
	algorithms int
	cases      int
	low, high  verify.Level
	time       time.Duration
}

// wantedCases selects the cases of verify --all.
type wantedCases struct {
	low, high  int
	coll, name string
	shape      plan.Shape
}

func verifyVerb(args []string, out io.Writer) error {
	set := flags("verify", out)
	all := set.Bool("all", false, "verify the algorithms of the catalogue")
	ranks := set.String("ranks", "1-64", "number of ranks, or the first and the last")
	coll := set.String("coll", "", "only this collective")
	name := set.String("algo", "", "only the algorithms with this name, or hierarchical ones with this beginning")
	shape := set.String("shape", "", "only this grid of the ranks, as 4x2")
	jobs := set.Int("jobs", runtime.GOMAXPROCS(0), "how many plans to verify at a time")
	determinism := set.Int("determinism", -1, "of a FILE: the `level` that a group asks for (GOCCL_DETERMINISM); "+
		"0 accepts results that differ between ranks; left out, what the environment says, or 2")
	rest, err := parseMixed(set, args)
	switch {
	case err != nil:
		return err
	case *all == (len(rest) > 0) || len(rest) > 1:
		return misuse{errors.New("usage: goccl verify FILE [--determinism 0|2|3|4], or goccl verify --all " +
			"[--ranks 1-64] [--coll COLLECTIVE] [--algo ALGORITHM] [--shape 4x2] [--jobs N]")}
	case !*all:
		return verifyOwn(rest[0], *determinism, out)
	case *jobs < 1:
		return fmt.Errorf("--jobs %d: want 1 or more", *jobs)
	}
	w := wantedCases{coll: *coll, name: *name}
	if w.low, w.high, err = parseRange(*ranks); err != nil {
		return err
	}
	if w.shape, err = parseShape(*shape); err != nil {
		return err
	}
	cases, rows, err := w.list()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := verifyCases(cases, rows, *jobs); err != nil {
		return err
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COLLECTIVE\tALGORITHM\tCASES\tLEVEL\tTIME")
	for _, r := range rows {
		level := fmt.Sprint(uint8(r.low))
		if r.high > r.low {
			level += fmt.Sprintf("–%d", uint8(r.high))
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%.2fs\n", r.coll, r.name, r.cases, level, r.time.Seconds())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	algorithms := 0
	for _, r := range rows {
		algorithms += r.algorithms
	}
	w.coverage(out)
	fmt.Fprintf(out, "%d cases of %d algorithms verified, all right, in %.1fs\n",
		len(cases), algorithms, time.Since(start).Seconds())
	return nil
}

// verifyOwn verifies the plan of a file for groups with the given GOCCL_DETERMINISM, or with the
// setting of the environment if determinism is -1.
func verifyOwn(path string, determinism int, out io.Writer) error {
	switch determinism {
	case -1:
		opts, err := environment()
		if err != nil {
			return err
		}
		determinism = cmp.Or(opts.Determinism, ccl.DefaultDeterminism)
	case 0, 2, 3, 4:
	default:
		return misuse{fmt.Errorf("--determinism %d: want 0, 2, 3 or 4", determinism)}
	}
	err := verifyFile(path, determinism, out)
	var bad *verify.Counterexample
	if errors.As(err, &bad) && bad.Reason == verify.Bits {
		return fmt.Errorf(
			"%w\ngroups refuse this plan as GOCCL_PLAN; --determinism verifies it for another level, 0 for any", err)
	}
	return err
}

// coverage prints which cases are covered.
func (w wantedCases) coverage(out io.Writer) {
	fmt.Fprintf(out, "ranks %d–%d; all roots of up to 16 ranks, then the first, the second and the last\n",
		w.low, w.high)
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

// parseRange parses 8 or 1-64.
func parseRange(text string) (low, high int, err error) {
	first, last, both := strings.Cut(text, "-")
	if !both {
		last = first
	}
	low, err1 := strconv.Atoi(first)
	high, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil || low < 1 || high < low || high > plan.MaxRanks {
		return 0, 0, fmt.Errorf("--ranks %s: want a number of ranks or a range as 1-64, up to %d", text, plan.MaxRanks)
	}
	return low, high, nil
}

// list returns the cases, and an empty row for each algorithm.
func (w wantedCases) list() ([]verifyCase, []verifyRow, error) {
	var only dtype.Collective
	if w.coll != "" {
		var err error
		if only, err = dtype.ParseCollective(w.coll); err != nil {
			return nil, nil, err
		}
	}
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
	var cases []verifyCase
	var rows []verifyRow
	wanted := func(a algo.Algorithm) bool {
		variant := strings.Contains(a.Name, ".")
		return (only == dtype.NoCollective || a.Coll == only) &&
			(w.name == "" || a.Name == w.name || variant && strings.HasPrefix(a.Name, w.name+"."))
	}
	for _, a := range candidates {
		if !wanted(a) {
			continue
		}
		before := len(cases)
		for n := w.low; n <= w.high; n++ {
			for _, s := range w.specs(a, n) {
				cases = append(cases, verifyCase{len(rows), a, s})
			}
		}
		if len(cases) > before {
			rows = append(rows, verifyRow{coll: a.Coll.String(), name: a.Name, algorithms: 1})
		}
	}
	for _, c := range dtype.Collectives() { // one row for all triples of a collective: there are hundreds
		row := verifyRow{coll: c.String()}
		before := len(cases)
		for _, a := range algo.Variants(c, 3) {
			if !wanted(a) || a.Name == w.name {
				continue
			}
			row.algorithms++
			for _, s := range w.triples() {
				cases = append(cases, verifyCase{len(rows), a, plan.Spec{Coll: c, Ranks: s[0] * s[1] * s[2], Shape: s}})
			}
		}
		if len(cases) > before {
			begin := cmp.Or(w.name, "hierarchical")
			row.name = fmt.Sprintf("%s%s (all %d)",
				begin, strings.Repeat(".*", 3-strings.Count(begin, ".")), row.algorithms)
			rows = append(rows, row)
		}
	}
	if len(cases) == 0 {
		return nil, nil, errors.New("no algorithm fits --coll, --algo, --ranks and --shape; see goccl plan list")
	}
	return cases, rows, nil
}

// specs returns the specs of an algorithm to verify for n ranks: every root up to 16 ranks, then
// the first, the second and the last; every grid for algorithms that use a grid.
func (w wantedCases) specs(a algo.Algorithm, n int) []plan.Spec {
	shapes := w.shapes(a, n)
	roots := []int{0}
	if a.Coll.Rooted() && n > 1 {
		roots = []int{0, 1, n - 1}
		if n <= 16 {
			roots = nil
			for r := range n {
				roots = append(roots, r)
			}
		}
	}
	var specs []plan.Spec
	for _, shape := range shapes {
		for _, r := range slices.Compact(roots) {
			specs = append(specs, plan.Spec{Coll: a.Coll, Ranks: n, Root: r, Shape: shape})
		}
	}
	return specs
}

// triples returns the grids on which every algorithm made of three others is verified. They are
// small, because there are hundreds of these algorithms; the large level is inside, in the middle
// or outside.
func (w wantedCases) triples() []plan.Shape {
	all := []plan.Shape{{2, 2, 2}, {3, 2, 2}, {2, 3, 2}, {2, 2, 3}}
	return slices.DeleteFunc(all, func(s plan.Shape) bool {
		n := s[0] * s[1] * s[2]
		return n < w.low || n > w.high || w.shape != (plan.Shape{}) && s != w.shape
	})
}

func (w wantedCases) shapes(a algo.Algorithm, n int) []plan.Shape {
	var shapes []plan.Shape
	levels := strings.Count(a.Name, ".")
	switch {
	case levels > 0:
		shapes = algo.Shapes(n, levels)
	case a.Name == "hierarchical":
		shapes = append([]plan.Shape{{}}, append(algo.Shapes(n, 2), algo.Shapes(n, 3)...)...)
	case strings.HasSuffix(a.Name, "2d"):
		shapes = append([]plan.Shape{{}}, algo.Shapes(n, 2)...)
	default:
		shapes = []plan.Shape{{}}
	}
	if w.shape == (plan.Shape{}) {
		return shapes
	}
	return slices.DeleteFunc(shapes, func(s plan.Shape) bool { return s != w.shape })
}

// verifyCases verifies all cases, several at a time, and fills in the rows. It returns the error of
// the first case, in their order, that was found wrong before all workers stopped.
func verifyCases(cases []verifyCase, rows []verifyRow, jobs int) error {
	// Each case leaves much garbage and keeps little memory, so less frequent garbage collection
	// saves a third of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(verifyGCPercent))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(verifyMemory))
	var next atomic.Int64
	var stop atomic.Bool
	var mutex sync.Mutex
	var workers sync.WaitGroup
	failed, failure := len(cases), error(nil)
	for range min(jobs, len(cases)) {
		workers.Go(func() {
			for !stop.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(cases) {
					return
				}
				c := &cases[len(cases)-1-i] // backwards: the large cases are at the end of an algorithm
				start := time.Now()
				level, err := verifyOne(c)
				took := time.Since(start)
				mutex.Lock()
				r := &rows[c.row]
				if err != nil && len(cases)-1-i < failed {
					failed, failure = len(cases)-1-i, err
					stop.Store(true)
				}
				if r.cases == 0 {
					r.low, r.high = level, level
				}
				r.cases++
				r.low, r.high = min(r.low, level), max(r.high, level)
				r.time += took
				mutex.Unlock()
			}
		})
	}
	workers.Wait()
	return failure
}

func verifyOne(c *verifyCase) (verify.Level, error) {
	p, err := c.algorithm.Make(c.spec)
	if err != nil {
		return 0, fmt.Errorf("%v/%s, %v: %w", c.spec.Coll, c.algorithm.Name, c.spec, err)
	}
	report, err := verify.Plan(p, verify.Options{})
	if err != nil {
		return 0, err
	}
	if level := int(report.Determinism); c.spec.Ranks > 2 && level < c.algorithm.Level {
		return 0, fmt.Errorf("%v/%s, %v: determinism is level %d, but the algorithm declares level %d",
			c.spec.Coll, c.algorithm.Name, c.spec, level, c.algorithm.Level)
	}
	return report.Determinism, nil
}
