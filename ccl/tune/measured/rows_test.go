package measured

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/exec"
	"github.com/goccl/goccl/ccl/topo"
	"github.com/goccl/goccl/ccl/tune"
)

// steady returns the times of three blocks that differ by 1 %.
func steady(us float64) []float64 { return []float64{us * 1e-6, us * 0.99e-6, us * 1.01e-6} }

// fake returns a measurement of some algorithms. times are in µs, one slice per size.
func fake(t *testing.T, coll dtype.Collective, ranks int, names []string, sizes []int64, times ...[]float64) *Measured {
	t.Helper()
	m := &Measured{Coll: coll, On: topo.Spread(ranks, 1)}
	for _, c := range Candidates(coll, topo.Spread(ranks, 1), true, exec.PlanChannels) {
		if slices.Contains(names, c.Name) {
			m.Candidates = append(m.Candidates, c)
		}
	}
	require.Len(t, m.Candidates, len(names))
	for range 2 {
		var run []Cell
		for s, size := range sizes {
			cell := Cell{Bytes: size}
			for _, c := range m.Candidates {
				cell.Times = append(cell.Times, steady(times[s][slices.Index(names, c.Name)]))
			}
			run = append(run, cell)
		}
		require.NoError(t, m.Add(run))
	}
	return m
}

// rows returns the table of a measurement.
func rows(t *testing.T, m *Measured) (lines []string) {
	t.Helper()
	var all []tune.Row
	for _, b := range m.Bands(FirstRanks(m.On.Size(), nil)) {
		all = append(all, b.Rows...)
	}
	table, err := tune.NewTable(all)
	require.NoError(t, err)
	require.Equal(t, all, table.Rows())
	for _, row := range all {
		words := strings.Fields(row.String())
		lines = append(lines, strings.Join(words[len(words)-2:], " ")) // size and algorithm
	}
	return lines
}

func TestTableRows(t *testing.T) {
	const M = 1 << 20
	// Without a measurement and without windows, the library would choose direct, then ring.
	// Nothing here depends on the library's own rows: they are for other numbers of ranks.
	names := []string{"direct", "ring", "rabenseifner", "two_shot"}
	m := fake(t, dtype.AllReduce, 16, names, []int64{1 << 10, 64 << 10, M, 16 * M},
		[]float64{10, 20, 9.8, 30},   // faster by 2 %
		[]float64{10, 20, 9, 9.2},    // faster by far; which of the last two wins does not matter
		[]float64{100, 90, 95, 50},   // two_shot, which reduces in the order of ranks
		[]float64{100, 50, 100, 100}, // what the library would choose anyway
	)
	require.Equal(t, "direct", tune.Choose(tune.Call{Coll: m.Coll, Bytes: 1 << 10}, m.On, new(tune.Wishes)))
	require.Equal(t, []string{
		"8K direct",
		"256K rabenseifner", "256K two_shot",
		"4M two_shot",
		"any ring", "any two_shot",
	}, rows(t, m))

	// Small sizes end where the measurement ends.
	m = fake(t, dtype.AllReduce, 16, names, []int64{8, 32}, []float64{5, 6, 7, 8}, []float64{5, 6, 7, 8})
	require.Equal(t, []string{"32 direct"}, rows(t, m))

	// A winner that reads windows does not suit all groups.
	m = fake(t, dtype.AllReduce, 64, []string{"direct", "ring", "two_shot", "two_shot_window"}, []int64{16 * M, 64 * M},
		[]float64{90, 30, 40, 10}, []float64{90, 30, 40, 10})
	require.Equal(t, []string{"any two_shot_window", "any ring", "any two_shot"}, rows(t, m))

	// A winner in the order of ranks is also for groups that must keep that order, though it hardly
	// beats what they had.
	m = fake(t, dtype.Reduce, 64, []string{"binomial", "flat", "chain"}, []int64{16 * M, 64 * M},
		[]float64{90, 31, 30}, []float64{90, 31, 30})
	require.Equal(t, []string{"any chain"}, rows(t, m))

	// If ranks do not know the size, there is one winner for all sizes.
	m = fake(t, dtype.AllToAll, 64, []string{"linear", "pairwise", "bruck"}, []int64{8, M},
		[]float64{5, 10, 1}, []float64{5, 10, 8})
	require.Equal(t, []string{"any bruck"}, rows(t, m))
	m = fake(t, dtype.AllToAll, 64, []string{"linear", "pairwise", "bruck"}, []int64{8, M},
		[]float64{5, 10, 4}, []float64{5, 4.9, 16})
	require.Equal(t, []string{"any linear"}, rows(t, m))
}

