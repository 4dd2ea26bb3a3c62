package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/ccl/verify"
)

const docs = "../../docs"

// largestDrawing is the largest size of a drawing in the catalogue, in bytes. Larger drawings are
// made again with fewer ranks.
const largestDrawing = 40 << 10

// golden compares a generated file with the existing one, or rewrites it.
func golden(t *testing.T, path, want string) {
	t.Helper()
	if *rewrite {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err, "go test ./cmd/goccl -rewrite writes it anew")
	require.True(t, want == string(have),
		"%s is not what the code says; go test ./cmd/goccl -rewrite writes it anew", path)
}

// fact is a line of the block in an algorithm's doc comment: steps, bytes, time, …
type fact struct{ name, text string }

// comment is the doc comment of an algorithm.
type comment struct {
	text  string // the text before the facts
	facts []fact
	file  string
}

func (c comment) fact(name string) string {
	for _, f := range c.facts {
		if f.name == name {
			return f.text
		}
	}
	return ""
}

// comments reads the doc comments of package algo. found maps COLLECTIVE/ALGORITHM to the comment
// of the function that a line of the registry names; designs maps each such function to
// COLLECTIVE/ALGORITHM.
func comments(t *testing.T) (found map[string]comment, designs map[string]string) {
	t.Helper()
	functions := map[string]comment{}
	makers := map[string]string{} // COLLECTIVE/ALGORITHM to the function that designs it
	files, err := filepath.Glob("../../ccl/algo/*.go")
	require.NoError(t, err)
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Doc != nil {
				functions[f.Name.Name] = readComment(f.Name.Name, f.Doc.Text(), filepath.Base(path))
			}
		}
		if filepath.Base(path) == "registry.go" {
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					registered(call, makers)
				}
				return true
			})
		}
	}
	found, designs = map[string]comment{}, map[string]string{}
	for name, function := range makers {
		found[name], designs[function] = functions[function], name
	}
	return found, designs
}

// registered records a call of entry or composition: its name, its collective and its function.
func registered(call *ast.CallExpr, makers map[string]string) {
	kind, ok := call.Fun.(*ast.Ident)
	if !ok || kind.Name != "entry" && kind.Name != "composition" || len(call.Args) < 4 {
		return
	}
	name, ok1 := call.Args[0].(*ast.BasicLit)
	coll, ok2 := call.Args[1].(*ast.SelectorExpr)
	if !ok1 || !ok2 {
		return
	}
	plain, _ := strconv.Unquote(name.Value)
	of, _ := dtype.ParseCollective(strings.ToLower(coll.Sel.Name))
	function := strings.ToLower(coll.Sel.Name[:1]) + coll.Sel.Name[1:] + strings.ToUpper(plain[:1]) + plain[1:]
	if designer, ok := call.Args[3].(*ast.Ident); ok && kind.Name == "entry" {
		function = designer.Name
	}
	makers[of.String()+"/"+plain] = function
}

func readComment(function, text, file string) comment {
	c := comment{file: file}
	before, rest, _ := strings.Cut(text, "\n\t")
	c.text = strings.Join(strings.Fields(before), " ")
	if words := strings.TrimPrefix(c.text, function+" "); words != c.text {
		c.text = "It " + words
	}
	for _, line := range strings.Split("\t"+rest, "\n") {
		line, block := strings.CutPrefix(line, "\t")
		if !block {
			break
		}
		if strings.HasPrefix(line, " ") && len(c.facts) > 0 {
			c.facts[len(c.facts)-1].text += " " + strings.TrimSpace(line)
		} else if name, words, ok := strings.Cut(line, " "); ok {
			c.facts = append(c.facts, fact{name, strings.TrimSpace(words)})
		}
	}
	return c
}

