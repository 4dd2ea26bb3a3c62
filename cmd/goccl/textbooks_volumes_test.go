package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/sim"
	"github.com/goccl/goccl/ccl/topo/network"
)

func timeOfRing(t *testing.T) claim {
	c := sim.Cost{Alpha: port.Alpha, Beta: 1 / port.Bandwidth}
	var rows []string
	for _, n := range []int{2, 5, 8, 64} {
		row := fmt.Sprint(n)
		for _, m := range []int{80 * kibi, 80 * mebi} {
			formula := sim.AllReduceRing(c, n, float64(m))
			r := play(t, network.Uniform(n, port), dtype.AllReduce, "ring", m)
			require.InEpsilon(t, formula, r.Makespan, 1e-4)
			row += fmt.Sprintf(" | %s | %s | %.0f %%", took(formula), took(r.Makespan),
				200*float64(n-1)*c.Alpha/formula)
		}
		rows = append(rows, row)
	}
	return claim{"Time of a ring", "An all-reduce by a ring takes 2(n−1)(α + βm/n).", "right", fmt.Sprintf(
		`where links are not shared and adding takes no time (%s). Which part of it is α says which blocks are small:

%s`, portText, grid("n | 80 KiB: formula | simulated | α of it | 80 MiB: formula | simulated | α of it", rows...))}
}

func ringOfAnySize(t *testing.T) claim {
	var rows []string
	var times []float64
	for _, n := range []int{4, 8, 64, 512} {
		small := play(t, network.Uniform(n, port), dtype.AllReduce, "ring", mebi)
		large := play(t, network.Uniform(n, port), dtype.AllReduce, "ring", gibi)
		times = append(times, small.Makespan)
		rows = append(rows, fmt.Sprintf("%d | %s | %d | %s | %s",
			n, large.sends(), steps(t, dtype.AllReduce, "ring", n), took(small.Makespan), took(large.Makespan)))
	}
	require.Greater(t, times[3], 20*times[0])
	return claim{"Rings of many ranks", "What a ring costs does not depend on the number of ranks, so large groups use one.",
		"half right", fmt.Sprintf(`the bytes do not, the steps do.

%s
A rank never sends 2·m. But a ring of 512 ranks needs 1 GiB to hide its steps; with 1 MiB it takes %.0f times as long as one of 4, and
most of that is α.`, grid("n | a rank sends | steps | 1 MiB | 1 GiB", rows...), times[3]/times[0])}
}

func volumeOfGather(t *testing.T) claim {
	var rows []string
	for _, n := range []int{4, 8, 64} {
		row := fmt.Sprint(n)
		for _, m := range []int{64 * mebi, n * mebi} {
			gather := play(t, network.Uniform(n, port), dtype.AllGather, "ring", m)
			scatter := play(t, network.Uniform(n, port), dtype.ReduceScatter, "ring", m)
			require.Equal(t, gather.Bytes, scatter.Bytes)
			row += fmt.Sprintf(" | %.3g MiB | %s", float64(gather.Sent[0])/mebi, took(gather.Makespan))
		}
		rows = append(rows, row)
	}
	return claim{"Volume of an all-gather", "All-gather and reduce-scatter move (n−1)/n of the data, whatever the number of ranks.",
		"right, if the data are the whole vector", fmt.Sprintf(`then nearly all of it comes to each rank. If each rank has a part of
its own, whose size stays, a rank receives n−1 of these, and that grows with n. Both are the same formula, as m = n parts; texts that
give one as (n−1)/n·m and the other as n−1 parts do not contradict each other, but "whatever the number" holds for the first only. A
reduce-scatter sends the same, in the other direction.

%s`, grid("n | m = 64 MiB: a rank sends | time | parts of 1 MiB: a rank sends | time", rows...))}
}

