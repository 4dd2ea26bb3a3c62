package verify_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// TestBrokenSequences has plans that fail when they follow one another: the counterexamples are as
// small as those of single plans.
func TestBrokenSequences(t *testing.T) {
	dissemination, err := algo.Find(dtype.Barrier, "dissemination")
	if err != nil {
		t.Fatal(err)
	}
	rounds, err := dissemination.Make(plan.Spec{Coll: dtype.Barrier, Ranks: 4})
	if err != nil {
		t.Fatal(err)
	}
	put, packets, gets, barrier := putBroadcast(3), packetReduce(3), getReduce(3), signalBarrier(3)
	send := plan.Step{Kind: plan.Send, Src: []plan.Ref{ref(plan.In, 0)}, Peer: 1}
	recv := plan.Step{Kind: plan.Recv, Dst: ref(plan.Out, 0), Peer: 0}
	two := plan.Spec{Coll: dtype.Broadcast, Ranks: 2}
	table := []struct {
		name    string
		plans   []*plan.Plan
		credits bool
		reason  verify.Reason
		steps   int // of the counterexample
		text    string
	}{
		{"a slot is used again too early", []*plan.Plan{put, put, put}, false, verify.Race, 2, "the same slot"},
		{"a signal of one plan meets a wait of the next", []*plan.Plan{gets, edit(put, 0, add(0, signal(1))),
			edit(barrier, 1, func(p *plan.Program) { p.Lanes[0] = append([]plan.Step{wait(0)}, p.Lanes[0]...) })}, true,
			verify.Crossed, 2, "takes what"},
		{"a put whose signal is in the next plan", []*plan.Plan{edit(packets, 0, add(0, put3(2))), put}, true,
			verify.Late, 1,
			"rank 2 may end, and a later operation use its window, before what plan 0, rank 0, lane 0, step 6 (put win[2]@2 = in[0]) puts has arrived"},
		{"a signal left over", []*plan.Plan{put, edit(barrier, 2, add(0, signal(0)))}, true, verify.Unwaited, 1,
			"rank 0 does not wait for the signal of plan 1"},
		{"nobody writes the result of the second", []*plan.Plan{gets, edit(put, 0, drop(0, 0))}, true,
			verify.Unwritten, 0, "rank 0 ends without having written"},
		{"a contribution is missing in the third", []*plan.Plan{put, gets,
			edit(packets, 1, change(0, 5, func(s *plan.Step) { s.Src, s.Final = s.Src[1:], false }))}, true,
			verify.Missing, 3, "lacks in[0] of rank 0"},
		{"a plan waits for the slot that a message of its own must free", []*plan.Plan{
			windowed(two, lanes([]plan.Step{copied(ref(plan.Out, 0), ref(plan.In, 0))}), lanes([]plan.Step{recv})),
			putBroadcast(2),
			windowed(two, plan.Program{Win: []plan.Extent{{}},
				Lanes: [][]plan.Step{{copied(ref(plan.Win, 0), ref(plan.In, 0)), send}}}, lanes()),
		}, true, verify.Deadlock, 3, "plan 0, rank 1, lane 0, step 0 (recv out[0] from 0)"},
		{"a barrier that is none, before one",
			[]*plan.Plan{putBroadcast(4), edit(rounds, 0, change(0, 1, free)), rounds}, true,
			verify.NotABarrier, 0, "may leave before"},
	}
	for _, test := range table {
		t.Run(test.name, func(t *testing.T) {
			run := verify.SequenceWithoutCredits
			if test.credits {
				run = func(plans []*plan.Plan) error {
					return verify.Sequence(verify.WithSlots(plans...), verify.Options{})
				}
			}
			err := run(test.plans)
			var bad *verify.Counterexample
			if !errors.Is(err, fault.Invalid) || !errors.As(err, &bad) {
				t.Fatalf("got %v, want a counterexample", err)
			}
			if bad.Reason != test.reason || len(bad.Steps) != test.steps || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want %v of %d steps with %q", err, test.reason, test.steps, test.text)
			}
			minimal(t, test.plans, test.credits, bad)
		})
	}
}

// put3 returns a put into chunk 2 of the window of a rank of packetReduce(3).
func put3(to int) plan.Step { return put(ref(plan.Win, 2), ref(plan.In, 0), to) }

