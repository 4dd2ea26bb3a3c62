package verify_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/goccl/goccl/ccl/algo"
	"github.com/goccl/goccl/ccl/dtype"
	"github.com/goccl/goccl/ccl/fault"
	"github.com/goccl/goccl/ccl/plan"
	"github.com/goccl/goccl/ccl/verify"
)

// edit returns a plan that differs in the program of one rank, with its loops unrolled.
func edit(p *plan.Plan, rank int, change func(*plan.Program)) *plan.Plan {
	q, old := *p, p.Program
	q.Program = func(r int) plan.Program {
		prog := old(r)
		if r == rank {
			prog = unrolled(prog)
			change(&prog)
		}
		return prog
	}
	return &q
}

// unrolled returns a program without loops that shares nothing with prog.
func unrolled(prog plan.Program) plan.Program {
	flat := prog.Flat()
	q := plan.Program{Tmp: slices.Clone(flat.Tmp), Win: slices.Clone(flat.Win)}
	for _, lane := range flat.Lanes {
		lane = slices.Clone(lane)
		for i := range lane {
			s := &lane[i]
			s.Src, s.From, s.After = slices.Clone(s.Src), slices.Clone(s.From), slices.Clone(s.After)
		}
		q.Lanes = append(q.Lanes, lane)
	}
	return q
}

func drop(lane, step int) func(*plan.Program) {
	return func(p *plan.Program) { p.Lanes[lane] = slices.Delete(p.Lanes[lane], step, step+1) }
}

func swap(lane, i, j int) func(*plan.Program) {
	return func(p *plan.Program) { p.Lanes[lane][i], p.Lanes[lane][j] = p.Lanes[lane][j], p.Lanes[lane][i] }
}

func change(lane, i int, f func(*plan.Step)) func(*plan.Program) {
	return func(p *plan.Program) { f(&p.Lanes[lane][i]) }
}

func add(lane int, s plan.Step) func(*plan.Program) {
	return func(p *plan.Program) { p.Lanes[lane] = append(p.Lanes[lane], s) }
}

func free(s *plan.Step) { s.After = nil }

func ref(b plan.Buffer, at int) plan.Ref { return plan.Ref{Buf: b, At: at, N: 1} }