func volumeOfTree(t *testing.T) claim {
	var rows []string
	for _, name := range []string{"ring", "rabenseifner", "naive", "binary_tree", "double_binary_tree",
		"recursive_doubling", "direct"} {
		row := "`" + name + "`"
		for _, n := range []int{8, 64} {
			r := play(t, network.Uniform(n, port), dtype.AllReduce, name, 64*mebi)
			row += fmt.Sprintf(" | %d | %s | %s", steps(t, dtype.AllReduce, name, n), r.sends(), r.group())
			more := name == "recursive_doubling" || name == "direct"
			require.Equal(t, more, r.group() != multiple(2*float64(n-1)))
			if name == "naive" {
				c := sim.Cost{Alpha: port.Alpha, Beta: 1 / port.Bandwidth}
				require.InEpsilon(t, 2*sim.Binomial(c, n, r.m), r.Makespan, 1e-9, "the claimed time")
			}
		}
		rows = append(rows, row)
	}
	return claim{"Volume of a tree", "An all-reduce by a tree moves 2·log₂ n·m, in a time of 2·log₂ n·(α + βm); a ring moves 2(n−1)/n·m.",
		"the time is right, the volumes are not comparable", fmt.Sprintf(`that of the ring is what one rank sends, and 2·log₂ n is
the steps of the tree. No rank of a tree sends 2·log₂ n·m: a rank sends m to its parent and to each child. The whole group sends 2(n−1)·m,
once up and once down each of the n−1 edges, exactly as much as the ring:

%s
`+"`naive`"+` is the tree of the claim: a binomial reduce, then a broadcast. Its time is that of the claim, to the last digit. What
makes it slow with large blocks is not how much is moved, but that the root sends log₂ n·m of it, and that the others wait meanwhile. The
binary trees cut the block into segments, which is more steps and less waiting. More than the ring move those that give each rank all
operands (`+"`direct`"+`), or all of the block in each step (`+"`recursive_doubling`"+`).`,
			grid("all_reduce | n = 8: steps | the busiest rank sends | the group sends | n = 64: steps | the busiest rank sends | the group sends",
				rows...))}
}

func treesForFew(t *testing.T) claim {
	names := []string{"ring", "naive", "double_binary_tree", "recursive_doubling"}
	var rows []string
	for _, name := range names {
		row := "`" + name + "`"
		for _, n := range []int{8, 512} {
			row += fmt.Sprintf(" | %d", steps(t, dtype.AllReduce, name, n))
			for _, m := range []int{64 * kibi, 64 * mebi} {
				row += " | " + took(play(t, network.Uniform(n, port), dtype.AllReduce, name, m).Makespan)
			}
		}
		rows = append(rows, row)
	}
	ratio := func(n int) float64 {
		on := network.Uniform(n, port)
		return play(t, on, dtype.AllReduce, "ring", 64*kibi).Makespan /
			play(t, on, dtype.AllReduce, "double_binary_tree", 64*kibi).Makespan
	}
	few, many := ratio(8), ratio(512)
	require.Less(t, few, 1.1)
	require.Greater(t, many, 10.0)
	return claim{"Trees for few ranks", "Trees suit few ranks: with many, their number of steps makes them slow. Large groups take the ring.",
		"the reverse is right", fmt.Sprintf(`a tree's steps grow as log₂ n, a ring's as n. With 64 KiB a double binary tree and a ring take
about the same on 8 ranks (the ring %.2f times as long); on 512 ranks the ring takes %.0f times as long. What speaks for the ring is large
blocks, not large groups.

%s`, few, many, grid("all_reduce | n = 8: steps | 64 KiB | 64 MiB | n = 512: steps | 64 KiB | 64 MiB", rows...))}
}

func whatRabenseifnerIs(t *testing.T) claim {
	const n, m = 16, 16 * mebi
	a, err := algo.Find(dtype.AllReduce, "rabenseifner")
	require.NoError(t, err)
	p, err := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: n})
	require.NoError(t, err)
	r, err := sim.Run(p, network.Uniform(n, port), sim.Options{Elements: m / 4, ElementBytes: 4, Timeline: true})
	require.NoError(t, err)
	step, to, bytes := "step", "to rank", "bytes"
	sends := 0
	for _, s := range r.Timeline {
		if s.Rank == 0 && s.Kind == plan.Send {
			sends++
			require.EqualValues(t, m/2/s.Peer, s.Bytes, "half as much to a rank twice as far, and back")
			step += fmt.Sprintf(" | %d", sends)
			to += fmt.Sprintf(" | %d", s.Peer)
			bytes += fmt.Sprintf(" | m/%d", m/s.Bytes)
		}
	}
	made := steps(t, dtype.AllReduce, "rabenseifner", n)
	require.Equal(t, sends, made)
	mixed := steps(t, dtype.ReduceScatter, "ring", n) + steps(t, dtype.AllGather, "recursive_doubling", n)
	return claim{"What Rabenseifner is", "Rabenseifner's algorithm combines a ring, for the reduction, with recursive doubling.",
		"wrong", fmt.Sprintf(`there is no ring in it. It is a reduce-scatter by recursive halving, then an all-gather by recursive doubling.
This is what rank 0 of 16 sends, in this order:

%s
These are %d steps; with a ring for its first half it would have %d. It moves what the ring moves, 2(n−1)/n·m by each rank
(Rabenseifner, "Optimization of collective reduction operations", 2004).`, grid(step, to, bytes), made, mixed)}
}

