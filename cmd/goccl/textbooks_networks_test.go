package main

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/cost"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/topo/network"
	"github.com/goccl/goccl/ccl/tune/predicted"
)

// The links of GPUs, and of hosts that have them.
var (
	nvlink  = network.Wire{Alpha: 2e-6, Bandwidth: 450e9}
	adapter = network.Wire{Alpha: 5e-6, Bandwidth: 50e9}
)

// hostsOfGPUs is a fat tree of hosts, with as many spines as a leaf switch has hosts, so that all
// hosts can send at once. Each host has GPUs, which a switch connects to each other and to the one
// adapter of the host. A message between leaves takes the alpha of an adapter, and that of NVLink.
func hostsOfGPUs(hosts, gpus, leaf int) *network.Topology {
	t := &network.Topology{Name: fmt.Sprintf("hosts-%d-%d", hosts, gpus), Routing: network.ECMP}
	inside := t.AddClass("nvlink", nvlink.Alpha/2, nvlink.Bandwidth)
	outside := t.AddClass("nic", adapter.Alpha/4, adapter.Bandwidth)
	for i := range hosts * gpus {
		t.AddRank("r"+strconv.Itoa(i), false)
	}
	var switches []int
	for h := range hosts {
		host := t.AddSwitch("host" + strconv.Itoa(h))
		for g := range gpus {
			t.AddDuplex(h*gpus+g, host, inside)
		}
		if h%leaf == 0 {
			switches = append(switches, t.AddSwitch("leaf"+strconv.Itoa(h/leaf)))
		}
		t.AddDuplex(host, switches[h/leaf], outside)
	}
	for s := range leaf {
		spine := t.AddSwitch("spine" + strconv.Itoa(s))
		for _, l := range switches {
			t.AddDuplex(l, spine, outside)
		}
	}
	return t
}

func eachItsEnd(t *testing.T) claim {
	hop := network.Wire{Alpha: port.Alpha / 4, Bandwidth: port.Bandwidth}
	var rows []string
	for _, each := range []struct {
		name string
		on   *network.Topology
	}{
		{"uniform: no two messages share a link", network.Uniform(64, port)},
		{"fat tree, leaves of 8, as many links up as down", network.FatTree(64, 8, 1, hop)},
		{"the same, a quarter of the links up", network.FatTree(64, 8, 4, hop)},
		{"torus of 8 × 8", network.Torus([]int{8, 8}, hop)},
		{"ring of 64", network.Ring(64, hop)},
	} {
		row := each.name
		var large [2]float64
		for i, name := range []string{"ring", "rabenseifner"} {
			r := play(t, each.on, dtype.AllReduce, name, gibi)
			large[i] = r.Makespan
			row += fmt.Sprintf(" | %s | %s | %s", took(play(t, each.on, dtype.AllReduce, name, 64*kibi).Makespan),
				took(r.Makespan), r.busiest())
		}
		require.Equal(t, len(rows) > 0, large[0] < large[1], "the ring wins where links are shared")
		rows = append(rows, row)
	}
	return claim{"Each has its end", "A ring and halving with doubling (Rabenseifner) move the same; the one is for large blocks, the other for small ones.",
		"right where messages share links", fmt.Sprintf(`on a uniform network the one with fewer steps never loses, however large the block,
as the bytes are equal. The ring wins elsewhere because its ranks send to neighbours: each link has one message at a time. Rabenseifner's
partners are up to n/2 apart, and their messages meet. On a fat tree no link carries more in all, but its hash sends several messages over
one link while others are idle (64 ranks, %s, 1.25 µs for each link of a path):

%s`, portText, grid("network | `ring`: 64 KiB | 1 GiB | busiest link | `rabenseifner`: 64 KiB | 1 GiB | busiest link", rows...))}
}