func TestTimingBeats(t *testing.T) {
	times := func(runs ...[]float64) Timing { return runs }
	slow := times([]float64{10, 11, 12, 11}, []float64{10, 11, 12, 11})
	for _, test := range []struct {
		name string
		fast Timing
		want bool
	}{
		{"by far", times([]float64{5, 6, 7, 6}, []float64{5, 6, 7, 6}), true},
		{"by far, given up early", times([]float64{5, 6}, []float64{5}), true},
		{"while all is slower for a run", times([]float64{5, 6, 7, 6}, []float64{9, 10, 11, 10}), true},
		{"in one run only", times([]float64{1, 1, 1, 1}, []float64{11, 11, 12, 11}), false},
		{"by less than the margin", times([]float64{9.8, 10.8, 11.8, 10.8}, []float64{9.8, 10.8, 11.8, 10.8}), false},
		{"by less than the noise", times([]float64{5, 6, 13, 12}, []float64{5, 6, 13, 10}), false},
		{"itself", slow, false},
	} {
		require.Equal(t, test.want, test.fast.beats(slow), test.name)
		require.False(t, slow.beats(test.fast), test.name)
	}
}

func TestTableRuns(t *testing.T) {
	cell := func(size int64, n int) Cell {
		c := Cell{Bytes: size, Wrong: make([]int64, n)}
		for range n {
			c.Times = append(c.Times, steady(1))
		}
		return c
	}
	fresh := func() *Measured {
		m := &Measured{Coll: dtype.Barrier, On: topo.Spread(2, 1)}
		m.Candidates = Candidates(dtype.Barrier, m.On, true, exec.PlanChannels)
		require.Greater(t, len(m.Candidates), 2)
		m.Candidates = m.Candidates[:2]
		return m
	}
	m := fresh()
	require.NoError(t, m.Add([]Cell{cell(16, 2), cell(16, 2), cell(32, 2)})) // the second cell repeats a size
	require.Equal(t, []int64{16, 32}, m.Sizes)
	require.ErrorContains(t, m.Add([]Cell{cell(16, 2)}), "not measured all sizes")
	require.ErrorContains(t, m.Add([]Cell{cell(16, 2), cell(64, 2)}), "different things")
	require.ErrorContains(t, m.Add([]Cell{cell(16, 1), cell(32, 1)}), "different things")
	require.ErrorContains(t, fresh().Add(nil), "not measured all sizes")
	wrong := cell(16, 2)
	wrong.Wrong[1] = 3
	require.ErrorContains(t, fresh().Add([]Cell{wrong}), m.Candidates[1].Name+" of 16 bytes: 3 elements were wrong")
}

func TestTuneCandidates(t *testing.T) {
	for _, coll := range dtype.Collectives() {
		for _, ranks := range []int{2, 3, 8} {
			all := Candidates(coll, topo.Spread(ranks, 1), true, exec.PlanChannels)
			require.NotEmpty(t, all, coll)
			require.NotContains(t, all, Candidate{Name: "hierarchical"}, coll)
			for _, c := range Candidates(coll, topo.Spread(ranks, ranks), false, exec.PlanChannels) {
				require.False(t, c.windows, "%v %s", coll, c.Name)
				require.Contains(t, all, c)
			}
			ordered := slices.ContainsFunc(all, func(c Candidate) bool { return c.ordered && !c.windows })
			require.True(t, ordered, "%v on %d ranks: nothing for determinism 4", coll, ranks)
		}
	}
}

