package program_test

import (
	"fmt"
	"maps"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo/algotest"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/plan/reference"
	"github.com/goccl/goccl/ccl/program"
	"github.com/goccl/goccl/ccl/verify"
)

// inTurn returns a plan as operations over windows run it: once for each layout of its windows,
// with short and with long blocks.
func inTurn(t *testing.T, s algotest.Subject, ranks int) (ops []verify.Operation) {
	t.Helper()
	p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: ranks, Shape: s.Shape})
	require.NoError(t, err)
	short, long, err := program.AsRun(p, true)
	require.NoError(t, err)
	for _, elements := range []int{1, 100_000} {
		slots, turns, err := program.Turns(p, elements)
		require.NoError(t, err)
		for _, op := range []verify.Operation{short, long} {
			op.Slots, op.Turns = slots, turns
			if !slices.ContainsFunc(ops, func(o verify.Operation) bool {
				return o.Slots == slots && o.Plan == op.Plan
			}) {
				ops = append(ops, op)
			}
		}
	}
	return ops
}

// round is a number of operations greater than that of records, so that every record is used again.
const round = plan.WindowRecords + 2

// Operations may follow themselves and each other in the records and slots that groups give them.
func TestCatalogueInSequence(t *testing.T) {
	most := 5
	if testing.Short() {
		most = 3
	}
	dice := rand.New(rand.NewSource(1))
	layouts, sequences := map[int]int{}, 0
	for ranks := 1; ranks <= most; ranks++ {
		all, _ := algotest.Subjects(ranks)
		var any []verify.Operation
		for _, s := range all {
			for _, op := range inTurn(t, s, ranks) {
				layouts[op.Slots]++
				any = append(any, op)
				times := round
				if op.Slots == 0 {
					times = 2 // no slot is used again
				}
				require.NoError(t, verify.Sequence(slices.Repeat([]verify.Operation{op}, times), verify.Options{}),
					"%v/%s %v on %d ranks, %d slots", s.Coll, s.Name, s.Shape, ranks, op.Slots)
				sequences++
			}
		}
		for range 100 {
			var ops []verify.Operation
			for range round + dice.Intn(round) {
				ops = append(ops, any[dice.Intn(len(any))])
			}
			require.NoError(t, verify.Sequence(ops, verify.Options{}), "%d ranks: %s", ranks, namesOf(ops))
			sequences++
		}
	}
	t.Logf("%d sequences; by slots: %v", sequences, layouts)
	require.Equal(t, []int{0, plan.WindowSlots, plan.WindowRecords}, slices.Sorted(maps.Keys(layouts)))
}

func namesOf(ops []verify.Operation) string {
	var names []string
	for _, o := range ops {
		names = append(names, fmt.Sprintf("%v/%s in %d", o.Plan.Spec.Coll, o.Plan.Name, o.Slots))
	}
	return strings.Join(names, ", ")
}

// tally counts mutants by what was changed: those that were killed, those of them that failed in a
// random schedule, and all.
type tally map[string][3]int

// judge tries to prove ops, a sequence with a mistake. If the proof succeeds, operations as they
// really run must do the same as the plan in random schedules. If it fails, judge counts whether
// ops also fail in one of a few such schedules.
func (c tally) judge(t *testing.T, what string, p *plan.Plan, ops, really []verify.Operation, dice *rand.Rand) {
	t.Helper()
	const schedules = 16
	n := c[what]
	n[2]++
	if verify.Sequence(ops, verify.Options{Brief: true}) != nil {
		n[0]++
		for range schedules {
			if inOrder(p, ops, dice) != nil {
				n[1]++
				break
			}
		}
	} else {
		for range schedules {
			require.NoError(t, inOrder(p, really, dice), "%s: %s on %d ranks", what, namesOf(really), p.Spec.Ranks)
		}
	}
	c[what] = n
}

func (c tally) report(t *testing.T) (killed, wrong, total int) {
	t.Helper()
	for _, what := range slices.Sorted(maps.Keys(c)) {
		n := c[what]
		t.Logf("%s: %d of %d killed; %d of these went wrong", what, n[0], n[2], n[1])
		killed, wrong, total = killed+n[0], wrong+n[1], total+n[2]
	}
	t.Logf("%d of %d killed; %d of these went wrong, the other %d do the same as before",
		killed, total, wrong, total-killed)
	return killed, wrong, total
}