func smallByTree(t *testing.T) claim {
	var rows []string
	for _, n := range []int{8, 64, 512} {
		on := network.Uniform(n, port)
		ring := from(t, on, "ring", "double_binary_tree")
		best := from(t, on, "rabenseifner", "double_binary_tree", "ring", "recursive_doubling")
		row := fmt.Sprintf("%d | %s | %s", n, ring, best)
		for _, name := range []string{"double_binary_tree", "recursive_doubling", "rabenseifner", "ring"} {
			row += " | " + took(play(t, on, dtype.AllReduce, name, 16*kibi).Makespan)
		}
		rows = append(rows, row)
		require.Less(t, play(t, on, dtype.AllReduce, "recursive_doubling", 16*kibi).Makespan,
			play(t, on, dtype.AllReduce, "double_binary_tree", 16*kibi).Makespan)
	}
	return claim{"Small by tree", "Small all-reduces take a (double binary) tree, large ones a ring.",
		"right between these two", fmt.Sprintf(`where ranks are many, the tree is faster than the ring up to some MiB; on 8 ranks both have 14 steps.
But the tree is not the fastest with small blocks: recursive doubling has a third of its steps or fewer, and no segments to wait for. And where
ranks are a power of two and links not shared, Rabenseifner's takes over from there, before the ring does (%s):

%s
A tree that is cut into more and smaller pieces than goccl's four segments, as NCCL's is, comes nearer to the ring with large blocks
([how near](#bandwidth-of-a-double-tree) in goccl). That moves the sizes; with small blocks the steps stay what they are.`, portText, grid("n | `ring` beats the tree from | `rabenseifner` beats all three from | "+
			"16 KiB: `double_binary_tree` | `recursive_doubling` | `rabenseifner` | `ring`", rows...))}
}

func eightGPUs(t *testing.T) claim {
	trees := []string{"naive", "binary_tree", "double_binary_tree"}
	switched := &race{on: network.NVLink(8, nvlink), names: append(trees, "ring", "rabenseifner", "recursive_doubling"),
		sizes: []int{4 * kibi, mebi, 16 * mebi, gibi}, head: "the busiest GPU sends", extra: played.sends}
	wired := &race{on: network.Ring(8, network.Wire{Alpha: 2e-6, Bandwidth: 50e9}),
		names: append(switched.names, "bidirectional_ring"), sizes: switched.sizes,
		head: "the busiest link carries", extra: played.busiest}
	table, second := switched.run(t), wired.run(t)
	for i := range switched.sizes {
		require.LessOrEqual(t, switched.times["rabenseifner"][i], switched.times["ring"][i])
	}
	return claim{"Eight GPUs of a host", "On the 8 GPUs of a host, joined by NVLink, an all-reduce by a ring beats one by a tree.",
		"right for large blocks", fmt.Sprintf(`from %s on the ring beats every tree, at 1 GiB the best of them %.2f times. Below, a tree of
whole messages has 6 steps and the ring 14. But a switch between the GPUs (2 µs, 450 GB/s a direction) lets any two of them talk at full rate,
so a ring is only one of those that send 7/4·m: Rabenseifner's needs 6 steps for it and is never slower, and recursive doubling is
the fastest with small blocks.

%s
Where each GPU has links to two others only, and no switch (2 µs, 50 GB/s a direction), the ring is what the links are, and the best by
far, both ways round at once (from %s on it beats all others): the messages of the others cross several links.

%s`, from(t, switched.on, "ring", trees...), switched.over("double_binary_tree", "ring", gibi), table,
			from(t, wired.on, "bidirectional_ring", switched.names...), second)}
}

// Rings within hosts, and these across.
const (
	treeAcross         = "hierarchical.ring.double_binary_tree"
	rabenseifnerAcross = "hierarchical.ring.rabenseifner"
)

func hostsOnFatTree(t *testing.T) claim {
	names := []string{"ring", "double_binary_tree", "recursive_doubling", "rabenseifner", "hierarchical.ring.naive",
		treeAcross, "hierarchical.ring.ring", rabenseifnerAcross, "hierarchical.halving.recursive_doubling",
		"hierarchical.halving.rabenseifner"}
	sizes := []int{4 * kibi, mebi, 64 * mebi, gibi}
	one := &race{on: hostsOfGPUs(64, 8, 8), names: names, shape: []int{8, 64}, sizes: sizes,
		head: "the busiest link carries", extra: played.busiest}
	rails := &race{on: network.Rail(64, 8, nvlink, adapter), names: names, shape: []int{8, 64}, sizes: sizes}
	first, second := one.run(t), rails.run(t)
	for _, r := range []*race{one, rails} {
		for i := range sizes {
			for _, tree := range []string{"double_binary_tree", "hierarchical.ring.naive", treeAcross} {
				require.Less(t, r.times[rabenseifnerAcross][i], r.times[tree][i])
			}
		}
		for _, m := range []int{4 * kibi, mebi} {
			require.Greater(t, r.over("ring", treeAcross, m), 10.0)
		}
		require.Greater(t, r.over(treeAcross, "hierarchical.ring.ring", gibi), 1.5)
		require.Greater(t, r.over(treeAcross, "hierarchical.halving.recursive_doubling", 4*kibi), 2.0)
	}
	return claim{"Hosts on a fat tree", "On 64 hosts of a fat tree, a hierarchical all-reduce is the best: by a ring within hosts, by a tree across.",
		"right about the hierarchy, not about the tree", fmt.Sprintf(`with 8 GPUs a host, the flat ring takes 1,022 steps. A
hierarchy with a tree across is %.0f times as fast with 1 MiB, and one with Rabenseifner's across %.0f times. How much it gains with large
blocks depends on the adapters. If a host has one (50 GB/s, leaves of 8 hosts, all of which can send at once), the flat ring already sends
as little through it as can be, and what a hierarchy saves are steps:

%s
If each GPU has an adapter of its own, on a switch of its own (rails), the flat ring uses one of the eight, and the hierarchy is
%.1f times as fast at 1 GiB:

%s
The tree across is the best nowhere. With small blocks it has more steps than recursive doubling. With large ones it takes %.1f times as
long as a ring across (one adapter, 1 GiB), though its busiest link carries as much, since the links of a tree are idle while a segment goes
up and comes down. Smaller pieces help it [a little](#bandwidth-of-a-double-tree); a tree of whole messages (`+"`naive`"+`) is worse. The best are, by size:
recursive doubling, Rabenseifner's, and with the largest blocks either that or a ring across, by how messages meet in the fat tree. That is
also how goccl chooses across [many hosts](many-ranks.md). Rabenseifner's over all ranks needs no hierarchy here, as it is one: a rank gives
half of the block to the nearest rank, a quarter to the next and so on, so an eighth is left when it comes to other hosts. That takes hosts
and GPUs in powers of two.`,
			one.over("ring", treeAcross, mebi), one.over("ring", rabenseifnerAcross, mebi), first,
			rails.over("ring", rabenseifnerAcross, gibi), second,
			one.over(treeAcross, "hierarchical.ring.ring", gibi))}
}