// TestBrokenWindows has single plans whose failure takes more than one step, or more than one kind
// of step, to show.
func TestBrokenWindows(t *testing.T) {
	in, win := ref(plan.In, 0), ref(plan.Win, 0)
	table := []struct {
		name   string
		plan   *plan.Plan
		reason verify.Reason
		steps  int
		text   string
	}{
		{"a window is overwritten while others read it", edit(getReduce(3), 0, add(0, copied(win, in))), verify.Race, 2,
			"nothing orders the two"},
		{"two ranks put into one place", edit(packetReduce(3), 1, change(0, 0, func(s *plan.Step) { s.Dst.At = 0 })),
			verify.Race, 2, "win[0] of rank 2"},
		{"a sum counts a packet twice",
			edit(packetReduce(3), 2, change(0, 5, func(s *plan.Step) { s.Src[0] = s.Src[1] })),
			verify.Twice, 4, "a sum that has it already"},
		{"a sum of windows lacks a rank", edit(getReduce(3), 1, change(0, 5, func(s *plan.Step) {
			s.Src, s.From, s.Final = s.Src[:2], s.From[:2], false
		})), verify.Missing, 5, "lacks in[0] of rank 2"},
		{"a sum of windows is not final", edit(getReduce(2), 1, change(0, 3, func(s *plan.Step) { s.Final = false })),
			verify.PostScale, 5, "no step has marked Final"},
		{"a circle of a message and a signal", windowed(plan.Spec{Coll: dtype.Barrier, Ranks: 3},
			lanes([]plan.Step{wait(2), {Kind: plan.Send, Src: []plan.Ref{{}}, Peer: 1}}),
			lanes([]plan.Step{{Kind: plan.Recv, Dst: plan.Ref{Buf: plan.Out}, Peer: 0}, signal(2)}),
			lanes([]plan.Step{wait(1), signal(0)})), verify.Deadlock, 6, "which waits for the first"},
		{"a put whose signal comes before it", beside(false, signal(1)), verify.Late, 1, "rank 0 gives after it"},
		{"a put and its signal in different lanes", beside(false), verify.Late, 1, "rank 0 gives after it"},
	}
	for _, test := range table {
		t.Run(test.name, func(t *testing.T) {
			rejected(t, test.plan, test.reason, false, test.text)
			_, err := verify.Plan(test.plan, verify.Options{})
			var bad *verify.Counterexample
			if errors.As(err, &bad) && len(bad.Steps) != test.steps {
				t.Errorf("%d steps, want %d: %v", len(bad.Steps), test.steps, err)
			}
		})
	}
	if _, err := verify.Plan(beside(true), verify.Options{}); err != nil {
		t.Errorf("a signal that comes after a put in another lane: %v", err)
	}
}

// beside returns a plan with a broadcast to rank 1 by packet, and a put into its window that no
// step reads, followed by a signal of another lane: after the put if ordered, else concurrent with
// it. The steps of first come before the put, in its lane.
func beside(ordered bool, first ...plan.Step) *plan.Plan {
	in, out := ref(plan.In, 0), ref(plan.Out, 0)
	last := plan.Step{Kind: plan.Signal, Peer: 1, Chan: 1}
	if ordered {
		last.After = []plan.Point{{Lane: 0, Step: len(first)}}
	}
	var waits []plan.Step
	for _, s := range first {
		if s.Kind == plan.Signal {
			waits = append(waits, wait(0))
		}
	}
	waits = append(waits, plan.Step{Kind: plan.Wait, Peer: 0, Chan: 1}, plan.Step{Kind: plan.Wait, Peer: 0, Chan: 2},
		copied(out, ref(plan.Win, 1)))
	data := packet(ref(plan.Win, 1), in, 1)
	data.Chan = 2
	return windowed(plan.Spec{Coll: dtype.Broadcast, Ranks: 2},
		lanes(append(first, put(ref(plan.Win, 0), in, 1)), []plan.Step{last}, []plan.Step{copied(out, in), data}),
		plan.Program{Win: []plan.Extent{{}, {}}, Lanes: [][]plan.Step{waits}})
}