func oddRanks(t *testing.T) claim {
	var rows []string
	for _, n := range []int{6, 7, 8, 12, 24, 32} {
		row := fmt.Sprint(n)
		on := network.Uniform(n, port)
		ring := play(t, on, dtype.AllReduce, "ring", 64*mebi).Makespan
		for _, name := range []string{"ring", "rabenseifner"} {
			r := play(t, on, dtype.AllReduce, name, 64*mebi)
			row += fmt.Sprintf(" | %d | %s | %s", steps(t, dtype.AllReduce, name, n), r.sends(), took(r.Makespan))
			if name == "rabenseifner" {
				require.Equal(t, n&(n-1) == 0, r.Makespan < ring)
			}
		}
		rows = append(rows, row)
	}
	return claim{"Numbers that are no powers of two", "Where the number of ranks is no power of two, try Rabenseifner's algorithm.",
		"wrong", fmt.Sprintf(`those are the numbers that it is worst at. It works with a power of two; the ranks beyond give their
block to another one first and get the result at the end, which is two steps and up to m more bytes. The ring does not care. With small blocks the fewer steps of Rabenseifner's still count
(64 MiB, %s):

%s`, portText, grid("n | `ring`: steps | a rank sends | time | `rabenseifner`: steps | the busiest sends | time", rows...))}
}

func composed(t *testing.T) claim {
	const n = 8
	on := network.Uniform(n, port)
	time := func(coll dtype.Collective, name string, m int) float64 { return play(t, on, coll, name, m).Makespan }
	var rows []string
	row := func(text string, parts func(m int) float64, whole func(m int) float64) {
		line := text
		for _, m := range []int{4 * kibi, 64 * mebi} {
			line += fmt.Sprintf(" | %s | %s", took(parts(m)), took(whole(m)))
		}
		rows = append(rows, line)
	}
	row("all_reduce = reduce, broadcast; beside a ring", func(m int) float64 {
		return time(dtype.Reduce, "binomial", m) + time(dtype.Broadcast, "binomial", m)
	}, func(m int) float64 { return time(dtype.AllReduce, "ring", m) })
	row("all_reduce = reduce_scatter, all_gather, both by rings; beside a ring", func(m int) float64 {
		return time(dtype.ReduceScatter, "ring", m) + time(dtype.AllGather, "ring", m)
	}, func(m int) float64 { return time(dtype.AllReduce, "ring", m) })
	row("all_gather = gather, broadcast; beside a ring", func(m int) float64 {
		return time(dtype.Gather, "binomial", m) + time(dtype.Broadcast, "binomial", m)
	}, func(m int) float64 { return time(dtype.AllGather, "ring", m) })
	row("reduce_scatter = reduce, scatter; beside a ring", func(m int) float64 {
		return time(dtype.Reduce, "binomial", m) + time(dtype.Scatter, "binomial", m)
	}, func(m int) float64 { return time(dtype.ReduceScatter, "ring", m) })
	return claim{"What is made of what", "All-reduce is reduce and broadcast, all-gather is gather and broadcast, reduce-scatter is reduce and scatter.",
		"right as a definition, not as a way", fmt.Sprintf(`the results are the same. But through a root all bytes pass one rank; by
reduce-scatter and all-gather, the other way to say it, an all-reduce loses nothing (8 ranks, %s, the parts by binomial trees):

%s
With 4 KiB the trees win: they have fewer steps.`, portText, grid("| 4 KiB: as parts | whole | 64 MiB: as parts | whole", rows...))}
}

func volumeOfBroadcast(t *testing.T) claim {
	var rows []string
	for _, name := range []string{"flat", "binomial", "chain", "scatter_allgather", "double_binary_tree"} {
		row := "`" + name + "`"
		for _, n := range []int{8, 64} {
			on := network.Uniform(n, port)
			r := play(t, on, dtype.Broadcast, name, 64*mebi)
			row += fmt.Sprintf(" | %s | %s | %s", r.sends(), took(play(t, on, dtype.Broadcast, name, 4*kibi).Makespan),
				took(r.Makespan))
		}
		rows = append(rows, row)
	}
	return claim{"Volume of a broadcast", "A broadcast moves about 1·m, where an all-reduce moves 2·m.",
		"right for what a rank receives", fmt.Sprintf(`and for what it sends where the block is cut. A tree of whole messages has its root
send log₂ n·m, which is then the time:

%s`, grid("broadcast | n = 8: the busiest sends | 4 KiB | 64 MiB | n = 64: the busiest sends | 4 KiB | 64 MiB", rows...))}
}
