package agree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// world is a state of all ranks and of the messages between them.
type world struct {
	machines []*Machine
	begun    []bool
	crashed  []bool
	wires    map[[2]int][]*Message // from, to
	told     map[[2]int]bool       // of a death: who died, who knows
	crashes  int                   // how many may follow
}

func newWorld(lost [][]int, crashes int) *world {
	w := &world{wires: map[[2]int][]*Message{}, told: map[[2]int]bool{}, crashes: crashes,
		begun: make([]bool, len(lost)), crashed: make([]bool, len(lost))}
	for rank, each := range lost {
		w.machines = append(w.machines, New(rank, len(lost), each, rank == 1))
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.machines = nil
	for _, m := range w.machines {
		n := *m
		n.lost, n.dead = slices.Clone(m.lost), slices.Clone(m.dead)
		n.heard, n.before, n.early = slices.Clone(m.heard), slices.Clone(m.before), maps.Clone(m.early)
		c.machines = append(c.machines, &n)
	}
	c.begun, c.crashed = slices.Clone(w.begun), slices.Clone(w.crashed)
	c.wires, c.told = maps.Clone(w.wires), maps.Clone(w.told)
	return &c
}

func (w *world) key() string {
	text := ""
	for rank, m := range w.machines {
		text += fmt.Sprint(w.begun[rank], w.crashed[rank], m.lost, m.veto, m.dead, m.round, m.heard, m.before,
			m.decided)
		for peer := range w.machines {
			text += fmt.Sprint(w.told[[2]int{rank, peer}], len(m.early[peer]), "|")
			for _, message := range append(slices.Clone(m.early[peer]), w.wires[[2]int{rank, peer}]...) {
				text += fmt.Sprint(*message)
			}
		}
	}
	return text
}

// tell puts what a rank says on the wires to all that it does not count among the lost.
func (w *world) tell(rank int, messages []*Message) {
	for _, message := range messages {
		for peer := range w.machines {
			if wire := [2]int{rank, peer}; peer != rank && !w.machines[rank].dead[peer] && !w.crashed[peer] {
				w.wires[wire] = append(slices.Clone(w.wires[wire]), message)
			}
		}
	}
}

// next returns all states that may follow.
func (w *world) next() (all []*world) {
	add := func(change func(n *world)) {
		n := w.clone()
		change(n)
		all = append(all, n)
	}
	for rank := range w.machines {
		if w.crashed[rank] {
			for peer := range w.machines { // others learn of it after what it had sent
				if at := [2]int{rank, peer}; peer != rank && w.begun[peer] && !w.crashed[peer] && !w.told[at] &&
					len(w.wires[at]) == 0 {
					add(func(n *world) {
						n.told[at] = true
						n.tell(peer, n.machines[peer].Died(rank))
					})
				}
			}
			continue
		}
		if !w.begun[rank] {
			add(func(n *world) {
				n.begun[rank] = true
				n.tell(rank, n.machines[rank].Begin())
			})
		}
		for peer := range w.machines {
			if at := [2]int{peer, rank}; w.begun[rank] && len(w.wires[at]) > 0 {
				add(func(n *world) {
					message := n.wires[at][0]
					n.wires[at] = n.wires[at][1:]
					n.tell(rank, n.machines[rank].Hear(peer, message))
				})
			}
		}
		if w.crashes > 0 {
			// Of what it has said last, each of the others gets any part.
			states := []*world{w.clone()}
			for peer := range w.machines {
				var more []*world
				for _, state := range states {
					wire := [2]int{rank, peer}
					for left := range len(state.wires[wire]) + 1 {
						n := state.clone()
						n.wires[wire] = n.wires[wire][:left]
						more = append(more, n)
					}
				}
				states = more
			}
			for _, n := range states {
				n.crashes--
				n.crashed[rank] = true
				for peer := range w.machines {
					delete(n.wires, [2]int{peer, rank})
				}
				all = append(all, n)
			}
		}
	}
	return all
}

// check fails if ranks have decided differently, or nothing more can happen although a rank has not
// decided.
func (w *world) check(t *testing.T, over bool, lost [][]int) {
	var first []int
	var firstVeto bool
	for rank, m := range w.machines {
		settled, veto, ok := m.Decided()
		if w.crashed[rank] {
			continue
		}
		if !ok {
			require.False(t, over, "rank %d waits for %v for ever: %s", rank, m.Awaited(), w.key())
			continue
		}
		if first == nil {
			first, firstVeto = settled, veto
		}
		require.Equal(t, firstVeto, veto, "ranks decide differently: %s", w.key())
		require.True(t, veto || w.crashed[1], "the veto of rank 1 is lost: %s", w.key())
		require.Equal(t, first, settled, "ranks decide differently: %s", w.key())
		require.Subset(t, settled, lost[rank])
		for _, each := range settled {
			known := slices.ContainsFunc(lost, func(l []int) bool { return slices.Contains(l, each) })
			require.True(t, known || w.crashed[each], "rank %d lives", each)
		}
	}
}

// TestAllInterleavings explores every order of messages and deaths of 3 ranks.
func TestAllInterleavings(t *testing.T) {
	for _, tt := range []struct {
		lost    [][]int // what each rank knows at first
		crashes int
	}{
		{[][]int{{}, {}, {}}, 1},
		{[][]int{{}, {}, {}}, 2},
		{[][]int{{}, {}}, 1},
		{[][]int{{2}, {}, {}}, 0}, // rank 2 takes part, but is excluded
	} {
		t.Run(fmt.Sprintf("%v/%d", tt.lost, tt.crashes), func(t *testing.T) {
			seen := map[string]bool{}
			stack := []*world{newWorld(tt.lost, tt.crashes)}
			for len(stack) > 0 {
				w := stack[len(stack)-1]
				stack = stack[:len(stack)-1]
				if key := w.key(); seen[key] {
					continue
				} else {
					seen[key] = true
				}
				following := w.next()
				w.check(t, len(following) == 0, tt.lost)
				stack = append(stack, following...)
			}
			t.Logf("%d states", len(seen))
		})
	}
}

// TestManyRanks takes random ways through the states of larger groups.
func TestManyRanks(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		ranks := 4 + r.IntN(5)
		lost := make([][]int, ranks)
		for rank := range lost {
			lost[rank] = []int{}
		}
		w := newWorld(lost, r.IntN(4))
		for {
			following := w.next()
			w.check(t, len(following) == 0, lost)
			if len(following) == 0 {
				break
			}
			w = following[r.IntN(len(following))]
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"round":1,"lost":[1,3]}`), 4)
	f.Add([]byte(`{"round":2,"lost":[],"decided":true}`), 3)
	f.Fuzz(func(t *testing.T, text []byte, ranks int) {
		m, err := Parse(text, ranks)
		if err != nil {
			return
		}
		machine := New(0, ranks, nil, false)
		machine.Begin()
		if ranks > 1 {
			machine.Hear(1, m)
		}
		again, err := Parse(m.Encode(), ranks)
		require.NoError(t, err)
		require.Equal(t, m.Round, again.Round)
	})
}