// TestRandomSequences verifies random sequences of plans that are right individually, each
// operation in slots or records: all sequences are right, as the package comment argues.
func TestRandomSequences(t *testing.T) {
	rng := rand.New(rand.NewPCG(17, 18))
	byRanks := map[int][]*plan.Plan{}
	add := func(p *plan.Plan) { byRanks[p.Spec.Ranks] = append(byRanks[p.Spec.Ranks], p) }
	names, right := planFiles(t, "right")
	for _, name := range names {
		add(right[name])
	}
	for _, ranks := range []int{2, 3, 4} {
		for _, name := range slices.Sorted(maps.Keys(oneSided)) {
			add(oneSided[name](ranks))
		}
		for _, a := range algo.All() {
			if p, err := a.Make(plan.Spec{Coll: a.Coll, Ranks: ranks}); err == nil {
				add(p)
			}
		}
	}
	for range 1500 {
		plans := byRanks[2+rng.IntN(3)]
		var ops []verify.Operation
		for range 2 + rng.IntN(2*plan.WindowRecords) {
			slots := []int{plan.WindowSlots, plan.WindowRecords, 1}[rng.IntN(3)]
			ops = append(ops, verify.Operation{Plan: plans[rng.IntN(len(plans))], Slots: slots})
		}
		if err := verify.Sequence(ops, verify.Options{}); err != nil {
			for _, o := range ops {
				t.Log(o.Plan.Name, o.Slots)
			}
			t.Fatal(err)
		}
	}
}

// TestSlots: as many operations fit side by side as there are slots, and no more.
func TestSlots(t *testing.T) {
	for _, slots := range []int{plan.WindowSlots, plan.WindowRecords} {
		if err := verify.Sequence(verify.Repeat(putBroadcast(3), slots, 2*slots+1), verify.Options{}); err != nil {
			t.Errorf("%d slots: %v", slots, err)
		}
		if err := verify.RepeatWithoutCredits(putBroadcast(3), slots, slots); err != nil {
			t.Errorf("%d slots for as many operations: %v", slots, err)
		}
		err := verify.RepeatWithoutCredits(putBroadcast(3), slots, slots+1)
		var bad *verify.Counterexample
		if !errors.As(err, &bad) || bad.Reason != verify.Race || !strings.Contains(err.Error(), "the same slot") {
			t.Errorf("%d slots, one operation more: %v, want a race", slots, err)
		}
	}
}

// TestEnds has operations that do not enter, leave or end where they should.
func TestEnds(t *testing.T) {
	p := getBroadcast(3)
	p.Alias |= plan.Lend
	right := func(rank int) verify.Ends {
		return verify.Ends{Enter: []int{0}, Leave: []int{plan.Len(p.Program(rank).Lanes[0])}, Drain: true}
	}
	but := func(wrong int, change func(*verify.Ends)) func(int) verify.Ends {
		return func(rank int) verify.Ends {
			e := right(rank)
			if rank == wrong {
				change(&e)
			}
			return e
		}
	}
	for _, test := range []struct {
		name           string
		ends           func(rank int) verify.Ends
		slots, records int
		want           string
	}{
		{"right", right, 1, 1, ""},
		{"right, in more slots", right, plan.WindowSlots, plan.WindowRecords, ""},
		{"rank 0 enters when it has written", but(0, func(e *verify.Ends) { e.Enter[0] = 2 }), 1, 0, "the same slot"},
		{"rank 0 does not enter", but(0, func(e *verify.Ends) { e.Enter = nil }), 1, 0, "the same slot"},
		{"rank 1 leaves before it reads", but(1, func(e *verify.Ends) { e.Leave[0] = 1 }), 1, 0, "the same slot"},
		{"rank 2 leaves before it begins", but(2, func(e *verify.Ends) { e.Leave[0] = 0 }), 1, 0, "the same slot"},
		{"rank 2 does not leave", but(2, func(e *verify.Ends) { e.Never = true }), 1, 1, "deadlock"},
		{"rank 0 does not drain", but(0, func(e *verify.Ends) { e.Drain = false }), 1, 1, "caller"},
		{"rank 1, which lends nothing, does not drain", but(1, func(e *verify.Ends) { e.Drain = false }), 1, 1, ""},
		{"rank 0 drains before it leaves", but(0, func(e *verify.Ends) { e.Never = true }), 2, 8, "deadlock"},
		{"a record is used again too early", right, verify.MaxSequence, 1, "the record of rank 0"},
		{"a slot is used again too early", right, 1, plan.WindowRecords, "the same slot"},
	} {
		t.Run(test.name, func(t *testing.T) {
			op := verify.Operation{Plan: p, Slots: test.slots, Records: test.records, Ends: test.ends}
			if strings.HasSuffix(test.name, "used again too early") {
				op.Turns = 2
			}
			err := verify.Sequence(slices.Repeat([]verify.Operation{op}, 4), verify.Options{})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, fault.Invalid)
			require.ErrorContains(t, err, test.want)
		})
	}
	bad := verify.Operation{Plan: p, Turns: -1}
	require.ErrorContains(t, verify.Sequence([]verify.Operation{bad, bad}, verify.Options{}), "-1 turns")
}