func tensorParallel(t *testing.T) claim {
	const m = 32 * 2048 * 12288 * 2
	var rows []string
	for _, each := range []struct {
		text string
		rate float64
	}{
		{"600 GB/s each way, as in the claim", 600e9}, {"300 GB/s each way, which is what 600 GB/s of NVLink 3 are", 300e9},
		{"450 GB/s each way, the 900 GB/s of NVLink 4", 450e9}, {"between hosts, 200 Gbit/s each way", 25e9},
	} {
		on := network.NVLink(8, network.Wire{Alpha: nvlink.Alpha, Bandwidth: each.rate})
		r := play(t, on, dtype.AllReduce, "ring", m)
		rows = append(rows, fmt.Sprintf("%s | %s | %s", each.text, took(r.Makespan), took(2*r.Makespan)))
	}
	return claim{"A layer of a large model",
		"An all-reduce of 1.6 GB (batch 32, 2,048 tokens, 12,288 wide, fp16) over 8 GPUs with NVLink of 600 GB/s takes 4.7 ms, two of a layer 9.4 ms.",
		"the formula is right, the rate is not", fmt.Sprintf(`2·7/8·1.6 GB at 600 GB/s are 4.7 ms, and the simulator says the same. But
600 GB/s is both directions of a GPU's links together, and a ring sends 7/4·m in one direction while as much comes in the other. So it
takes twice as long. (Texts that give an A100 450 GB/s have the figure of an H100, and each way.)

%s`, grid("link | one all_reduce | two", rows...))}
}

func mergedCalls(t *testing.T) claim {
	on := network.NVLink(8, nvlink)
	var rows []string
	for _, m := range []int{16 * kibi, mebi, 64 * mebi, gibi} {
		one := play(t, on, dtype.AllReduce, "rabenseifner", m).Makespan
		three := play(t, on, dtype.AllReduce, "rabenseifner", 3*m).Makespan
		require.Less(t, three, 3*one)
		rows = append(rows, fmt.Sprintf("%s | %s | %s | %.2f | %.0f %%",
			sizeText(m), took(3*one), took(three), 3*one/three, 100*1.75*float64(m)/nvlink.Bandwidth/one))
	}
	return claim{"Merged calls", "Small all-reduces use little of the bandwidth; merging three into one is faster.", "right",
		fmt.Sprintf(`up to three times, as three calls have three times the steps of one; with large blocks nothing is gained
(8 GPUs at a switch, 2 µs, 450 GB/s, Rabenseifner's):

%s`, grid("m | three of m | one of 3·m | times as fast | one of m uses of the links", rows...))}
}

