package main

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
)

const textbooksStart = `# What textbooks claim

Generated from the plans and the simulator by ` + "`go test ./cmd/goccl -rewrite`" + `; the tests simulate each number anew.

Textbooks and articles about collectives repeat some claims: which algorithm is the best where, how much it moves, how long it
takes. Below, each is held against goccl's own plans. m is the bytes of the whole vector, n the number of ranks, α what a message
takes whatever its length, β the time of a byte. The networks have full-duplex links, whose bandwidth is that of one direction, and
messages that meet on a link share it. Steps follow one another, and a message is passed on when all of it has come. So these are the
times of the algorithms, not of a machine: what goccl's executor adds and hides, [predictions](predict.md) have.
` + "`goccl sim`" + ` simulates other networks and sizes.

`

// claim is what textbooks say, and what the simulator makes of it.
type claim struct {
	title   string // of its section
	says    string
	verdict string
	page    string // tables and text
}

var textbooks = []func(t *testing.T) claim{
	timeOfRing, ringOfAnySize, volumeOfGather, volumeOfTree, treesForFew, whatRabenseifnerIs, oddRanks, eachItsEnd,
	smallByTree, eightGPUs, hostsOnFatTree, composed, volumeOfBroadcast, tensorParallel, mergedCalls,
	packetsBetweenHosts, bandwidthOfDoubleTree,
}

// docs/claims.md is what the simulator says about claims of textbooks.
func TestTextbooks(t *testing.T) {
	b := &strings.Builder{}
	b.WriteString(textbooksStart + "| claim | verdict |\n|---|---|\n")
	var all []claim
	for _, check := range textbooks {
		c := check(t)
		all = append(all, c)
		anchor := strings.ReplaceAll(strings.ToLower(c.title), " ", "-")
		fmt.Fprintf(b, "| [%s](#%s) | %s |\n", c.says, anchor, c.verdict)
	}
	for _, c := range all {
		fmt.Fprintf(b, "\n## %s\n\n> %s\n\n%s: %s\n", c.title, c.says, sentence(c.verdict), strings.TrimSpace(c.page))
	}
	if runtime.GOARCH == "amd64" { // others may round otherwise, and a fat tree makes much of the last digit
		golden(t, filepath.Join(docs, "claims.md"), b.String())
	}
}

// sentence makes the first letter of a verdict a capital, and the verdict bold.
func sentence(verdict string) string { return "**" + strings.ToUpper(verdict[:1]) + verdict[1:] + "**" }

// played is a simulation of a collective over m bytes.
type played struct {
	*sim.Result
	m float64
}

func (p played) sends() string   { return multiple(float64(slices.Max(p.Sent)) / p.m) }
func (p played) group() string   { return multiple(float64(p.Bytes) / p.m) }
func (p played) busiest() string { return multiple(float64(slices.Max(p.LinkBytes)) / p.m) }

// multiple writes a multiple of m, as a whole number only if it is one.
func multiple(x float64) string {
	switch {
	case math.Abs(x-1) < 1e-6:
		return "m"
	case math.Abs(x-math.Round(x)) < 1e-6:
		return fmt.Sprintf("%.0f·m", x)
	case math.Abs(x-math.Round(x)) < 5e-3:
		return fmt.Sprintf("%.3f·m", x)
	}
	return fmt.Sprintf("%.2f·m", x)
}

// play simulates an algorithm with all ranks of a network, in the levels of shape.
func play(t *testing.T, on *network.Topology, coll dtype.Collective, name string, m int, shape ...int) played {
	t.Helper()
	a, err := algo.Find(coll, name)
	require.NoError(t, err)
	spec := plan.Spec{Coll: coll, Ranks: on.Ranks()}
	copy(spec.Shape[:], shape)
	p, err := a.Make(spec)
	require.NoError(t, err)
	elements := m / 4
	if coll.PerRank() {
		elements /= spec.Ranks
	}
	r, err := sim.Run(p, on, sim.Options{Elements: elements, ElementBytes: 4})
	require.NoError(t, err)
	return played{r, float64(m)}
}

