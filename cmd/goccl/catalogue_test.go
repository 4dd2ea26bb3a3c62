package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/draw"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

const docs = "../../docs"

// largestDrawing is how many bytes a drawing of the catalogue has at most; there are fewer ranks on it otherwise.
const largestDrawing = 40 << 10

// golden compares a generated file with what is there, or writes it.
func golden(t *testing.T, path, want string) {
	t.Helper()
	if *rewrite {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err, "go test ./cmd/goccl -rewrite writes it anew")
	require.True(t, want == string(have), "%s is not what the code says; go test ./cmd/goccl -rewrite writes it anew", path)
}

// fact is a line of the block in an algorithm's doc comment: steps, bytes, time, …
type fact struct{ name, text string }

// comment is the doc comment of an algorithm.
type comment struct {
	text  string // what comes before the facts
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

// comments reads the doc comments of package algo: of each function that a line of the registry names.
func comments(t *testing.T) map[string]comment {
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
	found := map[string]comment{}
	for name, function := range makers {
		found[name] = functions[function]
	}
	return found
}

// registered notes a call of entry or composition: its name, its collective and its function.
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

// drawn is the drawing of an algorithm on as many ranks as are legible in few bytes.
func drawn(t *testing.T, a algo.Algorithm) string {
	t.Helper()
	for _, ranks := range []int{5, 4, 3} {
		spec := plan.Spec{Coll: a.Coll, Ranks: ranks}
		if a.Name == "hierarchical" || strings.HasSuffix(a.Name, "2d") {
			if ranks != 4 {
				continue // 5 has no grid
			}
			spec.Shape = plan.Shape{2, 2}
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

// docs/catalogue.md is made of the registry, the doc comments and the plans.
func TestCataloguePage(t *testing.T) {
	known := comments(t)
	var b strings.Builder
	b.WriteString("# The catalogue\n\nGenerated from the code by `go test ./cmd/goccl -rewrite`.\n\n" +
		"n is the number of ranks, m the bytes of a block, α the time of a message, β that of a byte on a link, γ that of reducing a byte. A level says how\n" +
		"far the bits of a result depend on circumstances; `goccl verify --all` proves them:\n" +
		"2: all ranks get the same bits, in every run; 3: and an element's order of reduction does not depend on its position or the size;\n" +
		"4: and it is the order of the ranks. Where nothing is reduced the level is 4. In the drawings ranks are rows and rounds are columns.\n" +
		"`goccl plan draw COLLECTIVE/ALGORITHM --ranks N` draws others.\n\n")
	names := map[string]bool{}
	for _, coll := range dtype.Collectives() {
		fmt.Fprintf(&b, "## %v\n\n| algorithm | what it does | level | needs | steps | bytes |\n|---|---|---|---|---|---|\n", coll)
		for _, a := range algo.For(coll) {
			c := known[coll.String()+"/"+a.Name]
			require.NotEmpty(t, c.facts, "%v/%s has no doc comment with its steps, bytes, time", coll, a.Name)
			p, err := a.Make(plan.Spec{Coll: coll, Ranks: 4})
			require.NoError(t, err)
			fmt.Fprintf(&b, "| [%s](#%v-%s) | %s | %d | %s | %s | %s |\n", a.Name, coll, a.Name, cell(a.Doc), a.Level,
				strings.Join(needs(p.Needs), ", "), cell(c.fact("steps")), cell(c.fact("bytes")))
		}
		b.WriteByte('\n')
		for _, a := range algo.For(coll) {
			c := known[coll.String()+"/"+a.Name]
			picture := fmt.Sprintf("%v-%s.svg", coll, a.Name)
			names[picture] = true
			golden(t, filepath.Join(docs, "catalogue", picture), drawn(t, a))
			fmt.Fprintf(&b, "### %v %s\n\n%s\n\n| | |\n|---|---|\n", coll, a.Name, c.text)
			for _, f := range c.facts {
				fmt.Fprintf(&b, "| %s | %s |\n", f.name, cell(f.text))
			}
			fmt.Fprintf(&b, "| level | %d |\n| code | [%s](../ccl/algo/%s) |\n\n![%v %s](catalogue/%s)\n\n", a.Level, c.file, c.file, coll, a.Name, picture)
		}
	}
	golden(t, filepath.Join(docs, "catalogue.md"), strings.TrimRight(b.String(), "\n")+"\n")
	pictures, err := os.ReadDir(filepath.Join(docs, "catalogue"))
	require.NoError(t, err)
	for _, f := range pictures {
		if !names[f.Name()] && *rewrite {
			require.NoError(t, os.Remove(filepath.Join(docs, "catalogue", f.Name())))
			continue
		}
		require.True(t, names[f.Name()], "docs/catalogue/%s is the drawing of no algorithm; go test ./cmd/goccl -rewrite removes it", f.Name())
	}
}
