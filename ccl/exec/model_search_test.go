//go:build !race

package exec

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/goccl/goccl/tests/statespace"
)

// graph holds what a search has found. States are numbered in the order in which they were found.
type graph struct {
	states []state
	parent []int32
	edges  [][2]int32 // to, from
	table  []uint64   // open addressing: the upper half of a state's hash, and its number + 1
	seed   maphash.Seed
}

func newGraph() *graph {
	return &graph{seed: maphash.MakeSeed(),
		states: make([]state, 0, 1<<20), parent: make([]int32, 0, 1<<20), edges: make([][2]int32, 0, 1<<22)}
}

// number returns the number of a state. It adds a new state.
func (g *graph) number(s *state, parent int32) int32 {
	if 2*len(g.states) >= len(g.table) {
		g.table = make([]uint64, max(1<<12, 2*len(g.table)))
		for i := range g.states {
			slot, mark := g.slot(&g.states[i])
			*slot = mark | uint64(i+1)
		}
	}
	slot, mark := g.slot(s)
	if *slot == 0 {
		g.states, g.parent = append(g.states, *s), append(g.parent, parent)
		*slot = mark | uint64(len(g.states))
	}
	return int32(uint32(*slot)) - 1
}

// slot returns the slot of a state in the table, and the half of its hash that is kept there.
func (g *graph) slot(s *state) (slot *uint64, mark uint64) {
	hash, mask := maphash.Comparable(g.seed, *s), uint64(len(g.table)-1)
	mark = hash &^ (1<<32 - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		slot = &g.table[at]
		if *slot == 0 || *slot&^(1<<32-1) == mark && g.states[uint32(*slot)-1] == *s {
			return slot, mark
		}
	}
}

// maxStates bounds the memory of a search to about 4 GB.
const maxStates = 8 << 20

// check searches all states of a scenario. It returns the number of states found, and the first
// fault with the shortest path to it, or "". The memory of earlier searches is used again.
func (g *graph) check(sc *scenario, mu *mutation) (states int, wrong string) {
	m, start := newMachine(sc, mu)
	g.states, g.parent, g.edges = g.states[:0], g.parent[:0], g.edges[:0]
	clear(g.table)
	g.number(&start, -1)
	var from, to state
	var rest []int32
	for n := int32(0); int(n) < len(g.states); n++ {
		if n > maxStates {
			return len(g.states), "too many states"
		}
		from = g.states[n]
		quiet, still, dead := true, true, true
		for i := range m.kinds {
			ways := m.ways(&from, i)
			for way := range ways {
				to = from
				m.do(&to, i, way)
				g.edges = append(g.edges, [2]int32{g.number(&to, n), n})
			}
			rests := ways == 0 || from.threads[i].at == publish || m.timed(&from, i)
			quiet = quiet && rests
			still = still && (rests || from.threads[i].rests == napDoorbell && from.threads[i].asleep)
			dead = dead && ways == 0
		}
		if why := m.fault(&from, quiet, still, dead); why != "" {
			return len(g.states), why + m.trace(g, n)
		}
		if dead {
			rest = append(rest, n)
		}
	}
	if n := statespace.Trapped(len(g.states), g.edges, rest); n >= 0 {
		return len(g.states), "a state from which nothing leads to the end" + m.trace(g, n)
	}
	return len(g.states), ""
}

// trace describes the path to state n.
func (m *machine) trace(g *graph, n int32) string {
	var path []int32
	for ; n >= 0; n = g.parent[n] {
		path = append(path, n)
	}
	slices.Reverse(path)
	var b strings.Builder
	for k, n := range path[1:] {
		from, to := g.states[path[k]], g.states[n]
	search:
		for i := range m.kinds {
			for way := range m.ways(&from, i) {
				next := from
				if m.do(&next, i, way); next == to {
					asleep := ""
					if to.threads[i].asleep {
						asleep = " (sleeps)"
					}
					fmt.Fprintf(&b, "\n%3d %-10s %-52s %s", k+1, m.kinds[i].name,
						steps[from.threads[i].at].name+asleep, m.words(&to))
					break search
				}
			}
		}
	}
	return b.String()
}

// words describes the shared words of a state.
func (m *machine) words(s *state) string {
	var b strings.Builder
	for i := range m.comms {
		c := &s.comms[i]
		lock := 0
		if c.lock {
			lock = 1
		}
		fmt.Fprintf(&b, "[lock %d pending %d waiting %d turns %d] ", lock, c.pending, c.waiting, c.turns)
	}
	for r := range slices.Max(m.comms) + 1 {
		fmt.Fprintf(&b, "doorbells %+v ", s.ranks[r])
	}
	for i := range m.ops {
		if !s.ops[i].pending {
			fmt.Fprintf(&b, "%c done ", 'a'+i)
		}
	}
	return b.String()
}