func TestBrokenPlans(t *testing.T) {
	table := []struct {
		name      string
		coll      dtype.Collective
		algorithm string
		ranks     int
		rank      int
		change    func(*plan.Program)
		reason    verify.Reason
		inPlace   bool
		text      string // part of the counterexample
	}{
		{name: "a send is dropped", coll: dtype.AllGather, algorithm: "direct", ranks: 3, rank: 1, change: drop(0, 0),
			reason: verify.Unsent,
			text:   "rank 1 does not send the message of rank 2, lane 1, step 0 (recv out[1] from 1)"},
		{name: "a recv is dropped", coll: dtype.AllGather, algorithm: "direct", ranks: 3, rank: 1, change: drop(1, 1),
			reason: verify.Unreceived,
			text:   "rank 1 does not receive the message of rank 2, lane 0, step 1 (send in[0] to 1)"},
		{name: "a copy is dropped", coll: dtype.AllGather, algorithm: "direct", ranks: 3, rank: 2, change: drop(0, 2),
			reason: verify.Unwritten, text: "rank 2 ends without having written out[2]"},
		{name: "a message is left over", coll: dtype.Broadcast, algorithm: "binomial", ranks: 3, rank: 0,
			change: add(0, plan.Step{Kind: plan.Send, Src: []plan.Ref{ref(plan.In, 0)}, Peer: 1}),
			reason: verify.Unreceived, text: "rank 1 does not receive the message of rank 0"},
		{name: "recvs are swapped", coll: dtype.AllGather, algorithm: "ring", ranks: 4, rank: 1, change: swap(1, 0, 1),
			reason: verify.Length, text: "part 0 of block 0"},
		{name: "sends are swapped", coll: dtype.AllReduce, algorithm: "ring", ranks: 4, rank: 1, change: swap(0, 0, 1),
			reason: verify.Length},
		{name: "a send goes to another peer", coll: dtype.Broadcast, algorithm: "binomial", ranks: 4, rank: 0,
			change: change(0, 1, func(s *plan.Step) { s.Peer = 3 }), reason: verify.Unreceived},
		{name: "a recv takes from another peer", coll: dtype.Gather, algorithm: "linear", ranks: 3, rank: 0,
			change: change(0, 1, func(s *plan.Step) { s.Peer = 2 }), reason: verify.Length},
		{name: "blocks are exchanged", coll: dtype.Scatter, algorithm: "linear", ranks: 3, rank: 0,
			change: change(0, 0, func(s *plan.Step) { s.Src[0].At = 2 }), reason: verify.Length, text: "block 2"},
		{name: "a send does not wait for its data", coll: dtype.AllGather, algorithm: "ring", ranks: 3, rank: 0,
			change: change(0, 2, free), reason: verify.Race, text: "nothing orders the two"},
		{name: "a send does not wait for the sum", coll: dtype.AllReduce, algorithm: "ring", ranks: 3, rank: 0,
			change: change(0, 1, free), reason: verify.Race},
		{name: "in place, a sum does not wait for the sends", coll: dtype.AllReduce, algorithm: "direct", ranks: 3,
			rank: 0, change: change(1, 1, free), reason: verify.Race, inPlace: true},
		{name: "nothing is final", coll: dtype.AllReduce, algorithm: "ring", ranks: 3, rank: 1,
			change: change(1, 1, func(s *plan.Step) { s.Final = false }), reason: verify.PostScale,
			text: "no step has marked Final"},
		{name: "final too early", coll: dtype.AllReduce, algorithm: "ring", ranks: 3, rank: 1,
			change: change(1, 0, func(s *plan.Step) { s.Final = true }), reason: verify.PostScale,
			text: "before all contributions"},
		{name: "the only rank is not final", coll: dtype.AllReduce, algorithm: "direct", ranks: 1, rank: 0,
			change: change(0, 0, func(s *plan.Step) { s.Final = false }), reason: verify.PostScale},
		{name: "a contribution counts twice", coll: dtype.Reduce, algorithm: "binomial", ranks: 4, rank: 0,
			change: func(p *plan.Program) {
				p.Lanes[0][1].Final = false
				p.Lanes[0] = append(p.Lanes[0], plan.Step{Kind: plan.Reduce, Dst: ref(plan.Out, 0),
					Src: []plan.Ref{ref(plan.Out, 0), ref(plan.In, 0)}, Final: true})
			}, reason: verify.Twice, text: "in[0] of rank 0 is added to a sum that has it already"},
		{name: "In is written", coll: dtype.Reduce, algorithm: "binomial", ranks: 4, rank: 2,
			change: change(1, 0, func(s *plan.Step) { s.Dst.Buf = plan.In }), reason: verify.Malformed,
			text: "writes in"},
		{name: "Tmp is read before it is written", coll: dtype.ReduceScatter, algorithm: "direct", ranks: 4, rank: 3,
			change: change(1, 0, func(s *plan.Step) {
				s.Kind, s.Src = plan.RecvReduce, []plan.Ref{ref(plan.Tmp, 0)}
			}), reason: verify.Undefined, text: "reads tmp[0] before"},
		{name: "Tmp has another length", coll: dtype.ReduceScatter, algorithm: "ring", ranks: 4, rank: 3,
			change: func(p *plan.Program) { p.Tmp[0], p.Tmp[1] = p.Tmp[1], p.Tmp[0] }, reason: verify.Malformed,
			text: "may have different lengths"},
		{name: "a barrier lacks a round", coll: dtype.Barrier, algorithm: "dissemination", ranks: 4, rank: 0,
			change: change(0, 1, free), reason: verify.NotABarrier, text: "may leave before"},
	}
	for _, test := range table {
		t.Run(test.name, func(t *testing.T) {
			a, err := algo.Find(test.coll, test.algorithm)
			if err != nil {
				t.Fatal(err)
			}
			p, err := a.Make(plan.Spec{Coll: test.coll, Ranks: test.ranks})
			if err != nil {
				t.Fatal(err)
			}
			rejected(t, edit(p, test.rank, test.change), test.reason, test.inPlace, test.text)
		})
	}
}

// rejected expects a counterexample.
func rejected(t *testing.T, p *plan.Plan, reason verify.Reason, inPlace bool, text string) {
	t.Helper()
	_, err := verify.Plan(p, verify.Options{})
	var bad *verify.Counterexample
	if !errors.Is(err, fault.Invalid) || !errors.As(err, &bad) {
		t.Fatalf("got %v, want a counterexample", err)
	}
	if bad.Reason != reason || bad.InPlace != inPlace || !strings.Contains(err.Error(), text) || len(bad.At) == 0 {
		t.Errorf("got %v (in place: %v)\n%v\nwant %v (in place: %v) with %q",
			bad.Reason, bad.InPlace, err, reason, inPlace, text)
	}
	t.Log(err)
	minimal(t, []*plan.Plan{p}, true, bad)
}