// drawn returns the drawing of an algorithm, on as many ranks as the size limit allows.
func drawn(t *testing.T, a algo.Algorithm) string {
	t.Helper()
	for _, ranks := range []int{5, 4, 3} {
		spec := plan.Spec{Coll: a.Coll, Ranks: ranks}
		if a.Name == "hierarchical" || strings.HasSuffix(a.Name, "2d") { // 5 has no grid
			spec.Ranks, spec.Shape = 6, plan.Shape{3, 2}
			if ranks < 5 {
				spec.Ranks, spec.Shape = 4, plan.Shape{2, 2}
			}
		}
		p, err := a.Make(spec)
		require.NoError(t, err)
		report, err := verify.Plan(p, verify.Options{})
		require.NoError(t, err)
		require.GreaterOrEqual(t, int(report.Determinism), a.Level, "%v/%s", a.Coll, a.Name)
		text, err := draw.SVG(p, draw.Options{})
		require.NoError(t, err)
		if len(text) < largestDrawing {
			return text
		}
	}
	t.Fatalf("%v/%s: no drawing has less than %d bytes", a.Coll, a.Name, largestDrawing)
	return ""
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

// The setting of the tables of the page.
const (
	tableRanks            = 8
	tableAlpha, tableRate = 5e-6, 10e9
)

var tableShape = plan.Shape{4, 2}

// row holds the figures of one algorithm on 8 ranks.
type row struct {
	steps int
	sends *big.Rat   // in blocks, by the rank that sends most
	times [2]float64 // for small and large blocks
}

var tableSizes = [2]int{1 << 10, 8 << 20}

func figures(t *testing.T, a algo.Algorithm) row {
	t.Helper()
	p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: tableRanks, Shape: tableShape})
	require.NoError(t, err)
	trace, err := draw.Run(p)
	require.NoError(t, err)
	r := row{steps: trace.Rounds, sends: big.NewRat(int64(slices.Max(trace.Sent)), int64(p.Split))}
	for i, size := range tableSizes {
		result, err := sim.Run(p, network.Uniform(tableRanks, network.Wire{Alpha: tableAlpha, Bandwidth: tableRate}),
			sim.Options{Elements: size})
		require.NoError(t, err)
		r.times[i] = result.Makespan
	}
	return r
}

// blocks writes a number of blocks as a multiple of m.
func blocks(r *big.Rat) string {
	switch {
	case r.Sign() == 0:
		return "nothing"
	case r.Cmp(big.NewRat(1, 1)) == 0:
		return "m"
	}
	return r.RatString() + "·m"
}

// duration writes a time with about three digits; the shortest time of a table is bold.
func duration(seconds, shortest float64) string {
	text := fmt.Sprintf("%.1f µs", seconds*1e6)
	if seconds >= 1e-3 {
		text = fmt.Sprintf("%.2f ms", seconds*1e3)
	}
	if seconds <= shortest*(1+1e-9) {
		return "**" + text + "**"
	}
	return text
}

const catalogueStart = `# The catalogue

Generated from the code by ` + "`go test ./cmd/goccl -rewrite`" + `. [How to read it](#how-to-read-it) is at the end.

| collective | algorithms |
|---|---|
`

const catalogueTables = `
Below, each collective has a table. Its figures are for 8 ranks, in two hosts of 4 where an algorithm knows hosts: steps and bytes as the plans
have them, times as the simulator has them, on a uniform network with α = 5 µs, 10 GB/s and γ = 0. The shortest time is **bold**. Algorithms
with windows are at home in shared memory; here they are simulated as if that network had them, with α for each put, get and signal. Real hosts
are not uniform: ` + "`goccl sim --topo …`" + ` has other networks, ` + "`goccl tune`" + ` measures yours.

`

const catalogueEnd = `## How to read it

| | |
|---|---|
| n | the number of ranks; p is the largest power of two up to n |
| m | the bytes of a block: of the whole buffer for all_reduce, reduce and broadcast; of what one rank gives for all_gather and gather, or gets for reduce_scatter and scatter; of what one rank has for one other for all_to_all. It is the count of the NCCL call, in bytes |
| α, β, γ | the time that a message takes whatever its length, that of a byte on a link, and that of reducing a byte. With windows α is that of a wait |
| a, b | of hierarchical algorithms: b hosts of a ranks; α₀ and β₀ are within a host, α₁ and β₁ across. R(x), G(x) and A(x) are the steps of the reduce-scatter, all-gather and all-reduce among x ranks that they are made of |
| steps | messages on the longest chain, where a rank sends one at a time and receives one at a time. With windows: times that a rank has to wait for others |
| bytes | what a rank sends, or others read from its window |
| needs | messages; puts into the windows of others, which tcp emulates by messages; gets from them, which need shared memory; counts: where blocks differ in length, the lengths are exchanged first |
| in place | whether input and output may be the same memory |
| level | of [determinism](determinism.md); ` + "`goccl verify --all`" + ` proves it. 2: all ranks get the same bits, in every run. 3: and the order in which an element is reduced depends neither on its position nor on the size. 4: and it is the order of the ranks. Where nothing is reduced it is 4 |

In the drawings ranks are rows, from top to bottom, and rounds are columns, from left to right; those that do not fit side by side go on below. An
arrow is what one rank gives another, in the colour of the chunk. A message is in the round after all that its two lanes did before, so the number
of the last round is the steps of the algorithm. With windows a round is a put, a get, or signals that belong to no put.
` + "`goccl plan draw --ranks N COLLECTIVE/ALGORITHM`" + ` draws others, ` + "`goccl plan show`" + ` prints them.
`