// If a group lets a rank be one operation further ahead than its records or slots allow, this is
// found, or it is harmless: where ranks receive signals from each other in every operation, none
// gets so far ahead.
func TestMutantsOfTurns(t *testing.T) {
	most := 4
	if testing.Short() {
		most = 3
	}
	dice := rand.New(rand.NewSource(2))
	found := tally{}
	for ranks := 2; ranks <= most; ranks++ {
		all, _ := algotest.Subjects(ranks)
		for _, s := range all {
			p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: ranks, Shape: s.Shape})
			require.NoError(t, err)
			for _, op := range inTurn(t, s, ranks) {
				if op.Slots == 0 {
					continue
				}
				slots, records := op, op
				slots.Turns++
				records.Slots, records.Turns = verify.MaxSequence, op.Records+1
				judge := func(mutant verify.Operation, format string, args ...any) {
					ops := slices.Repeat([]verify.Operation{mutant}, round)
					found.judge(t, fmt.Sprintf(format, args...), p, ops, ops, dice)
				}
				judge(slots, "%d turns for %d slots", slots.Turns, op.Slots)
				judge(records, "%d turns for %d records", records.Turns, op.Records)
			}
		}
	}
	killed, wrong, _ := found.report(t)
	require.Greater(t, wrong, killed/2)
}

// A rank that enters its slot late, leaves it early, or ends before its peers have read the memory
// that it lends is found, or does the same as before. One slot shows the mistakes best, since each
// operation then uses the slot of the operation before.
func TestMutantsOfEnds(t *testing.T) {
	ranks := []int{2, 3}
	if testing.Short() {
		ranks = ranks[:1]
	}
	dice := rand.New(rand.NewSource(3))
	found := tally{}
	for _, n := range ranks {
		all, _ := algotest.Subjects(n)
		for _, s := range all {
			p, err := s.Make(plan.Spec{Coll: s.Coll, Ranks: n, Shape: s.Shape})
			require.NoError(t, err)
			slots, turns, err := program.Turns(p, 100_000)
			require.NoError(t, err)
			for rank := range n {
				require.NoError(t, program.EndMutants(p, rank%2 == 1, rank, func(what string, mutant verify.Operation) {
					one, real := mutant, mutant
					one.Slots, one.Turns, one.Records = 1, 1, min(1, mutant.Records)
					real.Slots, real.Turns = slots, turns
					found.judge(t, strings.TrimPrefix(what, fmt.Sprintf("rank %d ", rank)), p,
						[]verify.Operation{one, one, one},
						slices.Repeat([]verify.Operation{real}, round), dice)
				}))
			}
		}
	}
	killed, wrong, total := found.report(t)
	require.Greater(t, killed, total/2)
	require.Greater(t, wrong, killed/2)
}

// sequenced runs operations one after the other at each rank, as simply as package reference runs
// one operation, in a random schedule.
type sequenced struct {
	ops   []verify.Operation
	each  []*reference.Interpreter[int32] // by operation
	ends  [][]verify.Ends                 // by operation and rank
	frees []int                           // by operation: the one that all ranks must have left before; -1 for none
	left  []int                           // by operation: how many ranks have left
	at    []int                           // by rank: the operation that it is in
	gone  []bool                          // by rank: it has left that operation
	lends [][]bool                        // by operation and rank
	turn  []int                           // by operation: the number of operations over windows before it
	heard map[[2]int]int                  // by rank and record: the operation whose signals are in it
	wrong error
	got   [][][][]int32 // by operation and rank: the blocks of Out
}