func packetsBetweenHosts(t *testing.T) claim {
	const hosts, gpus = 16, 8
	on := network.Rail(hosts, gpus, nvlink, adapter)
	blocks := []int{64, 4 * kibi, 256 * kibi}
	names := []string{"linear", "pairwise", "bruck", "2d", "hierarchical"}
	times := map[string][]float64{}
	var rows []string
	for _, name := range names {
		row := "`" + name + "`"
		for _, b := range blocks {
			r := play(t, on, dtype.AllToAll, name, b*hosts*gpus, gpus, hosts)
			times[name] = append(times[name], r.Makespan)
			row += " | " + took(r.Makespan)
			if b == blocks[0] {
				row += " | " + strconv.FormatFloat(float64(slices.Max(r.Sent))/float64(b), 'f', 0, 64)
			}
		}
		rows = append(rows, row)
	}
	require.Less(t, times["2d"][0], times["pairwise"][0])
	require.Less(t, times["hierarchical"][0], times["pairwise"][0])
	return claim{"Packets between hosts", "An all-to-all of small packets, as of experts and their tokens, gains by a hierarchy.",
		"right", fmt.Sprintf(`%d hosts of %d GPUs, an adapter each. A message to each of 127 others is 127 times α; if the GPUs of a host first
exchange what goes to the same GPUs of others, few and large messages leave it. That sends most blocks twice, once of these over NVLink.
With the smallest blocks Bruck's is faster still: 7 steps, in which a block travels half the bits of its distance.

%s`, hosts, gpus, grid("all_to_all | 64 B for each other GPU | blocks that a GPU sends | 4 KiB | 256 KiB", rows...))}
}

// executed returns how long an all-reduce takes between hosts with a core each, as the executor
// runs it.
func executed(t *testing.T, hosts int) func(name string, m int) float64 {
	costs := *cost.Usual()
	costs.Network.Latency, costs.Network.Bandwidth, costs.Network.Fragment = 5e-6, 1.25e9, 64*kibi
	costs.Network.Send, costs.Network.Receive = cost.Work{Each: 2e-6, Byte: 1e-10}, cost.Work{Each: 2e-6, Byte: 1e-10}
	said := make([]topo.Rank, hosts)
	for rank := range said {
		said[rank] = topo.Rank{Number: rank, Size: hosts, Place: topo.Place{Machine: strconv.Itoa(rank)}, Cores: "0"}
	}
	on, err := topo.Agree(said)
	require.NoError(t, err)
	p, err := predicted.New(on, &costs)
	require.NoError(t, err)
	known := map[string]float64{}
	return func(name string, m int) float64 {
		key := fmt.Sprint(name, m)
		if _, ok := known[key]; !ok {
			known[key], err = p.Call(dtype.AllReduce, name, int64(m), 4, 1)
			require.NoError(t, err)
		}
		return known[key]
	}
}

func bandwidthOfDoubleTree(t *testing.T) claim {
	few, many := executed(t, 8), executed(t, 64)
	var rows []string
	for _, name := range []string{"ring", "rabenseifner", "recursive_doubling", "naive", "double_binary_tree"} {
		rows = append(rows, fmt.Sprintf("`%s` | %s | %s | %s | %s | %s", name, took(few(name, mebi)),
			took(few(name, 64*mebi)), took(many(name, 64*kibi)), took(many(name, mebi)), took(many(name, 64*mebi))))
	}
	tree := "double_binary_tree"
	require.Less(t, many(tree, 64*kibi), many("recursive_doubling", 64*kibi))
	require.Less(t, many("rabenseifner", 64*kibi), many(tree, 64*kibi))
	over := func(each func(string, int) float64) float64 { return each(tree, 64*mebi) / each("ring", 64*mebi) }
	alone := play(t, network.Uniform(64, port), dtype.AllReduce, tree, 64*mebi).Makespan /
		play(t, network.Uniform(64, port), dtype.AllReduce, "ring", 64*mebi).Makespan
	require.Greater(t, over(many), 1.5)
	return claim{"Bandwidth of a double tree", "A double binary tree has the full bandwidth of all links, as a ring has.",
		"right for what it sends, not for how long it takes", fmt.Sprintf(`no rank sends more than 2·m, but it has to wait for two children
before it can pass on a sum, and for its parent before it can pass on a result. All above is simulated with steps that store and forward:
with 64 MiB on 64 ranks the tree takes %.2f times as long as the ring. Here are predictions of what goccl's executor does, which passes on
fragments of 64 KiB while a message comes in (hosts with 10 Gbit/s, 5 µs, and 2 µs for a fragment at either end):

%s
With 64 MiB the tree now takes %.2f times as long as the ring on 64 hosts, and %.2f times on 8. Fragments serve it best in the middle: with
64 KiB on 64 hosts it beats recursive doubling. Rabenseifner's beats it there, too, as 64 is a power of two.`, alone,
			grid("all_reduce | 8 hosts: 1 MiB | 64 MiB | 64 hosts: 64 KiB | 1 MiB | 64 MiB", rows...), over(many), over(few))}
}