func TestTuneCandidatesOfHosts(t *testing.T) {
	for _, c := range []struct {
		ranks, hosts int
		shared       bool
		want         [][]int
		slot         int
	}{
		{6, 2, true, [][]int{{0, 1, 2}, {3, 4, 5}}, 64},
		{3, 1, true, [][]int{{0, 1, 2}}, 64},
		{2, 2, true, [][]int{{0}, {1}}, 0},            // nobody reads windows
		{4, 2, false, [][]int{{0}, {1}, {2}, {3}}, 0}, // they share no memory
	} {
		on, err := Group(c.ranks, c.hosts, 64, c.shared)
		require.NoError(t, err)
		require.Equal(t, c.want, on.Hosts())
		require.Equal(t, c.slot, on.Slot())
	}
	for _, coll := range dtype.Collectives() {
		all := Candidates(coll, topo.Spread(4, 2), true, exec.PlanChannels)
		flat := slices.ContainsFunc(all, func(c Candidate) bool { return !strings.HasPrefix(c.Name, "hierarchical") })
		require.True(t, flat, coll)
		switch coll {
		case dtype.AllReduce, dtype.AllGather, dtype.ReduceScatter:
			ordered := !coll.Reduces()
			require.Contains(t, all, Candidate{Name: "hierarchical.window.direct", windows: true, ordered: ordered})
			require.Contains(t, all, Candidate{Name: "hierarchical.direct.ring", ordered: ordered})
		case dtype.AllToAll:
			require.Contains(t, all, Candidate{Name: "hierarchical", ordered: true})
		}
		for _, c := range all {
			levels := strings.HasPrefix(c.Name, "hierarchical")
			require.True(t, levels || !c.windows, "%s reads windows of other hosts", c.Name)
		}
	}
}

func TestTableRanges(t *testing.T) {
	for _, test := range []struct {
		ranks int
		all   []int
		want  int
	}{
		{2, nil, 2}, {3, nil, 3}, {4, nil, 3}, {8, nil, 5}, {6, nil, 5}, {16, []int{2, 4, 16}, 9},
		{8, []int{2, 6, 8}, 7}, {64, nil, 33}, {4, []int{4, 8}, 3},
	} {
		require.Equal(t, test.want, FirstRanks(test.ranks, test.all), "%v", test)
	}
	for _, test := range []struct{ a, b, want int64 }{
		{8, 32, 16}, {16, 20, 16}, {2 << 10, 8 << 10, 4 << 10}, {1 << 20, 4 << 20, 2 << 20},
		{900, 2000, 1 << 10}, {5, 6, 5}, {32 << 20, 64 << 20, 45 << 20},
	} {
		got := between(test.a, test.b)
		require.Equal(t, test.want, got, "%v", test)
		require.True(t, test.a <= got && got < test.b, "%v", test)
	}
}

// For any times, the rows form a table by which a group of each kind finds its winner.
func TestTableOfAnyTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		coll := dtype.Collectives()[random.IntN(len(dtype.Collectives()))]
		m := &Measured{Coll: coll, On: oneHost(t, 2+random.IntN(9), random.IntN(2) == 0)}
		m.Candidates = Candidates(coll, m.On, true, exec.PlanChannels)
		sizes := []int64{8, 32, 1 << 10, 1 << 20, 64 << 20}[random.IntN(3):]
		base := make([]float64, len(m.Candidates))
		for i := range base {
			base[i] = 1 + random.Float64()
		}
		for range 2 {
			var run []Cell
			for s, size := range sizes {
				cell := Cell{Bytes: size}
				for i := range m.Candidates {
					cell.Times = append(cell.Times, steady(base[i]*float64(1+(s+i)%3)))
				}
				run = append(run, cell)
			}
			require.NoError(t, m.Add(run))
		}
		lines := rows(t, m)
		var all []tune.Row
		for _, b := range m.Bands(m.On.Size()) {
			all = append(all, b.Rows...)
		}
		table, err := tune.NewTable(all)
		require.NoError(t, err)
		for s, picked := range m.Pick() {
			for k, kind := range kinds {
				on, wishes := m.On, &tune.Wishes{Table: table}
				if kind.noWindows {
					on = on.WithSlot(0)
				}
				if kind.ordered {
					wishes.Determinism = 4
				}
				want := m.Candidates[picked[k]]
				require.True(t, kind.runs(want))
				require.Equal(t, want.Name, tune.Choose(tune.Call{Coll: coll, Bytes: m.Sizes[s]}, on, wishes),
					"%v on %d ranks, %d bytes, %+v\n%v", coll, m.On.Size(), m.Sizes[s], kind, lines)
			}
		}
	}
}

// oneHost returns a group of one host with windows, whose ranks have a core each, or one together.
func oneHost(t *testing.T, ranks int, crowded bool) *topo.Group {
	t.Helper()
	said := make([]topo.Rank, ranks)
	for rank := range said {
		said[rank] = topo.Rank{Number: rank, Size: ranks, Cores: strconv.Itoa(rank), Transports: []string{"shm"}}
		if crowded {
			said[rank].Cores = "0"
		}
	}
	on, err := topo.Agree(said)
	require.NoError(t, err)
	require.Equal(t, crowded, on.Oversubscribed())
	return on.WithSlot(64)
}