// linked replaces the names of functions by links to the algorithms that they design.
func linked(text string, designs map[string]string) string {
	return goName.ReplaceAllStringFunc(text, func(word string) string {
		name, ok := designs[word]
		if !ok {
			return word
		}
		return fmt.Sprintf("[%s](#%s)", name, strings.ReplaceAll(name, "/", "-"))
	})
}

var goName = regexp.MustCompile(`\b[a-z]+[A-Z][A-Za-z0-9]*\b`)

// section writes all information about one algorithm.
func section(t *testing.T, b *strings.Builder, a algo.Algorithm, c comment, designs map[string]string) {
	t.Helper()
	p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: 4})
	require.NoError(t, err)
	fmt.Fprintf(b, "### %v %s\n\n%s\n\n| | |\n|---|---|\n", a.Coll, a.Name, linked(c.text, designs))
	for _, f := range c.facts {
		fmt.Fprintf(b, "| %s | %s |\n", f.name, cell(linked(f.text, designs)))
	}
	inPlace := "no"
	if p.Alias&plan.InPlace != 0 {
		inPlace = "yes"
	}
	fmt.Fprintf(b,
		"| needs | %s |\n| in place | %s |\n| level | %d |\n| code | [%s](../ccl/algo/%s) |\n\n![%v %s](catalogue/%s)\n\n",
		strings.ReplaceAll(p.Needs.String(), "+", ", "), inPlace, a.Level, c.file, c.file, a.Coll, a.Name, picture(a))
}

func picture(a algo.Algorithm) string { return fmt.Sprintf("%v-%s.svg", a.Coll, a.Name) }

// table writes the summary of a collective.
func table(t *testing.T, b *strings.Builder, coll dtype.Collective) {
	t.Helper()
	fmt.Fprintf(b, "## %v\n\n| algorithm | what it does | steps | a rank sends | m = 1 KiB | m = 8 MiB | level | needs |\n|---|---|---|---|---|---|---|---|\n", coll)
	rows := map[string]row{}
	shortest := [2]float64{math.Inf(1), math.Inf(1)}
	for _, a := range algo.For(coll) {
		r := figures(t, a)
		rows[a.Name] = r
		for i := range shortest {
			shortest[i] = min(shortest[i], r.times[i])
		}
	}
	for _, a := range algo.For(coll) {
		p, err := a.Make(plan.Spec{Coll: coll, Ranks: 4})
		require.NoError(t, err)
		r := rows[a.Name]
		fmt.Fprintf(b, "| [%s](#%v-%s) | %s | %d | %s | %s | %s | %d | %s |\n",
			a.Name, coll, a.Name, cell(a.Doc), r.steps, blocks(r.sends),
			duration(r.times[0], shortest[0]), duration(r.times[1], shortest[1]),
			a.Level, strings.Join(strings.Split(p.Needs.String(), "+"), ", "))
	}
	b.WriteByte('\n')
}

// docs/catalogue.md is generated from the registry, the doc comments and the plans.
func TestCataloguePage(t *testing.T) {
	known, designs := comments(t)
	var b strings.Builder
	b.WriteString(catalogueStart)
	for _, coll := range dtype.Collectives() {
		var links []string
		for _, a := range algo.For(coll) {
			links = append(links, fmt.Sprintf("[%s](#%v-%s)", a.Name, coll, a.Name))
		}
		fmt.Fprintf(&b, "| [%v](#%v) | %s |\n", coll, coll, strings.Join(links, ", "))
	}
	b.WriteString(catalogueTables)
	names := map[string]bool{}
	for _, coll := range dtype.Collectives() {
		table(t, &b, coll)
		for _, a := range algo.For(coll) {
			c := known[coll.String()+"/"+a.Name]
			for _, fact := range []string{"steps", "bytes", "time", "wins", "source"} {
				require.NotEmpty(t, c.fact(fact), "the doc comment of %v/%s lacks %s", coll, a.Name, fact)
			}
			require.Equal(t, coll.Reduces(), c.fact("order") != "", "%v/%s: the order of reduction", coll, a.Name)
			names[picture(a)] = true
			golden(t, filepath.Join(docs, "catalogue", picture(a)), drawn(t, a))
			section(t, &b, a, c, designs)
		}
	}
	b.WriteString(catalogueEnd)
	golden(t, filepath.Join(docs, "catalogue.md"), b.String())
	pictures, err := os.ReadDir(filepath.Join(docs, "catalogue"))
	require.NoError(t, err)
	for _, f := range pictures {
		if !names[f.Name()] && *rewrite {
			require.NoError(t, os.Remove(filepath.Join(docs, "catalogue", f.Name())))
			continue
		}
		require.True(t, names[f.Name()],
			"docs/catalogue/%s is the drawing of no algorithm; go test ./cmd/goccl -rewrite removes it", f.Name())
	}
}
