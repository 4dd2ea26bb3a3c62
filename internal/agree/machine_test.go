package agree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/member"
)

// world is a state of all ranks and of the messages between them.
type world struct {
	machines []*Machine
	begun    []bool
	crashed  []bool
	wires    map[[2]int][]*Message // from, to
	told     map[[2]int]bool       // of a death: who died, who knows
	crashes  int                   // how many may follow
	part     []int                 // where the network is cut: of each rank
	cuts     int                   // whether it may be cut yet
	cut      bool
	mutant   mutant
}

// mutant changes what a rank hears, or makes of it.
type mutant struct {
	what   string
	change func(m *Message)
	after  func(before, m *Machine, heard *Message)
}

func newWorld(lost [][]int, crashes int) *world {
	w := &world{wires: map[[2]int][]*Message{}, told: map[[2]int]bool{}, crashes: crashes,
		begun: make([]bool, len(lost)), crashed: make([]bool, len(lost))}
	for rank, each := range lost {
		w.machines = append(w.machines, New(rank, len(lost), each, nil, rank == 1, rank == 0))
	}
	return w
}

func cloneOf(m *Machine) *Machine {
	n := *m
	n.lost, n.dead = slices.Clone(m.lost), slices.Clone(m.dead)
	n.gone, n.proven = slices.Clone(m.gone), slices.Clone(m.proven)
	n.heard, n.before, n.early = slices.Clone(m.heard), slices.Clone(m.before), maps.Clone(m.early)
	return &n
}

func (w *world) clone() *world {
	c := *w
	c.machines = nil
	for _, m := range w.machines {
		c.machines = append(c.machines, cloneOf(m))
	}
	c.begun, c.crashed = slices.Clone(w.begun), slices.Clone(w.crashed)
	c.wires, c.told = maps.Clone(w.wires), maps.Clone(w.told)
	return &c
}

// key tells states apart.
func (w *world) key() string {
	var b []byte
	flags := func(set ...bool) {
		for _, in := range set {
			b = append(b, '0')
			if in {
				b[len(b)-1]++
			}
		}
	}
	flags(w.cut)
	for rank, m := range w.machines {
		flags(w.begun[rank], w.crashed[rank], m.veto, m.known, m.decided, m.before == nil)
		for _, set := range [][]bool{m.lost, m.dead, m.gone, m.proven, m.heard, m.before} {
			flags(set...)
		}
		b = append(b, byte(m.round))
		for peer := range w.machines {
			at := [2]int{rank, peer}
			flags(w.told[at])
			b = append(b, byte(len(m.early[peer])))
			for _, queue := range [][]*Message{m.early[peer], w.wires[at]} {
				for _, each := range queue {
					b = append(append(b, byte(each.Round)), each.Encode()...)
				}
			}
		}
	}
	return string(b)
}

// apart reports whether the network is cut between two ranks.
func (w *world) apart(a, b int) bool { return w.cut && w.part[a] != w.part[b] }

// tell puts what a rank says on the wires to all that it does not count among the lost.
func (w *world) tell(rank int, messages []*Message) {
	for _, message := range messages {
		for peer := range w.machines {
			if wire := [2]int{rank, peer}; peer != rank && !w.machines[rank].gone[peer] && !w.crashed[peer] &&
				!w.apart(rank, peer) {
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
					for _, proof := range []bool{true, false} { // a pidfd, or silence
						add(func(n *world) {
							n.told[at] = true
							n.tell(peer, n.machines[peer].Gone(rank, proof))
						})
					}
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
					n.hear(rank, peer, message)
				})
			}
		}
		for peer := range w.machines { // they lose each other after what had come
			if at := [2]int{peer, rank}; w.apart(peer, rank) && w.begun[rank] && !w.told[at] && len(w.wires[at]) == 0 {
				add(func(n *world) {
					n.told[at] = true
					n.tell(rank, n.machines[rank].Gone(peer, false))
				})
			}
		}
		if w.crashes > 0 {
			for _, n := range w.cutShort(func(from, to int) bool { return from == rank }) {
				n.crashes--
				n.crashed[rank] = true
				for peer := range w.machines {
					delete(n.wires, [2]int{peer, rank})
				}
				all = append(all, n)
			}
		}
	}
	if w.cuts > 0 {
		for _, n := range w.cutShort(func(from, to int) bool { return w.part[from] != w.part[to] }) {
			n.cuts--
			n.cut = true
			all = append(all, n)
		}
	}
	return all
}