// inOrder compares the results of operations that have the steps of p with those of p.
func inOrder(p *plan.Plan, ops []verify.Operation, dice *rand.Rand) error {
	ranks := p.Spec.Ranks
	length := func(plan.Extent) int { return 4 * p.Split }
	m := &sequenced{ops: ops, at: make([]int, ranks), gone: make([]bool, ranks), left: make([]int, len(ops)),
		heard: map[[2]int]int{}}
	slots := map[[3]int][]int32{} // by rank, slot, chunk
	some := dice.Intn(2) == 0     // some ranks lend; a rank that lends and drains is not far ahead of others
	var with []int
	var want [][][][]int32
	for k, op := range ops {
		in := reference.RandomBlocks(p, dice)
		out, err := reference.Run(p, dtype.Sum, 1, in, length)
		if err != nil {
			return err
		}
		want, m.got = append(want, out), append(m.got, make([][][]int32, ranks))
		one := reference.New(op.Plan, dtype.Sum, 1, in, length)
		m.each, m.ends, m.frees = append(m.each, one), append(m.ends, make([]verify.Ends, ranks)), append(m.frees, -1)
		m.lends, m.turn = append(m.lends, make([]bool, ranks)), append(m.turn, len(with))
		if op.Slots == 0 {
			continue
		}
		if before := len(with) - op.Turns; before >= 0 {
			m.frees[k] = with[before]
		}
		for rank := range ranks {
			m.ends[k][rank] = op.Ends(rank)
			lent := one.Programs[rank].Lent()
			m.lends[k][rank] = some && op.Plan.Alias&plan.Lend != 0 && dice.Intn(2) == 0
			for i := range one.Memory[rank][plan.Win] {
				key := [3]int{rank, len(with) % op.Slots, i}
				if slots[key] == nil {
					slots[key] = make([]int32, 4)
				}
				one.Memory[rank][plan.Win][i] = slots[key]
				if r := lent[i]; m.lends[k][rank] && r.N > 0 {
					one.Memory[rank][plan.Win][i] = one.Memory[rank][r.Buf][r.At]
				}
			}
		}
		with = append(with, k)
	}
	// The slow rank moves only when no other rank can, so that the others get as far ahead of it as
	// they may; -1: there is none.
	slow := dice.Intn(ranks+1) - 1
	for moved := true; moved; {
		moved = false
		for _, rank := range dice.Perm(ranks) {
			for rank != slow && m.move(rank, dice) {
				moved = true
				if dice.Intn(8) == 0 {
					break
				}
			}
		}
		if !moved && slow >= 0 {
			moved = m.move(slow, dice)
		}
	}
	for rank, at := range m.at {
		if m.wrong != nil {
			return m.wrong
		} else if at < len(ops) {
			return fmt.Errorf("rank %d is stuck in operation %d", rank, at)
		}
	}
	for k := range ops {
		if !reflect.DeepEqual(m.got[k], want[k]) {
			return fmt.Errorf("operation %d: got %v, want %v", k, m.got[k], want[k])
		}
	}
	return nil
}

// move executes a step of a rank, or ends its operation, if possible.
func (m *sequenced) move(rank int, dice *rand.Rand) bool {
	k := m.at[rank]
	if k == len(m.ops) {
		return false
	}
	one, ends := m.each[k], m.ends[k][rank]
	pcs, windows := one.PC[rank], m.ops[k].Slots > 0
	inside, over := false, true
	for lane, steps := range one.Programs[rank].Lanes {
		inside = inside || windows && pcs[lane] < min(ends.Leave[lane], len(steps))
		over = over && pcs[lane] == len(steps)
	}
	if windows && !inside && !m.gone[rank] && !ends.Never {
		m.gone[rank] = true
		m.left[k]++
		return true
	}
	if over {
		if ends.Drain && m.lends[k][rank] && m.left[k] < len(m.at) {
			return false
		}
		m.got[k][rank] = one.Out(rank)
		for _, buf := range []plan.Buffer{plan.In, plan.Out} { // these belong to the caller again
			for _, chunk := range one.Memory[rank][buf] {
				for i := range chunk {
					chunk[i] = -1
				}
			}
		}
		m.at[rank]++
		m.gone[rank] = false
		return true
	}
	for _, lane := range dice.Perm(len(pcs)) {
		if windows && pcs[lane] >= ends.Enter[lane] && m.frees[k] >= 0 && m.left[m.frees[k]] < len(m.at) {
			continue
		}
		if one.Step(rank, lane) {
			m.record(k, rank, &one.Programs[rank].Lanes[lane][pcs[lane]-1])
			return true
		}
	}
	return false
}

// record updates and checks records after a step.
func (m *sequenced) record(k, rank int, s *plan.Step) {
	if m.ops[k].Records == 0 {
		return
	}
	turn := m.turn[k] % m.ops[k].Records
	switch s.Kind {
	case plan.Signal:
		m.heard[[2]int{rank, turn}] = k
	case plan.Wait:
		if of := m.heard[[2]int{s.Peer, turn}]; of != k {
			m.wrong = fmt.Errorf("operation %d of rank %d looks into a record of rank %d that has operation %d",
				k, rank, s.Peer, of)
		}
	}
}