// steps returns how many messages follow one another.
func steps(t *testing.T, coll dtype.Collective, name string, n int) int {
	t.Helper()
	r := play(t, network.Uniform(n, network.Wire{Alpha: 1, Bandwidth: 1e30}), coll, name, 1<<20)
	return int(math.Round(r.Makespan))
}

// The uniform network of the page.
var port = network.Wire{Alpha: 5e-6, Bandwidth: 25e9}

const portText = "α = 5 µs, 25 GB/s"

// Sizes of vectors.
const (
	kibi = 1 << 10
	mebi = 1 << 20
	gibi = 1 << 30
)

func sizeText(m int) string {
	switch {
	case m >= gibi:
		return fmt.Sprintf("%d GiB", m/gibi)
	case m >= mebi:
		return fmt.Sprintf("%d MiB", m/mebi)
	}
	return fmt.Sprintf("%d KiB", m/kibi)
}

// took writes a time with three digits.
func took(seconds float64) string {
	unit := "µs"
	x := seconds * 1e6
	switch {
	case seconds >= 1:
		unit, x = "s", seconds
	case seconds >= 1e-3:
		unit, x = "ms", seconds*1e3
	}
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f %s", x, unit)
	case x >= 9.995:
		return fmt.Sprintf("%.1f %s", x, unit)
	}
	return fmt.Sprintf("%.2f %s", x, unit)
}

// grid writes a table.
func grid(head string, rows ...string) string {
	return "| " + head + " |\n|" + strings.Repeat("---|", strings.Count(head, "|")+1) + "\n| " +
		strings.Join(rows, " |\n| ") + " |\n"
}

// race is a table of the times of algorithms at some sizes.
type race struct {
	on    *network.Topology
	names []string
	shape []int
	sizes []int
	extra func(p played) string // of the largest size
	head  string                // of extra
	times map[string][]float64
}

// run simulates all, and returns the table; the shortest time of a size is bold.
func (r *race) run(t *testing.T) string {
	t.Helper()
	r.times = map[string][]float64{}
	extra := map[string]string{}
	shortest := slices.Repeat([]float64{math.Inf(1)}, len(r.sizes))
	for _, name := range r.names {
		for i, m := range r.sizes {
			p := play(t, r.on, dtype.AllReduce, name, m, r.shape...)
			r.times[name] = append(r.times[name], p.Makespan)
			shortest[i] = min(shortest[i], p.Makespan)
			if r.extra != nil {
				extra[name] = " | " + r.extra(p)
			}
		}
	}
	head := "all_reduce"
	for _, m := range r.sizes {
		head += " | " + sizeText(m)
	}
	if r.extra != nil {
		head += " | " + r.head
	}
	var rows []string
	for _, name := range r.names {
		row := "`" + name + "`"
		for i, seconds := range r.times[name] {
			if seconds <= shortest[i]*(1+1e-9) {
				row += " | **" + took(seconds) + "**"
			} else {
				row += " | " + took(seconds)
			}
		}
		rows = append(rows, row+extra[name])
	}
	return grid(head, rows...)
}

// over returns how many times as long a takes as b at a size.
func (r *race) over(a, b string, m int) float64 {
	i := slices.Index(r.sizes, m)
	return r.times[a][i] / r.times[b][i]
}

// from returns the power of two from which, up to 1 GiB, an algorithm is faster than all others.
func from(t *testing.T, on *network.Topology, name string, others ...string) string {
	t.Helper()
	first := 0
	for m := gibi; m >= kibi; m /= 2 {
		fast := play(t, on, dtype.AllReduce, name, m).Makespan
		for _, other := range others {
			if play(t, on, dtype.AllReduce, other, m).Makespan <= fast {
				require.NotZero(t, first, "%s is never faster than %s", name, other)
				return sizeText(first)
			}
		}
		first = m
	}
	return "any size"
}