// minimal expects that the steps of a counterexample show the failure, and no longer do when any of
// them is removed.
func minimal(t *testing.T, plans []*plan.Plan, credits bool, bad *verify.Counterexample) {
	t.Helper()
	if bad.Reason == verify.Malformed {
		return
	}
	if !bad.Minimal || !verify.Shows(plans, credits, bad, bad.Steps) {
		t.Fatalf("the steps (minimal: %v) do not show the failure: %v", bad.Minimal, bad)
	}
	for i := range bad.Steps {
		if less := slices.Delete(slices.Clone(bad.Steps), i, i+1); verify.Shows(plans, credits, bad, less) {
			t.Errorf("step %v is not needed", bad.Steps[i])
		}
	}
}

// write creates a plan from the programs of its ranks.
func write(s plan.Spec, progs ...plan.Program) *plan.Plan {
	return &plan.Plan{Name: "written", Spec: s, Split: 1, Chans: 2, Needs: plan.Messages,
		Program: func(r int) plan.Program {
			prog := progs[r]
			prog.Lanes = slices.Clone(prog.Lanes)
			return prog
		}}
}

func lanes(lanes ...[]plan.Step) plan.Program { return plan.Program{Lanes: lanes} }

func TestWrittenPlans(t *testing.T) {
	in, out := ref(plan.In, 0), ref(plan.Out, 0)
	send := func(src plan.Ref, to int) plan.Step {
		return plan.Step{Kind: plan.Send, Src: []plan.Ref{src}, Peer: to}
	}
	recv := func(dst plan.Ref, from int) plan.Step { return plan.Step{Kind: plan.Recv, Dst: dst, Peer: from} }
	final := func(dst, src plan.Ref, from int) plan.Step {
		return plan.Step{Kind: plan.RecvReduce, Dst: dst, Src: []plan.Ref{src}, Peer: from, Final: true}
	}
	copied := func(dst, src plan.Ref) plan.Step { return plan.Step{Kind: plan.Copy, Dst: dst, Src: []plan.Ref{src}} }
	two := func(c dtype.Collective) plan.Spec { return plan.Spec{Coll: c, Ranks: 2} }

	t.Run("both send first in one lane", func(t *testing.T) {
		p := write(two(dtype.AllReduce), lanes([]plan.Step{send(in, 1), final(out, in, 1)}),
			lanes([]plan.Step{send(in, 0), final(out, in, 0)}))
		rejected(t, p, verify.Deadlock, false,
			"rank 0, lane 0, step 0 (send in[0] to 1), which waits for rank 1, lane 0, step 0")
	})
	t.Run("steps come after each other", func(t *testing.T) {
		a, b := copied(out, in), copied(ref(plan.Tmp, 0), in)
		a.After, b.After = []plan.Point{{Lane: 1, Step: 0}}, []plan.Point{{Lane: 0, Step: 0}}
		p := write(plan.Spec{Coll: dtype.Broadcast, Ranks: 1},
			plan.Program{Tmp: []plan.Extent{{}}, Lanes: [][]plan.Step{{a}, {b}}})
		rejected(t, p, verify.Deadlock, false, "which waits for the first")
	})
	t.Run("two lanes send on one channel", func(t *testing.T) {
		p := write(two(dtype.Barrier), lanes([]plan.Step{send(plan.Ref{}, 1)}, []plan.Step{send(plan.Ref{}, 1)}),
			lanes([]plan.Step{recv(plan.Ref{Buf: plan.Out}, 0), recv(plan.Ref{Buf: plan.Out}, 0)}))
		rejected(t, p, verify.Unordered, false, "sent by")
	})
	t.Run("two lanes receive on one channel", func(t *testing.T) {
		p := write(two(dtype.Barrier), lanes([]plan.Step{send(plan.Ref{}, 1), send(plan.Ref{}, 1)}),
			lanes([]plan.Step{recv(plan.Ref{Buf: plan.Out}, 0)}, []plan.Step{recv(plan.Ref{Buf: plan.Out}, 0)}))
		rejected(t, p, verify.Unordered, false, "received by")
	})
	t.Run("only one way is no barrier", func(t *testing.T) {
		p := write(two(dtype.Barrier), lanes([]plan.Step{send(plan.Ref{}, 1)}),
			lanes([]plan.Step{recv(plan.Ref{Buf: plan.Out}, 0)}))
		rejected(t, p, verify.NotABarrier, false, "rank 0 may leave before rank 1 has come")
	})
	t.Run("in place, the peer's block is overwritten before it is sent", func(t *testing.T) {
		one := func(me int) plan.Program {
			you := 1 - me
			s := send(ref(plan.In, you), you)
			first, second := s, recv(ref(plan.Out, you), you)
			if me == 1 {
				first, second = second, first
			}
			return lanes([]plan.Step{first, second, copied(ref(plan.Out, me), ref(plan.In, me))})
		}
		p := write(two(dtype.AllToAll), one(0), one(1))
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			t.Fatal(err)
		}
		p.Alias = plan.InPlace
		rejected(t, p, verify.Overwritten, true, "rank 1, lane 0, step 1 (send in[0] to 0) reads in[0] after")
	})
	t.Run("in place, a step reads and writes the same memory askew", func(t *testing.T) {
		p := write(plan.Spec{Coll: dtype.AllGather, Ranks: 1},
			lanes([]plan.Step{{Kind: plan.Copy, Dst: plan.Ref{Buf: plan.Out, N: 2},
				Src: []plan.Ref{{Buf: plan.In, N: 2}}}}))
		p.Split, p.Alias = 2, plan.InPlace
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			t.Fatal(err) // not shifted: right
		}
		q := write(plan.Spec{Coll: dtype.AllToAll, Ranks: 1},
			lanes([]plan.Step{
				{Kind: plan.Copy, Dst: plan.Ref{Buf: plan.Out, At: 1, N: 2}, Src: []plan.Ref{{Buf: plan.In, N: 2}}},
			}))
		q.Split, q.Alias = 4, plan.InPlace
		rejected(t, q, verify.Malformed, false, "different lengths") // parts of a block may have different lengths
	})
	t.Run("sound plans written by hand", func(t *testing.T) {
		p := write(two(dtype.AllGather),
			lanes([]plan.Step{copied(out, in), send(in, 1), recv(ref(plan.Out, 1), 1)}),
			lanes([]plan.Step{recv(out, 0), send(in, 0), copied(ref(plan.Out, 1), in)}))
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			t.Fatal(err)
		}
		q := write(two(dtype.Broadcast), lanes([]plan.Step{copied(out, in), send(out, 1)}),
			lanes([]plan.Step{recv(out, 0)}))
		if _, err := verify.Plan(q, verify.Options{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a sum lacks a rank", func(t *testing.T) {
		p := write(plan.Spec{Coll: dtype.Reduce, Ranks: 3}, lanes([]plan.Step{
			{Kind: plan.RecvReduce, Dst: out, Src: []plan.Ref{in}, Peer: 1}}), lanes([]plan.Step{send(in, 0)}), lanes())
		rejected(t, p, verify.Missing, false, "lacks in[0] of rank 2")
	})
	t.Run("a sum of unlike chunks", func(t *testing.T) {
		p := write(two(dtype.AllReduce),
			lanes([]plan.Step{send(ref(plan.In, 1), 1)}),
			lanes([]plan.Step{{Kind: plan.RecvReduce, Dst: out, Src: []plan.Ref{in}, Peer: 0}}))
		p.Split = 2
		rejected(t, p, verify.Length, false, "part 1 of block 0")
	})
	t.Run("final and then more", func(t *testing.T) {
		p := write(two(dtype.Reduce), lanes([]plan.Step{copied(out, in), final(out, out, 1)}),
			lanes([]plan.Step{send(in, 0)}))
		if _, err := verify.Plan(p, verify.Options{}); err != nil {
			t.Fatal(err)
		}
		first := copied(out, in)
		first.Final = true
		q := write(two(dtype.Reduce), lanes([]plan.Step{first, final(out, out, 1)}), lanes([]plan.Step{send(in, 0)}))
		rejected(t, q, verify.PostScale, false, "before all contributions are in it")
	})
	t.Run("divided twice", func(t *testing.T) {
		again := copied(out, ref(plan.Tmp, 0))
		again.Final = true
		p := write(two(dtype.Reduce), plan.Program{Tmp: []plan.Extent{{}},
			Lanes: [][]plan.Step{{final(ref(plan.Tmp, 0), in, 1), again}}}, lanes([]plan.Step{send(in, 0)}))
		rejected(t, p, verify.PostScale, false, "for the second time")
	})
	t.Run("too large for the limit", func(t *testing.T) {
		a, _ := algo.Find(dtype.AllReduce, "ring")
		p, _ := a.Make(plan.Spec{Coll: dtype.AllReduce, Ranks: 8})
		if _, err := verify.Plan(p, verify.Options{Work: 1000}); !errors.Is(err, fault.NotSupported) {
			t.Errorf("got %v, want not supported", err)
		}
	})
}