// hear hands a message to a rank.
func (w *world) hear(rank, from int, message *Message) {
	m := w.machines[rank]
	if w.mutant.change != nil {
		changed := *message
		w.mutant.change(&changed)
		message = &changed
	}
	before := cloneOf(m)
	answers := m.Hear(from, message)
	if w.mutant.after != nil {
		w.mutant.after(before, m, message)
	}
	w.tell(rank, answers)
}

// cutShort returns the states in which of the messages on some wires the first ones arrive only:
// any number of them.
func (w *world) cutShort(which func(from, to int) bool) []*world {
	states := []*world{w.clone()}
	for from := range w.machines {
		for to := range w.machines {
			if !which(from, to) {
				continue
			}
			var more []*world
			for _, state := range states {
				wire := [2]int{from, to}
				for left := range len(state.wires[wire]) + 1 {
					n := state.clone()
					n.wires[wire] = n.wires[wire][:left]
					more = append(more, n)
				}
			}
			states = more
		}
	}
	return states
}

// wrong returns what is wrong: ranks of one part have decided differently, or for what is not true,
// parts that may go on have no rank in common, or nothing more can happen although a rank has not
// decided.
func (w *world) wrong(over bool, lost [][]int) string {
	var all []*Message
	for rank, m := range w.machines {
		settled := m.Decided()
		if settled == nil && over && !w.crashed[rank] {
			return fmt.Sprintf("rank %d waits for %v for ever", rank, m.Awaited())
		}
		if settled == nil || w.crashed[rank] {
			continue
		}
		if !w.cut && !settled.Veto && !w.crashed[1] {
			return "the veto of rank 1 is lost"
		}
		if !w.cut && !settled.Known && !w.crashed[0] {
			return "what rank 0 knows is lost"
		}
		for _, each := range lost[rank] {
			if !slices.Contains(settled.Lost, each) {
				return fmt.Sprintf("rank %d has forgotten that it lost rank %d", rank, each)
			}
		}
		for _, each := range settled.Dead {
			if !w.crashed[each] || !slices.Contains(settled.Lost, each) {
				return fmt.Sprintf("rank %d is called dead", each)
			}
		}
		for _, each := range settled.Lost {
			known := slices.ContainsFunc(lost, func(l []int) bool { return slices.Contains(l, each) })
			if !known && !w.crashed[each] && !w.cut {
				return fmt.Sprintf("rank %d is lost, and lives", each)
			}
		}
		for other, theirs := range all {
			if theirs == nil {
				continue
			}
			if w.part == nil || w.part[other] == w.part[rank] {
				if !slices.Equal(theirs.Lost, settled.Lost) || !slices.Equal(theirs.Dead, settled.Dead) ||
					theirs.Veto != settled.Veto || theirs.Known != settled.Known {
					return fmt.Sprintf("ranks decide differently: %+v, %+v", *theirs, *settled)
				}
				continue
			}
			mine, others := w.goOn(settled), w.goOn(theirs)
			common := func(rank int) bool { return slices.Contains(others, rank) }
			if len(mine) > 0 && len(others) > 0 && !slices.ContainsFunc(mine, common) {
				return fmt.Sprintf("two parts go on: %+v, %+v", *theirs, *settled)
			}
		}
		for len(all) < rank {
			all = append(all, nil)
		}
		all = append(all, settled)
	}
	return ""
}

// goOn returns the ranks that go on after a decision, by the rule of the majority.
func (w *world) goOn(m *Message) (ranks []int) {
	if member.Majority.Allows(len(w.machines), m.Lost, m.Dead) {
		for rank := range w.machines {
			if !slices.Contains(m.Lost, rank) {
				ranks = append(ranks, rank)
			}
		}
	}
	return ranks
}

// explore takes a world through every order of events, until something is wrong.
func explore(w *world, lost [][]int) (states int, wrong string) {
	seen := map[string]bool{}
	for stack := []*world{w}; len(stack) > 0; {
		w := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		key := w.key()
		if seen[key] {
			continue
		}
		seen[key] = true
		following := w.next()
		if wrong := w.wrong(len(following) == 0, lost); wrong != "" {
			return len(seen), fmt.Sprintf("%s, in %q", wrong, key)
		}
		stack = append(stack, following...)
	}
	return len(seen), ""
}

