package main

import (
	"fmt"
	"path/filepath"
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
	_ "github.com/goccl/goccl/internal/scratch"
)

const walkthroughStart = `# Ring all-reduce on five ranks, step by step

Generated from the plan and the simulator by ` + "`go test ./cmd/goccl -rewrite`" + `.

Five ranks, 0 to 4, have a block each and want the sum of all five. The ring cuts the block into five chunks. In the first half, a
reduce-scatter, partial sums travel around the ring, from each rank to the next one, and grow; after four steps every rank
has one chunk that is complete. In the second half, an all-gather, the complete chunks travel around once more. All ranks send at the
same time, to one neighbour only, and every link carries the same: 2(n−1)/n = 8/5 of a block, the least that an all-reduce can do.

![the plan](catalogue/all_reduce-ring.svg)

The columns of the drawing are the steps below; a plus is a chunk that is added to what the rank has, a frame one that is complete.
The code is [all_reduce_ring.go](../ccl/algo/all_reduce_ring.go); ` + "`goccl plan show --ranks 5 all_reduce/ring`" + ` prints the plan. In the
tables each row is a rank and each column a chunk. A number is the contribution of that rank, 0+1 the sum of two, as the plan orders the
operands; Σ is the sum of all five, and what changed in the step is **bold**.

`

const walkthroughEnd = `
Each chunk was added in an order of its own: chunk c starts at rank c and goes around the ring. So all ranks get the same bits
in every run, but the order of an element depends on its place in the block: that is level 2 of determinism. Where it must not
depend on that, ` + "`GOCCL_DETERMINISM=4`" + ` chooses another algorithm; see [determinism](determinism.md).

The ring is at its best with large blocks. With small ones nearly all of its time is the α of its 2(n−1) steps;
[the catalogue](catalogue.md#all_reduce) has algorithms with about log₂ n steps for these.
`

// docs/ring-walkthrough.md describes what the plan does and the simulator's times for it.
func TestRingWalkthrough(t *testing.T) {
	const ranks = 5
	a, err := algo.Find(dtype.AllReduce, "ring")
	require.NoError(t, err)
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: ranks})
	require.NoError(t, err)
	trace, err := draw.Run(p)
	require.NoError(t, err)
	require.Equal(t, 2*(ranks-1), trace.Rounds)

	const alpha, bandwidth = 5e-6, 10e9
	const block = 5 << 20
	topology := network.Uniform(ranks, network.Wire{Alpha: alpha, Bandwidth: bandwidth})
	simulated, err := sim.Run(p, topology, sim.Options{Elements: block, ElementBytes: 1, Timeline: true})
	require.NoError(t, err)
	step := alpha + float64(block)/ranks/bandwidth
	require.InDelta(t, 2*(ranks-1)*step, simulated.Makespan, 1e-9)

	held := make([][]draw.Value, ranks) // by chunk: the value in In, until Out is written
	for r := range held {
		held[r] = append([]draw.Value(nil), trace.In[r]...)
	}
	b := &strings.Builder{}
	b.WriteString(walkthroughStart)
	fmt.Fprintf(b,
		"The times are the simulator's, for a block of 5 MiB (chunks of 1 MiB) on a uniform network with α = 5 µs and 10 GB/s a link. They\n"+
			"are those of the formula: each step takes α + β·m/n = %s, all of them 2(n−1)·(α + β·m/n) = %s.\n\n",
		micros(step), micros(simulated.Makespan))
	fmt.Fprintf(b, "A rank sends 8 chunks, 8 MiB in all. In the terms of nccl-tests the block goes through at %.2f GB/s (algbw, bytes by time), which is\n"+
		"%.2f GB/s on each link (busbw, times 2(n−1)/n); what is missing to 10 GB/s is α. The simulator prints the same:\n"+
		"`goccl sim --topo uniform,alpha=5us,bw=10GB --ranks 5 --algo ring --size 5MiB`.\n\n",
		block/simulated.Makespan/1e9, block/simulated.Makespan/1e9*2*(ranks-1)/ranks)
	b.WriteString("## Before\n\n")
	holdings(b, held, nil)
	for round := 1; round <= trace.Rounds; round++ {
		switch round {
		case 1:
			b.WriteString("\n## The first half: reduce-scatter\n")
		case ranks:
			b.WriteString("\n## The second half: all-gather\n")
		}
		// All ranks take the same time, so a round ends when its receives do.
		end := 0.0
		for _, s := range simulated.Timeline {
			lane := p.Program(int(s.Rank)).Lanes[s.Lane]
			if kind := plan.StepAt(lane, int(s.Step)).Kind; kind != plan.Recv && kind != plan.RecvReduce ||
				int(s.Step) != round-1 {
				continue
			}
			end = max(end, s.End)
		}
		require.InDelta(t, float64(round)*step, end, 1e-9, "round %d", round)
		changed := map[[2]int]bool{}
		var sends []string
		for _, m := range trace.Moves {
			if m.Round != round {
				continue
			}
			require.Equal(t, plan.Out, m.Dst.Buf)
			require.Equal(t, (m.From+1)%ranks, m.To)
			require.Equal(t, (m.From+sentOffset(round, ranks)+ranks)%ranks, m.Dst.At)
			require.Equal(t, round < ranks, m.Reduces)
			held[m.To][m.Dst.At] = m.Result[0]
			changed[[2]int{m.To, m.Dst.At}] = true
			sends = append(sends, fmt.Sprintf("%d", m.Dst.At))
		}
		require.Len(t, sends, ranks)
		fmt.Fprintf(b, "\n### Step %d, done at %s\n\n", round, micros(end))
		verb := "adds it to its own"
		if round >= ranks {
			verb = "keeps it"
		}
		fmt.Fprintf(b, "Rank r sends chunk %s to rank r+1, which %s.\n\n", sentChunk(round, ranks), verb)
		holdings(b, held, changed)
	}
	for r := range ranks {
		for c := range ranks {
			require.ElementsMatch(t, []int{0, 1, 2, 3, 4}, held[r][c].Sum.Terms())
		}
	}
	b.WriteString(walkthroughEnd)
	golden(t, filepath.Join(docs, "ring-walkthrough.md"), b.String())
}

// sentChunk returns the chunk that rank r sends.
func sentChunk(round, ranks int) string {
	switch offset := sentOffset(round, ranks); {
	case offset == 0:
		return "r"
	case offset > 0:
		return "r+" + strconv.Itoa(offset)
	default:
		return "r−" + strconv.Itoa(-offset)
	}
}

// sentOffset returns the offset of that chunk from r.
func sentOffset(round, ranks int) int {
	if round >= ranks {
		return 1 - (round - ranks)
	}
	return 1 - round // chunk r-k in step k, from 0
}

func micros(seconds float64) string { return fmt.Sprintf("%.1f µs", seconds*1e6) }

// holdings writes the table of the values that each rank holds.
func holdings(b *strings.Builder, held [][]draw.Value, changed map[[2]int]bool) {
	b.WriteString("| rank |")
	for c := range held[0] {
		fmt.Fprintf(b, " chunk %d |", c)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(held[0])) + "\n")
	for r := range held {
		fmt.Fprintf(b, "| %d |", r)
		for c, v := range held[r] {
			terms := v.Sum.Terms()
			text := "Σ"
			if len(terms) < len(held) {
				text = strings.Trim(strings.ReplaceAll(fmt.Sprint(terms), " ", "+"), "[]")
			}
			if changed[[2]int{r, c}] {
				text = "**" + text + "**"
			}
			fmt.Fprintf(b, " %s |", text)
		}
		b.WriteByte('\n')
	}
}