var scenes = []struct {
	lost    [][]int // what each rank knows at first
	crashes int
	part    []int
}{
	{[][]int{{}, {}, {}}, 1, nil},
	{[][]int{{}, {}, {}}, 2, nil},
	{[][]int{{}, {}}, 1, nil},
	{[][]int{{2}, {}, {}}, 0, nil}, // rank 2 takes part, but is excluded
	{[][]int{{}, {}}, 0, []int{0, 1}},
	{[][]int{{}, {}, {}}, 0, []int{0, 0, 1}},
}

func sceneOf(i int) *world {
	w := newWorld(scenes[i].lost, scenes[i].crashes)
	if w.part = scenes[i].part; w.part != nil {
		w.cuts = 1
	}
	return w
}

// TestAllInterleavings explores every order of messages, deaths and cuts of 3 ranks. Each rank may
// have proof of a death, or not.
func TestAllInterleavings(t *testing.T) {
	for i, scene := range scenes {
		t.Run(fmt.Sprintf("%v/%d/%v", scene.lost, scene.crashes, scene.part), func(t *testing.T) {
			states, wrong := explore(sceneOf(i), scene.lost)
			require.Empty(t, wrong)
			t.Logf("%d states", states)
		})
	}
}

// TestMutants changes the machine: each change is found.
func TestMutants(t *testing.T) {
	decided := func(change func(m *Message)) func(m *Message) {
		return func(m *Message) {
			if m.Decided {
				change(m)
			}
		}
	}
	for _, mutant := range []mutant{
		{"no veto is told", func(m *Message) { m.Veto = false }, nil},
		{"what is known is not told", func(m *Message) { m.Known = false }, nil},
		{"a decision is told without what is known", decided(func(m *Message) { m.Known = false }), nil},
		{"a decision is told without the dead", decided(func(m *Message) { m.Dead = nil }), nil},
		{"a decision is told without the lost", decided(func(m *Message) { m.Lost, m.Dead = nil, nil }), nil},
		{"a decision is told as another round", decided(func(m *Message) { m.Decided = false }), nil},
		{"proof of death is not told", func(m *Message) {
			if !m.Decided {
				m.Dead = nil
			}
		}, nil},
		{"what is lost is not told", func(m *Message) {
			if !m.Decided {
				m.Lost, m.Dead = nil, nil
			}
		}, nil},
		{"silence is called death", func(m *Message) { m.Dead = m.Lost }, nil},
		{"own proof is added to a decision", nil, func(before, m *Machine, heard *Message) {
			for rank := range m.dead {
				m.dead[rank] = m.dead[rank] || heard.Decided && (before.dead[rank] || before.proven[rank])
			}
		}},
		{"own losses are added to a decision", nil, func(before, m *Machine, heard *Message) {
			for rank := range m.lost {
				m.lost[rank] = m.lost[rank] || heard.Decided && before.lost[rank]
			}
		}},
		{"the first complete round decides", nil, func(before, m *Machine, heard *Message) {
			m.decided = m.decided || m.round > before.round
		}},
	} {
		t.Run(mutant.what, func(t *testing.T) {
			for i, scene := range scenes {
				w := sceneOf(i)
				w.mutant = mutant
				if states, wrong := explore(w, scene.lost); wrong != "" {
					t.Logf("found after %d states: %s", states, wrong)
					return
				}
			}
			t.Error("nothing is wrong")
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
			require.Empty(t, w.wrong(len(following) == 0, lost))
			if len(following) == 0 {
				break
			}
			w = following[r.IntN(len(following))]
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"round":1,"lost":[1,-4]}`), 4)
	f.Add([]byte(`{"round":2,"lost":[],"decided":true}`), 3)
	f.Fuzz(func(t *testing.T, text []byte, ranks int) {
		if ranks < 1 || ranks > 4096 {
			t.Skip("the number of ranks is this rank's own")
		}
		m, err := Parse(text, ranks)
		if err != nil {
			return
		}
		machine := New(0, ranks, nil, nil, false, true)
		machine.Begin()
		if ranks > 1 {
			machine.Hear(1, m)
		}
		again, err := Parse(m.Encode(), ranks)
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}
